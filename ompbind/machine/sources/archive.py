"""A root in an archive: a recording of a machine packed as one `.tar.gz`, `.tar.bz2`, `.tar.xz` or `.tar`.

The archive is unpacked piece by piece and only the texts of its files are kept, equal ones once: the
recording of a large machine says the same in thousands of files.
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Protocol

from ompbind.errors import MachineError
from ompbind.machine.sources.filesystem import clean_text

UNPACKED_LIMIT = 1 << 29
"""Bytes that an archive may hold; a recording of 4,096 CPUs needs a third of it."""

FILE_LIMIT = 1 << 24
"""Bytes that a file of it may have; the longest, proc/cpuinfo, needs a third of it for 4,096 CPUs."""

KEPT_LIMIT = 1 << 26
"""Bytes of different texts that are kept of an archive; 4,096 CPUs need a tenth of it."""

_PIECE = 1 << 19
_BLOCK = 512

_UNREAD = (
    b"/size",
    b"/id",
    b"/ways_of_associativity",
    b"/number_of_sets",
    b"/coherency_line_size",
    b"/uevent",
)
"""Files of every CPU that no reader asks for."""


class Index:
    """What is in an archive: the bytes of each file, and what each link points to."""

    def __init__(self) -> None:
        self.files: dict[bytes, bytes] = {}
        self.links: dict[bytes, bytes] = {}

    def names(self) -> Iterator[bytes]:
        """Yield the name of every file and link."""
        return chain(self.files, self.links)


class ArchiveRoot:
    """The files of a recording in an archive, kept in memory; `name` is what people call it."""

    def __init__(self, packed: bytes, name: str) -> None:
        self.name = name
        try:
            index = _plain_index(_pieces(packed)) or _library_index(_pieces(packed))
        except (OSError, EOFError, zlib.error, ArithmeticError, ValueError) as error:
            raise MachineError(f"cannot read the archive {name}: {error}") from error
        self._index = index
        self._base = _common_folder(index.names())

    def read(self, path: str) -> str | None:
        """Return the text of a file, None when it is not in the archive."""
        name = self._base + path.encode()
        found = self._index.files.get(name)
        if found is None and self._index.links:
            found = self._index.files.get(self._follow(name))
        return None if found is None else clean_text(found)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, empty when it is not in the archive."""
        folder = self._follow(self._base + path.encode()) + b"/"
        skip = len(folder)
        found = {name[skip:].partition(b"/")[0] for name in self._index.names() if name.startswith(folder)}
        return [name.decode("utf-8", "replace") for name in found]

    def _follow(self, name: bytes) -> bytes:
        """Replace the links in a name by what they point to, as a kernel would."""
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


