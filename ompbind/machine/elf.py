"""What a program or library file says of itself: for which machine it is, and what it needs.

Only as much of an ELF file is read as that takes, a few hundred bytes of it, since every start of a rank
does so. Layouts are those of the System V ABI, chapters 4 and 5; all offsets are in bytes.
"""

from collections.abc import Iterator, Mapping
from struct import error as StructError  # noqa: N812 - it is one, whatever its name
from struct import unpack_from
from typing import BinaryIO

from ompbind.record import Record

ARCHITECTURES: Mapping[int, str] = {
    3: "i386",
    8: "mips",
    20: "ppc",
    21: "ppc64",
    22: "s390x",
    40: "arm",
    62: "x86_64",
    183: "aarch64",
    243: "riscv64",
    258: "loongarch64",
}
"""Names of the machines that files are for, by their number there (e_machine)."""

_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRINGS, _RPATH, _RUNPATH = 1, 5, 15, 29
_HEADERS = 1 << 16
"""Bytes of program headers and dynamic sections that are believed; real ones take a tenth."""

_TEXT = 1 << 12
"""Bytes of the longest name or list of folders that is believed."""


class Elf(Record):
    """One ELF file: its machine, the libraries that it needs by name, and folders where it looks for them.

    `bits` is 32 or 64; `folders` is its RUNPATH or RPATH as it stands there, with $ORIGIN.
    """

    machine: int
    bits: int
    little: bool
    needed: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    @property
    def architecture(self) -> str:
        """The name of the machine that it is for, as `uname -m` has it where that is known."""
        name = ARCHITECTURES.get(self.machine, f"machine {self.machine}")
        if name == "x86_64" and self.bits == 32:
            return "x32"
        return f"{name}le" if name.startswith("ppc64") and self.little else name

    def runs_with(self, other: "Elf") -> bool:
        """Tell whether both can be in one process."""
        return (self.machine, self.bits, self.little) == (other.machine, other.bits, other.little)


class _Layout(Record):
    """How the numbers of a file are written, and where its tables are: offset, size of an entry, entries."""

    mark: str
    wide: bool
    headers: tuple[int, int, int]


class _Segment(Record):
    kind: int
    offset: int
    address: int
    size: int


def read_elf(path: str) -> Elf | None:
    """Read what an ELF file needs; None when it is none, or cannot be made sense of. Raises OSError."""
    with open(path, "rb") as file:
        head = file.read(64)
        if head[:4] != b"\x7fELF":
            return None
        try:
            return _read(file, head)
        except (StructError, ValueError, IndexError):
            return None


def read_header(path: str) -> Elf | None:
    """Read what an ELF file needs; None also when it cannot be read, or when no path is given."""
    try:
        return read_elf(path) if path else None
    except OSError:
        return None


def _read(file: BinaryIO, head: bytes) -> Elf:
    wide, little = head[4] == 2, head[5] == 1
    mark = "<" if little else ">"
    (machine,) = unpack_from(f"{mark}H", head, 18)
    (offset,) = unpack_from(f"{mark}{'Q' if wide else 'I'}", head, 32 if wide else 28)
    size, entries = unpack_from(f"{mark}HH", head, 54 if wide else 42)
    layout = _Layout(mark=mark, wide=wide, headers=(offset, size, entries))
    segments = list(_read_segments(file, layout))
    tags = list(_read_dynamic(file, layout, segments))
    start = _find_strings(segments, dict(tags).get(_STRINGS))
    texts = [(tag, _read_text(file, start + at)) for tag, at in tags if tag in (_NEEDED, _RPATH, _RUNPATH)]
    paths = dict(texts)
    return Elf(
        machine=machine,
        bits=64 if wide else 32,
        little=little,
        needed=tuple(text for tag, text in texts if tag == _NEEDED),
        folders=tuple(filter(None, paths.get(_RUNPATH, paths.get(_RPATH, "")).split(":"))),
    )


def _read_at(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)


def _read_segments(file: BinaryIO, layout: _Layout) -> Iterator[_Segment]:
    offset, size, entries = layout.headers
    table = _read_at(file, offset, min(size * entries, _HEADERS))
    for at in range(0, len(table), size or len(table)):
        (kind,) = unpack_from(f"{layout.mark}I", table, at)
        form, skip = ("QQQQ", 8) if layout.wide else ("IIII", 4)
        where, address, _, length = unpack_from(f"{layout.mark}{form}", table, at + skip)
        yield _Segment(kind=kind, offset=where, address=address, size=length)


def _read_dynamic(file: BinaryIO, layout: _Layout, segments: list[_Segment]) -> Iterator[tuple[int, int]]:
    """Yield the tags of the dynamic section, each with its value; a static program has none."""
    section = next((one for one in segments if one.kind == _DYNAMIC), None)
    if section is None:
        return
    form, step = (f"{layout.mark}QQ", 16) if layout.wide else (f"{layout.mark}II", 8)
    table = _read_at(file, section.offset, min(section.size, _HEADERS))
    for at in range(0, len(table) - step + 1, step):
        tag, value = unpack_from(form, table, at)
        if tag == 0:
            return
        yield tag, value


def _find_strings(segments: list[_Segment], address: int | None) -> int:
    """Return where in the file the strings are that are loaded to an address; 0 for a file without any."""
    for one in segments:
        if address is not None and one.kind == _LOAD and one.address <= address < one.address + one.size:
            return one.offset + address - one.address
    return 0


def _read_text(file: BinaryIO, offset: int) -> str:
    file.seek(offset)
    data = file.read(_TEXT)
    return data[: data.index(b"\0")].decode("utf-8", "surrogateescape")
