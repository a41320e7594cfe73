"""`--freeze-threads`: what Pythons of a rank do of it, with a torch made of a few lines and with a real one.

Pythons are started with and without the folder in PYTHONPATH; there must be no other difference.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.conftest import OMPBIND, clean_environment, python_with_torch

FOLDER = str(Path(__file__).parents[2] / "ompbind" / "shims")

TORCH = {
    "torch/__init__.py": "from torch._C import *\n",
    "torch/_C.py": '''
_COUNTS = {"intra": 2, "inter": 3}
__all__ = ["set_num_threads", "get_num_threads", "set_num_interop_threads", "get_num_interop_threads"]
def set_num_threads(count):
    """Sets the number of threads."""
    if type(count) is not int: raise RuntimeError("expects an int")
    if count < 1: raise RuntimeError("expects a positive integer")
    _COUNTS["intra"] = count
def set_num_interop_threads(count): _COUNTS["inter"] = count
def get_num_threads(): return _COUNTS["intra"]
def get_num_interop_threads(): return _COUNTS["inter"]
for _name in __all__: globals()[_name].__module__ = "torch"
''',
    "torch/loader.py": "import torch\ndef work():\n    torch.set_num_threads(1)\n",
}

SITE = """
import sys
sys.path.append("/added")
seen = (list(sys.path), __file__, __name__)
"""
"""An ordinary sitecustomize."""


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


@pytest.fixture
def site(tmp_path):
    """A folder of PYTHONPATH with torch in it."""
    return write(tmp_path / "site", TORCH)


def python(*args, path=(), frozen=True, env=None):
    """Run a Python with folders in PYTHONPATH."""
    folders = [FOLDER, *path] if frozen else list(path)
    base = {**clean_environment(), **({"PYTHONPATH": ":".join(folders)} if folders else {}), **(env or {})}
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, env=base, timeout=60)


IN_A_THREAD = """
import threading
def work():
    import torch
    torch.set_num_threads(8)
threads = [threading.Thread(target=work) for _ in range(4)]
[one.start() for one in threads]; [one.join() for one in threads]
"""
LAZY = """
import importlib.util, sys
spec = importlib.util.find_spec("torch")
spec.loader = importlib.util.LazyLoader(spec.loader)
torch = importlib.util.module_from_spec(spec)
sys.modules["torch"] = torch
spec.loader.exec_module(torch)
torch.set_num_threads(8)
"""


@pytest.mark.parametrize(
    ("code", "who"),
    [
        ("import torch; torch.set_num_threads(8)", "<module> in <string>, line 1"),
        ("from torch import set_num_threads\ndef f(): set_num_threads(8)\nf(); f()", "f in <string>, line 2"),
        ("from torch import *; set_num_threads(8)", "<module> in"),
        ("import torch.loader; torch.set_num_threads(8)", "<module> in"),
        ("import torch; torch._C.set_num_threads(8)", "<module> in"),
        ("import importlib; importlib.import_module('torch').set_num_threads(8)", "<module> in"),
        ("import torch, importlib; importlib.reload(torch).set_num_threads(8)", "<module> in"),
        (
            "import torch, sys; del sys.modules['torch']; import torch; torch.set_num_threads(8)",
            "<module> in",
        ),
        (IN_A_THREAD, "work in <string>, line 5"),
        (LAZY, "<module> in"),
    ],
)
def test_a_change_of_threads_is_a_warning_and_nothing_else(site, code, who):
    done = python("-c", code + "\nimport torch; print(torch.get_num_threads())", path=[site])
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    first, second = done.stderr.splitlines()
    assert first == "ompbind: warning: torch.set_num_threads(8) changes nothing: 2 stays"
    assert second.startswith(f"  {who}")
    assert second.endswith("(--freeze-threads)")
    done = python("-c", code + "\nimport torch; print(torch.get_num_threads())", path=[site], frozen=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "8\n", "")


def test_each_function_is_told_of_once_in_each_process(site):
    code = """
import os, subprocess, sys, torch
for count in (8, 9):
    torch.set_num_threads(count); torch.set_num_interop_threads(count)
sys.stderr.flush()
if os.fork() == 0:
    torch.set_num_threads(7); torch.set_num_threads(7)
    os._exit(0)
