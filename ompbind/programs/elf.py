"""ELF headers: the architecture of a program or shared library, and the libraries that it needs.

The dynamic section names these libraries by offsets into a string table. To find that table:

    ELF header → program headers → PT_DYNAMIC segment → its tags (DT_NEEDED, DT_STRTAB, DT_RUNPATH, …)
                                → PT_LOAD segment that contains the address DT_STRTAB → offset in the file

Only these parts are read, a few hundred bytes, because each start of a rank reads them. The layouts are in
the System V ABI, chapters 4 and 5. All offsets and sizes are in bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import BinaryIO, Literal, TypeAlias

from ompbind.record import Record

Order: TypeAlias = Literal["little", "big"]
Fields: TypeAlias = tuple[tuple[int, int], ...]

ARCHITECTURES: Mapping[int, str] = {
    3: "i386", 8: "mips", 20: "ppc", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64",
    243: "riscv64", 258: "loongarch64",
}  # fmt: skip
"""Names of architectures by their number in the ELF header (`e_machine`)."""

SYSTEM_LIBRARY_PREFIXES = (
    "libc.so", "libm.so", "libdl.so", "librt.so", "libpthread.so", "libutil.so", "libgcc_s.so", "ld-linux",
    "ld64", "libz.so", "libexpat.so", "libtinfo.so", "libcrypt.so", "libresolv.so", "libselinux.so",
)  # fmt: skip
"""Beginnings of the names of system libraries that never need a library with threads."""

_LOAD, _DYNAMIC, _INTERPRETER = 1, 2, 3  # types of segments (PT_LOAD, PT_DYNAMIC, PT_INTERP)
_NEEDED, _STRINGS, _SONAME, _RPATH, _RUNPATH = 1, 5, 14, 15, 29  # dynamic tags (DT_NEEDED, DT_STRTAB, …)
_MACHINE: Fields = ((18, 2),)
_HEADER: Mapping[bool, Fields] = {True: ((32, 8), (54, 2), (56, 2)), False: ((28, 4), (42, 2), (44, 2))}
_SEGMENT: Mapping[bool, Fields] = {
    True: ((0, 4), (8, 8), (16, 8), (32, 8)),
    False: ((0, 4), (4, 4), (8, 4), (16, 4)),
}
_TAG: Mapping[bool, Fields] = {True: ((0, 8), (8, 8)), False: ((0, 4), (4, 4))}
"""The offset and the size of each field that is read, of files with 64 bits (True) and with 32 bits:

