"""Roots: where the files of a machine are read from, be it this machine or a recording of one.

A root holds `sys/` and `proc/` as a running Linux shows them. Paths are relative to it.
"""

import os
from typing import Protocol


class Root(Protocol):
    """Somewhere files of a machine can be read; `name` is what people call it."""

    name: str

    def read(self, path: str) -> str | None:
        """Return the text of a file, None when it is absent or unreadable."""

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, empty when it is absent or unreadable."""


class FolderRoot:
    """The files below a folder; "/" is this machine."""

    def __init__(self, folder: str, name: str = "") -> None:
        self.name = name or folder
        self._prefix = folder.rstrip("/") + "/"

    def read(self, path: str) -> str | None:
        """Return the text of a file, None when it is absent or unreadable."""
        try:
            handle = os.open(self._prefix + path, os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError):
            return None
        try:
            chunks = iter(lambda: os.read(handle, 1 << 16), b"")
            return b"".join(chunks).decode("utf-8", "replace")
        except OSError:
            return None
        finally:
            os.close(handle)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, empty when it is absent or unreadable."""
        try:
            return os.listdir(self._prefix + path)
        except (OSError, ValueError):
            return []
