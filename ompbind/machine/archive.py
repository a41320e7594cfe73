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


class ArchiveRoot:
    """The files of a recording packed as one `.tar.gz`, read into memory once."""

    def __init__(self, path: str) -> None:
        self.name = path
        self._data = _unpack(path)
        found = _plain_members(self._data)
        self._headers = _library_members(path) if found is None else found
        self._base = _common_folder(self._headers)

    def read(self, path: str) -> str | None:
        """Return the text of a file, None when it is not in the archive."""
        at = self._headers.get(self._base + path.encode())
        if at is None:
            return None
        return clean_text(self._data[at + _BLOCK : at + _BLOCK + _size(self._data, at)])

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, empty when it is not in the archive."""
        folder = self._base + path.encode() + b"/"
        skip = len(folder)
        found = {name[skip:].partition(b"/")[0] for name in self._headers if name.startswith(folder)}
        return [name.decode("utf-8", "replace") for name in found]


def _unpack(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
            data = unpacker.decompress(file.read(), UNPACKED_LIMIT)
    except (OSError, zlib.error) as error:
        raise MachineError(f"cannot read the archive {path}: {error}") from error
    if not unpacker.eof and not unpacker.unconsumed_tail:
        raise MachineError(f"cannot read the archive {path}: it is cut short")
    if unpacker.unconsumed_tail:
        raise MachineError(
            f"{path} unpacks to more than {UNPACKED_LIMIT >> 20} MiB: no recording of a machine does"
        )
    return data


def _plain_members(data: bytes) -> dict[bytes, int] | None:
    """Find the header of every plain file of a tar; None when it has more than plain members.

    A recording has some 25 members for each CPU; this takes a twentieth of the time of `tarfile`,
    to which anything but files, folders and symbolic links with short names is left.
    """
    headers: dict[bytes, int] = {}
    at, end = 0, len(data) - _BLOCK
    try:
        while at <= end and data[at]:
            kind, size = data[at + 156], _size(data, at)
            if kind not in _PLAIN_KINDS or data[at + 345]:
                return None
            if kind in _EXTRA_KINDS and _renames(data[at + _BLOCK : at + _BLOCK + size]):
                return None
            if kind in _FILE_KINDS:
                headers[data[at : at + 100].rstrip(b"\0")] = at
            at += _BLOCK + (size + _BLOCK - 1) // _BLOCK * _BLOCK
    except ValueError:
        return None
    return headers


def _renames(extra: bytes) -> bool:
    """Tell whether an extra header changes the name or size of the member after it; times do no harm."""
    return b" path=" in extra or b" size=" in extra


def _size(data: bytes, at: int) -> int:
    """Return the size of the member whose header is at `at`, in bytes."""
    return int(data[at + 124 : at + 136].rstrip(b"\0 ") or b"0", 8)


def _library_members(path: str) -> dict[bytes, int]:
    import tarfile  # late: most recordings never need it

    try:
        with tarfile.open(path) as archive:
            return {
                member.name.encode(): member.offset_data - _BLOCK for member in archive if member.isfile()
            }
    except (OSError, tarfile.TarError, ValueError, EOFError, zlib.error) as error:
        raise MachineError(f"cannot read the archive {path}: {error}") from error


def _common_folder(headers: Iterable[bytes]) -> bytes:
    """Return the folder that holds `sys/`, with its slash; b"" when it is at the top."""
    inside = next((name for name in headers if b"/sys/" in b"/" + name), b"")
    return inside[: (b"/" + inside).index(b"/sys/")] if inside else b""