class _Unpacker(Protocol):
    """What the decompressors of gzip, bzip2 and xz have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _pieces(packed: bytes) -> Iterator[bytes]:
    """Yield what was packed, piece by piece; ValueError when it is cut short, or too much."""
    total = 0
    for piece in _unpacked(packed):
        total += len(piece)
        if total > UNPACKED_LIMIT:
            raise ValueError(f"it unpacks to more than {UNPACKED_LIMIT >> 20} MiB, no recording does")
        yield piece


def _unpacked(packed: bytes) -> Iterator[bytes]:
    if packed.startswith(b"\x1f\x8b"):
        yield from _streams(packed, b"\x1f\x8b", lambda: zlib.decompressobj(wbits=zlib.MAX_WBITS | 32))
    elif packed.startswith(b"BZh"):
        import bz2  # late, as lzma: recordings are seldom packed so

        yield from _streams(packed, b"BZh", bz2.BZ2Decompressor)
    elif packed.startswith(b"\xfd"):
        import lzma

        try:
            yield from _streams(packed, b"\xfd", lambda: lzma.LZMADecompressor(memlimit=UNPACKED_LIMIT))
        except lzma.LZMAError as error:
            raise ValueError(str(error)) from error
    else:
        yield from (packed[at : at + _PIECE] for at in range(0, len(packed), _PIECE))


def _streams(packed: bytes, magic: bytes, make: Callable[[], _Unpacker]) -> Iterator[bytes]:
    """Unpack texts that begin with `magic`; several behind each other are one."""
    while packed.startswith(magic):
        unpacker = make()
        while not unpacker.eof:
            piece = unpacker.decompress(packed, _PIECE)
            packed = getattr(unpacker, "unconsumed_tail", b"")  # zlib's does not keep what it was given
            if not piece and not unpacker.eof:
                raise ValueError("it is cut short")
            yield piece
        packed = unpacker.unused_data


def _plain_index(pieces: Iterator[bytes]) -> Index | None:  # noqa: C901 - one loop, written for speed
    """Read a tar of plain members; None when it has others.

    Written for speed, which `tarfile` has not; to that anything but files, folders and symbolic links with
    short names is left.
    """
    index, texts, sizes = Index(), dict[bytes, bytes](), dict[bytes, int]()
    held, at, skip, kept = b"", 0, 0, 0
    for piece in pieces:
        if skip >= len(piece):
            skip -= len(piece)
            continue
        if kept > KEPT_LIMIT:
            raise ValueError(f"its files say more than {KEPT_LIMIT >> 20} MiB, those of a recording do not")
        held, at, skip = held[at:] + piece[skip:], 0, 0
        total = len(held)
        while at + _BLOCK <= total:
            name, field, kind, target, prefix = _HEADER.unpack_from(held, at)
            size = sizes.get(field)
            if size is None:
                size = sizes[field] = _size(field)
            start = at + _BLOCK
            after = start + (size + _BLOCK - 1 & -_BLOCK)
            if size > FILE_LIMIT:
                at, skip = min(after, total), max(0, after - total)
                continue
            if after > total:
                break
            if kind in b"0\0" and name[0] and prefix == b"\0":
                name = name.rstrip(b"\0")
                if not name.endswith(_UNREAD):
                    text = held[start : start + size]
                    kept += size if text not in texts else 0
                    index.files[name] = texts.setdefault(text, text)
            elif not name[0]:
                return index
            elif prefix != b"\0" or not _keep_other(index, kind, name, target + held[start : start + size]):
                return None
            at = after
    if skip or held[at:].strip(b"\0"):
        raise ValueError("it is cut short")
    return index


_HEADER = struct.Struct("100s 24x 12s 20x c 100s 88x c 166x")
"""Of the header of a member: its name, its size, its kind, what it links to, and where its name goes on."""


def _keep_other(index: Index, kind: bytes, name: bytes, told: bytes) -> bool:
    """Keep a link, pass over a folder and over times; False for what only `tarfile` can make sense of."""
    if kind == b"2":
        index.links[name.rstrip(b"\0")] = told[:100].rstrip(b"\0")
        return True
    changes = (key in told for key in (b" path=", b" size=", b" linkpath="))
    return kind == b"5" or (kind in b"xg" and not any(changes))


def _size(field: bytes) -> int:
    """Return the bytes of a member as its header tells them; ValueError if they are no plain number."""
    digits = field.strip(b"\0 ") or b"0"
    if not digits.isdigit():
        raise ValueError("the size of a member is not an octal number")
    return int(digits, 8)


class _Stream:
    """Pieces as the file that `tarfile` reads from."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._held = pieces, b""

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes, none at the end."""
        while len(self._held) < size and (piece := next(self._pieces, b"")):
            self._held += piece
        data, self._held = self._held[:size], self._held[size:]
        return data


def _library_index(pieces: Iterator[bytes]) -> Index:
    import tarfile  # late: most recordings never need it

    index = Index()
    try:
        with tarfile.open(fileobj=_Stream(pieces), mode="r|") as archive:  # type: ignore[call-overload]
            for member in archive:
                if member.issym():
                    index.links[member.name.encode()] = member.linkname.encode()
                elif member.islnk() and member.linkname.encode() in index.files:
                    index.files[member.name.encode()] = index.files[member.linkname.encode()]
                elif member.isreg() and member.size <= FILE_LIMIT:
                    file = archive.extractfile(member)
                    index.files[member.name.encode()] = file.read() if file else b""
    except tarfile.TarError as error:
        raise ValueError(str(error)) from error
    return index


def _common_folder(names: Iterable[bytes]) -> bytes:
    """Return the folder that holds `sys/devices/system/`, with its slash; b"" when it is at the top."""
    mark = b"/sys/devices/system/"
    inside = next((name for name in names if mark in b"/" + name), b"")
    return inside[: (b"/" + inside).index(mark)] if inside else b""
