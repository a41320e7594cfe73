"""`--freeze-threads` in the Pythons of a rank, with a torch of a few lines and with the real torch.

Pythons are started with and without the directory of the shim in PYTHONPATH; nothing else may differ.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.conftest import OMPBIND, clean_environment, python_with_torch

SHIMS = str(Path(__file__).parents[2] / "ompbind" / "shims")

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


def write(directory, files):
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(directory)


@pytest.fixture
def site(tmp_path):
    """A directory for PYTHONPATH that contains torch."""
    return write(tmp_path / "site", TORCH)


def python(*args, path=(), frozen=True, env=None):
    """Run a Python with directories in PYTHONPATH."""
    directories = [SHIMS, *path] if frozen else list(path)
    base = {
        **clean_environment(),
        **({"PYTHONPATH": ":".join(directories)} if directories else {}),
        **(env or {}),
    }
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, env=base, timeout=60)


IN_A_THREAD = """
import threading
def work():
    import torch
    torch.set_num_threads(8)
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
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
def test_a_change_of_the_thread_count_is_only_a_warning(site, code, who):
    done = python("-c", code + "\nimport torch; print(torch.get_num_threads())", path=[site])
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    first, second = done.stderr.splitlines()
    assert first == "ompbind: warning: torch.set_num_threads(8) is ignored: thread count stays 2"
    assert second.startswith(f"  {who}")
    assert second.endswith("(--freeze-threads)")
    done = python("-c", code + "\nimport torch; print(torch.get_num_threads())", path=[site], frozen=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "8\n", "")


def test_each_function_is_warned_of_once_per_process(site):
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


def test_setting_the_same_number_is_no_warning(site):
    done = python("-c", "import torch; torch.set_num_threads(2)", path=[site])
    assert (done.returncode, done.stderr) == (0, "")


def test_standard_error_may_be_unusable(site):
    code = "import sys, torch\nsys.stderr = {}\ntorch.set_num_threads(8); print(torch.get_num_threads())"
    for stream in ("None", "open('/dev/full', 'w')", "type('Closed', (), {})()"):
        assert python("-c", code.format(stream), path=[site]).stdout == "2\n"


@pytest.mark.parametrize("before", ["", "import importlib, torch; importlib.reload(torch); "])
def test_calls_by_torch_itself_have_their_effect(site, before):
    code = f"{before}import torch.loader as loader; loader.work(); print(loader.torch.get_num_threads())"
    done = python("-c", code, path=[site])
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.parametrize("args", ["", "'2'", "True", "0", "-1", "1.5", "1, 2", "number=2", "None"])
def test_torch_rejects_wrong_arguments_as_before(site, args):
    code = f"""
import torch
try: torch.set_num_threads({args})
except Exception as error: print(type(error), error)
"""
    done, plain = (python("-c", code, path=[site], frozen=frozen) for frozen in (True, False))
    assert done.stdout == plain.stdout != ""
    assert done.stderr == plain.stderr == ""


def test_functions_look_as_before(site):
    code = """
import inspect, pickle, torch
for f in (torch.set_num_threads, torch.set_num_interop_threads):
    assert pickle.loads(pickle.dumps(f)) is f
    assert getattr(torch._C, f.__name__) is f
    print(f.__name__, f.__qualname__, f.__module__, f.__doc__, inspect.signature(f))
print(type(torch.__loader__), vars(torch.__loader__), torch.__loader__ is torch.__spec__.loader)
"""
    assert python("-c", code, path=[site]).stdout == python("-c", code, path=[site], frozen=False).stdout


SHOW_MODULES = """
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
def test_other_customizing_modules_run_as_without_it(tmp_path, files, flags):
    path = write(tmp_path / "site", files) if files else str(tmp_path)
    done, plain = (python(*flags, "-c", SHOW_MODULES, path=[path], frozen=frozen) for frozen in (True, False))
    assert (done.stdout, done.stderr, done.returncode) == (plain.stdout, plain.stderr, plain.returncode)
    assert done.stdout


def test_a_customizing_module_may_exit(tmp_path):
    path = write(tmp_path / "site", {"sitecustomize.py": "raise SystemExit(7)"})
    codes = [python("-c", "", path=[path], frozen=frozen).returncode for frozen in (True, False)]
    assert codes[0] == codes[1] != 0


def test_sitecustomize_may_import_torch(site):
    code = "import torch; torch.set_num_threads(8); print(torch.get_num_threads())"
    write(Path(site), {"sitecustomize.py": "import torch\nassert torch.get_num_threads() == 2"})
    done = python("-c", code, path=[site])
    assert (done.stdout, done.stderr.count("is ignored")) == ("2\n", 1)


def test_torch_may_be_imported_before_sitecustomize(site):
    """As a .pth file can do."""
    code = f"""
import sys
sys.path[:0] = {[SHIMS, site]!r}
import torch, site
site.main()
torch.set_num_threads(8); print(torch.get_num_threads())
"""
    done = python("-S", "-c", code, frozen=False)
    assert (done.stdout, done.stderr.count("is ignored")) == ("2\n", 1)


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
    assert (done.stdout, done.stderr.count("is ignored")) == ("8 2 {}\n", 1), done.stderr


def test_two_installations_warn_once(site, tmp_path):
    text = (Path(SHIMS) / "sitecustomize.py").read_text()
    other = write(tmp_path / "other", {"sitecustomize.py": text})
    code = """
