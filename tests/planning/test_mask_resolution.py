"""Masks on machines: which CPUs they name, and why some cannot be used."""

import pytest

from ompbind.cpuset import CpuSet
from ompbind.errors import MaskError
from ompbind.masks.mask import parse_mask
from ompbind.planning.mask_resolution import select
from ompbind.planning.occupancy import AvailableCpus
from tests.machines import Shape, make_machine

TWO_BY_FOUR = Shape(packages=2, nodes=1, cores=4, smt=2)  # CPUs 0-7 and their siblings 8-15
DUAL = make_machine(TWO_BY_FOUR)


def parts(text, machine=DUAL, **options):
    return [list(part) for part in select(parse_mask(text), AvailableCpus(machine=machine), **options)[0]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3,1,2", [[3, 1, 2]]),
        ("0,0-1,1", [[0, 1]]),
        ("core:1", [[1, 9]]),
        ("node:1", [[4, 12, 5, 13, 6, 14, 7, 15]]),
        ("package:1.core:0-1", [[4, 12, 5, 13]]),
        ("node:#1.core:3", [[7, 15]]),
        ("node:0-1.core:0", [[0, 8, 4, 12]]),
        ("all,^0-14", [[15]]),
        ("^node:0,^8-15", [[4, 5, 6, 7]]),
        ("0-3|4-7", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("0x101", [[0, 8]]),
        ("all,^8-15,^0", [[1, 2, 3, 4, 5, 6, 7]]),
    ],
)
def test_names_cpus_in_order(text, expected):
    assert parts(text) == expected


def test_logical_numbers_count_among_the_allowed():
    machine = make_machine(TWO_BY_FOUR, allowed=CpuSet([5, 6, 13]))
    assert parts("core:0", machine) == [[5, 13]]
    assert parts("node:0", machine) == [[5, 13, 6]]
    assert parts("node:#1", machine) == [[5, 13, 6]]
    assert parts("all", machine) == [[5, 13, 6]]


LIMITED = make_machine(TWO_BY_FOUR, allowed=CpuSet(range(8)), offline=CpuSet([16, 17]))


@pytest.mark.parametrize(
    ("text", "message", "marked"),
    [
        ("0,99", "CPU 99 does not exist", "99"),
        ("90-99", "CPUs 90-99 do not exist", "90-99"),
        ("0|16-17", "CPUs 16-17 are offline", "16-17"),
        ("7-8", "CPU 8 is not allowed", "7-8"),
        ("0,node:2", "no node with index 2", "node:2"),
        ("node:#7", "no node with number 7", "node:#7"),
        ("book:0", "has no book domains", "book:0"),
        ("1,^1", "no CPU is left", "1,^1"),
        ("0-3,^99", "CPU 99 does not exist", "^99"),
        ("core:#0", "no OS numbers", "core:#0"),
        ("package:0.core:9,99", "no core with index 9", "core:9"),
        ("0,^book:0", "has no book domains", "book:0"),
        ("all,^node:0-7", "no node with index 2-7", "node:0-7"),
        ("package:0.node:#1", "no node with number 1 among", "node:#1"),
    ],
)
def test_tells_apart_why_cpus_cannot_be_used(text, message, marked):
    with pytest.raises(MaskError, match=message) as caught:
        parts(text, LIMITED)
    start, stop = caught.value.span
    assert text[start:stop] == marked


def test_partial_masks_drop_what_cannot_be_used_and_say_so():
    chosen, dropped = select(parse_mask("6-9,16"), AvailableCpus(machine=LIMITED), allow_partial=True)
    assert chosen == ((6, 7),)
    assert dropped[0].startswith("CPUs 8-9 are not allowed")
    assert dropped[1].startswith("CPU 16 is offline")
    _, dropped = select(parse_mask("0-20"), AvailableCpus(machine=LIMITED), allow_partial=True)
    assert [text.split(" on ")[0].split(":")[0] for text in dropped] == [
        "CPUs 18-20 do not exist",
        "CPUs 16-17 are offline",
        "CPUs 8-15 are not allowed here",
    ]
    with pytest.raises(MaskError, match="no CPU is left"):
        parts("99", LIMITED, allow_partial=True)


def test_partial_masks_drop_domains_that_are_not_there():
    chosen, dropped = select(
        parse_mask("node:1-3,package:0-1.core:3-4"), AvailableCpus(machine=DUAL), allow_partial=True
    )
    assert chosen == ((4, 12, 5, 13, 6, 14, 7, 15, 3, 11),)
    assert dropped == (
        "there is no node with index 2-3 among the allowed CPUs there",
        "there is no core with index 4 among the allowed CPUs there",
    )


def test_what_is_there_but_not_allowed_can_be_taken_away():
    second = make_machine(TWO_BY_FOUR, allowed=CpuSet(range(4, 8)), offline=CpuSet([16]))
    assert parts("all,^node:#0,^0-4,^16", second) == [[5, 6, 7]]
