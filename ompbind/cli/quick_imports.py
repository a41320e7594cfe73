"""Import the modules of ompbind from compiled code, with few system calls and little work.

A start of ranks loads some 100 modules. For each, Python takes a lock and asks its finders, which search a
directory and try the suffixes of all kinds of modules, and it reads the file through several layers. The
function that replaces `__import__` here takes the compiled code of a module

1. from the bundle of the verb: one file with the code of all modules that an earlier start has loaded
2. or else from the compiled file of the module

It compares the code with its source as Python does, and executes it. The bundle is beside compiled files, as
`__pycache__/run.cpython-311.bundle`. The first start after an installation or a change writes it.

All other cases are left to Python: other packages, no compiled file, a changed source. Only the command line
uses this, because it imports in one thread. Other programs that import ompbind use Python's own import.
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
from _imp import _fix_co_filename  # type: ignore[attr-defined]
from marshal import dumps, loads

import ompbind

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, ModuleType
    from typing import Any, TypeAlias
else:
    ModuleType = type(sys)

_BY_TIME = MAGIC_NUMBER + bytes(4)
"""The start of each file that this Python has compiled, and that is valid for one time of its source."""

_HEADER_SIZE = 16
_FOUR_BYTES = 0xFFFFFFFF
_LARGEST = 65536
"""Size in bytes up to which compiled files are read here; a larger buffer costs more than it saves."""

_UNUSED_LIMIT = 16
"""How many modules of a bundle a usual start may leave unused."""

Compiled: TypeAlias = "tuple[str, bytes, CodeType]"
"""A compiled module: the path of its source, the header of its compiled file, the code."""


class QuickLoader:
    """Loads the modules of a package from compiled code.

    `prefix` is how their names start, `directory` is that of the package, and `suffix` that of compiled
    files, ".cpython-311.pyc".
    """

    def __init__(self, package: ModuleType, directory: str, suffix: str) -> None:
        self.prefix = f"{package.__name__}."
        self._directory = directory
        self._bundle = ""
        self._is_current = True
        self._earlier: frozenset[str] = frozenset()
        self._suffix = suffix
        self._start = _make_start(package)
        self._bundled: dict[str, Compiled] = {}

    def read_bundle(self, name: str) -> None:
        """Take later modules from the bundle `name`, if there is one of this Python."""
        self._bundle = f"{self._directory}/__pycache__/{name}{self._suffix.removesuffix('pyc')}bundle"
        self._earlier = frozenset(sys.modules)
        try:
            content = _read(self._bundle, os.stat(self._bundle).st_size)
            if content.startswith(self._start):
                directory, bundled = loads(memoryview(content)[len(self._start) :])
                self._bundled = bundled if directory == self._directory else self._move(bundled, directory)
        except (OSError, EOFError, ValueError, TypeError):
            pass  # there is none, or it is damaged
        self._is_current = bool(self._bundled)

    @property
    def is_outdated(self) -> bool:
        """Return whether the bundle was unreadable, lacks a changed source, or has many unused modules.

        It has many if an unusual start wrote it, as one with --verify. Ask when all modules are loaded.
        """
        return not self._is_current or len(self._bundled) > _UNUSED_LIMIT

    def _move(self, bundled: dict[str, Compiled], directory: str) -> dict[str, Compiled]:
        """Return the modules of a bundle that was written for another directory: the package was moved."""
        moved = {}
        for name, (source, header, code) in bundled.items():
            path = self._directory + source.removeprefix(directory)
            _fix_co_filename(code, path)
            moved[name] = (path, header, code)
        return moved

    def write_bundle(self) -> None:
        """Write a bundle of all modules that were loaded since the bundle was read; ignores errors.

        It has no docstrings, which are a fifth of the code. The file is replaced as a whole, because other
        processes may read or write it meanwhile. It has the permissions of a source, as compiled files have:
        otherwise other users could change the code if the umask is 0.
        """
        if not os.access(os.path.dirname(self._bundle), os.W_OK):
            return
        try:
            content = self._start + dumps((self._directory, dict(self._compile_loaded())))
            mode = os.stat(f"{self._directory}/__init__.py").st_mode
            SourceFileLoader("", "").set_data(self._bundle, content, _mode=mode)  # as Python does
        except Exception:  # noqa: BLE001 - a source is being changed, or memory is limited: start without it
            return

    def _compile_loaded(self) -> Iterator[tuple[str, Compiled]]:
        for name in sys.modules.keys() - self._earlier:
            spec = sys.modules[name].__spec__ if name.startswith(self.prefix) else None
            if spec and spec.origin:
                header = _make_header(spec.origin)  # before it is read: a later change makes it invalid
                with open(spec.origin, "rb") as file:
                    code = compile(file.read(), spec.origin, "exec", dont_inherit=True, optimize=2)
                yield name, (spec.origin, header, code)

    def load(self, name: str) -> None:
        """Load a module after the packages around it; one that is not loaded then is left to Python."""
        modules = sys.modules
        above, _, stem = name.rpartition(".")
        if above not in modules:
            self.load(above)
        path = getattr(modules.get(above), "__path__", None)
        compiled = self._find_compiled(name, path[0], stem) if path and name not in modules else None
        if compiled is None:
            return
        module = modules[name] = self._make_module(name, compiled[0])
        try:
            exec(compiled[-1], vars(module))
        except BaseException:
            del modules[name]
            raise
        setattr(modules[above], stem, module)

    def _find_compiled(self, name: str, directory: str, stem: str) -> Compiled | None:
        bundled = self._bundled.pop(name, None)  # it is freed after it was executed
        if bundled:
            source, header, _ = bundled
            if header == _make_header(source):
                return bundled
            self._is_current = False
        return self._read_compiled(name, directory, stem) or self._read_compiled(
            name, f"{directory}/{stem}", "__init__"
        )

    def _read_compiled(self, name: str, directory: str, stem: str) -> Compiled | None:
        """Return a module from its compiled file; None without such a file, or if its source has changed."""
        cached = f"{directory}/__pycache__/{stem}{self._suffix}"
        source = f"{directory}/{stem}.py"
        try:
            content = _read(cached, _LARGEST)
        except OSError:
            return None
        header = content[:_HEADER_SIZE]
        if not header or header != _make_header(source) or len(content) == _LARGEST:
            return None
        code = _compile_bytecode(memoryview(content)[_HEADER_SIZE:], name, cached, source)
        return source, header, code

    def _make_module(self, name: str, source: str) -> ModuleType:
        """Return a module that is not yet executed."""
        directory, _, file = source.rpartition("/")
        stem = file.removesuffix(".py")
        loader = SourceFileLoader(name, source)
        spec = ModuleSpec(name, loader, origin=source)
        spec.has_location = True
        spec.cached = f"{directory}/__pycache__/{stem}{self._suffix}"
        module = ModuleType(name)
        attributes = {"__file__": source, "__loader__": loader, "__spec__": spec}
        if stem == "__init__":
            attributes["__path__"] = spec.submodule_search_locations = [directory]
        vars(module).update(attributes, __package__=spec.parent)
        return module


_loader: QuickLoader | None = None
"""The loader of the command line, if it has one."""


def start_quick_imports() -> None:
    """Import later modules of ompbind quickly, if compiled files are beside their sources."""
    global _loader
    _loader = make_loader(ompbind)
    if _loader:
        builtins.__import__ = make_importer(_loader)


def read_bundle(verb: str) -> None:
    """Take later modules from the bundle of a verb."""
    if _loader:
        _loader.read_bundle(verb)


def find_outdated() -> QuickLoader | None:
    """Return the loader if it should write the bundle again, and if Python may write compiled files."""
    return _loader if _loader and _loader.is_outdated and not sys.dont_write_bytecode else None


def make_loader(package: ModuleType) -> QuickLoader | None:
    """Return a loader of the modules of a package; None if its compiled files are not beside its sources."""
    cached = package.__spec__.cached if package.__spec__ else None
    beside, _, suffix = (cached or "").rpartition("/__pycache__/__init__")
    return QuickLoader(package, beside, suffix) if beside and beside in package.__path__ else None


def make_importer(loader: QuickLoader) -> Callable[..., ModuleType]:
    """Return a function to replace `__import__`, which loads the modules of `loader` quickly."""
    prefix, modules, import_by_python = loader.prefix, sys.modules, builtins.__import__
    plain: set[str] = set()  # loaded modules that are no packages: names are imported from them directly

    def import_quickly(
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> ModuleType:
        if name in plain and fromlist and not level and name in modules:
            return modules[name]
        if name not in modules and name.startswith(prefix):
            loader.load(name)
        module = import_by_python(name, globals, locals, fromlist, level)
        if fromlist and not level and not hasattr(module, "__path__"):
            plain.add(name)
        return module

    return import_quickly


def _make_start(package: ModuleType) -> bytes:
    """Return how bundles of a package start: with the versions of Python's code, this module and the package.

    Another version of this module may write bundles of another form. The version of the package is needed as
    some archives give all files of all releases the same time: a changed module may have the time and the
    size that it had before an upgrade.
    """
    return MAGIC_NUMBER + _make_header(__file__) + f"{getattr(package, '__version__', '')}\n".encode()


def _make_header(source: str) -> bytes:
    """Return how the compiled file of a source starts; b"" if there is no source."""
    try:
        stat = os.stat(source)
    except OSError:
        return b""
    version = int(stat.st_mtime) & _FOUR_BYTES | (stat.st_size & _FOUR_BYTES) << 32
    return _BY_TIME + version.to_bytes(8, "little")


def _read(path: str, size: int) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, size)
    finally:
        os.close(file)
