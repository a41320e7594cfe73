"""--freeze-threads: replace torch.set_num_threads and set_num_interop_threads by functions that only warn.

1. Every Python in a rank imports this file at its start, because its directory is first in PYTHONPATH.
2. `install` adds a `TorchFinder` to sys.meta_path, then imports the user's own sitecustomize if it exists.
3. When torch is imported, `TorchFinder` changes its loader, so that `freeze` runs after torch is executed.
4. `freeze` replaces the two functions.

The Python can be of any version from 3.6 on. So this file imports nothing of ompbind, and only `os` and
`sys`, which are loaded already.
"""

import os
import sys

FUNCTIONS = {"set_num_threads": "get_num_threads", "set_num_interop_threads": "get_num_interop_threads"}
"""Functions of torch that are replaced, and the functions that return the current number."""

WARNED: "dict[tuple[int, str], object]" = {}
"""The pid and the function of every warning so far; a forked child has entries with the pid of its parent."""


class TorchFinder:
    """A finder on sys.meta_path that finds torch with the finders after it, and freezes torch when loaded."""

    def find_spec(self, name: str, path=None, target=None):
        """Find torch, and no other module."""
        if name != "torch":
            return None
        finders = sys.meta_path
        for finder in finders[finders.index(self) + 1 :] if self in finders else finders:
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                freeze_when_loaded(spec.loader)
                return spec
        return None


def freeze_when_loaded(loader) -> None:
    """Make a loader freeze torch after it has executed it; the change of the loader is for one import."""
    execute = getattr(loader, "exec_module", None)
    if execute is None or isinstance(loader, type) or "exec_module" in getattr(loader, "__dict__", ()):
        return  # an unusual loader, or one that was changed already

    def execute_and_freeze(module):
        if module.__name__ != "torch":
            return execute(module)
        del loader.exec_module
        result = execute(module)
        freeze(module)
        return result

    try:
        loader.exec_module = execute_and_freeze
    except AttributeError:
        pass  # the loader does not allow new attributes


def freeze(torch) -> None:
    """Replace the functions in torch, and in torch._C, where they are defined."""
    for name in FUNCTIONS:
        original = getattr(torch, name, None)
        if original is None or hasattr(original, "frozen_by_ompbind"):
            continue
        frozen = make_frozen(torch, name, original)
        for module in (torch, getattr(torch, "_C", None)):
            if getattr(module, name, None) is original:
                setattr(module, name, frozen)


def make_frozen(torch, name: str, original):
    """Return a function that warns instead of changing the number; wrong arguments go to the original.

    Calls from torch itself have their usual effect: its DataLoader workers and the pin-memory thread set 1.
    """

    def frozen(*args, **named):
        caller = sys._getframe(1)  # noqa: SLF001 - inspect takes long to import
        is_own = str(caller.f_globals.get("__name__")).partition(".")[0] == "torch"
        if is_own or named or len(args) != 1 or not is_count(args[0]):
            return original(*args, **named)
        current = getattr(torch, FUNCTIONS[name])()
        if args[0] != current:
            warn(name, args[0], current, caller)
        return None

    frozen.__name__ = frozen.__qualname__ = name
    frozen.__doc__, frozen.__module__ = original.__doc__, original.__module__
    frozen.__wrapped__ = original  # type: ignore[attr-defined]
    frozen._torchdynamo_disable = True  # type: ignore[attr-defined]  # noqa: SLF001 - torch does not compile it
    frozen.frozen_by_ompbind = True  # type: ignore[attr-defined]
    return frozen


def is_count(value) -> bool:
    """Return whether torch accepts a value as a number of threads: a positive C int, of Python or numpy."""
    kind = type(value)
    is_whole = issubclass(kind, int) or (kind.__module__ == "numpy" and hasattr(value, "__index__"))
    return is_whole and kind is not bool and 1 <= value < 1 << 31


def warn(name: str, value, current: int, caller) -> None:
    """Warn on standard error, once per process and function; `caller` is the frame that has called it."""
    entry = object()
    if WARNED.setdefault((os.getpid(), name), entry) is not entry:  # atomic among threads
        return
    code, rank = caller.f_code, os.environ.get("OMPBIND_RANK")
    function = f"rank {rank}, {code.co_name}" if rank else code.co_name
    where = f"  {function} in {code.co_filename}, line {caller.f_lineno} (--freeze-threads)\n"
    text = f"ompbind: warning: torch.{name}({value}) is ignored: thread count stays {current}\n"
    try:
        sys.stderr.write(text + where)
        sys.stderr.flush()
    except (AttributeError, OSError, RuntimeError, ValueError):
        pass  # standard error is closed or replaced


def install() -> None:
    """Freeze torch when it is imported, and import the sitecustomize that this file hides.

    Without such a file the ImportError is what Python expects of a missing sitecustomize.
    """
    directory = os.path.dirname(os.path.abspath(__file__))
    while directory in sys.path:
        sys.path.remove(directory)
    sys.path_importer_cache.pop(directory, None)
    if "torch" in sys.modules:  # a .pth file has imported it
        freeze(sys.modules["torch"])
    finders = sys.meta_path
    finders.insert(0, TorchFinder())
    own = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except BaseException:
        # zipimport of Python 3.8 and 3.9 deletes it after an error, and fails if it is not there
        sys.modules.setdefault(__name__, own)
        raise


if __name__ == "sitecustomize":
    install()
