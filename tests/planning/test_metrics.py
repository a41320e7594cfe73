"""Measures of placements, the reasons for plans, and plans side by side."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.machine.model import CoreKind, Level
from ompbind.planning.metrics import measure, measure_plan
from ompbind.planning.planner import make_plan
from ompbind.planning.rationale import make_reasons
from ompbind.planning.request import Bind, Request
from ompbind.report.plan_explanation import render_comparison, render_explanation
from tests.machines import Shape, make_machine
from tests.planning.test_planner import DUAL, POWER, SNC, plan

HYBRID = (
    CoreKind(name="performance", cpus=CpuSet.from_list("0-1,4-5,8-15"), strength=1024, source="type"),
    CoreKind(name="efficiency", cpus=CpuSet.from_list("2-3,6-7"), strength=500, source="type"),
)


def measured(shape, ranks, **changes):
    machine = make_machine(shape, **changes)
    return measure(machine, machine.allowed, [CpuSet.from_list(one) for one in ranks])


@pytest.mark.parametrize(
    ("shape", "ranks", "idle", "shared", "imbalance", "crossing"),
    [
        (DUAL, ["0-3", "4-7"], 0, 0, 0, (0, 0, 0)),
        (DUAL, ["0-3", "4-6"], 1, 0, 1, (0, 0, 0)),
        (DUAL, ["0-3,8-11", "4-7,12-15"], 0, 0, 0, (0, 0, 0)),
        (DUAL, ["0", "8"], 7, 1, 0, (0, 0, 0)),
        (DUAL, ["0-7", "0-7"], 0, 8, 0, (0, 0, 0)),
        (DUAL, ["0-2", "3-4", "5-7"], 0, 0, 1, (1, 1, 1)),
        (DUAL, ["0-4", "5-7"], 0, 0, 2, (0, 0, 0)),
        (SNC, ["0-3", "4-7"], 8, 0, 0, (0, 0, 0)),
        (SNC, ["2-5", "6-9"], 8, 0, 0, (2, 1, 2)),
        (SNC, ["0-7", "8-15"], 0, 0, 0, (0, 0, 0)),
    ],
)
def test_measures_count_what_anyone_can(shape, ranks, idle, shared, imbalance, crossing):
    found = measured(shape, ranks)
    assert (found.idle, found.shared, found.imbalance) == (idle, shared, imbalance)
    assert [border.level for border in found.borders] == [Level.NODE, Level.PACKAGE, Level.L3]
    assert tuple(border.crossing for border in found.borders) == crossing


def test_reach_is_summed_over_ranks():
    assert [border.touched for border in measured(SNC, ["2-5", "0-1", "6-15"]).borders] == [6, 4, 6]


def test_ranks_of_several_kinds_are_counted():
    assert measured(DUAL, ["0-3", "4-5", "6"], kinds=HYBRID).mixed == 1


def test_what_cannot_be_used_is_not_idle():
    found = measured(DUAL, ["0-1", "2-3"], allowed=CpuSet.from_list("0-4"))
    assert (found.idle, [border.crossing for border in found.borders]) == (1, [0, 0, 0])


def test_reserved_cores_are_not_idle():
    assert measure_plan(plan(DUAL, ranks=2, reserve=1)).idle == 0


@given(st.sampled_from([DUAL, SNC, POWER]), st.integers(1, 8), st.integers(0, 7))
def test_measures_do_not_depend_on_the_order_of_ranks(shape, ranks, turn):
    made = plan(shape, ranks=min(ranks, 4))
    sets = [one.cpuset for one in made.placements]
    machine = made.machine
    turned = sets[turn % len(sets) :] + sets[: turn % len(sets)]
    assert measure(machine, machine.allowed, sets) == measure(machine, machine.allowed, turned)


def reasons(made):
    return {one.about: one.text for one in make_reasons(made, measure_plan(made))}


@pytest.mark.parametrize(
    ("options", "about", "text"),
    [
        ({"ranks": 3},
         "borders", "1 of 3 ranks crosses borders of NUMA nodes, packages or L3s that could hold it: equal"),
        ({"ranks": 2},
         "borders", "No rank crosses borders of NUMA nodes, packages or L3s that could hold it."),
        ({"ranks": 2, "mask": "0-1,4|2"},
         "borders", "1 of 2 ranks crosses borders of NUMA nodes, packages or L3s that"),
        ({"ranks": 2, "mask": "3-4|2,5"}, "borders", "2 of 2 ranks cross borders of NUMA nodes, packages or"),
        ({"ranks": 3}, "shares", "2 ranks of 3 cores; 1 rank of 2 cores."),
        ({"ranks": 2, "strategy": "compact", "threads": 1}, "shares", "2 ranks of 1 core. 6 cores idle."),
        ({"ranks": 12},
         "hardware threads", "Of the 2 hardware threads of a core, 2 are used: there are more ranks"),
        ({"ranks": 2},
         "hardware threads", "Of the 2 hardware threads of a core, 1 is used: threads that compute"),
        ({"ranks": 2, "smt": "all"}, "hardware threads", "2 are used: --smt all says so."),
        ({"mask": "0,8"}, "hardware threads", "2 are used: those that the mask names."),
        ({"mask": "0,8"}, "CPUs", "The mask names which to use: 0,8."),
        ({"ranks": None}, "ranks", "2 ranks: one for each NUMA node."),
        ({"ranks": None, "strategy": "packages"}, "ranks", "2 ranks: one for each package."),
        ({"ranks": None, "strategy": "cores"}, "ranks", "8 ranks: one for each core."),
        ({"ranks": None, "strategy": "compact", "threads": 3},
         "ranks", "2 ranks: as many as there is room for."),
        ({"ranks": None, "mask": "0|1|2"}, "ranks", "3 ranks: one for each part of the mask."),
        ({"ranks": 2, "strategy": "spread"},
         "strategy", "spread: every rank gets as many cores as its threads need"),
        ({"ranks": None, "strategy": "compact"}, "ranks", "2 ranks: one for each NUMA node."),
        ({"ranks": None, "strategy": "all"}, "ranks", "1 rank: all ranks would get the same."),
        ({"ranks": None, "mask": "none"}, "ranks", "1 rank: all ranks would get the same."),
        ({"ranks": 12}, "strategy", "More ranks than cores: each has one, alone or with others."),
        ({"ranks": 3, "reserve": 1}, "borders", "that could hold it."),
        ({"ranks": 2, "reserve": 1}, "reserve", "1 core of each rank's share kept free"),
        ({"ranks": 2, "reserve_total": 2}, "reserve", "2 cores kept free"),
        ({"ranks": 2, "threads": 9}, "threads", "9 threads for each rank, as asked."),
        ({"ranks": 2}, "threads", "One for each CPU of a rank."),
        ({"ranks": 2, "bind": Bind.EXACT}, "binding", "keep to a CPU each, the first too"),
        ({"mask": "none"}, "binding", "are not bound any further"),
        ({"mask": "none"}, "strategy", "The mask is 'none': every rank may use everything"),
        ({"mask": "none"}, "hardware threads", "All hardware threads: the mask is 'none'."),
        ({"ranks": 2}, "memory", "nearest on the NUMA nodes of its own CPUs"),
    ],
)  # fmt: skip
def test_every_choice_has_its_reason(options, about, text):
    assert text in reasons(plan(DUAL, **options))[about]


@pytest.mark.parametrize(
    ("changes", "about", "text"),
    [
        ({"quota": 2.5}, "threads", "the cgroup allows 2.5 CPUs of time"),
        ({"bindable": False}, "binding", "cannot confine"),
        ({"allowed": CpuSet(range(6))}, "CPUs", "6 of 16 CPUs may be used here; the others are outside"),
        ({"isolated": CpuSet(range(16))}, "CPUs", "16 of 16 CPUs may be used here."),
        ({"isolated": CpuSet([7])}, "CPUs", "CPU 7 is isolated, and left to those who name it."),
        ({"isolated": CpuSet([6, 7])}, "CPUs", "CPUs 6-7 are isolated, and left to those who name them."),
    ],
)
def test_reasons_tell_of_the_machine(changes, about, text):
    made = make_plan(make_machine(DUAL, **changes), Request(ranks=2))
    assert text in reasons(made)[about]


@pytest.mark.parametrize(
    ("strategy", "why"),
    [("balanced", ": equal shares of the cores leave no other way."), ("compact", "."), ("spread", ".")],
)
def test_only_balanced_says_that_no_other_equal_shares_cross_fewer_borders(strategy, why):
    told = reasons(plan(Shape(packages=2, cores=3), ranks=3, strategy=strategy))["borders"]
    assert told == f"1 of 3 ranks crosses borders of NUMA nodes, packages or L3s that could hold it{why}"


def test_explanations_fit_a_terminal_and_end_with_measures():
    lines = render_explanation(plan(SNC, ranks=6)).splitlines()
    assert max(map(len, lines)) <= 80
    assert "  ranks across NUMA nodes that could hold them  1" in lines


def test_plans_side_by_side_show_each_rank_and_what_cannot_be(ompbind_plan):
    text = ompbind_plan("-n", "2", "--compare", "spread,books,compact", "-t", "1")
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split() for line in lines if line.strip().startswith(("0", "1"))] == [
        ["0", "0", "0"],
        ["1", "4", "1"],
    ]
    assert "books: this machine has no book domains" in text


def test_plans_side_by_side_in_json(ompbind_plan):
    record = json.loads(ompbind_plan("-n", "2", "--compare", "spread,books", "--format", "json"))
    assert record["schema"] == "ompbind-compare/1"
    assert [one["request"]["strategy"] for one in record["plans"]] == ["spread"]
    assert record["plans"][0]["measures"]["borders"][0] == {"level": "node", "crossing": 0, "touched": 2}
    served = "it can serve balanced, compact, spread, nodes, packages, cores, all"
    assert record["refused"] == [
        {"strategy": "books", "text": "this machine has no book domains", "hint": served}
    ]


def test_comparisons_without_any_plan_are_refusals_alone():
    assert render_comparison({}, {}) == ""


@pytest.fixture
def ompbind_plan():
    from click.testing import CliRunner

    from ompbind.cli.plan import plan as verb

    def run(*args):
        done = CliRunner().invoke(verb, [*args, "--topology", "synthetic:pack:2 numa:1 core:4 pu:1"])
        assert done.exit_code == 0, done.output
        return done.output

    return run