os.wait()
subprocess.run([sys.executable, "-c", "import torch; torch.set_num_threads(6)"])
"""
    done = python("-c", code, path=[site], env={"OMPBIND_RANK": "5"})
    asked = [line.split()[2] for line in done.stderr.splitlines() if line.startswith("ompbind")]
    assert asked == [
        "torch.set_num_threads(8)",
        "torch.set_num_interop_threads(8)",
        "torch.set_num_threads(7)",
        "torch.set_num_threads(6)",
    ]
    assert done.stderr.count("\n  rank 5, <module> in <string>, line") == 4


def test_what_changes_nothing_anyway_is_not_told(site):
    done = python("-c", "import torch; torch.set_num_threads(2)", path=[site])
    assert (done.returncode, done.stderr) == (0, "")


def test_nobody_has_to_read_the_warning(site):
    code = "import sys, torch\nsys.stderr = {}\ntorch.set_num_threads(8); print(torch.get_num_threads())"
    for stream in ("None", "open('/dev/full', 'w')", "type('Closed', (), {})()"):
        assert python("-c", code.format(stream), path=[site]).stdout == "2\n"


@pytest.mark.parametrize("before", ["", "import importlib, torch; importlib.reload(torch); "])
def test_calls_of_torch_itself_go_through(site, before):
    code = f"{before}import torch.loader as loader; loader.work(); print(loader.torch.get_num_threads())"
    done = python("-c", code, path=[site])
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.parametrize("args", ["", "'2'", "True", "0", "-1", "1.5", "1, 2", "number=2", "None"])
def test_what_torch_refuses_it_refuses_itself(site, args):
    code = f"""
import torch
try: torch.set_num_threads({args})
except Exception as error: print(type(error), error)
"""
    done, plain = (python("-c", code, path=[site], frozen=frozen) for frozen in (True, False))
    assert done.stdout == plain.stdout != ""
    assert done.stderr == plain.stderr == ""


def test_functions_are_what_they_were_for_whoever_looks(site):
    code = """
import inspect, pickle, torch
for one in (torch.set_num_threads, torch.set_num_interop_threads):
    assert pickle.loads(pickle.dumps(one)) is one
    assert getattr(torch._C, one.__name__) is one
    print(one.__name__, one.__qualname__, one.__module__, one.__doc__, inspect.signature(one))
print(type(torch.__loader__), vars(torch.__loader__), torch.__loader__ is torch.__spec__.loader)
"""
    assert python("-c", code, path=[site]).stdout == python("-c", code, path=[site], frozen=False).stdout


LOOK = """
import os, sys
print(sys.path, sorted(sys.path_importer_cache))
print(sorted(set(sys.modules)))
print(getattr(sys.modules.get("sitecustomize"), "seen", None))
print(getattr(sys.modules.get("usercustomize"), "seen", None))
try:
    import sitecustomize
    print(sitecustomize.__file__, sitecustomize.__spec__.origin)
except Exception as error:
    print(repr(error))
"""


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"sitecustomize.py": SITE},
        {"sitecustomize/__init__.py": SITE},
        {"usercustomize.py": SITE},
        {"sitecustomize.py": SITE, "usercustomize.py": SITE},
        {"sitecustomize.py": "raise ValueError('broken')", "usercustomize.py": SITE},
        {"sitecustomize.py": "import nosuch_module", "usercustomize.py": SITE},
        {"sitecustomize.py": "raise ImportError('for a reason', name='sitecustomize')"},
        {"sitecustomize.py": "this is no Python"},
        {"sitecustomize.py": "import sys; sys.modules[__name__] = type(sys)('other')"},
        {"sitecustomize.py": "import sitecustomize; seen = sitecustomize.__name__"},
    ],
    ids=lambda files: "+".join(files) or "none",
)
@pytest.mark.parametrize("flags", [[], ["-s"], ["-B"]], ids=lambda flags: "".join(flags) or "plain")
def test_customizing_goes_on_as_without_it(tmp_path, files, flags):
    path = write(tmp_path / "site", files) if files else str(tmp_path)
    done, plain = (python(*flags, "-c", LOOK, path=[path], frozen=frozen) for frozen in (True, False))
    assert (done.stdout, done.stderr, done.returncode) == (plain.stdout, plain.stderr, plain.returncode)
    assert done.stdout


def test_whoever_exits_while_customizing_exits(tmp_path):
    path = write(tmp_path / "site", {"sitecustomize.py": "raise SystemExit(7)"})
    codes = [python("-c", "", path=[path], frozen=frozen).returncode for frozen in (True, False)]
    assert codes[0] == codes[1] != 0


def test_torch_may_be_there_before_the_program(site):
    code = "import torch; torch.set_num_threads(8); print(torch.get_num_threads())"
    write(Path(site), {"sitecustomize.py": "import torch\nassert torch.get_num_threads() == 2"})
    done = python("-c", code, path=[site])
    assert (done.stdout, done.stderr.count("changes nothing")) == ("2\n", 1)


def test_torch_may_be_there_before_customizing(site):
    """As where a .pth file imports it."""
    code = f"""
