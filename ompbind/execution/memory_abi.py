"""The binary interface of memory policies: system call numbers, and masks of NUMA nodes.

System call numbers differ between architectures. A mask is an array of words (C `unsigned long`), whose size
and byte order depend on the program, not on the kernel.
"""

import re

from ompbind.cpuset import CpuSet
from ompbind.machine.model import MAX_NODES
from ompbind.record import Record

DEFAULT = 0
"""The mode of a thread without a policy (MPOL_DEFAULT)."""

MAXNODE = MAX_NODES + 1
"""The size of every mask in bits, plus one: the kernel subtracts one from the `maxnode` argument."""


class Abi(Record):
    """Numbers of get_mempolicy (`get`) and set_mempolicy (`set`), and the words that masks consist of."""

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
"""uname machine, bytes per word, end of triplet → get_mempolicy, set_mempolicy; the first match counts."""


def find_abi(machine: str, word_bytes: int, triplet: str = "", *, is_big_endian: bool = False) -> Abi | None:
    """Return the interface for programs of a kind; None if `_CALLS` has no row for it.

    `machine` is from uname, so it can be the name of a 64-bit kernel for a 32-bit program. `triplet` is the
    multiarch name of the interpreter, "" if it has none. Only the triplet distinguishes two kinds of programs
    with words of equal size, such as i386 and x32.
    """
    for machines, sizes, end, (get, set_) in _CALLS:
        if re.fullmatch(machines, machine) and word_bytes in sizes and triplet.endswith(end):
            return Abi(get=get, set=set_, word_bytes=word_bytes, is_big_endian=is_big_endian)
    return None


def make_nodemask(nodes: CpuSet, abi: Abi) -> bytes:
    """Make the mask of some nodes for the kernel: words of bits, the first word for the lowest nodes."""
    return _swapped(nodes.bits.to_bytes(MAX_NODES // 8, "little"), abi)


def parse_nodemask(mask: bytes, abi: Abi) -> CpuSet:
    """Return the nodes in a mask from the kernel."""
    return CpuSet.from_bits(int.from_bytes(_swapped(mask, abi), "little"))


def _swapped(mask: bytes, abi: Abi) -> bytes:
    """Reverse the bytes of each word if the interface is big-endian."""
    if not abi.is_big_endian:
        return mask
    words = range(0, len(mask), abi.word_bytes)
    return b"".join(mask[at : at + abi.word_bytes][::-1] for at in words)
