"""Measures of placements."""

import pytest

from ompbind.cpuset import CpuSet
from ompbind.machine.model import CoreKind, Level
from ompbind.planning.metrics import measure, measure_plan
from tests.machines import make_machine
from tests.planning.test_planner import DUAL, SNC, plan

HYBRID = (
    CoreKind(name="performance", cpus=CpuSet.from_list("0-1,4-5,8-15"), strength=1024, source="type"),
    CoreKind(name="efficiency", cpus=CpuSet.from_list("2-3,6-7"), strength=500, source="type"),
)


def measured(shape, ranks, **changes):
    machine = make_machine(shape, **changes)
    return measure(machine, machine.allowed, [CpuSet.from_list(cpus) for cpus in ranks.split()])


@pytest.mark.parametrize(("shape", "ranks", "idle", "shared", "imbalance", "crossing"), [
    (DUAL, "0-3 4-6", 1, 0, 1, (0, 0, 0)), (DUAL, "0 8", 7, 1, 0, (0, 0, 0)),
    (DUAL, "0-7 0-7", 0, 8, 0, (0, 0, 0)), (DUAL, "0-2 3-4 5-7", 0, 0, 1, (1, 1, 1)),
    (DUAL, "0-4 5-7", 0, 0, 2, (0, 0, 0)), (SNC, "2-5 6-9", 8, 0, 0, (2, 1, 2)),
])  # fmt: skip
def test_measures_of_a_placement(shape, ranks, idle, shared, imbalance, crossing):
    found = measured(shape, ranks)
    assert (found.idle, found.shared, found.largest - found.smallest) == (idle, shared, imbalance)
    assert [boundary.level for boundary in found.borders] == [Level.NODE, Level.PACKAGE, Level.L3]
    assert tuple(boundary.crossing for boundary in found.borders) == crossing


def test_domains_kinds_and_idle_cores_are_counted():
    assert [border.touched for border in measured(SNC, "2-5 0-1 6-15").borders] == [6, 4, 6]
    assert measured(DUAL, "0-3 4-5 6", kinds=HYBRID).mixed == 1
    assert measured(DUAL, "0-1 2-3", allowed=CpuSet.from_list("0-4")).idle == 1
    assert measure_plan(plan(DUAL, ranks=2, reserve=1)).idle == 0
