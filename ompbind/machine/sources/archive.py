"""A root in an archive: a recording of a machine as one `.tar.gz`, `.tar.bz2`, `.tar.xz` or `.tar`.

The archive is read once, from the start to the end, and nothing is extracted:

    packed bytes → _Unpacked (decompress, limit) → tarfile (members) → texts and links by name

Equal texts are kept once, because thousands of files of a large machine have the same text. Symbolic links
are followed when a name is read, as a kernel does. Limits stop an archive that unpacks to a huge size. The
root is the directory that contains `sys/devices/system/`: older systems mount cgroups outside of `sys/`.
"""

import bz2
import gzip
import lzma
import re
import tarfile
import zlib
from bisect import bisect_left
from io import BufferedIOBase, BytesIO
from itertools import islice, takewhile
from posixpath import normpath

from ompbind.errors import MachineError
from ompbind.machine.sources.root import clean_text
from ompbind.text import clean_name

# Limits of an archive, each with the share that a recording of 4,096 CPUs needs.
UNPACKED_LIMIT = 1 << 29  # bytes: a third
MEMBER_LIMIT = 1 << 19  # files, links and directories: half
FILE_LIMIT = 1 << 24  # bytes of a file: a third, for proc/cpuinfo
KEPT_LIMIT = 1 << 26  # bytes of different texts plus characters of names: a quarter

_LINK_LIMIT = 8  # links that are followed in one name; recordings have one or two
_CHUNK_BYTES = 1 << 16

_IGNORED = ("/id", "/ways_of_associativity", "/number_of_sets", "/coherency_line_size", "/uevent")
"""Endings of files that exist for every CPU and that no reader uses."""

_TEXTS_OF_HEADERS = (
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE,
)  # fmt: skip
"""Types of members that are a long name, or the attributes of other members."""

_READ_ERRORS = (tarfile.TarError, lzma.LZMAError, zlib.error, OSError, ValueError, MemoryError)


