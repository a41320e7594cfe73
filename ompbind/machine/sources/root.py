"""`Root`: where the files of a machine are read from, like `--sysroot` of lscpu.

A root contains `sys/` and `proc/` as a running Linux shows them: this machine or a recording. Paths are
relative to it.
"""

from typing import Protocol


class Root(Protocol):
    """The files of a machine; `name` is the root's name in messages."""

    name: str

    def read(self, path: str) -> str | None:
        """Return the text of a file, None if it is absent or unreadable."""

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, empty if it is absent or unreadable."""

    def link(self, path: str) -> str | None:
        """Return what a symbolic link contains, None if it is absent or no link."""
