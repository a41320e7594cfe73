"""Roots: where the files of a machine are read from, be it this machine or a recording of one.

A root holds `sys/` and `proc/` as a running Linux shows them. Paths are relative to it.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from ompbind.cpuset import CPU_LIMIT, CpuSet


class Root(Protocol):
    """Somewhere files of a machine can be read; `name` is what people call it."""

    name: str

    def read(self, path: str) -> str | None:
        """Return the text of a file, None when it is absent or unreadable."""

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, empty when it is absent or unreadable."""


_CHUNK_LIMIT = 256  # of 64 KiB of a file; the longest, proc/cpuinfo, has a third of them for 4,096 CPUs
_SET_LIMIT = 1 << 20  # characters that name a set; the longest text that a kernel writes has a tenth


def whole_number(text: str | None, limit: int = 1 << 62) -> int | None:
    """Return the number that a text is, None for anything but ASCII digits or from `limit` on."""
    digits = (text or "").strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        return None
    return int(digits) if int(digits) < limit else None


def keyed_lines(text: str | None) -> Iterator[tuple[str, str]]:
    """Yield key and value of every "key: value" line, as most files of proc are written."""
    for line in (text or "").splitlines():
        key, _, value = line.partition(":")
        yield key.strip(), value.strip()


def parse_sizes(text: str | None) -> dict[str, int]:
    """Return the sizes of a meminfo file in bytes, by their names; those of nodes begin with "Node N"."""
    sizes: dict[str, int] = {}
    for key, value in keyed_lines(text):
        number, _, unit = value.partition(" ")
        size = whole_number(number, 1 << 52)
        if size is not None:
            sizes[key.rpartition(" ")[2]] = size << 10 if unit == "kB" else size
    return sizes


def numbered(names: Iterable[str], stem: str) -> CpuSet:
    """Return the N of every name that is `stem` followed by a number: folders of CPUs, or of nodes."""
    return numbers_in(name[len(stem) :] for name in names if name.startswith(stem))


def numbers_in(words: Iterable[str]) -> CpuSet:
    """Return the numbers of CPUs or nodes among words; what is none, or too high, is left out."""
    numbers = (whole_number(word, CPU_LIMIT) for word in words)
    return CpuSet(number for number in numbers if number is not None)


def read_list(root: Root, path: str) -> CpuSet | None:
    """Read a file that holds list text, None when it is absent or holds anything else."""
    return parse_set(root.read(path), CpuSet.from_list)


def read_set(root: Root, files: Iterable[tuple[str, str]]) -> CpuSet | None:
    """Read the first set that (mask, list) pairs of files hold, masks first: old kernels cut lists."""
    for mask, list_ in files:
        for path, parse in ((mask, CpuSet.from_mask), (list_, CpuSet.from_list)):
            cpus = parse_set(root.read(path), parse)
            if cpus is not None:
                return cpus
    return None


def parse_set(text: str | None, parse: Callable[[str], CpuSet]) -> CpuSet | None:
    """Return the set that a text names, None for no text, one that is too long, and one that names none."""
    try:
        return None if text is None or len(text) > _SET_LIMIT else parse(text)
    except ValueError:
        return None


def clean_text(data: bytes) -> str:
    """Return the text of a file up to its first NUL: some kernels end it there, tar pads it from there."""
    return data.partition(b"\0")[0].decode("utf-8", "replace")


class FolderRoot:
    """The files below a folder; "/" is this machine."""

    def __init__(self, folder: str, name: str = "") -> None:
        self.name = name or folder
        self._prefix = folder.rstrip("/") + "/"

    def read(self, path: str) -> str | None:
        """Return the text of a file, None when it is absent or unreadable."""
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
        """Return the names in a folder, empty when it is absent or unreadable."""
        try:
            return os.listdir(self._prefix + path)
        except (OSError, ValueError):
            return []
