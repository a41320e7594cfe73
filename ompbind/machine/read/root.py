"""`Root`: where the files of a machine are read from, like `--sysroot` of lscpu.

A root contains `sys/` and `proc/` as a running Linux shows them: this machine or a recording. Paths are
relative to it.
"""

import os
from collections.abc import Iterable, Iterator
from typing import Protocol

from ompbind.cpuset import CPU_LIMIT, CpuSet, parse_set
from ompbind.text import whole_number


class Root(Protocol):
    """The files of a machine; `name` is the root's name in messages."""

    name: str

    def read(self, path: str) -> str | None:
        """Return the text of a file, None if it is absent or unreadable."""

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, empty if it is absent or unreadable."""

    def link(self, path: str) -> str | None:
        """Return what a symbolic link contains, None if it is absent or no link."""


_CHUNK_LIMIT = 256  # chunks of 64 KiB of a file; proc/cpuinfo of 4,096 CPUs has a third of them


def keyed_lines(text: str | None) -> Iterator[tuple[str, str]]:
    """Yield the (key, value) pairs of a text with "key: value" lines, as in /proc/cpuinfo."""
    for line in (text or "").splitlines():
        key, _, value = line.partition(":")
        yield key.strip(), value.strip()


def parse_meminfo(text: str | None) -> dict[str, int]:
    """Return the sizes of /proc/meminfo or of a node's meminfo ("Node 0 MemTotal: …") in bytes, by name."""
    sizes: dict[str, int] = {}
    for key, value in keyed_lines(text):
        number, _, unit = value.partition(" ")
        size = whole_number(number, 1 << 52)
        if size is not None:
            sizes[key.rpartition(" ")[2]] = size << 10 if unit == "kB" else size
    return sizes


def parse_parts(text: str | None) -> dict[str, str]:
    """Return the implementer and part of Arm CPUs in the text of /proc/cpuinfo ("0x41 0xd05"), by CPU."""
    parts, cpu, maker = dict[str, str](), "", ""
    for key, value in keyed_lines(text):
        cpu = value if key == "processor" else cpu
        maker = value if key == "CPU implementer" else maker
        if key == "CPU part":
            parts[cpu] = f"{maker} {value}"
    return parts


def numbered(names: Iterable[str], stem: str) -> CpuSet:
    """Return the numbers N of the names "stemN": directories of CPUs (cpu0) or nodes (node0)."""
    return numbers_in(name[len(stem) :] for name in names if name.startswith(stem))


def numbers_in(words: Iterable[str]) -> CpuSet:
    """Return the numbers of CPUs or nodes among some words; other words and too high numbers are left out."""
    numbers = (whole_number(word, CPU_LIMIT) for word in words)
    return CpuSet(number for number in numbers if number is not None)


def read_word(root: Root, path: str) -> str:
    """Return the text of a file without spaces around it; "" if it is absent or unreadable."""
    return (root.read(path) or "").strip()


def read_list(root: Root, path: str) -> CpuSet | None:
    """Read a file with list text ("0-3,8"), None if it is absent or malformed."""
    return parse_set(root.read(path), CpuSet.from_list)


def read_set(root: Root, files: Iterable[tuple[str, str]]) -> CpuSet | None:
    """Read a set from the first readable file of some (mask file, list file) pairs, None if there is none.

    The mask is read before the list, because old kernels truncate long lists.
    """
    for mask, list_ in files:
        for path, parse in ((mask, CpuSet.from_mask), (list_, CpuSet.from_list)):
            cpus = parse_set(root.read(path), parse)
            if cpus is not None:
                return cpus
    return None


def clean_text(data: bytes) -> str:
    """Return the text of a file up to its first NUL; some kernels append NULs, and tar pads with NULs."""
    return data.partition(b"\0")[0].decode("utf-8", "replace")


class DirectoryRoot:
    """The files below a directory; "/" is this machine."""

    def __init__(self, directory: str, name: str = "") -> None:
        self.name = name or directory
        self._prefix = directory.rstrip("/") + "/"

    def read(self, path: str) -> str | None:
        """Return the text of a file, None if it is absent or unreadable."""
        try:
            handle = os.open(self._prefix + path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError):
            return None
        try:
            chunks: list[bytes] = []
            while len(chunks) < _CHUNK_LIMIT and (chunk := os.read(handle, 1 << 16)):
                chunks.append(chunk)
            return clean_text(b"".join(chunks))
        except OSError:
            return None
        finally:
            os.close(handle)

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, empty if it is absent or unreadable."""
        try:
            return os.listdir(self._prefix + path)
        except (OSError, ValueError):
            return []

    def link(self, path: str) -> str | None:
        """Return what a symbolic link contains, None if it is absent or no link."""
        try:
            return os.readlink(self._prefix + path)
        except (OSError, ValueError):
            return None
