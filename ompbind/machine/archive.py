"""A root in an archive: a recording of a machine packed as one `.tar.gz`."""

import zlib
from collections.abc import Iterable

from ompbind.errors import MachineError
from ompbind.machine.root import clean_text

UNPACKED_LIMIT = 1 << 29
"""Bytes that an archive may hold; a recording of 2,048 CPUs needs a tenth of it."""

_BLOCK = 512
_FILE_KINDS = frozenset(b"0\0")
_EXTRA_KINDS = frozenset(b"xg")
_PLAIN_KINDS = _FILE_KINDS | _EXTRA_KINDS | frozenset(b"25")


Members = dict[bytes, tuple[int, int]]
"""The files of an archive by name: where each begins in the unpacked data, and its bytes."""


class ArchiveRoot:
    """The files of a recording packed as one `.tar.gz`, read into memory once."""

    def __init__(self, path: str) -> None:
        self.name = path
        self._data = _unpack(path)
        found = _plain_members(self._data)
        self._members = _library_members(path) if found is None else found
        self._base = _common_folder(self._members)

    def read(self, path: str) -> str | None:
        """Return the text of a file, None when it is not in the archive."""
        start, size = self._members.get(self._base + path.encode(), (0, -1))
        return clean_text(self._data[start : start + size]) if size >= 0 else None

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, empty when it is not in the archive."""
        folder = self._base + path.encode() + b"/"
        skip = len(folder)
        found = {name[skip:].partition(b"/")[0] for name in self._members if name.startswith(folder)}
        return [name.decode("utf-8", "replace") for name in found]


def _unpack(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
            data = unpacker.decompress(file.read(UNPACKED_LIMIT), UNPACKED_LIMIT)
    except (OSError, zlib.error) as error:
        raise MachineError(f"cannot read the archive {path}: {error}") from error
    if not unpacker.eof and not unpacker.unconsumed_tail:
        raise MachineError(f"cannot read the archive {path}: it is cut short")
    if unpacker.unconsumed_tail:
        raise MachineError(
            f"{path} unpacks to more than {UNPACKED_LIMIT >> 20} MiB: no recording of a machine does"
        )
    return data


def _plain_members(data: bytes) -> Members | None:
    """Find every plain file of a tar; None when it has more than plain members.

    A recording has some 25 members for each CPU; this takes a twentieth of the time of `tarfile`,
    to which anything but files, folders and symbolic links with short names is left.
    """
    members: Members = {}
    at, end = 0, len(data) - _BLOCK
    try:
        while at <= end and data[at]:
            kind, size = data[at + 156], _size(data, at)
            if kind not in _PLAIN_KINDS or data[at + 345]:
                return None
            if kind in _EXTRA_KINDS and _renames(data[at + _BLOCK : at + _BLOCK + size]):
                return None
            if kind in _FILE_KINDS:
                members[data[at : at + 100].rstrip(b"\0")] = (at + _BLOCK, size)
            at += _BLOCK + (size + _BLOCK - 1) // _BLOCK * _BLOCK
    except ValueError:
        return None
    return members


def _renames(extra: bytes) -> bool:
    """Tell whether an extra header changes the name or size of the member after it; times do no harm."""
    return b" path=" in extra or b" size=" in extra


def _size(data: bytes, at: int) -> int:
    """Return the bytes of the member whose header is at `at`; ValueError if it is no plain number."""
    digits = data[at + 124 : at + 136].strip(b"\0 ") or b"0"
    if not digits.isdigit():
        raise ValueError("the size of a member is not an octal number")
    return int(digits, 8)


def _library_members(path: str) -> Members:
    import tarfile  # late: most recordings never need it

    try:
        with tarfile.open(path) as archive:
            return {
                member.name.encode(): (member.offset_data, member.size)
                for member in archive
                if member.isfile()
            }
    except (OSError, tarfile.TarError, ValueError, EOFError, zlib.error) as error:
        raise MachineError(f"cannot read the archive {path}: {error}") from error


def _common_folder(names: Iterable[bytes]) -> bytes:
    """Return the folder that holds `sys/`, with its slash; b"" when it is at the top."""
    inside = next((name for name in names if b"/sys/" in b"/" + name), b"")
    return inside[: (b"/" + inside).index(b"/sys/")] if inside else b""
