"""Masks resolved on machines: which CPUs they name, and the errors for unusable CPUs."""

import pytest

from ompbind.cpuset import CpuSet
from ompbind.errors import MaskError
from ompbind.machine.sources.reading import read_machine
from ompbind.masks.parse import parse_mask
from ompbind.planning.mask_resolution import resolve_mask
from ompbind.planning.other_runs import AvailableCpus
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from tests.machines import Shape, make_machine

TWO_BY_FOUR = Shape(packages=2, nodes=1, cores=4, smt=2)  # CPUs 0-7 and their siblings 8-15
DUAL = make_machine(TWO_BY_FOUR)


def parts(text, machine=DUAL, **options):
    return [
        list(part) for part in resolve_mask(parse_mask(text), AvailableCpus(machine=machine), **options)[0]
    ]


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("l3:0", "0-3"),
        ("node:0.l3:0", "0-1"),
        ("node:1.l3:0", "2-3"),
        ("l3:0.node:1", "2-3"),
        ("l3:1.node:0", "4-5"),
        ("node:0.l3:0,node:3.l3:0", "0-1,6-7"),
        ("node:1.l3:0.core:0", "2"),
    ],
)
def test_a_selector_selects_only_within_the_selector_before_it(text, expected):
    """Each L3 spans two nodes of two CPUs."""
    machine = read_machine("synthetic:pack:2 l3:1 numa:2 core:2 pu:1")
    plan = make_plan(machine, Request(mask=parse_mask(text)))
    assert str(plan.used) == expected


LIMITED = make_machine(TWO_BY_FOUR, allowed=CpuSet(range(8)), offline=CpuSet([16, 17]))


@pytest.mark.parametrize(
    ("text", "message", "marked"),
    [
        ("0,99", "CPU 99 does not exist", "99"),
        ("90-99", "CPUs 90-99 do not exist", "90-99"),
        ("0|16-17", "CPUs 16-17 are offline", "16-17"),
        ("7-8", "CPU 8 is not allowed", "7-8"),
        ("0,node:2", "no node with index 2", "node:2"),
        ("node:#7", "no node with OS number 7", "node:#7"),
        ("book:0", "has no book domains", "book:0"),
        ("1,^1", "no CPU is left", "1,^1"),
        ("0-3,^99", "CPU 99 does not exist", "^99"),
        ("core:#0", "no OS numbers", "core:#0"),
        ("package:0.core:9,99", "no core with index 9", "core:9"),
        ("0,^book:0", "has no book domains", "book:0"),
        ("all,^node:0-7", "no node with index 2-7", "node:0-7"),
        ("package:0.node:#1", "no node with OS number 1 among", "node:#1"),
    ],
)
def test_each_reason_why_cpus_cannot_be_used_has_an_error(text, message, marked):
    with pytest.raises(MaskError, match=message) as caught:
        parts(text, LIMITED)
    start, stop = caught.value.span
    assert text[start:stop] == marked


def test_partial_masks_drop_and_report_unusable_cpus():
    chosen, dropped = resolve_mask(parse_mask("6-9,16"), AvailableCpus(machine=LIMITED), allow_partial=True)
    assert chosen == ((6, 7),)
    assert dropped[0].startswith("CPUs 8-9 are not allowed")
    assert dropped[1].startswith("CPU 16 is offline")
    _, dropped = resolve_mask(parse_mask("0-20"), AvailableCpus(machine=LIMITED), allow_partial=True)
    assert [text.split(" on ")[0].split(":")[0] for text in dropped] == [
        "CPUs 18-20 do not exist",
        "CPUs 16-17 are offline",
        "CPUs 8-15 are not allowed",
    ]
    with pytest.raises(MaskError, match="no CPU is left"):
        parts("99", LIMITED, allow_partial=True)


def test_partial_masks_drop_domains_that_do_not_exist():
    chosen, dropped = resolve_mask(
        parse_mask("node:1-3,package:0-1.core:3-4"), AvailableCpus(machine=DUAL), allow_partial=True
    )
    assert chosen == ((4, 12, 5, 13, 6, 14, 7, 15, 3, 11),)
    assert dropped == (
        "there is no node with index 2-3 among the allowed CPUs",
        "there is no core with index 4 among the allowed CPUs of the selector before it",
    )


def test_existing_cpus_that_are_not_allowed_can_be_excluded():
    second = make_machine(TWO_BY_FOUR, allowed=CpuSet(range(4, 8)), offline=CpuSet([16]))
    assert parts("all,^node:#0,^0-4,^16", second) == [[5, 6, 7]]
