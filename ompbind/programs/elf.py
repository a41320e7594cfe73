"""What a program or library file says of itself: for which machine it is, and what it needs.

Only as much of an ELF file is read as that takes, a few hundred bytes of it, since every start of a rank
does so. Layouts are those of the System V ABI, chapters 4 and 5; all offsets are in bytes.
"""

import os
import struct
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import BinaryIO

from ompbind.record import Record

ARCHITECTURES: Mapping[int, str] = {
    3: "i386", 8: "mips", 20: "ppc", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64",
    243: "riscv64", 258: "loongarch64",
}  # fmt: skip
"""Names of the machines that files are for, by their number there (e_machine)."""

PLAIN = (
    "libc.so", "libm.so", "libdl.so", "librt.so", "libpthread.so", "libutil.so", "libgcc_s.so", "ld-linux",
    "ld64", "libz.so", "libexpat.so", "libtinfo.so", "libcrypt.so", "libresolv.so", "libselinux.so",
)  # fmt: skip
"""What names of libraries begin with that are everywhere and never need a thread pool."""

_LOAD, _DYNAMIC, _INTERPRETER = 1, 2, 3
_NEEDED, _STRINGS, _SONAME, _RPATH, _RUNPATH = 1, 5, 14, 15, 29
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


def read_elf(path: str) -> Elf | None:
    """Read what an ELF file needs; None when it is none, or cannot be made sense of. Raises OSError."""
    with open(path, "rb") as file:
        head = file.read(64)
        if head[:4] != b"\x7fELF":
            return None
        try:
            return _read(file, head)
        except (ValueError, struct.error):
            return None


def read_header(path: str) -> Elf | None:
    """Read what an ELF file needs; None also when it cannot be read, or when no path is given."""
    try:
        return read_elf(path) if os.path.isfile(path) else None  # a pipe would be waited for
    except OSError:
        return None


def _read(file: BinaryIO, head: bytes) -> Elf:
    """Read a file whose first bytes are `head`; raises ValueError or struct.error for one cut short."""
    wide, little = head[4:5] == b"\2", head[5:6] == b"\1"
    order = "<" if little else ">"
    segments = list(_read_segments(file, head, order, wide=wide))
    section = next(((offset, size) for kind, offset, _, size in segments if kind == _DYNAMIC), None)
    tags = list(_read_tags(file, section, f"{order}{'QQ' if wide else 'II'}")) if section else []
    strings, found = dict(tags).get(_STRINGS), dict[int, list[str]]()
    start = next(
        (
            offset + strings - address
            for kind, offset, address, size in segments
            if strings is not None and kind == _LOAD and address <= strings < address + size
        ),
        0,
    )
    for tag, at in tags:
        if tag in (_NEEDED, _SONAME, _RPATH, _RUNPATH):
            found.setdefault(tag, []).append(_read_text(file, start + at))
    return Elf(
        machine=struct.unpack_from(f"{order}H", head, 18)[0],
        bits=64 if wide else 32,
        little=little,
        needed=tuple(found.get(_NEEDED, ())),
        folders=tuple(filter(None, found.get(_RUNPATH, found.get(_RPATH, [""]))[-1].split(":"))),
        late=_RUNPATH in found,
        soname=found.get(_SONAME, [""])[-1],
        static=_NEEDED not in found and all(kind != _INTERPRETER for kind, *_ in segments),
    )


def _read_segments(
    file: BinaryIO, head: bytes, order: str, *, wide: bool
) -> Iterator[tuple[int, int, int, int]]:
    """Yield (kind, offset, address, size) of segments that tell something; places depend on the width."""
    start, length, count = struct.unpack_from(f"{order}{'32xQ14xHH' if wide else '28xI10xHH'}", head)
    file.seek(start)
    table = file.read(min(length * count, _HEADERS))
    for at in range(0, len(table), length or 1):
        kind, offset, address, size = struct.unpack_from(
            f"{order}{'I4xQQ8xQ' if wide else 'III4xI'}", table, at
        )
        if kind in (_LOAD, _DYNAMIC, _INTERPRETER):
            yield kind, offset, address, size


def _read_tags(file: BinaryIO, section: tuple[int, int], layout: str) -> Iterator[tuple[int, int]]:
    """Yield the tags of the dynamic section, which is (offset, size), each with its value."""
    offset, size = section
    file.seek(offset)
    table = file.read(min(size, _HEADERS))
    whole = len(table) - len(table) % struct.calcsize(layout)
    yield from takewhile(lambda pair: pair[0] != 0, struct.iter_unpack(layout, table[:whole]))


def _read_text(file: BinaryIO, offset: int) -> str:
    file.seek(offset)
    data = file.read(_TEXT)
    return data[: data.index(b"\0")].decode("utf-8", "surrogateescape")