import sys, torch.loader
torch.set_num_threads(8); print(torch.get_num_threads(), sys.path[1])
torch.loader.work(); print(torch.get_num_threads())
"""
    done = python("-c", code, path=[other, site])
    assert (done.stdout, done.stderr.count("is ignored")) == (f"2 {site}\n1\n", 1)


@pytest.mark.parametrize(
    "code",
    [
        "import torch",
        "assert look('torch') is None; import torch",
        "sys.meta_path[:] = sys.meta_path[-1:]; import torch",
    ],
)
def test_a_missing_torch_is_the_usual_error(code):
    code = "import sys; from importlib.util import find_spec as look; sys.path.clear()\n" + code
    done, plain = (python("-c", code, frozen=frozen) for frozen in (True, False))
    assert done.stderr == plain.stderr
    assert "No module named 'torch'" in done.stderr


def test_other_modules_are_not_changed(tmp_path):
    path = write(tmp_path / "site", {"torch.py": "light = 'on'", "torchlight.py": TORCH["torch/_C.py"]})
    code = "import torch, torchlight as t; t.set_num_threads(8); print(torch.light, t.get_num_threads())"
    assert python("-c", code, path=[path]).stdout == "on 8\n"


@pytest.mark.parametrize(("flag", "is_warned"), [("-I", False), ("-E", False), ("-S", False), ("-s", True)])
def test_isolated_pythons_are_not_frozen(site, flag, is_warned):
    code = f"import sys; sys.path.insert(0, {site!r}); import torch; torch.set_num_threads(8)"
    done = python(flag, "-c", code)
    assert ("is ignored" in done.stderr) == is_warned, done.stderr


@pytest.mark.parametrize(
    ("given", "before", "seen"),
    [
        ([], None, []),
        ([], "/a:/b", ["/a", "/b"]),
        (["--env", "PYTHONPATH=/c{rank}"], "/a", ["/c0"]),
        ([], f"/a:{SHIMS}", ["/a"]),
        ([], "", []),
    ],
)
@pytest.mark.parametrize("verb", ["run", "exec"])
def test_the_directory_is_first_in_pythonpath_of_ranks(ompbind, verb, given, before, seen):
    env = {} if before is None else {"PYTHONPATH": before}
    args = [verb, *given, "--freeze-threads", "--", "sh", "-c", 'echo "$PYTHONPATH"']
    done = ompbind(*args, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, ":".join([SHIMS, *seen]) + "\n", "")


def test_a_rank_and_its_children_are_frozen(ompbind, site):
    code = "import torch; torch.set_num_threads(8); print(torch.get_num_threads())"
    both = f'"{sys.executable}" -c "{code}"; env -u OMPBIND_RANK "{sys.executable}" -c "{code}"'
    done = ompbind("run", "--freeze-threads", "--", "sh", "-c", both, env={"PYTHONPATH": site})
    assert done.stdout == "2\n2\n"
    assert [line for line in done.stderr.splitlines() if line.startswith("  ")] == [
        "  rank 0, <module> in <string>, line 1 (--freeze-threads)",
        "  <module> in <string>, line 1 (--freeze-threads)",
    ]


def test_other_commands_are_not_affected(ompbind):
    done = ompbind("run", "-n", "2", "--freeze-threads", "--", "true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_directory_with_a_colon_is_an_error(tmp_path):
    parent = tmp_path / "a:b"
    parent.mkdir()
    (parent / "ompbind").symlink_to(Path(SHIMS).parent)
    code = f"import sys; sys.path.insert(0, {str(parent)!r}); from ompbind.__main__ import start; start()"
    args = [sys.executable, "-c", code, "run", "--freeze-threads", "--", "true"]
    done = subprocess.run(args, capture_output=True, text=True, env=clean_environment(), timeout=60)
    assert done.returncode == 125
    assert "PYTHONPATH cannot contain" in done.stderr


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
        print(how, [int(count) for batch in loader for count in batch])
    if hasattr(torch, "compile") and sys.version_info < (3, 14):
        def double(x):
            torch.set_num_threads(9)
            return x * 2
        try: done = torch.compile(double, backend="eager")(torch.ones(1))
        except RuntimeError as error: assert "not supported" in str(error), error
    print(torch.get_num_threads())
"""


@pytest.mark.part("torch")
def test_real_torch_keeps_its_threads_and_workers_have_one(tmp_path):
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
    warnings = [line for line in done.stderr.splitlines() if line.startswith("ompbind: warning: torch")]
    assert warnings == [
        "ompbind: warning: torch.set_num_threads(8) is ignored: thread count stays 2",
        warnings[1],
        "ompbind: warning: torch.set_num_threads(5) is ignored: thread count stays 1",
        "ompbind: warning: torch.set_num_threads(5) is ignored: thread count stays 1",
    ]
    assert "set_num_interop_threads(8)" in warnings[1]


LOAD = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("sitecustomize", sys.argv[1])
module = sys.modules["sitecustomize"] = module_from_spec(spec)
sys.path.clear()
try:
    spec.loader.exec_module(module)
except ImportError as error:
    print(error.name, sys.modules["sitecustomize"] is module, type(sys.meta_path[0]).__name__)
"""


def test_loaders_of_old_pythons_find_the_module_after_its_error():
    """zipimport of Python 3.8 deletes a module that has raised an error, and fails if it is not there."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", LOAD, f"{SHIMS}/sitecustomize.py"], capture_output=True, text=True
    )
    assert done.stdout == "sitecustomize True TorchFinder\n", done.stderr
