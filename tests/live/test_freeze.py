"""`--freeze-threads` in the Pythons of a rank, with a torch of a few lines and with the real torch.

Pythons are started with and without the directory of the shim in PYTHONPATH; nothing else may differ.
"""

import re
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


def write(directory, files):
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(directory)


@pytest.fixture
def site(tmp_path):
    return write(tmp_path / "site", TORCH)


def python(*args, path=(), frozen=True, env=None):
    base = {**clean_environment(**(env or {})), "PYTHONPATH": ":".join([SHIMS, *path] if frozen else path)}
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, env=base, timeout=60)


def both(*args, **options):
    """Return the output, the errors and the exit code of a Python with and without the shim."""
    for frozen in (True, False):
        done = python(*args, frozen=frozen, **options)
        yield done.stdout, done.stderr, done.returncode


@pytest.mark.parametrize(("code", "who"), [
    ("from torch import set_num_threads\ndef f(): set_num_threads(8)\nf(); f()", "f in <string>, line 2"),
    ("import torch.loader; torch._C.set_num_threads(8)", "<module> in"),
    ("import torch, importlib; importlib.reload(torch).set_num_threads(8)", "<module> in"),
], ids=["function", "inner", "reload"])  # fmt: skip
def test_a_change_of_the_thread_count_is_only_a_warning(site, code, who):
    code += "\nimport torch; torch.set_num_threads(torch.get_num_threads()); print(torch.get_num_threads())"
    (output, errors, code), plain = both("-c", code, path=[site])
    assert (output, code, plain) == ("2\n", 0, ("8\n", "", 0)), errors
    first, second = errors.splitlines()
    assert first == "ompbind: warning: torch.set_num_threads(8) is ignored: thread count stays 2"
    assert second.startswith(f"  {who}")


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
    calls = ("set_num_threads(8)", "set_num_interop_threads(8)", "set_num_threads(7)", "set_num_threads(6)")
    assert asked == [f"torch.{call}" for call in calls]
    assert done.stderr.count("\n  rank 5, <module> in <string>, line") == 4


@pytest.mark.parametrize("before", ["", "import importlib, torch; importlib.reload(torch); "])
def test_calls_by_torch_itself_have_their_effect(site, before):
    code = f"{before}import torch.loader as loader; loader.work(); print(loader.torch.get_num_threads())"
    done = python("-c", code, path=[site])
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_torch_rejects_wrong_arguments_and_functions_look_as_before(site):
    code = """
import inspect, pickle, torch
for args in ((), ("2",), (0,), (1, 2)):
    try: torch.set_num_threads(*args)
    except Exception as error: print(type(error), error)
for f in (torch.set_num_threads, torch.set_num_interop_threads):
    print(pickle.loads(pickle.dumps(f)) is f, f.__qualname__, f.__module__, f.__doc__, inspect.signature(f))
"""
    done, plain = both("-c", code, path=[site])
    assert (done, done[0].count("Error"), done[1:]) == (plain, 4, ("", 0))


SITE = 'import sys\nsys.path.append("/added")\nseen = (list(sys.path), __file__, __name__)\n'
"""An ordinary sitecustomize."""

SHOW_MODULES = """
import sys
print(sys.path, sorted(sys.path_importer_cache), sorted(set(sys.modules)))
for name in ("sitecustomize", "usercustomize"):
    print(getattr(sys.modules.get(name), "seen", None), getattr(sys.modules.get(name), "__file__", None))
"""


@pytest.mark.parametrize("text", [
    "", SITE, "raise ValueError('broken')", "raise ImportError('for a reason', name='sitecustomize')",
    "this is no Python", "raise SystemExit(7)", "import sys; sys.modules[__name__] = type(sys)('other')",
])  # fmt: skip
def test_other_customizing_modules_run_as_without_it(tmp_path, text):
    files = {"sitecustomize.py": text, "usercustomize.py": SITE}
    done, plain = both("-c", SHOW_MODULES, path=[write(tmp_path / "site", files if text else {"x": ""})])
    exits = "SystemExit" in text
    assert (done[2], bool(done[0])) == (plain[2], not exits)
    assert exits or done == plain


SET = "import torch; torch.set_num_threads(8); print(torch.get_num_threads())"


@pytest.mark.parametrize(("flag", "is_warned"), [("-I", False), ("-E", False), ("-S", False), ("-s", True)])
def test_isolated_pythons_are_not_frozen(site, flag, is_warned):
    done = python(flag, "-c", f"import sys; sys.path.insert(0, {site!r}); {SET}")
    assert ("is ignored" in done.stderr) == is_warned, done.stderr


def test_a_rank_and_its_children_are_frozen(ompbind, site):
    script = f'python -c "{SET}"; env -u OMPBIND_RANK python -c "{SET}"'
    done = ompbind("run", "--freeze-threads", "--", "sh", "-c", script, env={"PYTHONPATH": site})
    assert done.stdout == "2\n2\n"
    assert [line for line in done.stderr.splitlines() if line.startswith("  ")] == [
        "  rank 0, <module> in <string>, line 1 (--freeze-threads)",
        "  <module> in <string>, line 1 (--freeze-threads)",
    ]


WORKERS = """
import torch
from torch.utils.data import DataLoader, Dataset

class Counts(Dataset):
    def __len__(self): return 2
    def __getitem__(self, index): return torch.get_num_threads()

def begin(number): torch.set_num_threads(5)

if __name__ == "__main__":
    torch.set_num_threads(8); torch.set_num_interop_threads(8)
    assert torch.get_num_threads() == 2, torch.get_num_threads()
    assert torch.set_num_threads in torch.overrides.get_ignored_functions()
    for how in ("fork", "spawn"):
        loader = DataLoader(Counts(), num_workers=1, multiprocessing_context=how, worker_init_fn=begin)
        print(how, [int(count) for batch in loader for count in batch])
    print(torch.get_num_threads())
"""


@pytest.mark.part("torch")
def test_real_torch_keeps_its_threads_and_workers_have_one(tmp_path):
    program = Path(write(tmp_path, {"program.py": WORKERS})) / "program.py"
    options = ("--share", "--freeze-threads", "-m", "0", "-t", "2")
    args = [OMPBIND, "run", *options, "--", python_with_torch(), program]
    done = subprocess.run(args, capture_output=True, text=True, env=clean_environment(), timeout=300)
    assert (done.returncode, done.stdout) == (0, "fork [1, 1]\nspawn [1, 1]\n2\n"), done.stderr
    warnings = re.findall("^ompbind: warning: torch.set_num_([^ ]+)", done.stderr, re.MULTILINE)
    assert warnings == ["threads(8)", "interop_threads(8)", "threads(5)", "threads(5)"]