import sys
sys.path[:0] = {[FOLDER, site]!r}
import torch, site
site.main()
torch.set_num_threads(8); print(torch.get_num_threads())
"""
    done = python("-S", "-c", code, frozen=False)
    assert (done.stdout, done.stderr.count("changes nothing")) == ("2\n", 1)


SHARED_LOADER = """
import importlib.util, sys
from importlib.machinery import PathFinder
class Loader:
    def create_module(self, spec): return None
    def exec_module(self, module):
        exec(open(module.__spec__.origin).read(), vars(module))
class Finder:
    loader = Loader()
    def find_spec(self, name, path=None, target=None):
        spec = PathFinder.find_spec(name, path, target)
        if spec and name.startswith("torch"):
            spec.loader = self.loader
        return spec
sys.meta_path[1:] = [Finder(), *sys.meta_path[1:]]
for _ in range(2000):
    importlib.util.find_spec("torch")
import torchlight
torchlight.set_num_threads(8)
import torch
torch.set_num_threads(8)
print(torchlight.get_num_threads(), torch.get_num_threads(), vars(Finder.loader))
"""


def test_a_loader_of_several_modules_freezes_torch_alone(site):
    write(Path(site), {"torchlight.py": TORCH["torch/_C.py"]})
    done = python("-c", SHARED_LOADER, path=[site])
    assert (done.stdout, done.stderr.count("changes nothing")) == ("8 2 {}\n", 1), done.stderr


def test_two_installations_tell_once(site, tmp_path):
    text = (Path(FOLDER) / "sitecustomize.py").read_text()
    other = write(tmp_path / "other", {"sitecustomize.py": text})
    code = """
