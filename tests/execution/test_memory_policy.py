"""The numbers of system calls, and the node masks of memory policies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.execution.memory_policy import find_calls, make_nodemask, parse_nodemask


@pytest.mark.parametrize(("program", "numbers"), [
    (("x86_64", 8, "x86_64-linux-gnu"), (239, 238)), (("i686", 8, "x86_64-linux-gnu"), (239, 238)),
    (("x86_64", 4, "i386-linux-gnu"), (275, 276)), (("x86_64", 4, "x86_64-linux-gnux32"), None),
    (("aarch64", 8), (236, 237)), (("aarch64", 4, "arm-linux-gnueabihf"), (320, 321)),
    (("armv7l", 4), (320, 321)), (("riscv64", 8), (236, 237)), (("loongarch64", 8), (236, 237)),
    (("ppc64le", 8), (260, 261)), (("s390x", 8), (269, 270)), (("m68k", 4), None),
])  # fmt: skip
def test_numbers_of_system_calls(program, numbers):
    assert find_calls(*program) == numbers


@pytest.mark.parametrize(("nodes", "word_bytes", "byteorder", "expected"), [
    ((0, 9, 64), 8, "little", {0: 1, 1: 2, 8: 1}), ((0, 9, 64), 8, "big", {7: 1, 6: 2, 15: 1}),
    ((0, 9, 33), 4, "big", {3: 1, 2: 2, 7: 2}), ((1023,), 8, "big", {120: 128}),
])  # fmt: skip
def test_masks_are_words_of_bits(nodes, word_bytes, byteorder, expected):
    mask = make_nodemask(CpuSet(nodes), word_bytes, byteorder)
    assert len(mask) == 128
    assert {position: byte for position, byte in enumerate(mask) if byte} == expected


@given(st.frozensets(st.integers(0, 1023)), st.sampled_from((4, 8)), st.sampled_from(("little", "big")))
def test_masks_are_read_as_they_are_written(nodes, size, order):
    assert parse_nodemask(make_nodemask(CpuSet(nodes), size, order), size, order) == CpuSet(nodes)
