"""Import the modules of ompbind from their compiled files with few system calls.

A start of ranks loads some 120 modules. For each, Python searches a directory, tries the suffixes of all
kinds of modules, and reads the file through several layers. This finder opens the compiled file and compares
it with its source, as Python does. That saves a tenth of the time of a start.

The finder leaves all other cases to Python: no compiled file, a changed source. It writes nothing. Only the
command line uses it, not other programs that import ompbind.
"""

from __future__ import annotations

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
    from collections.abc import Sequence
    from types import CodeType, ModuleType
else:
    ModuleType = type(sys)

_BY_TIME = MAGIC_NUMBER + bytes(4)
"""The start of each file that this Python has compiled, and that is valid for one time of its source."""

_HEADER_SIZE = 16
_FOUR_BYTES = 0xFFFFFFFF
_LARGEST = 65536
"""Size in bytes up to which compiled files are read here; a larger buffer costs more than it saves."""


def start_quick_imports() -> None:
    """Import later modules of ompbind by this finder, if compiled files are beside their sources."""
    finder = make_finder(ompbind)
    if finder:
        sys.meta_path.insert(0, finder)


def make_finder(package: ModuleType) -> QuickFinder | None:
    """Return the finder of the modules in a package; None if its compiled files are elsewhere or unknown."""
    cached = package.__spec__.cached if package.__spec__ else None
    beside, _, suffix = (cached or "").rpartition("/__pycache__/__init__")
    return QuickFinder(package.__name__, suffix) if beside and beside in package.__path__ else None


class QuickFinder:
    """Finds the modules of one package whose compiled files have a suffix such as `.cpython-311.pyc`."""

    def __init__(self, package: str, suffix: str) -> None:
        self._prefix = f"{package}."
        self._suffix = suffix

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to load a module, as importlib defines it; None leaves the module to other finders."""
        if not path or not name.startswith(self._prefix):
            return None
        directory, stem = path[0], name.rpartition(".")[2]
        return self._read_spec(name, directory, stem) or self._read_spec(
            name, f"{directory}/{stem}", "__init__"
        )

    def _read_spec(self, name: str, directory: str, stem: str) -> ModuleSpec | None:
        cached = f"{directory}/__pycache__/{stem}{self._suffix}"
        source = f"{directory}/{stem}.py"
        try:
            content = _read_compiled(cached)
            stat = os.stat(source)
        except OSError:
            return None
        version = int(stat.st_mtime) & _FOUR_BYTES | (stat.st_size & _FOUR_BYTES) << 32
        if content[:_HEADER_SIZE] != _BY_TIME + version.to_bytes(8, "little") or len(content) == _LARGEST:
            return None
        spec = ModuleSpec(name, _LoaderOfContent(name, source, cached, content), origin=source)
        spec.has_location = True
        spec.cached = cached
        if stem == "__init__":
            spec.submodule_search_locations = [directory]
        return spec


class _LoaderOfContent(SourceFileLoader):
    """Python's loader, but it has the content of the compiled file already. It returns this content once."""

    def __init__(self, name: str, path: str, cached: str, content: bytes) -> None:
        super().__init__(name, path)
        self._cached = cached
        self._content = content

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return a module with the attributes that Python would set after a failed search for each."""
        module = ModuleType(spec.name)
        attributes: dict[str, object] = {"__file__": self.path}
        if spec.submodule_search_locations is not None:
            attributes["__path__"] = spec.submodule_search_locations
        vars(module).update(attributes)
        return module

    def get_code(self, fullname: str) -> CodeType | None:
        content, self._content = self._content, b""
        if not content:
            return super().get_code(fullname)
        code: CodeType = _compile_bytecode(
            memoryview(content)[_HEADER_SIZE:], fullname, self._cached, self.path
        )
        return code


def _read_compiled(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, _LARGEST)
    finally:
        os.close(file)