import sys, torch.loader
torch.set_num_threads(8); print(torch.get_num_threads(), sys.path[1])
torch.loader.work(); print(torch.get_num_threads())
"""
    done = python("-c", code, path=[other, site])
    assert (done.stdout, done.stderr.count("changes nothing")) == (f"2 {site}\n1\n", 1)


@pytest.mark.parametrize(
    "code",
    [
        "import torch",
        "assert look('torch') is None; import torch",
        "sys.meta_path[:] = sys.meta_path[-1:]; import torch",
    ],
)
def test_a_missing_torch_is_missing(code):
    code = "import sys; from importlib.util import find_spec as look; sys.path.clear()\n" + code
    done, plain = (python("-c", code, frozen=frozen) for frozen in (True, False))
    assert done.stderr == plain.stderr
    assert "No module named 'torch'" in done.stderr


def test_a_module_that_is_not_torch_is_left_alone(tmp_path):
    path = write(tmp_path / "site", {"torch.py": "light = 'on'", "torchlight.py": TORCH["torch/_C.py"]})
    code = "import torch, torchlight as t; t.set_num_threads(8); print(torch.light, t.get_num_threads())"
    assert python("-c", code, path=[path]).stdout == "on 8\n"


@pytest.mark.parametrize(("flag", "says"), [("-I", "no"), ("-E", "no"), ("-S", "no"), ("-s", "yes")])
def test_isolated_pythons_do_not_hear_of_it(site, flag, says):
    code = f"import sys; sys.path.insert(0, {site!r}); import torch; torch.set_num_threads(8)"
    done = python(flag, "-c", code)
    assert ("changes nothing" in done.stderr) == (says == "yes"), done.stderr


@pytest.mark.parametrize(
    ("given", "before", "seen"),
    [
        ([], None, []),
        ([], "/a:/b", ["/a", "/b"]),
        (["--env", "PYTHONPATH=/c{rank}"], "/a", ["/c0"]),
        ([], f"/a:{FOLDER}", ["/a"]),
        ([], "", []),
    ],
)
@pytest.mark.parametrize("verb", ["run", "exec"])
def test_ranks_find_the_folder_before_theirs(ompbind, verb, given, before, seen):
    env = {} if before is None else {"PYTHONPATH": before}
    args = [verb, *given, "--freeze-threads", "--", "sh", "-c", 'echo "$PYTHONPATH"']
    done = ompbind(*args, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, ":".join([FOLDER, *seen]) + "\n", "")


def test_a_rank_and_what_it_starts_are_frozen(ompbind, site):
    code = "import torch; torch.set_num_threads(8); print(torch.get_num_threads())"
    both = f'"{sys.executable}" -c "{code}"; env -u OMPBIND_RANK "{sys.executable}" -c "{code}"'
    done = ompbind("run", "--freeze-threads", "--", "sh", "-c", both, env={"PYTHONPATH": site})
    assert done.stdout == "2\n2\n"
    assert [line for line in done.stderr.splitlines() if line.startswith("  ")] == [
        "  rank 0, <module> in <string>, line 1 (--freeze-threads)",
        "  <module> in <string>, line 1 (--freeze-threads)",
    ]


def test_a_command_that_is_not_python_does_not_notice(ompbind):
    done = ompbind("run", "-n", "2", "--freeze-threads", "--", "true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_folder_that_no_list_of_folders_can_name_is_refused(tmp_path):
    parent = tmp_path / "a:b"
    parent.mkdir()
    (parent / "ompbind").symlink_to(Path(FOLDER).parent)
    code = f"import sys; sys.path.insert(0, {str(parent)!r}); from ompbind.__main__ import start; start()"
    args = [sys.executable, "-c", code, "run", "--freeze-threads", "--", "true"]
    done = subprocess.run(args, capture_output=True, text=True, env=clean_environment(), timeout=60)
    assert done.returncode == 125
    assert "PYTHONPATH cannot name" in done.stderr


WORKERS = """
import pickle, sys, torch
from torch.utils.data import DataLoader, Dataset

class Counts(Dataset):
    def __len__(self): return 2
    def __getitem__(self, index): return torch.get_num_threads()

def begin(number): torch.set_num_threads(5)

if __name__ == "__main__":
    torch.set_num_threads(8); torch.set_num_interop_threads(8)
    assert torch.get_num_threads() == 2, torch.get_num_threads()
    assert pickle.loads(pickle.dumps(torch.set_num_threads)) is torch.set_num_threads
    assert torch.set_num_threads in torch.overrides.get_ignored_functions()
    assert "set_num_threads(int)" in torch.set_num_threads.__doc__
    for how in ("fork", "spawn"):
        loader = DataLoader(Counts(), num_workers=1, multiprocessing_context=how, worker_init_fn=begin)
        print(how, [int(count) for one in loader for count in one])
    if hasattr(torch, "compile") and sys.version_info < (3, 14):
        def double(x):
            torch.set_num_threads(9)
            return x * 2
        try: done = torch.compile(double, backend="eager")(torch.ones(1))
        except RuntimeError as error: assert "not supported" in str(error), error
    print(torch.get_num_threads())
"""


def test_real_torch_keeps_its_threads_and_one_for_each_worker(tmp_path):
    program = Path(write(tmp_path, {"program.py": WORKERS})) / "program.py"
    args = [
        OMPBIND,
        "run",
        "--share",
        "--freeze-threads",
        "-m",
        "0",
        "-t",
        "2",
        "--",
        python_with_torch(),
        program,
    ]
    done = subprocess.run(args, capture_output=True, text=True, env=clean_environment(), timeout=300)
    assert (done.returncode, done.stdout) == (0, "fork [1, 1]\nspawn [1, 1]\n2\n"), done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("ompbind: warning: torch")]
    assert told == [
        "ompbind: warning: torch.set_num_threads(8) changes nothing: 2 stays",
        told[1],
        "ompbind: warning: torch.set_num_threads(5) changes nothing: 1 stays",
        "ompbind: warning: torch.set_num_threads(5) changes nothing: 1 stays",
    ]
    assert "set_num_interop_threads(8)" in told[1]
