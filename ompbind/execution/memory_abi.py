"""How programs tell the kernel of memory policies: the numbers of system calls, and masks of nodes.

The system calls that set and read a policy have other numbers on each architecture, and a mask is made of
words of the size and the byte order that programs there have.
"""

import re

from ompbind.cpuset import CpuSet
from ompbind.machine.model import NODES
from ompbind.record import Record

DEFAULT = 0
"""The kernel's mode of a process that has no policy (MPOL_DEFAULT)."""

MAXNODE = NODES + 1
"""What the kernel is told of the size of every mask: it takes one off before it counts bits."""


class Abi(Record):
    """How programs here call the kernel: numbers of get_mempolicy and set_mempolicy, words of masks."""

    get: int
    set: int
    word_bytes: int
    is_big_endian: bool


_X32 = 1 << 30
_X86, _ARM, _NEW = r"x86_64|i[3-6]86", r"arm.*|aarch64.*", r"riscv.*|loongarch.*"
_CALLS: tuple[tuple[str, tuple[int, ...], str, tuple[int, int]], ...] = (
    (_X86, (8,), "", (239, 238)),
    (_X86, (4,), "x32", (_X32 + 239, _X32 + 238)),
    (_X86, (4,), "", (275, 276)),
    (_ARM, (8,), "", (236, 237)),
    (_ARM, (4,), "", (320, 321)),
    (_NEW, (4, 8), "", (236, 237)),
    (r"ppc.*", (4, 8), "", (260, 261)),
    (r"s390x?", (4, 8), "", (269, 270)),
    (r"mips.*", (8,), "", (5228, 5229)),
    (r"mips.*", (4,), "abin32", (6232, 6233)),
    (r"mips.*", (4,), "", (4269, 4270)),
    (r"sparc.*", (4, 8), "", (304, 305)),
)
"""Machines, bytes of a word, end of the triplet → get_mempolicy, set_mempolicy; the first row counts."""


def find_abi(machine: str, word_bytes: int, triplet: str = "", *, is_big_endian: bool = False) -> Abi | None:
    """Return how programs of a kind call the kernel; None where nobody has written it down here.

    `machine` is what uname tells, which may be of a kernel with longer words. `triplet` is the multiarch
    name of the interpreter, "" where it has none: two kinds of programs on one processor that have words of
    one size have nothing else to tell them apart.
    """
    for machines, sizes, end, (get, set_) in _CALLS:
        if re.fullmatch(machines, machine) and word_bytes in sizes and triplet.endswith(end):
            return Abi(get=get, set=set_, word_bytes=word_bytes, is_big_endian=is_big_endian)
    return None


def make_nodemask(nodes: CpuSet, abi: Abi) -> bytes:
    """Write nodes as the kernel reads them: words of bits, the first word for the lowest nodes."""
    return _swapped(nodes.bits.to_bytes(NODES // 8, "little"), abi)


def parse_nodemask(mask: bytes, abi: Abi) -> CpuSet:
    """Read nodes as the kernel writes them."""
    return CpuSet.from_bits(int.from_bytes(_swapped(mask, abi), "little"))


def _swapped(mask: bytes, abi: Abi) -> bytes:
    """Turn the bytes of each word around where the highest comes first."""
    if not abi.is_big_endian:
        return mask
    words = range(0, len(mask), abi.word_bytes)
    return b"".join(mask[at : at + abi.word_bytes][::-1] for at in words)
