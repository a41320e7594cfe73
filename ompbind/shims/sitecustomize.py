"""What --freeze-threads puts into Pythons of a rank: changes of torch's thread counts are told, not made.

No part of ompbind imports this file. Pythons run it at their start, because its folder is put first in
PYTHONPATH, and they are whatever a rank and its children are: it needs Python 3.6 and nothing but `os` and
`sys`, which are loaded by then. It stands before a sitecustomize that there may be, and gives way to that.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # what knows types is not there, and too slow to load
    from typing import Any

FUNCTIONS = {"set_num_threads": "get_num_threads", "set_num_interop_threads": "get_num_interop_threads"}
"""What torch does not do any more, and what tells the number that stays."""

MARK = "frozen_by_ompbind"

TOLD: "dict[tuple[int, str], object]" = {}
"""Which process has told of which function; a fork has its parent's, with its parent's number."""


class Finder:
    """Finds torch as the finders behind it do, and has it frozen once it has been executed."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """Find torch, and nothing else."""
        if name != "torch":
            return None
        finders: list[Any] = sys.meta_path
        behind = finders[finders.index(self) + 1 :] if self in finders else finders
        for finder in behind:
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                freeze_when_loaded(spec.loader)
                return spec
        return None


def freeze_when_loaded(loader: "Any") -> None:
    """Have a loader freeze torch when it executes it: most are made for one import, and then as they were."""
    execute: Any = getattr(loader, "exec_module", None)
    if execute is None or isinstance(loader, type) or "exec_module" in getattr(loader, "__dict__", ()):
        return  # none of Python's usual kind, or it does that already

    def execute_and_freeze(module: "Any") -> "Any":
        if module.__name__ != "torch":
            return execute(module)
        del loader.exec_module
        made = execute(module)
        freeze(module)
        return made

    try:
        loader.exec_module = execute_and_freeze
    except AttributeError:
        pass  # it cannot be changed


def freeze(torch: "Any") -> None:
    """Replace the functions in torch, and in the module that it has them from."""
    for name in FUNCTIONS:
        original = getattr(torch, name, None)
        if original is None or hasattr(original, MARK):
            continue
        frozen = make_frozen(torch, name, original)
        for module in (torch, getattr(torch, "_C", None)):
            if getattr(module, name, None) is original:
                setattr(module, name, frozen)


def make_frozen(torch: "Any", name: str, original: "Any") -> "Any":
    """Make a function that tells of what the original would do; what that refuses it still refuses itself.

    Torch's own calls go through: workers of its DataLoader, and what pins memory, have one thread each.
    """

    def frozen(*args: "Any", **named: "Any") -> "Any":
        caller = sys._getframe(1)
        is_own = str(caller.f_globals.get("__name__")).partition(".")[0] == "torch"
        if is_own or named or len(args) != 1 or not is_count(args[0]):
            return original(*args, **named)
        stays = getattr(torch, FUNCTIONS[name])()
        if args[0] != stays:
            tell((name, args[0], stays), caller)
        return None

    frozen.__name__ = frozen.__qualname__ = name
    frozen.__doc__ = original.__doc__
    frozen.__module__ = original.__module__
    frozen.__wrapped__ = original  # type: ignore[attr-defined]
    frozen._torchdynamo_disable = True  # type: ignore[attr-defined]  # as the original, it is never compiled
    setattr(frozen, MARK, True)
    return frozen


def is_count(value: "Any") -> bool:
    """Tell whether torch takes a value for a number of threads: an int of C from 1 on, or one of numpy's."""
    kind = type(value)
    is_whole = issubclass(kind, int) or (kind.__module__ == "numpy" and hasattr(value, "__index__"))
    return is_whole and kind is not bool and 1 <= value < 1 << 31


def tell(what: "tuple[str, Any, int]", caller: "Any") -> None:
    """Say, once in each process for each function, what was asked for and what stays, and who asked."""
    me = object()
    if TOLD.setdefault((os.getpid(), what[0]), me) is not me:
        return
    rank = os.environ.get("OMPBIND_RANK")
    who = f"rank {rank}, {caller.f_code.co_name}" if rank else caller.f_code.co_name
    where = f"  {who} in {caller.f_code.co_filename}, line {caller.f_lineno} (--freeze-threads)\n"
    text = "ompbind: warning: torch.{}({}) changes nothing: {} stays\n".format(*what)
    try:
        sys.stderr.write(text + where)
        sys.stderr.flush()
    except (AttributeError, OSError, RuntimeError, ValueError):
        pass  # nobody is there to read it


def begin() -> None:
    """Wait for torch, and let the sitecustomize that would be there without this one take its place.

    Where there is none the error says so, as Python expects; what goes wrong in that other one is its own.
    """
    folder = os.path.dirname(os.path.abspath(__file__))
    while folder in sys.path:
        sys.path.remove(folder)
    sys.path_importer_cache.pop(folder, None)
    if "torch" in sys.modules:  # a .pth file was faster
        freeze(sys.modules["torch"])
    finders: list[Any] = sys.meta_path
    finders.insert(0, Finder())
    del sys.modules[__name__]
    __import__(__name__)


if __name__ == "sitecustomize":
    begin()
