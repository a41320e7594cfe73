"""The binary interface of memory policies: masks of NUMA nodes.

A mask is an array of words (C `unsigned long`), whose size and byte order depend on the program, not on the
kernel.
"""

from ompbind.cpuset import CpuSet
from ompbind.execution.syscalls import Abi
from ompbind.machine.model import MAX_NODES

DEFAULT = 0
"""The mode of a thread without a policy (MPOL_DEFAULT)."""

MAXNODE = MAX_NODES + 1
"""The size of every mask in bits, plus one: the kernel subtracts one from the `maxnode` argument."""


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
