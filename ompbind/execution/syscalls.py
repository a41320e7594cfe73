"""System calls without a function in the C library: their numbers, which differ between architectures."""

import os
import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from ompbind.errors import LaunchError
from ompbind.record import Record


class Abi(Record):
    """The numbers of system calls for programs of a kind, and the words (C `unsigned long`) that they use."""

    get_mempolicy: int
    set_mempolicy: int
    perf_event_open: int
    word_bytes: int
    is_big_endian: bool


_X86, _ARM, _NEW = r"x86_64|i[3-6]86", r"arm.*|aarch64.*", r"riscv.*|loongarch.*"
_CALLS: tuple[tuple[str, tuple[int, ...], tuple[int, int, int]], ...] = (
    (_X86, (8,), (239, 238, 298)),
    (_X86, (4,), (275, 276, 336)),
    (_ARM, (8,), (236, 237, 241)),
    (_ARM, (4,), (320, 321, 364)),
    (_NEW, (4, 8), (236, 237, 241)),
    (r"ppc.*", (4, 8), (260, 261, 319)),
    (r"s390x?", (4, 8), (269, 270, 331)),
    (r"mips.*", (8,), (5228, 5229, 5292)),
    (r"mips.*", (4,), (4269, 4270, 4333)),
)
"""uname machine, bytes per word → get_mempolicy, set_mempolicy, perf_event_open."""

_UNKNOWN = ("x32", "abin32")
"""How triplets of programs end that have other numbers than programs with words of equal size."""


def find_abi(machine: str, word_bytes: int, triplet: str = "", *, is_big_endian: bool = False) -> Abi | None:
    """Return the interface for programs of a kind; None if `_CALLS` has no row for it.

    `machine` is from uname, so it can be the name of a 64-bit kernel for a 32-bit program. `triplet` is the
    multiarch name of the interpreter, "" if it has none.
    """
    for machines, sizes, (get, set_, perf) in _CALLS:
        if re.fullmatch(machines, machine) and word_bytes in sizes and not triplet.endswith(_UNKNOWN):
            return Abi(
                get_mempolicy=get,
                set_mempolicy=set_,
                perf_event_open=perf,
                word_bytes=word_bytes,
                is_big_endian=is_big_endian,
            )
    return None


class Syscalls(Record):
    """The system calls of this machine.

    `call` takes a number and arguments, and returns the result of the call, or -errno.
    """

    abi: Abi
    call: Callable[..., int]


@cache
def load_syscalls() -> Syscalls:
    """Return the system calls of this machine; raises LaunchError if they are unknown."""
    try:
        import ctypes  # noqa: PLC0415 - door: loads libffi, which some Pythons lack
    except ImportError as error:
        raise LaunchError("this Python has no ctypes") from error
    library = ctypes.CDLL(None, use_errno=True)
    # syscall() is variadic: every argument must be passed as a long or a pointer.
    library.syscall.argtypes, library.syscall.restype = (ctypes.c_long,), ctypes.c_long
    machine, triplet = os.uname().machine, getattr(sys.implementation, "_multiarch", "")
    word_bytes = ctypes.sizeof(ctypes.c_long)
    abi = find_abi(machine, word_bytes, triplet, is_big_endian=sys.byteorder == "big")
    if abi is None:
        raise LaunchError(f"unknown system calls on {machine}")

    def call(number: int, *arguments: Any) -> int:
        converted = (ctypes.c_long(value) if isinstance(value, int) else value for value in arguments)
        result: int = library.syscall(number, *converted)
        return -ctypes.get_errno() if result == -1 else result

    return Syscalls(abi=abi, call=call)
