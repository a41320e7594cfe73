"""The numbers of system calls, and the node masks of memory policies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.execution.mempolicy import make_nodemask, parse_nodemask
from ompbind.execution.syscalls import Abi, find_abi


@pytest.mark.parametrize(
    ("program", "numbers"),
    [
        (("x86_64", 8, "x86_64-linux-gnu"), (239, 238, 298)),
        (("i686", 8, "x86_64-linux-gnu"), (239, 238, 298)),  # under setarch
        (("x86_64", 4, "i386-linux-gnu"), (275, 276, 336)),
        (("i686", 4, ""), (275, 276, 336)),
        (("aarch64", 8, ""), (236, 237, 241)),
        (("aarch64", 4, "arm-linux-gnueabihf"), (320, 321, 364)),
        (("armv7l", 4, ""), (320, 321, 364)),
        (("riscv64", 8, ""), (236, 237, 241)),
        (("loongarch64", 8, ""), (236, 237, 241)),
        (("ppc64le", 8, ""), (260, 261, 319)),
        (("s390x", 8, ""), (269, 270, 331)),
        (("mips64", 8, "mips64el-linux-gnuabi64"), (5228, 5229, 5292)),
        (("mips", 4, ""), (4269, 4270, 4333)),
        (("m68k", 4), None),
        (("x86_64", 16), None),
        (("sparc64", 8), None),
        (("x86_64", 4, "x86_64-linux-gnux32"), None),
        (("mips64", 4, "mips64el-linux-gnuabin32"), None),
    ],
)
def test_numbers_of_system_calls(program, numbers):
    abi = find_abi(*program)
    assert (abi and (abi.get_mempolicy, abi.set_mempolicy, abi.perf_event_open)) == numbers


def abi(word_bytes, is_big_endian):
    numbers = {"get_mempolicy": 1, "set_mempolicy": 2, "perf_event_open": 3}
    return Abi(**numbers, word_bytes=word_bytes, is_big_endian=is_big_endian)


@pytest.mark.parametrize(
    ("nodes", "word_bytes", "is_big_endian", "expected"),
    [
        ((0, 9, 64), 8, False, {0: 1, 1: 2, 8: 1}),
        ((0, 9, 64), 8, True, {7: 1, 6: 2, 15: 1}),
        ((0, 9, 33), 4, True, {3: 1, 2: 2, 7: 2}),
        ((1023,), 8, True, {120: 128}),
    ],
)
def test_masks_are_words_of_bits(nodes, word_bytes, is_big_endian, expected):
    mask = make_nodemask(CpuSet(nodes), abi(word_bytes, is_big_endian))
    assert len(mask) == 128
    assert {position: byte for position, byte in enumerate(mask) if byte} == expected


@given(st.frozensets(st.integers(0, 1023)), st.sampled_from((4, 8)), st.booleans())
def test_masks_are_read_as_they_are_written(nodes, word_bytes, is_big_endian):
    form = abi(word_bytes, is_big_endian)
    assert parse_nodemask(make_nodemask(CpuSet(nodes), form), form) == CpuSet(nodes)
