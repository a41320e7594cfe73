"""A root in an archive: a recording of a machine packed as one `.tar.gz`, `.bz2`, `.xz` or `.tar`."""

import zlib
from collections.abc import Iterable, Iterator
from itertools import chain

from ompbind.errors import MachineError
from ompbind.machine.root import clean_text

UNPACKED_LIMIT = 1 << 29
"""Bytes that an archive may hold; a recording of 2,048 CPUs needs a tenth of it."""

_BLOCK = 512
_FILE_KINDS = frozenset(b"0\0")
_LINK_KINDS = frozenset(b"2")
_EXTRA_KINDS = frozenset(b"xg")
_PLAIN_KINDS = _FILE_KINDS | _LINK_KINDS | _EXTRA_KINDS | frozenset(b"5")


class Index:
    """What is in an archive: where the bytes of each file are in the unpacked data, and links' targets."""

    def __init__(self) -> None:
        self.files: dict[bytes, tuple[int, int]] = {}
        self.links: dict[bytes, bytes] = {}

    def names(self) -> Iterator[bytes]:
        """Yield the name of every file and link."""
        return chain(self.files, self.links)


class ArchiveRoot:
    """The files of a recording in an archive, unpacked in memory once; `name` is what people call it."""

    def __init__(self, packed: bytes, name: str) -> None:
        self.name = name
        self._data = _unpack(packed, name)
        self._index = _plain_members(self._data) or _library_members(self._data, name)
        self._base = _common_folder(self._index.names())

    def read(self, path: str) -> str | None:
        """Return the text of a file, None when it is not in the archive."""
        name = self._base + path.encode()
        found = self._index.files.get(name)
        if found is None and self._index.links:
            found = self._index.files.get(self._follow(name))
        return None if found is None else clean_text(self._data[found[0] : found[0] + found[1]])

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, empty when it is not in the archive."""
        folder = self._follow(self._base + path.encode()) + b"/"
        skip = len(folder)
        found = {name[skip:].partition(b"/")[0] for name in self._index.names() if name.startswith(folder)}
        return [name.decode("utf-8", "replace") for name in found]

    def _follow(self, name: bytes) -> bytes:
        """Replace the links in a name by what they point to, as often as a kernel would."""
        for _ in range(LINK_LIMIT):
            step = next((at for at in _folder_ends(name) if name[:at] in self._index.links), 0)
            if not step:
                break
            target = self._index.links[name[:step]]
            name = _flat(name[:step].rpartition(b"/")[0] + b"/" + target) + name[step:]
        return name


LINK_LIMIT = 8
"""Links followed in one name; recordings have one or two."""


def _folder_ends(name: bytes) -> Iterator[int]:
    """Yield the length of every leading path of a name, itself last."""
    at = name.find(b"/")
    while at >= 0:
        yield at
        at = name.find(b"/", at + 1)
    yield len(name)


def _flat(name: bytes) -> bytes:
    """Take `.` and `..` out of a name; one that leaves the archive is none in it."""
    steps: list[bytes] = []
    for step in name.split(b"/"):
        if step == b".." and steps:
            steps.pop()
        elif step not in (b"", b".", b".."):
            steps.append(step)
    return b"/".join(steps)


def _unpack(packed: bytes, name: str) -> bytes:
    """Unpack an archive, whichever way it is packed, as far as it may be large; raises MachineError."""
    try:
        data, is_whole = _unpacked(packed)
    except (OSError, EOFError, zlib.error, ArithmeticError, ValueError) as error:
        raise MachineError(f"cannot read the archive {name}: {error}") from error
    if len(data) > UNPACKED_LIMIT:
        raise MachineError(
            f"{name} unpacks to more than {UNPACKED_LIMIT >> 20} MiB: no recording of a machine does"
        )
    if not is_whole:
        raise MachineError(f"cannot read the archive {name}: it is cut short")
    return data


def _unpacked(packed: bytes) -> tuple[bytes, bool]:
    """Return up to a byte more than the limit of what was packed, and whether its end was reached."""
    if packed.startswith(b"\x1f\x8b"):
        unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
        data = unpacker.decompress(packed, UNPACKED_LIMIT + 1)
        return data, unpacker.eof
    if packed.startswith((b"BZh", b"\xfd")):
        return _unpacked_by_library(packed)
    return packed, True


def _unpacked_by_library(packed: bytes) -> tuple[bytes, bool]:
    import bz2  # late, both: recordings are seldom packed so
    import lzma

    try:
        if packed.startswith(b"BZh"):
            bzip = bz2.BZ2Decompressor()
            return bzip.decompress(packed, UNPACKED_LIMIT + 1), bzip.eof
        xz = lzma.LZMADecompressor(memlimit=UNPACKED_LIMIT)
        return xz.decompress(packed, UNPACKED_LIMIT + 1), xz.eof
    except lzma.LZMAError as error:
        raise ValueError(str(error)) from error


def _plain_members(data: bytes) -> Index | None:
    """Find every plain file of a tar; None when it has more than plain members.

    A recording has some 25 members for each CPU; this takes a twentieth of the time of `tarfile`,
    to which anything but files, folders and symbolic links with short names is left.
    """
    index = Index()
    at, end = 0, len(data) - _BLOCK
    try:
        while at <= end and data[at]:
            kind, size = data[at + 156], _size(data, at)
            if kind not in _PLAIN_KINDS or data[at + 345]:
                return None
            if kind in _EXTRA_KINDS and _renames(data[at + _BLOCK : at + _BLOCK + size]):
                return None
            if kind in _FILE_KINDS:
                index.files[data[at : at + 100].rstrip(b"\0")] = (at + _BLOCK, size)
            elif kind in _LINK_KINDS:
                index.links[data[at : at + 100].rstrip(b"\0")] = data[at + 157 : at + 257].rstrip(b"\0")
            at += _BLOCK + (size + _BLOCK - 1) // _BLOCK * _BLOCK
    except ValueError:
        return None
    return index


def _renames(extra: bytes) -> bool:
    """Tell whether an extra header changes the name or size of the member after it; times do no harm."""
    return b" path=" in extra or b" size=" in extra


def _size(data: bytes, at: int) -> int:
    """Return the bytes of the member whose header is at `at`; ValueError if it is no plain number."""
    digits = data[at + 124 : at + 136].strip(b"\0 ") or b"0"
    if not digits.isdigit():
        raise ValueError("the size of a member is not an octal number")
    return int(digits, 8)


def _library_members(data: bytes, name: str) -> Index:
    import io
    import tarfile  # late: most recordings never need it

    index = Index()
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                if member.isfile():
                    index.files[member.name.encode()] = (member.offset_data, member.size)
                elif member.issym():
                    index.links[member.name.encode()] = member.linkname.encode()
    except (OSError, tarfile.TarError, ValueError, EOFError, zlib.error) as error:
        raise MachineError(f"cannot read the archive {name}: {error}") from error
    return index


def _common_folder(names: Iterable[bytes]) -> bytes:
    """Return the folder that holds `sys/`, with its slash; b"" when it is at the top."""
    inside = next((name for name in names if b"/sys/" in b"/" + name), b"")
    return inside[: (b"/" + inside).index(b"/sys/")] if inside else b""
