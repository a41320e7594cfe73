"""Plans beside other live runs: what is reported, avoided and refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet, union
from ompbind.errors import MaskError, PlanError
from ompbind.planning.other_runs import LiveRun
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request, Sharing
from ompbind.planning.strategies import STRATEGIES
from tests.machines import Shape, make_machine
from tests.planning.test_planner import lists, notes, plan_on

DUAL = Shape(packages=2, cores=4, smt=2)  # CPUs 0-7, siblings 8-15; two nodes


def live(claimed, run_id="other", pid=7, **changes):
    cpus = CpuSet.from_list(claimed)
    run = LiveRun(run_id=run_id, pid=pid, uid=0, started=1, ranks=((0, cpus),), claimed=cpus)
    return run.replace(**changes)


def plan(sharing, *runs, machine=None, **options):
    machine = (machine or make_machine(DUAL)).replace(source="live")
    return plan_on(machine, runs, sharing=Sharing(sharing), **options)


@pytest.mark.parametrize(("claimed", "options", "expected"), [
    ("8", {}, "1-7"), ("0-3", {"ranks": 4, "smt": "all"}, "4,12 5,13 6,14 7,15"),
    ("0,4", {"ranks": 2, "strategy": "nodes"}, "1-3 5-7"),
    ("0-3", {"ranks": "auto", "strategy": "nodes"}, "4-7"),
    ("1", {"mask": "node:0"}, "0,2-3,8,10-11"), ("0-3", {"mask": "none"}, "4-7,12-15"),
    ("0-3", {"mask": "^4,^12"}, "5-7,13-15"), ("0-1", {"mask": "0,2-3", "allow_partial": True}, "2-3"),
    ("0-3", {"reserve": 1}, "4-6"), ("100-200", {}, "0-7"),
    # ranks that must share cores share free cores
    ("0-1", {"ranks": 6, "machine": make_machine(Shape(packages=2, cores=2, smt=4))}, "2 6 10 3 7 11"),
])  # fmt: skip
def test_avoid_uses_only_free_cores(claimed, options, expected):
    assert lists(plan("avoid", live(claimed), **options)) == expected.split()


def test_avoided_cpus_are_reported_and_are_not_idle():
    made = plan("avoid", live("0-3", "serve"))
    assert "CPUs 0-3,8-11 are in use by run serve (pid 7)" in notes(made)["avoided"]
    assert (str(made.idle), made.avoided) == ("12-15", CpuSet.from_list("0-3,8-11"))
    assert "idle" not in notes(made)


@pytest.mark.parametrize(("claimed", "options", "message"), [
    ("0-7", {}, "no core is free: CPUs 0-15 are in use by run other"),
    ("0-5", {"ranks": 3}, "3 ranks would have to share 2 cores; CPUs 0-5,8-13 are in use by run other"),
    ("0-5", {"ranks": 9}, "9 ranks do not fit on 4 CPUs (free: CPUs 6-7,14-15); CPUs 0-5"),
    ("0-5", {"ranks": 2, "strategy": "compact", "threads": 2}, "4 cores, but 2 are usable; CPUs 0-5"),
    ("0-6", {"reserve": 1}, "no core left: it gets 1 core and reserves 1; CPUs 0-6"),
])  # fmt: skip
def test_too_few_free_cores_are_an_error_that_names_the_run(claimed, options, message):
    with pytest.raises(PlanError) as caught:
        plan("avoid", live(claimed), **options)
    assert message in caught.value.message
    assert "(pid 7)" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(("mask", "message", "span"), [
    ("4,0-1", "CPUs 0-1 are in use by run other (pid 7)", (2, 5)),
    ("9", "CPU 9 is on cores in use by run other (pid 7)", (0, 1)),
])  # fmt: skip
def test_a_mask_that_names_occupied_cpus_is_marked(mask, message, span):
    with pytest.raises(MaskError) as caught:
        plan("avoid", live("0-3"), mask=mask, ranks="auto")
    assert (caught.value.message, caught.value.span) == (message, span)
    assert "free CPUs: 4-7,12-15" in caught.value.hint


def test_occupied_cpus_are_not_confused_with_cpus_not_allowed_and_isolated_ones():
    machine = make_machine(DUAL, allowed=CpuSet.from_list("0-3,8-11"))
    with pytest.raises(MaskError, match="CPU 5 is not allowed:"):
        plan("avoid", live("0"), mask="1,5", machine=machine)
    machine = make_machine(DUAL).replace(isolated=CpuSet.from_list("7,15"))
    with pytest.raises(PlanError, match="no core is free; CPUs 0-6,8-14 are in use"):
        plan("avoid", live("0-6"), machine=machine)
    with pytest.raises(MaskError, match="in use by run"):
        plan("avoid", live("0-6"), mask="node:1", machine=machine)
    assert lists(plan("avoid", live("0-6"), mask="7", machine=machine)) == ["7"]


@pytest.mark.parametrize(("claimed", "options", "text"), [
    ("3-4", {"mask": "3-4"}, "CPUs 3-4 are in use by run first (pid 11) and run second (pid 12)"),
    ("0", {"mask": "8"}, "CPU 8 is on cores in use by run first (pid 11)"),
    # CPUs that this run reserves
    ("3", {"ranks": 2, "reserve": 1}, "CPUs 3-4,11 are in use by run first (pid 11) and run second (pid 12)"),
])  # fmt: skip
def test_by_default_an_overlap_is_a_warning_and_exclusive_refuses_it(claimed, options, text):
    runs = live(claimed, "first", 11), live("4", "second", 12)
    (note,) = [note for note in plan("warn", *runs, **options).notes if note.code == "overlaps-run"]
    assert note.warning
    assert note.text.startswith(f"{text}: threads will compete")
    with pytest.raises(PlanError) as caught:
        plan("exclusive", *runs, **options)
    assert caught.value.message == f"not exclusive: {text}"


@given(
    st.lists(st.sets(st.integers(0, 15)).map(CpuSet), max_size=3), st.integers(1, 6),
    st.sampled_from(sorted(STRATEGIES)), st.sampled_from(["auto", "all", 1]),
    st.sampled_from(["adjacent", "split"]),
)  # fmt: skip
def test_avoid_uses_no_occupied_core_and_packs_ranks_no_closer(claimed, ranks, strategy, smt, order):
    machine = make_machine(DUAL.replace(numbering=order))
    runs = tuple(live(str(cpus), f"r{i}") for i, cpus in enumerate(claimed))
    request = Request(ranks=ranks, strategy=strategy, smt=smt, sharing=Sharing.AVOID)
    occupied = machine.table.whole(union(claimed))
    try:
        made = make_plan(machine, request, runs)
    except PlanError as error:
        if "in use by run" not in error.message:
            with pytest.raises(PlanError):
                make_plan(machine, request)
        return
    used = union(placement.cpuset for placement in made.placements)
    assert used.isdisjoint(occupied)
    assert made.idle.isdisjoint(occupied)
    if strategy != "all":
        assert len(machine.table.rows(used)) >= ranks
