"""Import the modules of ompbind from an archive (zipapp) that is opened once.

Python opens an archive twice for each module. On a file system that many nodes share, each open is a request
to a server. This finder opens the archive once, and reads the modules where Python has found them in it. It
leaves all other cases to Python: modules that are not compiled, compressed, or compiled by another Python.
"""

from __future__ import annotations

import os
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER, _compile_bytecode  # type: ignore[attr-defined]

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import CodeType, ModuleType
    from typing import Any

_HEADER_SIZE = 16
_LOCAL_HEADER_SIZE = 30
"""Bytes before the name of a file in an archive; the last four are the lengths of the name and of a field."""

_FIELD_LIMIT = 64
"""Bytes of the field between name and content at most; `zipapp` writes none."""


def make_archive_finder(package: ModuleType) -> ArchiveFinder | None:
    """Return the finder of the modules of a package in an archive; None if Python has read no archive."""
    loader = package.__loader__
    entries, archive = getattr(loader, "_files", None), getattr(loader, "archive", None)
    if not (isinstance(entries, dict) and isinstance(archive, str)):
        return None
    try:
        return ArchiveFinder(package.__name__, archive, entries)
    except OSError:
        return None


class ArchiveFinder:
    """Finds the compiled modules of one package in an archive.

    `entries` come from `zipimport`: by path in the archive, with compression, size and offset as the
    fields 1, 2 and 4.
    """

    def __init__(self, package: str, archive: str, entries: Mapping[str, Sequence[Any]]) -> None:
        self._package = package
        self._archive = archive
        self._entries = entries
        self._file = os.open(archive, os.O_RDONLY | os.O_CLOEXEC)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to load a module, as importlib defines it; None leaves the module to other finders."""
        if not name.startswith(f"{self._package}."):
            return None
        stem = name.replace(".", os.sep)
        for inside, is_package in ((stem, False), (f"{stem}{os.sep}__init__", True)):
            content = self._read(inside)
            if content[:4] == MAGIC_NUMBER:
                origin = f"{self._archive}{os.sep}{inside}.pyc"
                loader: Any = _LoaderOfCode(content, origin)
                spec = ModuleSpec(name, loader, origin=origin, is_package=is_package)
                spec.has_location = True
                if spec.submodule_search_locations is not None:
                    spec.submodule_search_locations.append(f"{self._archive}{os.sep}{stem}")
                return spec
        return None

    def _read(self, stem: str) -> bytes:
        """Return a compiled module; b"" if there is none, it is compressed, or has its source beside it."""
        entry = self._entries.get(f"{stem}.pyc")
        if not entry or entry[1] or f"{stem}.py" in self._entries:
            return b""
        size, offset = int(entry[2]), int(entry[4])
        most = _LOCAL_HEADER_SIZE + len(stem.encode()) + len(".pyc") + _FIELD_LIMIT + size
        data = os.pread(self._file, most, offset)
        lengths = (int.from_bytes(data[at : at + 2], "little") for at in (26, 28))
        begin = _LOCAL_HEADER_SIZE + sum(lengths)
        content = data[begin : begin + size]
        return content if len(content) == size else b""


class _LoaderOfCode:
    """Executes a module whose compiled content has been read already."""

    def __init__(self, content: bytes, origin: str) -> None:
        self._content = content
        self._origin = origin

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make the module object."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module."""
        exec(self.get_code(module.__name__), module.__dict__)

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the module."""
        code: CodeType = _compile_bytecode(
            memoryview(self._content)[_HEADER_SIZE:], fullname, self._origin, self._origin
        )
        return code
