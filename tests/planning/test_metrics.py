"""Measures of placements, the reasons for plans, and plans side by side."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.machine.model import CoreKind, Level
from ompbind.openmp.binding import Bind
from ompbind.planning.metrics import measure, measure_plan
from ompbind.planning.planner import make_plan
from ompbind.planning.rationale import make_reasons
from ompbind.planning.request import MemoryMode, Request
from ompbind.report.plan import render_comparison, render_explanation
from tests.machines import Shape, make_machine
from tests.planning.test_planner import DUAL, POWER, SNC, plan

HYBRID = (
    CoreKind(name="performance", cpus=CpuSet.from_list("0-1,4-5,8-15"), strength=1024, source="type"),
    CoreKind(name="efficiency", cpus=CpuSet.from_list("2-3,6-7"), strength=500, source="type"),
)


def measured(shape, ranks, **changes):
    machine = make_machine(shape, **changes)
    return measure(machine, machine.allowed, [CpuSet.from_list(cpus) for cpus in ranks])


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
def test_measures_of_a_placement(shape, ranks, idle, shared, imbalance, crossing):
    found = measured(shape, ranks)
    assert (found.idle, found.shared, found.imbalance) == (idle, shared, imbalance)
    assert [boundary.level for boundary in found.borders] == [Level.NODE, Level.PACKAGE, Level.L3]
    assert tuple(boundary.crossing for boundary in found.borders) == crossing


def test_used_domains_are_summed_over_ranks():
    boundaries = measured(SNC, ["2-5", "0-1", "6-15"]).borders
    assert [boundary.touched for boundary in boundaries] == [6, 4, 6]


def test_ranks_of_several_kinds_are_counted():
    assert measured(DUAL, ["0-3", "4-5", "6"], kinds=HYBRID).mixed == 1


def test_cores_that_are_not_allowed_are_not_idle():
    found = measured(DUAL, ["0-1", "2-3"], allowed=CpuSet.from_list("0-4"))
    assert (found.idle, [boundary.crossing for boundary in found.borders]) == (1, [0, 0, 0])


def test_reserved_cores_are_not_idle():
    assert measure_plan(plan(DUAL, ranks=2, reserve=1)).idle == 0


@given(st.sampled_from([DUAL, SNC, POWER]), st.integers(1, 8), st.integers(0, 7))
def test_measures_do_not_depend_on_the_order_of_ranks(shape, ranks, turn):
    made = plan(shape, ranks=min(ranks, 4))
    sets = [placement.cpuset for placement in made.placements]
    machine = made.machine
    turned = sets[turn % len(sets) :] + sets[: turn % len(sets)]
    assert measure(machine, machine.allowed, sets) == measure(machine, machine.allowed, turned)


def reasons(made):
    return {reason.about: reason.text for reason in make_reasons(made, measure_plan(made))}


@pytest.mark.parametrize(
    ("options", "about", "text"),
    [
        ({"ranks": 3},
         "borders", "1 of 3 ranks is split over several NUMA nodes, packages or L3s, although it fits in one:"
         " equal"),
        ({"ranks": 2},
         "borders", "No rank is split over NUMA nodes, packages or L3s if it fits in one."),
        ({"ranks": 2, "mask": "0-1,4|2"},
         "borders", "1 of 2 ranks is split over several NUMA nodes, packages or L3s, although it"),
        ({"ranks": 2, "mask": "3-4|2,5"},
         "borders", "2 of 2 ranks are split over several NUMA nodes, packages or"),
        ({"ranks": 3}, "shares", "2 ranks with 3 cores each; 1 rank with 2 cores."),
        ({"ranks": 2, "strategy": "compact", "threads": 1}, "shares",
         "2 ranks with 1 core each. 6 cores are idle."),
        ({"ranks": 12},
         "hardware threads", "2 of 2 hardware threads per core are used: there are more ranks"),
        ({"ranks": 2},
         "hardware threads", "1 of 2 hardware threads per core is used: compute threads"),
        ({"ranks": 2, "smt": "all"}, "hardware threads",
         "2 of 2 hardware threads per core are used: --smt all requests this."),
        ({"mask": "0,8"}, "hardware threads",
         "2 of 2 hardware threads per core are used: the mask names them."),
        ({"mask": "0,8"}, "CPUs", "The mask selects 0,8."),
        ({"ranks": None}, "ranks", "2 ranks: one per NUMA node."),
        ({"ranks": None, "strategy": "packages"}, "ranks", "2 ranks: one per package."),
        ({"ranks": None, "strategy": "cores"}, "ranks", "8 ranks: one per core."),
        ({"ranks": None, "strategy": "compact", "threads": 3},
         "ranks", "2 ranks: the most that fit."),
        ({"ranks": None, "mask": "0|1|2"}, "ranks", "3 ranks: one per part of the mask."),
        ({"ranks": 2, "strategy": "spread"},
         "strategy", "spread: every rank gets as many cores as its threads need"),
        ({"ranks": None, "strategy": "compact"}, "ranks", "2 ranks: one per NUMA node."),
        ({"ranks": None, "strategy": "all"}, "ranks", "1 rank: all ranks would get the same CPUs."),
        ({"ranks": None, "mask": "none"}, "ranks", "1 rank: all ranks would get the same CPUs."),
        ({"ranks": 12}, "strategy",
         "There are more ranks than cores: each rank gets one core, or shares one with other ranks."),
        ({"ranks": 3, "reserve": 1}, "borders", "although it fits in one."),
        ({"ranks": 2, "reserve": 1}, "reserve", "The last core of each rank's share is reserved"),
        ({"ranks": 2, "reserve_total": 2}, "reserve", "2 cores are reserved"),
        ({"ranks": 2, "threads": 9}, "threads", "9 threads per rank, as requested."),
        ({"ranks": 2}, "threads", "One thread per CPU of the rank."),
        ({"ranks": 2, "bind": Bind.EXACT}, "binding", "OpenMP threads are bound to one CPU each."),
        ({"mask": "none"}, "binding", "are not bound further"),
        ({"mask": "none"}, "strategy", "The mask is 'none': every rank may use all CPUs"),
        ({"mask": "none"}, "hardware threads", "All hardware threads are used: the mask is 'none'."),
        ({"ranks": 2},
         "memory", "ompbind sets no policy; by default Linux uses the NUMA nodes of the rank's CPUs."),
    ],
)  # fmt: skip
def test_every_choice_has_its_reason(options, about, text):
    assert text in reasons(plan(DUAL, **options))[about]


@pytest.mark.parametrize(
    ("changes", "about", "text"),
    [
        ({"quota": 2.5}, "threads", "the CPU quota of the cgroup is 2.5, which 2 ranks share."),
        ({"bindable": False}, "binding", "cannot confine"),
        ({"allowed": CpuSet(range(6))}, "CPUs", "6 of 16 CPUs are allowed; the affinity mask or"),
        ({"isolated": CpuSet(range(16))}, "CPUs", "16 of 16 CPUs are allowed."),
        ({"isolated": CpuSet([7])}, "CPUs", "CPU 7 is isolated and used only if a mask names"),
        ({"isolated": CpuSet([6, 7])}, "CPUs", "CPUs 6-7 are isolated and used only if a mask names them."),
    ],
)
def test_reasons_that_depend_on_the_machine(changes, about, text):
    made = make_plan(make_machine(DUAL, **changes), Request(ranks=2))
    assert text in reasons(made)[about]


@pytest.mark.parametrize("mode", [MemoryMode.BIND, MemoryMode.PREFERRED, MemoryMode.INTERLEAVE])
def test_a_memory_policy_is_never_said_to_be_unset(mode):
    text = reasons(plan(DUAL, ranks=2, memory=mode))["memory"]
    assert text.endswith("NUMA nodes of the rank's CPUs, as requested.")


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        ("balanced", ": equal shares make this necessary."),
        ("compact", "."),
        ("spread", "."),
    ],
)
def test_only_balanced_says_that_equal_shares_make_crossings_unavoidable(strategy, why):
    text = reasons(plan(Shape(packages=2, cores=3), ranks=3, strategy=strategy))["borders"]
    assert (
        text
        == f"1 of 3 ranks is split over several NUMA nodes, packages or L3s, although it fits in one{why}"
    )


def test_explanations_fit_a_terminal_and_end_with_measures():
    lines = render_explanation(plan(SNC, ranks=6)).splitlines()
    assert max(map(len, lines)) <= 80
    assert "  ranks split over NUMA nodes although they fit in one  1" in lines


def test_plans_side_by_side_show_each_rank_and_impossible_strategies(ompbind_plan):
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
    assert [made["request"]["strategy"] for made in record["plans"]] == ["spread"]
    assert record["plans"][0]["measures"]["borders"][0] == {"level": "node", "crossing": 0, "touched": 2}
    hint = "use balanced, compact, spread, nodes, packages, numa, cores, all"
    assert record["refused"] == [
        {"strategy": "books", "text": "this machine has no book domains", "hint": hint}
    ]


def test_a_comparison_without_plans_is_empty():
    assert render_comparison({}, {}) == ""


@pytest.fixture
def ompbind_plan():
    from click.testing import CliRunner

    from ompbind.cli.main import load_verb

    def run(*args):
        topology = "synthetic:pack:2 numa:1 core:4 pu:1"
        done = CliRunner().invoke(load_verb("plan"), [*args, "--topology", topology])
        assert done.exit_code == 0, done.output
        return done.output

    return run
