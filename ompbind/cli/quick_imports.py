"""Import the modules of ompbind from their compiled files, with few system calls and little code.

A start of ranks loads some 100 modules. For each, Python takes a lock and asks its finders, which search a
directory and try the suffixes of all kinds of modules, and it reads the file through several layers. The
function that replaces `__import__` here opens the compiled file, compares it with its source as Python does,
and executes it. That saves an eighth of the time of a start.

All other cases are left to Python: other packages, no compiled file, a changed source. Nothing is written.
Only the command line uses this, because it imports in one thread. Other programs that import ompbind use
Python's own import.
"""

from __future__ import annotations

import builtins
import os
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import (  # type: ignore[attr-defined]
    MAGIC_NUMBER,
    SourceFileLoader,
    _compile_bytecode,
)

import ompbind

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, ModuleType
    from typing import Any
else:
    ModuleType = type(sys)

_BY_TIME = MAGIC_NUMBER + bytes(4)
"""The start of each file that this Python has compiled, and that is valid for one time of its source."""

_HEADER_SIZE = 16
_FOUR_BYTES = 0xFFFFFFFF
_LARGEST = 65536
"""Size in bytes up to which compiled files are read here; a larger buffer costs more than it saves."""


def start_quick_imports() -> None:
    """Import later modules of ompbind quickly, if compiled files are beside their sources."""
    importer = make_importer(ompbind)
    if importer:
        builtins.__import__ = importer


def make_importer(package: ModuleType) -> Callable[..., ModuleType] | None:
    """Return a function to replace `__import__`, which loads the modules of a package quickly.

    None if the compiled files of the package are not beside its sources.
    """
    cached = package.__spec__.cached if package.__spec__ else None
    beside, _, suffix = (cached or "").rpartition("/__pycache__/__init__")
    if not (beside and beside in package.__path__):
        return None
    prefix, modules, import_by_python = f"{package.__name__}.", sys.modules, builtins.__import__

    def import_quickly(
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> ModuleType:
        if name not in modules and name.startswith(prefix):
            _load(name, suffix)
        return import_by_python(name, globals, locals, fromlist, level)

    return import_quickly


def _load(name: str, suffix: str) -> None:
    """Load a module after the packages around it; `suffix` is that of compiled files, ".cpython-311.pyc".

    A module that is not in `sys.modules` afterwards is left to Python.
    """
    modules = sys.modules
    above, _, stem = name.rpartition(".")
    if above not in modules:
        _load(above, suffix)
    path = getattr(modules.get(above), "__path__", None)
    if not path:
        return
    made = _make_module(name, path[0], stem, suffix) or _make_module(
        name, f"{path[0]}/{stem}", "__init__", suffix
    )
    if made is None:
        return
    module, code = made
    modules[name] = module
    try:
        exec(code, vars(module))
    except BaseException:
        del modules[name]
        raise
    setattr(modules[above], stem, module)


def _make_module(name: str, directory: str, stem: str, suffix: str) -> tuple[ModuleType, CodeType] | None:
    """Return a module, not yet executed, and its code; None if there is no valid compiled file."""
    cached = f"{directory}/__pycache__/{stem}{suffix}"
    source = f"{directory}/{stem}.py"
    try:
        content = _read_compiled(cached)
        stat = os.stat(source)
    except OSError:
        return None
    version = int(stat.st_mtime) & _FOUR_BYTES | (stat.st_size & _FOUR_BYTES) << 32
    if content[:_HEADER_SIZE] != _BY_TIME + version.to_bytes(8, "little") or len(content) == _LARGEST:
        return None
    loader = SourceFileLoader(name, source)
    spec = ModuleSpec(name, loader, origin=source)
    spec.has_location = True
    spec.cached = cached
    module = ModuleType(name)
    attributes = {"__file__": source, "__loader__": loader, "__spec__": spec}
    if stem == "__init__":
        attributes["__path__"] = spec.submodule_search_locations = [directory]
    vars(module).update(attributes, __package__=spec.parent)
    return module, _compile_bytecode(memoryview(content)[_HEADER_SIZE:], name, cached, source)


def _read_compiled(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, _LARGEST)
    finally:
        os.close(file)
