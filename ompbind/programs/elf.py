"""ELF headers: the architecture of a program or shared library, and the libraries that it needs.

The dynamic section names these libraries by offsets into a string table. To find that table:

    ELF header → program headers → PT_DYNAMIC segment → its tags (DT_NEEDED, DT_STRTAB, DT_RUNPATH, …)
                                → PT_LOAD segment that contains the address DT_STRTAB → offset in the file

Only these parts are read, a few hundred bytes, because each start of a rank reads them. The layouts are in
the System V ABI, chapters 4 and 5. All offsets and sizes are in bytes.
"""

from __future__ import annotations

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
"""Names of architectures by their number in the ELF header (`e_machine`)."""

SYSTEM_LIBRARY_PREFIXES = (
    "libc.so", "libm.so", "libdl.so", "librt.so", "libpthread.so", "libutil.so", "libgcc_s.so", "ld-linux",
    "ld64", "libz.so", "libexpat.so", "libtinfo.so", "libcrypt.so", "libresolv.so", "libselinux.so",
)  # fmt: skip
"""Beginnings of the names of system libraries that never need a library with threads."""

_LOAD, _DYNAMIC, _INTERPRETER = 1, 2, 3  # types of segments (PT_LOAD, PT_DYNAMIC, PT_INTERP)
_NEEDED, _STRINGS, _SONAME, _RPATH, _RUNPATH = 1, 5, 14, 15, 29  # dynamic tags (DT_NEEDED, DT_STRTAB, …)
_HEADER = {64: "18xH12xQ14xHH", 32: "18xH8xI10xHH"}  # machine; offset, size and number of program headers
_SEGMENT = {64: "I4xQQ8xQ", 32: "III4xI"}  # a program header: type, offset, address and size of the segment
_TAG = {64: "QQ", 32: "II"}  # an entry of the dynamic section: tag and value
"""The fields that are read of files with 64 and with 32 bits, for the module `struct`."""

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
        except (ValueError, struct.error):
            return None


def read_header(path: str) -> Elf | None:
    """Read the header of an ELF file; None also for an unreadable file and for an empty path."""
    try:
        return read_elf(path) if os.path.isfile(path) else None  # opening a pipe would block
    except OSError:
        return None


def _parse(file: BinaryIO, head: bytes) -> Elf:
    """Read a file whose first bytes are `head`; raises ValueError or struct.error if it is truncated."""
    bits, is_little_endian = 64 if head[4:5] == b"\2" else 32, head[5:6] == b"\1"
    order = "<" if is_little_endian else ">"
    machine, start, length, count = struct.unpack_from(order + _HEADER[bits], head)
    segments = list(_read_segments(file, start, length, count, order + _SEGMENT[bits]))
    section = next(((offset, size) for kind, offset, _, size in segments if kind == _DYNAMIC), (0, 0))
    file.seek(section[0])
    table, size = file.read(min(section[1], _HEADERS_LIMIT)), struct.calcsize(order + _TAG[bits])
    entries = struct.iter_unpack(order + _TAG[bits], table[: len(table) // size * size])
    tags = list(takewhile(lambda entry: entry[0], entries))  # up to DT_NULL
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
        machine=machine,
        bits=bits,
        is_little_endian=is_little_endian,
        needed=tuple(found.get(_NEEDED, ())),
        search_path=tuple(filter(None, found.get(_RUNPATH, found.get(_RPATH, [""]))[-1].split(":"))),
        is_runpath=_RUNPATH in found,
        soname=found.get(_SONAME, [""])[-1],
        static=_NEEDED not in found and all(kind != _INTERPRETER for kind, *_ in segments),
    )


def _read_segments(
    file: BinaryIO, start: int, length: int, count: int, form: str
) -> Iterator[tuple[int, int, int, int]]:
    """Yield (kind, offset, address, size) of the PT_LOAD, PT_DYNAMIC and PT_INTERP segments."""
    file.seek(start)
    table = file.read(min(length * count, _HEADERS_LIMIT))
    for at in range(0, len(table), length or 1):
        kind, offset, address, size = struct.unpack_from(form, table, at)
        if kind in (_LOAD, _DYNAMIC, _INTERPRETER):
            yield kind, offset, address, size
