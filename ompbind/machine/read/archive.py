"""A root in an archive: a recording of a machine as one `.tar.gz`, `.tar.bz2`, `.tar.xz` or `.tar`.

The archive is read once, from the start to the end, and nothing is extracted. Equal texts are kept once,
because thousands of files of a large machine have the same text. Symbolic links are followed when a name is
read, as a kernel does. The root is the directory that contains `sys/devices/system/`, or else `proc/`.
"""

import bz2
import gzip
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable
from io import BufferedIOBase, BufferedReader, BytesIO
from posixpath import normpath

from ompbind.errors import MachineError
from ompbind.machine.read.root import clean_text

UNPACKED_LIMIT = 1 << 28
"""Bytes of an unpacked archive at most; that of 4,096 CPUs has two thirds, most of it padding."""

_LINK_LIMIT = 8  # links that are followed in one name; recordings have one or two


class ArchiveRoot:
    """The files of a recording in an archive, kept in memory; `name` is its name in messages."""

    def __init__(self, packed: bytes, name: str) -> None:
        self.name = name
        self._files: dict[str, bytes] = {}
        self._links: dict[str, str] = {}
        self._names: dict[str, set[str]] = {}  # in each directory
        try:
            self._keep(_Unpacked(packed))
        except (EOFError, tarfile.TarError, lzma.LZMAError, zlib.error, OSError, ValueError) as error:
            raise MachineError(f"cannot read the archive {name}: {error}") from error
        found = (re.match(r"(|.*?/)(sys/devices/system|proc)/", name) for name in self._files)
        bases = ((match[2] == "proc", match[1]) for match in found if match)
        self._base = min(bases, default=(False, ""))[1]

    def read(self, path: str) -> str | None:
        """Return the text of a file, None if it is not in the archive."""
        text = self._files.get(self._base + path) or self._files.get(self._follow(self._base + path))
        return None if text is None else clean_text(text)

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, empty if it is not in the archive."""
        return list(self._names.get(self._follow(self._base + path), ()))

    def link(self, path: str) -> str | None:
        """Return what a symbolic link contains, None if it is absent or no link."""
        directory, _, name = path.rpartition("/")
        return self._links.get(f"{self._follow(self._base + directory)}/{name}")

    def _keep(self, stream: "_Unpacked") -> None:
        """Keep the names, texts and links of all members; raises an error of a module that reads archives."""
        archive = tarfile.open(fileobj=stream, mode="r|", bufsize=512)  # type: ignore[call-overload]  # noqa: SIM115
        texts: dict[bytes, bytes] = {}
        for member in iter(archive.next, None):
            archive.members.clear()  # tarfile keeps a kilobyte for each
            if member.issym():
                self._links[member.name] = member.linkname
            elif member.islnk():
                self._files[member.name] = self._files.get(member.linkname, b"")
            elif file := archive.extractfile(member):
                text = file.read()
                self._files[member.name] = texts.setdefault(text, text)
            path = member.name
            while path:
                path, _, child = path.rpartition("/")
                if child in self._names.setdefault(path, set()):
                    break
                self._names[path].add(child)
        if stream.last.strip(b"\0"):  # tarfile takes a damaged header as the end, which is a block of zeros
            raise EOFError("it is truncated, or a header is damaged")

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


class _Unpacked:
    """The unpacked archive as a stream for `tarfile`, limited in size; `last` are the last bytes read."""

    def __init__(self, packed: bytes) -> None:
        openers: dict[bytes, Callable[[BytesIO], BufferedIOBase]] = {
            b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
            b"BZh": bz2.BZ2File,
            b"\xfd": lzma.LZMAFile,
        }
        found = (opener for magic, opener in openers.items() if packed.startswith(magic))
        self._file = next(found, BufferedReader)(BytesIO(packed))
        self._left = UNPACKED_LIMIT
        self.last = b""

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes, none at the end. Raises ValueError beyond the limit."""
        data = self._file.read(size)
        self.last = data or self.last
        self._left -= len(data)
        if self._left < 0:
            raise ValueError(f"it unpacks to more than {UNPACKED_LIMIT >> 20} MiB")
        return data
