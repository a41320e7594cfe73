"""What a program or library file says of itself: for which machine it is, and what it needs.

Only as much of an ELF file is read as that takes, a few hundred bytes of it, since every start of a rank
does so. Layouts are those of the System V ABI, chapters 4 and 5; all offsets are in bytes.
"""

import os
from collections.abc import Iterator, Mapping
from typing import BinaryIO, Literal

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

PLAIN = (
    "libc.so", "libm.so", "libdl.so", "librt.so", "libpthread.so", "libutil.so", "libgcc_s.so", "ld-linux",
    "ld64", "libz.so", "libexpat.so", "libtinfo.so", "libcrypt.so", "libresolv.so", "libselinux.so",
)  # fmt: skip
"""What names of libraries begin with that are everywhere and never need a thread pool."""

_LOAD, _DYNAMIC, _INTERPRETER = 1, 2, 3
_NEEDED, _STRINGS, _SONAME, _RPATH, _RUNPATH = 1, 5, 14, 15, 29
_TEXTS = (_NEEDED, _SONAME, _RPATH, _RUNPATH)
_HEADERS = 1 << 16
"""Bytes of program headers and dynamic sections that are believed; real ones take a tenth."""

_TEXT = 1 << 12
"""Bytes of the longest name or list of folders that is believed."""


class Elf(Record):
    """One ELF file: its machine, the libraries that it needs by name, and folders where it looks for them.

    `bits` is 32 or 64; `folders` is its RUNPATH or RPATH as it stands there, with $ORIGIN, `late` tells that
    it is a RUNPATH, which comes after LD_LIBRARY_PATH. `soname` is the name that others know it by, `static`
    tells that no dynamic linker has a hand in it.
    """

    machine: int
    bits: int
    little: bool
    needed: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    late: bool = False
    soname: str = ""
    static: bool = False

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


class _Numbers(Record):
    """The numbers of a piece of a file, which has them in one byte order."""

    data: bytes
    order: Literal["little", "big"]

    def at(self, offset: int, size: int) -> int:
        """Return the number of `size` bytes at an offset; raises ValueError past the end."""
        if len(self.data) < offset + size:
            raise ValueError("a file cut short")
        return int.from_bytes(self.data[offset : offset + size], self.order)


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
        except ValueError:
            return None


def read_header(path: str) -> Elf | None:
    """Read what an ELF file needs; None also when it cannot be read, or when no path is given."""
    try:
        return read_elf(path) if os.path.isfile(path) else None  # a pipe would be waited for
    except OSError:
        return None


def _read(file: BinaryIO, data: bytes) -> Elf:
    wide, little = data[4:5] == b"\2", data[5:6] == b"\1"
    head = _Numbers(data=data, order="little" if little else "big")
    segments = list(_read_segments(file, head, wide=wide))
    tags = list(_read_dynamic(file, head.order, segments, wide=wide))
    start = _find_strings(segments, dict(tags).get(_STRINGS))
    texts = [(tag, _read_text(file, start + at)) for tag, at in tags if tag in _TEXTS]
    found = dict(texts)
    return Elf(
        machine=head.at(18, 2),
        bits=64 if wide else 32,
        little=little,
        needed=tuple(text for tag, text in texts if tag == _NEEDED),
        folders=tuple(filter(None, found.get(_RUNPATH, found.get(_RPATH, "")).split(":"))),
        late=_RUNPATH in found,
        soname=found.get(_SONAME, ""),
        static=not any(one.kind == _INTERPRETER for one in segments) and _NEEDED not in found,
    )


def _read_segments(file: BinaryIO, head: _Numbers, *, wide: bool) -> Iterator[_Segment]:
    """Yield segments that tell something; numbers stand at other places in files of 64 and of 32 bits."""
    start, length, count = (head.at(32, 8), head.at(54, 2), head.at(56, 2)) if wide else (
        head.at(28, 4), head.at(42, 2), head.at(44, 2))  # fmt: skip
    word, first = (8, 8) if wide else (4, 4)
    file.seek(start)
    table = head.replace(data=file.read(min(length * count, _HEADERS)))
    for at in range(0, len(table.data), length or 1):
        kind = table.at(at, 4)
        if kind in (_LOAD, _DYNAMIC, _INTERPRETER):
            offset, address, _, size = (table.at(at + first + word * i, word) for i in range(4))
            yield _Segment(kind=kind, offset=offset, address=address, size=size)


def _read_dynamic(
    file: BinaryIO, order: Literal["little", "big"], segments: list[_Segment], *, wide: bool
) -> Iterator[tuple[int, int]]:
    """Yield the tags of the dynamic section, each with its value; a static program has none."""
    section = next((one for one in segments if one.kind == _DYNAMIC), None)
    if section is None:
        return
    word = 8 if wide else 4
    file.seek(section.offset)
    table = _Numbers(data=file.read(min(section.size, _HEADERS)), order=order)
    for at in range(0, len(table.data) - 2 * word + 1, 2 * word):
        tag, value = table.at(at, word), table.at(at + word, word)
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
