"""System calls that Python has no functions for, by their numbers, which differ between architectures.

Each call returns its result, or the negative error number. The numbers are those of the kernel's tables
(`syscall.tbl`, `unistd.h`).
"""

import os
import re
import sys
from functools import cache
from typing import Any, NamedTuple

from ompbind.cpuset import CpuSet
from ompbind.errors import LaunchError


class Numbers(NamedTuple):
    """The numbers of the system calls that ompbind makes itself."""

    get_mempolicy: int
    set_mempolicy: int
    sched_setaffinity: int
    seccomp: int


_X86, _ARM, _NEW = r"x86_64|i[3-6]86", r"arm.*|aarch64.*", r"riscv.*|loongarch.*"
_NUMBERS = (
    (_X86, (8,), Numbers(239, 238, 203, 317)),
    (_X86, (4,), Numbers(275, 276, 241, 354)),
    (_ARM, (8,), Numbers(236, 237, 122, 277)),
    (_ARM, (4,), Numbers(320, 321, 241, 383)),
    (_NEW, (4, 8), Numbers(236, 237, 122, 277)),
    (r"ppc.*", (4, 8), Numbers(260, 261, 222, 358)),
    (r"s390x?", (4, 8), Numbers(269, 270, 239, 348)),
)
"""uname machine, bytes per word (C `unsigned long`) of a program → its numbers."""


def find_numbers(machine: str, word_bytes: int, triplet: str = "") -> Numbers | None:
    """Return the numbers of system calls of a program; None if they are not known.

    `machine` is from uname, so it can be the name of a 64-bit kernel for a 32-bit program. `triplet` is the
    multiarch name of the interpreter, "" if it has none; x32 has other numbers than programs of equal words.
    """
    for machines, sizes, numbers in _NUMBERS:
        if re.fullmatch(machines, machine) and word_bytes in sizes and not triplet.endswith("x32"):
            return numbers
    return None


_HINT = "use the Python of the system, or omit --memory and --hold"


class Calls:
    """The C library's `syscall`; raises LaunchError if the numbers are not known.

    `word_bytes` is the size of a word (C `unsigned long`), `ctypes` the module, which some Pythons lack.
    """

    def __init__(self) -> None:
        message = "system calls cannot be made: "
        try:
            import ctypes  # noqa: PLC0415 - door: loads libffi, which some Pythons lack
        except ImportError as error:
            raise LaunchError(f"{message}this Python has no ctypes", hint=_HINT) from error
        self.ctypes = ctypes
        self._library = ctypes.CDLL(None, use_errno=True)
        # syscall() is variadic: every argument must be passed as a long or a pointer.
        self._library.syscall.argtypes, self._library.syscall.restype = (ctypes.c_long,), ctypes.c_long
        machine, self.word_bytes = os.uname().machine, ctypes.sizeof(ctypes.c_long)
        numbers = find_numbers(machine, self.word_bytes, getattr(sys.implementation, "_multiarch", ""))
        if numbers is None or sys.platform != "linux":
            raise LaunchError(f"{message}their numbers on {machine} are unknown", hint=_HINT)
        self.numbers = numbers

    def call(self, number: int, *arguments: Any) -> int:
        """Make a system call; an argument is an int, a pointer, or bytes that the kernel reads."""
        long = self.ctypes.c_long
        converted = (long(value) if isinstance(value, int) else value for value in arguments)
        result: int = self._library.syscall(number, *converted)
        return -self.ctypes.get_errno() if result == -1 else result


load_calls = cache(Calls)


def make_mask(numbers: CpuSet, size: int, word_bytes: int, byteorder: str = sys.byteorder) -> bytes:
    """Return a mask of CPUs or nodes for the kernel: `size` bytes, the first word for the lowest numbers."""
    return _swapped(numbers.bits.to_bytes(size, "little"), word_bytes, byteorder)


def parse_mask(mask: bytes, word_bytes: int, byteorder: str = sys.byteorder) -> CpuSet:
    """Return the numbers in a mask of the kernel."""
    return CpuSet.from_bits(int.from_bytes(_swapped(mask, word_bytes, byteorder), "little"))


def _swapped(mask: bytes, word_bytes: int, byteorder: str) -> bytes:
    if byteorder != "big":
        return mask
    return b"".join(mask[at : at + word_bytes][::-1] for at in range(0, len(mask), word_bytes))