class ArchiveRoot:
    """The files of a recording in an archive, kept in memory; `name` is its name in messages."""

    def __init__(self, packed: bytes, name: str) -> None:
        self.name = name
        self._files: dict[str, bytes] = {}
        self._links: dict[str, str] = {}
        self._directories: list[str] = []
        try:
            self._keep_all(_Unpacked(packed))
        except (EOFError, *_READ_ERRORS) as error:
            reason = "it is truncated" if isinstance(error, EOFError) else error
            damaged = isinstance(error, tarfile.TarError)
            text = f"a header is damaged ({reason})" if damaged else reason
            raise MachineError(f"cannot read the archive {name}: {text}") from error
        self._sorted = sorted((*self._files, *self._links, *self._directories))
        marker = "/sys/devices/system/"  # the directory that contains it is the root
        found = next((name for name in self._sorted if marker in f"/{name}"), "")
        self._base = found[: f"/{found}".index(marker)] if found else ""

    def read(self, path: str) -> str | None:
        """Return the text of a file, None if it is not in the archive."""
        text = self._files.get(self._base + path)
        if text is None:
            text = self._files.get(self._follow(self._base + path))
        return None if text is None else clean_text(text)

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, empty if it is not in the archive."""
        prefix = self._follow(self._base + path) + "/"
        known = islice(self._sorted, bisect_left(self._sorted, prefix), None)
        below = (name[len(prefix) :] for name in takewhile(lambda name: name.startswith(prefix), known))
        return list({name.partition("/")[0] for name in below if name})

    def link(self, path: str) -> str | None:
        """Return what a symbolic link contains, None if it is absent or no link."""
        directory, _, name = path.rpartition("/")
        return self._links.get(f"{self._follow(self._base + directory)}/{name}")

    def _keep_all(self, stream: "_Unpacked") -> None:
        """Keep the files that readers may use; raises one of `_READ_ERRORS` or EOFError for a bad archive."""
        archive = tarfile.TarFile(fileobj=stream, tarinfo=_Member)  # type: ignore[arg-type]
        texts: dict[bytes, bytes] = {}
        kept = 0
        for count, member in enumerate(iter(archive.next, None)):
            archive.members.clear()  # type: ignore[attr-defined]  # tarfile keeps a kilobyte for each
            if not 0 <= member.size <= UNPACKED_LIMIT:
                raise ValueError(f"{clean_name(member.name)!r} has a size of {member.size} bytes")
            kept += len(member.name) + self._keep(archive, member, texts)
            if count == MEMBER_LIMIT:
                raise ValueError(f"it has more than {MEMBER_LIMIT} members")
            if kept > KEPT_LIMIT:
                raise ValueError(f"its names and different texts have more than {KEPT_LIMIT >> 20} MiB")
        stream.check_end()

    def _keep(self, archive: tarfile.TarFile, member: tarfile.TarInfo, texts: dict[bytes, bytes]) -> int:
        """Keep a link or the text of a file; return the number of bytes that were not kept before."""
        if member.issym():
            self._links[member.name] = member.linkname
            return len(member.linkname)
        if member.isdir() and "/devices/pci" in member.name:  # the name of a driver may be an empty directory
            self._directories.append(member.name)
        elif member.islnk() and member.linkname in self._files:
            self._files[member.name] = self._files[member.linkname]
        elif member.isreg() and member.size <= FILE_LIMIT and not member.name.endswith(_IGNORED):
            file = archive.extractfile(member)
            text = file.read() if file else b""
            if len(text) < member.size:
                raise EOFError
            self._files[member.name] = kept = texts.setdefault(text, text)
            return len(text) if kept is text else 0
        return 0

    def _follow(self, name: str) -> str:
        """Resolve the symbolic links in a name: replace the shortest prefix that is a link, repeatedly."""
        for _ in range(_LINK_LIMIT):
            ends = (found.start() for found in re.finditer(r"/|\Z", name))
            link_end = next((end for end in ends if name[:end] in self._links), 0)
            if not link_end:
                break
            directory, _, _ = name[:link_end].rpartition("/")
            name = normpath(f"/{directory}/{self._links[name[:link_end]]}")[1:] + name[link_end:]
        return name


class _Member(tarfile.TarInfo):
    """A member whose long name and attributes, which come before it, are limited in size.

    Python reads these into memory: as a whole, or in parts since 3.14.
    """

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        """Read what follows a header; tarfile provides this method for subclasses. Raises ValueError."""
        if self.type in _TEXTS_OF_HEADERS and not 0 <= self.size <= FILE_LIMIT:
            raise ValueError(f"a header says that it has {self.size} bytes")
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        return member


class _Unpacked:
    """The unpacked archive as a file for `tarfile`: sequential, and limited in size."""

    def __init__(self, packed: bytes) -> None:
        self._file = _open(packed)
        self._position = 0
        self._last = b""

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._position

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes, none at the end. Raises ValueError beyond a limit."""
        self._last = self._file.read(size)
        self._position += len(self._last)
        if self._position > UNPACKED_LIMIT:
            raise ValueError(f"it unpacks to more than {UNPACKED_LIMIT >> 20} MiB")
        return self._last

    def seek(self, position: int) -> None:
        """Read and drop everything up to a position."""
        while self._position < position and self.read(min(_CHUNK_BYTES, position - self._position)):
            pass

    def check_end(self) -> None:
        """Raise EOFError unless `tarfile` stopped at the end or at the zeros before the end."""
        if self._last.strip(b"\0"):
            raise EOFError


def _open(packed: bytes) -> BufferedIOBase:
    """Open compressed bytes, also several concatenated streams, or an uncompressed archive."""
    file = BytesIO(packed)
    if packed.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)
    if packed.startswith(b"BZh"):
        return bz2.BZ2File(file)
    return lzma.LZMAFile(file) if packed.startswith(b"\xfd") else file
