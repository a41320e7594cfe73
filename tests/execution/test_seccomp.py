"""The filter of --hold, run by an interpreter of its instructions as by the kernel of each architecture."""

import struct

import pytest

from ompbind.execution.seccomp import ALLOW, EQUAL, LOAD, NOTIFY, OWN_SIZE, RETURN, SET_AFFINITY, make_filter

X86_64, I386, AARCH64, LOONGARCH64 = 0xC000003E, 0x40000003, 0xC00000B7, 0xC0000102


def run_filter(arch, number, size, order="little"):
    """Return what the filter answers to a call: an instruction may only jump forward, to a whole one."""
    sign = "<" if order == "little" else ">"
    data = struct.pack(f"{sign}IIQ6Q", number, arch, 0, 1, size, 2, 3, 4, 5)
    program, at, word = make_filter(NOTIFY, order), 0, None
    while True:
        code, if_true, if_false, value = program[at]
        at += 1
        if code == LOAD:
            (word,) = struct.unpack_from(f"{sign}I", data, value)
        elif code == EQUAL:
            assert max(if_true, if_false) < 256
            at += if_true if word == value else if_false
        else:
            assert code == RETURN
            return value


@pytest.mark.parametrize("arch", SET_AFFINITY)
@pytest.mark.parametrize("order", ["little", "big"])
def test_only_the_calls_that_set_an_affinity_mask_are_stopped(arch, order):
    numbers = SET_AFFINITY[arch]
    near = {
        number + step for number in (*numbers, 0, 122, 203, 222, 239, 241) for step in (-1, 0, 1, 1 << 30)
    }
    stopped = {number for number in near if number >= 0 and run_filter(arch, number, 128, order) == NOTIFY}
    assert stopped == set(numbers)
    assert {run_filter(arch, number, OWN_SIZE, order) for number in numbers} == {ALLOW}
    for other_size in (OWN_SIZE + 1, OWN_SIZE << 32):
        assert {run_filter(arch, number, other_size, order) for number in numbers} == {NOTIFY}


@pytest.mark.parametrize(("arch", "number", "answer"), [
    (X86_64, 203, NOTIFY), (X86_64, 203 | 1 << 30, NOTIFY), (X86_64, 241, ALLOW), (I386, 241, NOTIFY),
    (I386, 203, ALLOW), (AARCH64, 122, NOTIFY), (AARCH64, 123, ALLOW), (LOONGARCH64, 122, ALLOW),
])  # fmt: skip
def test_the_number_counts_for_its_architecture(arch, number, answer):
    assert run_filter(arch, number, 8) == answer
