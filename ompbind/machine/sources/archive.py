"""A root in an archive: a recording of a machine packed as one `.tar.gz`, `.tar.bz2`, `.tar.xz` or `.tar`.

Nothing is extracted: the texts of its regular files are kept in memory, equal ones once, as the recording of
a large machine says the same in thousands of files. Older systems have cgroups outside of `sys/` and `proc/`.
"""

import bz2
import gzip
import lzma
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from io import BufferedIOBase, BytesIO
from posixpath import normpath

from ompbind.errors import MachineError
from ompbind.machine.sources.filesystem import clean_text

# The most that an archive may hold, each with the part of it that a recording of 4,096 CPUs needs.
UNPACKED_LIMIT = 1 << 29  # bytes: a third
MEMBER_LIMIT = 1 << 19  # files, links and folders: half
FILE_LIMIT = 1 << 24  # bytes of a file: a third, for proc/cpuinfo
KEPT_LIMIT = 1 << 26  # bytes of different texts, and characters of names, that are kept: a quarter

_LINK_LIMIT = 8  # links followed in one name; recordings have one or two
_PIECE = 1 << 16

_UNREAD = ("/size", "/id", "/ways_of_associativity", "/number_of_sets", "/coherency_line_size", "/uevent")
"""Files of every CPU that no reader asks for."""

_FAULTS = (tarfile.TarError, lzma.LZMAError, zlib.error, OSError, ValueError, MemoryError)


class ArchiveRoot:
    """The files of a recording in an archive, kept in memory; `name` is what people call it."""

    def __init__(self, packed: bytes, name: str) -> None:
        self.name = name
        self._files: dict[str, bytes] = {}
        self._links: dict[str, str] = {}
        try:
            self._keep_all(_Unpacked(packed))
        except (EOFError, *_FAULTS) as error:
            why = "it is cut short" if isinstance(error, EOFError) else error
            raise MachineError(f"cannot read the archive {name}: {why}") from error
        self._base = _common_folder(self._names())

    def read(self, path: str) -> str | None:
        """Return the text of a file, None when it is not in the archive."""
        found = self._files.get(self._base + path)
        if found is None and self._links:
            found = self._files.get(self._follow(self._base + path))
        return None if found is None else clean_text(found)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, empty when it is not in the archive."""
        folder = self._follow(self._base + path) + "/"
        skip = len(folder)
        return list({name[skip:].partition("/")[0] for name in self._names() if name.startswith(folder)})

    def _names(self) -> Iterator[str]:
        yield from self._files
        yield from self._links

    def _keep_all(self, stream: "_Unpacked") -> None:
        """Keep what readers may ask for; an error of `_FAULTS` where the archive is damaged or too large."""
        archive = tarfile.TarFile(fileobj=stream)  # type: ignore[arg-type]
        texts: dict[bytes, bytes] = {}
        kept = 0
        for count, member in enumerate(iter(archive.next, None)):
            archive.members.clear()  # type: ignore[attr-defined]  # it has a kilobyte for each of them
            kept += len(member.name) + self._keep(archive, member, texts)
            if count == MEMBER_LIMIT:
                raise ValueError(f"it has more than {MEMBER_LIMIT} members, no recording does")
            if kept > KEPT_LIMIT:
                raise ValueError(
                    f"its files say more than {KEPT_LIMIT >> 20} MiB, those of a recording do not"
                )
        stream.check_end()

    def _keep(self, archive: tarfile.TarFile, member: tarfile.TarInfo, texts: dict[bytes, bytes]) -> int:
        """Keep a link, or the text of a file; return the bytes that were not kept before."""
        if member.issym():
            self._links[member.name] = member.linkname
            return len(member.linkname)
        if member.islnk() and member.linkname in self._files:
            self._files[member.name] = self._files[member.linkname]
        elif member.isreg() and member.size <= FILE_LIMIT and not member.name.endswith(_UNREAD):
            file = archive.extractfile(member)
            text = file.read() if file else b""
            if len(text) < member.size:
                raise EOFError
            self._files[member.name] = kept = texts.setdefault(text, text)
            return len(text) if kept is text else 0
        return 0

    def _follow(self, name: str) -> str:
        """Replace the links in a name by what they point to, as a kernel would."""
        for _ in range(_LINK_LIMIT):
            ends = (found.start() for found in re.finditer(r"/|\Z", name))
            step = next((end for end in ends if name[:end] in self._links), 0)
            if not step:
                break
            folder, _, _ = name[:step].rpartition("/")
            name = normpath(f"/{folder}/{self._links[name[:step]]}")[1:] + name[step:]
        return name


class _Unpacked:
    """What was packed as the file that `tarfile` reads: forwards only, and within the limits."""

    def __init__(self, packed: bytes) -> None:
        self._file = _open(packed)
        self._at = 0
        self._last = b""

    def tell(self) -> int:
        """Return how many bytes have been read."""
        return self._at

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes, none at the end; ValueError when it is too much."""
        if size > FILE_LIMIT + tarfile.BLOCKSIZE:  # files are not asked for then: it is a name, or attributes
            raise ValueError(f"a header of it has more than {FILE_LIMIT >> 20} MiB")
        self._last = self._file.read(size)
        self._at += len(self._last)
        if self._at > UNPACKED_LIMIT:
            raise ValueError(f"it unpacks to more than {UNPACKED_LIMIT >> 20} MiB, no recording does")
        return self._last

    def seek(self, place: int) -> None:
        """Read on to a place."""
        while self._at < place and self.read(min(_PIECE, place - self._at)):
            pass

    def check_end(self) -> None:
        """Raise EOFError where `tarfile` stopped at anything but the zeros at the end, or the end itself."""
        if self._last.strip(b"\0"):
            raise EOFError


def _open(packed: bytes) -> BufferedIOBase:
    """Open a packed text, several behind each other included, or a plain one."""
    file = BytesIO(packed)
    if packed.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)
    if packed.startswith(b"BZh"):
        return bz2.BZ2File(file)
    return lzma.LZMAFile(file) if packed.startswith(b"\xfd") else file


def _common_folder(names: Iterable[str]) -> str:
    """Return the folder that holds `sys/devices/system/`, with its slash; "" when it is at the top."""
    mark = "/sys/devices/system/"
    inside = next((name for name in names if mark in f"/{name}"), "")
    return inside[: f"/{inside}".index(mark)] if inside else ""