- ELF header: the offset of the program headers, the size of one, and their number
- program header: type, offset, address and size of the segment
- entry of the dynamic section: tag and value
"""

_HEADERS_LIMIT = 1 << 16  # bytes of program headers or of a dynamic section; real files have a tenth
_TEXT_LIMIT = 1 << 12  # bytes of a library name or search path


class Elf(Record):
    """The header of an ELF file: its architecture, and the libraries that it needs.

    `machine` is `e_machine`, `bits` 32 or 64, `soname` the file's own name as a library. `search_path` are
    the directories of its RUNPATH or else RPATH, with $ORIGIN unexpanded. `is_runpath`: it is a RUNPATH,
    which the linker searches after LD_LIBRARY_PATH (an RPATH before). `static`: no linker loads the file.
    """

    machine: int
    bits: int
    is_little_endian: bool
    needed: tuple[str, ...] = ()
    search_path: tuple[str, ...] = ()
    is_runpath: bool = False
    soname: str = ""
    static: bool = False

    @property
    def architecture(self) -> str:
        """The name of the architecture as in `uname -m`, or "machine N" for a number without a name."""
        name = ARCHITECTURES.get(self.machine, f"machine {self.machine}")
        if name == "x86_64" and self.bits == 32:
            return "x32"
        return f"{name}le" if name.startswith("ppc64") and self.is_little_endian else name

    def runs_with(self, other: Elf) -> bool:
        """Return whether both files can be loaded into one process."""
        is_same_machine = self.machine == other.machine and self.bits == other.bits
        return is_same_machine and self.is_little_endian == other.is_little_endian


def read_elf(path: str) -> Elf | None:
    """Read the header of an ELF file; None if it is not ELF or is damaged. Raises OSError."""
    with open(path, "rb") as file:
        head = file.read(64)
        if head[:4] != b"\x7fELF":
            return None
        try:
            return _parse(file, head)
        except ValueError:
            return None


def read_header(path: str) -> Elf | None:
    """Read the header of an ELF file; None also for an unreadable file and for an empty path."""
    try:
        return read_elf(path) if os.path.isfile(path) else None  # opening a pipe would block
    except OSError:
        return None


def _parse(file: BinaryIO, head: bytes) -> Elf:
    """Read a file whose first bytes are `head`; raises ValueError if it is truncated."""
    is_64_bit, is_little_endian = head[4:5] == b"\2", head[5:6] == b"\1"
    order: Order = "little" if is_little_endian else "big"
    segments = list(_read_segments(file, head, order, is_64_bit=is_64_bit))
    section = next(((offset, size) for kind, offset, _, size in segments if kind == _DYNAMIC), (0, 0))
    tags = list(_read_tags(file, *section, order, is_64_bit=is_64_bit))
    strings, found = dict(tags).get(_STRINGS), dict[int, list[str]]()
    start = next(  # the offset of the string table in the file; its tag has its address in memory
        (
            offset + strings - address
            for kind, offset, address, size in segments
            if strings is not None and kind == _LOAD and address <= strings < address + size
        ),
        0,
    )
    for tag, at in tags:
        if tag in (_NEEDED, _SONAME, _RPATH, _RUNPATH):
            file.seek(start + at)
            data = file.read(_TEXT_LIMIT)
            text = data[: data.index(b"\0")].decode("utf-8", "surrogateescape")
            found.setdefault(tag, []).append(text)
    return Elf(
        machine=_read_numbers(head, 0, _MACHINE, order)[0],
        bits=64 if is_64_bit else 32,
        is_little_endian=is_little_endian,
        needed=tuple(found.get(_NEEDED, ())),
        search_path=tuple(filter(None, found.get(_RUNPATH, found.get(_RPATH, [""]))[-1].split(":"))),
        is_runpath=_RUNPATH in found,
        soname=found.get(_SONAME, [""])[-1],
        static=_NEEDED not in found and all(kind != _INTERPRETER for kind, *_ in segments),
    )


def _read_segments(
    file: BinaryIO, head: bytes, order: Order, *, is_64_bit: bool
) -> Iterator[tuple[int, int, int, int]]:
    """Yield (kind, offset, address, size) of the PT_LOAD, PT_DYNAMIC and PT_INTERP segments."""
    start, length, count = _read_numbers(head, 0, _HEADER[is_64_bit], order)
    file.seek(start)
    table = file.read(min(length * count, _HEADERS_LIMIT))
    for at in range(0, len(table), length or 1):
        kind, offset, address, size = _read_numbers(table, at, _SEGMENT[is_64_bit], order)
        if kind in (_LOAD, _DYNAMIC, _INTERPRETER):
            yield kind, offset, address, size


def _read_tags(
    file: BinaryIO, offset: int, size: int, order: Order, *, is_64_bit: bool
) -> Iterator[tuple[int, int]]:
    """Yield the (tag, value) pairs of the dynamic section up to DT_NULL."""
    file.seek(offset)
    table = file.read(min(size, _HEADERS_LIMIT))
    length = sum(_TAG[is_64_bit][-1])
    for at in range(0, len(table) - length + 1, length):
        tag, value = _read_numbers(table, at, _TAG[is_64_bit], order)
        if tag == 0:
            return
        yield tag, value


def _read_numbers(data: bytes, at: int, fields: Fields, order: Order) -> list[int]:
    """Return the numbers of a structure at an offset; raises ValueError if it is truncated."""
    if at + sum(fields[-1]) > len(data):
        raise ValueError("truncated")
    return [int.from_bytes(data[at + start : at + start + size], order) for start, size in fields]
