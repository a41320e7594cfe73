"""Measures of placements, and the reasons for plans."""

import pytest

from ompbind.cpuset import CpuSet
from ompbind.machine.model import CoreKind, Level
from ompbind.openmp.binding import Bind
from ompbind.planning.metrics import measure, measure_plan
from ompbind.planning.rationale import make_reasons
from ompbind.planning.request import MemoryMode
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
    (DUAL, "0-3 4-7", 0, 0, 0, (0, 0, 0)), (DUAL, "0-3 4-6", 1, 0, 1, (0, 0, 0)),
    (DUAL, "0-3,8-11 4-7,12-15", 0, 0, 0, (0, 0, 0)), (DUAL, "0 8", 7, 1, 0, (0, 0, 0)),
    (DUAL, "0-7 0-7", 0, 8, 0, (0, 0, 0)), (DUAL, "0-2 3-4 5-7", 0, 0, 1, (1, 1, 1)),
    (DUAL, "0-4 5-7", 0, 0, 2, (0, 0, 0)), (SNC, "2-5 6-9", 8, 0, 0, (2, 1, 2)),
])  # fmt: skip
def test_measures_of_a_placement(shape, ranks, idle, shared, imbalance, crossing):
    found = measured(shape, ranks)
    assert (found.idle, found.shared, found.imbalance) == (idle, shared, imbalance)
    assert [boundary.level for boundary in found.borders] == [Level.NODE, Level.PACKAGE, Level.L3]
    assert tuple(boundary.crossing for boundary in found.borders) == crossing


def test_domains_kinds_and_idle_cores_are_counted():
    assert [border.touched for border in measured(SNC, "2-5 0-1 6-15").borders] == [6, 4, 6]
    assert measured(DUAL, "0-3 4-5 6", kinds=HYBRID).mixed == 1
    assert measured(DUAL, "0-1 2-3", allowed=CpuSet.from_list("0-4")).idle == 1
    assert measure_plan(plan(DUAL, ranks=2, reserve=1)).idle == 0


@pytest.mark.parametrize(("changes", "options", "about", "text"), [
    ({}, {"ranks": 3}, "borders", "1 of 3 ranks is split"), ({}, {"ranks": 2}, "borders", "No rank is split"),
    ({}, {"ranks": 3}, "shares", "2 ranks with 3 cores each; 1 rank with 2 cores"),
    ({}, {"ranks": 2, "strategy": "compact", "threads": 1}, "shares", "6 cores are idle"),
    ({}, {"ranks": 12}, "hardware threads", "2 of 2 hardware threads per core are used: there are more"),
    ({}, {"ranks": 2}, "hardware threads", "1 of 2 hardware threads per core is used"),
    ({}, {"ranks": 2, "smt": "all"}, "hardware threads", "--smt all requests this"),
    ({}, {"mask": "0,8"}, "hardware threads", "the mask names them"),
    ({}, {"mask": "0,8"}, "CPUs", "The mask selects 0,8."),
    ({}, {"ranks": None, "strategy": "packages"}, "ranks", "2 ranks: one per package"),
    ({}, {"ranks": None, "mask": "0|1|2"}, "ranks", "3 ranks: one per part of the mask"),
    ({}, {"ranks": None, "mask": "none"}, "ranks", "1 rank: all ranks would get the same CPUs"),
    ({}, {"ranks": 2, "reserve_total": 2}, "reserve", "2 cores are reserved"),
    ({}, {"ranks": 2, "threads": 9}, "threads", "9 threads per rank, as requested"),
    ({}, {"ranks": 2, "bind": Bind.EXACT}, "binding", "bound to one CPU each"),
    ({}, {"mask": "none"}, "binding", "are not bound further"),
    ({}, {"ranks": 2}, "memory", "ompbind sets no policy"),
    ({}, {"ranks": 2, "memory": MemoryMode.INTERLEAVE}, "memory", "as requested."),
    ({"quota": 2.5}, {"ranks": 2}, "threads", "the CPU quota of the cgroup is 2.5, which 2 ranks share"),
    ({"bindable": False}, {"ranks": 2}, "binding", "cannot confine"),
    ({"allowed": CpuSet(range(6))}, {"ranks": 2}, "CPUs", "6 of 16 CPUs are allowed"),
    ({"isolated": CpuSet([6, 7])}, {"ranks": 2}, "CPUs", "CPUs 6-7 are isolated"),
    ({"memory_allowed": CpuSet([1])}, {"ranks": 2}, "CPUs", "CPUs 0-3,8-11 are used last"),
])  # fmt: skip
def test_every_choice_has_its_reason(changes, options, about, text):
    made = plan(None, make_machine(DUAL, **changes), **options)
    assert text in {reason.about: reason.text for reason in make_reasons(made, measure_plan(made))}[about]
