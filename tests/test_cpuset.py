"""CpuSet and its text forms."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CPU_LIMIT, CpuSet, union
from tests.machines import kernel_mask

numbers = st.sets(st.integers(0, 5000), max_size=40)


@pytest.mark.parametrize(("read", "text", "cpus"), [
    *((CpuSet.from_list, *row) for row in [
        ("", []), ("(null)", []), ("\n", []), ("5", [5]), ("0-3,8", [0, 1, 2, 3, 8]), (" 0-1\n", [0, 1]),
        ("0-3\0", [0, 1, 2, 3]), ("0-7:2", [0, 2, 4, 6]), ("0-15:2/8", [0, 1, 8, 9]),
    ]),
    *((CpuSet.from_mask, *row) for row in [
        ("ff", [*range(8)]), ("1,00000000", [32]), ("0", []), ("00000000,00000003\n", [0, 1]),
        ("3,0", [32, 33]), ("f\0", [0, 1, 2, 3]),
    ]),
])  # fmt: skip
def test_reads_kernel_lists_and_masks(read, text, cpus):
    assert list(read(text)) == cpus


LISTS = [
    "x", "1-", "0-7:", "0-7:4/", "-1", "3-1", "1,,2", "0-7:0", "0-7:3/2", "9" * 9, "1_0", "٣",
    f"{CPU_LIMIT}",
]  # fmt: skip
MASKS = ["", "xyz", "-1", "+1", "0xff", "1_0", "f" * CPU_LIMIT, f"1,{'0' * 8}" + f",{'0' * 8}" * 2048]


@pytest.mark.parametrize(("read", "text"), [
    *((CpuSet.from_list, text) for text in LISTS), *((CpuSet.from_mask, text) for text in MASKS),
])  # fmt: skip
def test_refuses_other_text(read, text):
    with pytest.raises(ValueError, match="."):
        read(text)


@given(numbers)
def test_text_forms_lose_nothing(cpus):
    made = CpuSet(cpus)
    assert CpuSet.from_list(str(made)) == made
    assert CpuSet.from_mask(kernel_mask(made)) == made
    assert list(made) == sorted(cpus)
    assert len(made) == len(cpus)
    assert eval(repr(made), {"CpuSet": CpuSet}) == made
    assert pickle.loads(pickle.dumps(made)) == made


@given(numbers, numbers)
def test_behaves_as_a_set(left, right):
    a, b = CpuSet(left), CpuSet(right)
    assert set(a | b) == left | right
    assert set(a & b) == left & right
    assert set(a - b) == left - right
    assert (a <= b) == (left <= right)
    assert (a < b) == (left < right)
    assert a.isdisjoint(b) == left.isdisjoint(right)
    assert (a == b) == (left == right)
    assert union([a, b]) == a | b
    assert hash(a) == hash(CpuSet(sorted(left, reverse=True)))
