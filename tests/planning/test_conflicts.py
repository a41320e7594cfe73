"""Plans on a machine where other runs live: what is told, left to them, refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet, union
from ompbind.errors import MaskError, PlanError
from ompbind.machine.model import Level, touched
from ompbind.masks.mask import parse_mask
from ompbind.planning.occupancy import LiveRun
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request, Sharing
from ompbind.planning.strategies.table import STRATEGIES
from tests.machines import Shape, make_machine

DUAL = Shape(packages=2, cores=4, smt=2)  # CPUs 0-7, siblings 8-15; two nodes


def live(held, run_id="other", pid=7, **changes):
    cpus = CpuSet.from_list(held)
    run = LiveRun(run_id=run_id, pid=pid, uid=0, started=1, ranks=((0, cpus),), held=cpus)
    return run.replace(**changes)


def plan(sharing, *runs, machine=None, **options):
    mask = options.pop("mask", None)
    request = Request(mask=parse_mask(mask) if mask else None, sharing=Sharing(sharing), **options)
    return make_plan((machine or make_machine(DUAL)).replace(source="live"), request, runs)


def lists(made):
    return [str(one.cpuset) for one in made.placements]


def told(made):
    return {note.code: note.text for note in made.notes}


@pytest.mark.parametrize(
    ("held", "options", "expected"),
    [
        ("0", {}, ["1-7"]),
        ("8", {}, ["1-7"]),
        ("0-3", {"ranks": 2}, ["4-5", "6-7"]),
        ("0-3", {"ranks": 4, "smt": "all"}, ["4,12", "5,13", "6,14", "7,15"]),
        ("0,4", {"ranks": 2, "strategy": "nodes"}, ["1-3", "5-7"]),
        ("0-3", {"ranks": None, "strategy": "nodes"}, ["4-7"]),
        ("0-3", {"ranks": 3, "strategy": "compact", "threads": 1}, ["4", "5", "6"]),
        ("1", {"mask": "node:0"}, ["0,2-3,8,10-11"]),
        ("0-3", {"mask": "node:1"}, ["4-7,12-15"]),
        ("0-3", {"mask": "all"}, ["4-7,12-15"]),
        ("0-3", {"mask": "^4,^12"}, ["5-7,13-15"]),
        ("0-3", {"mask": "^0"}, ["4-7,12-15"]),
        ("0-3", {"mask": "none"}, ["4-7,12-15"]),
        ("0-1", {"mask": "0,2-3", "allow_partial": True}, ["2-3"]),
        ("0-3", {"reserve": 1}, ["4-6"]),
        ("100-200", {}, ["0-7"]),
        ("", {}, ["0-7"]),
    ],
)
def test_avoid_divides_what_is_free(held, options, expected):
    assert lists(plan("avoid", live(held), **options)) == expected


def test_avoid_says_what_it_left_and_idle_cpus_are_not_those_of_others():
    made = plan("avoid", live("0-3", "serve"))
    assert told(made)["avoided"] == "left to others: CPUs 0-3,8-11 are in use by run serve (pid 7)"
    assert (str(made.idle), made.avoided) == ("12-15", CpuSet.from_list("0-3,8-11"))
    assert "idle" not in told(made)


@pytest.mark.parametrize(
    ("held", "options", "message"),
    [
        ("0-7", {}, "no core is free: CPUs 0-15 are in use by run other"),
        ("0-5", {"ranks": 3}, "3 ranks would have to share 2 cores; CPUs 0-5,8-13 are in use by run other"),
        ("0-5", {"ranks": 9}, "9 ranks do not fit on 4 CPUs (free here: CPUs 6-7,14-15); CPUs 0-5"),
        ("0-5", {"ranks": 2, "strategy": "compact", "threads": 2}, "need 4, there are 2; CPUs 0-5"),
        ("0-5", {"ranks": 3, "strategy": "nodes"}, "3 ranks would have to share 2 cores; CPUs 0-5"),
        ("0-6", {"reserve": 1}, "no core left: of 1 core, 1 would be reserved; CPUs 0-6"),
    ],
)
def test_too_little_that_is_free_is_an_error_that_names_the_run(held, options, message):
    with pytest.raises(PlanError) as caught:
        plan("avoid", live(held), **options)
    assert message in caught.value.message
    assert "(pid 7)" in caught.value.message
    assert caught.value.hint


def test_ranks_that_would_share_cores_anyway_do_so_on_what_is_free():
    made = plan("avoid", live("0-1"), ranks=6, machine=make_machine(Shape(packages=2, cores=2, smt=4)))
    assert lists(made) == ["2", "6", "10", "3", "7", "11"]
    assert "shared-cores" in told(made)


@pytest.mark.parametrize(
    ("mask", "message", "span"),
    [
        ("4,0-1", "CPUs 0-1 are in use by run other (pid 7)", (2, 5)),
        ("9", "CPU 9 is on cores in use by run other (pid 7)", (0, 1)),
        ("4|node:0", "CPUs 0-3,8-11 are in use by run other (pid 7)", (2, 8)),
        ("core:0.core:0", "CPUs 0,8 are in use by run other (pid 7)", (0, 13)),
    ],
)
def test_a_mask_that_names_cpus_of_others_is_marked(mask, message, span):
    with pytest.raises(MaskError) as caught:
        plan("avoid", live("0-3"), mask=mask, ranks=None)
    assert (caught.value.message, caught.value.span) == (message, span)
    assert "free here: 4-7,12-15" in caught.value.hint


def test_cpus_of_others_are_told_from_those_not_allowed():
    machine = make_machine(DUAL, allowed=CpuSet.from_list("0-3,8-11"))
    with pytest.raises(MaskError, match="CPU 5 is not allowed here"):
        plan("avoid", live("0"), mask="1,5", machine=machine)
    assert lists(plan("avoid", live("5"), machine=machine)) == ["0-3"]


def test_cpus_set_apart_are_no_way_out():
    machine = make_machine(DUAL).replace(isolated=CpuSet.from_list("7,15"))
    with pytest.raises(PlanError, match="no core is free here; CPUs 0-6,8-14 are in use"):
        plan("avoid", live("0-6"), machine=machine)
    with pytest.raises(MaskError, match="in use by run"):
        plan("avoid", live("0-6"), mask="node:1", machine=machine)
    assert lists(plan("avoid", live("0-6"), mask="7", machine=machine)) == ["7"]


def test_by_default_an_overlap_is_told():
    made = plan("warn", live("0-3", "first", 11), live("0,4", "second", 12), mask="3-4")
    text = "CPUs 3-4 are in use by run first (pid 11) and run second (pid 12) as well"
    assert told(made)["overlaps-run"].startswith(text)
    assert [note.warning for note in made.notes if note.code == "overlaps-run"] == [True]


def test_hardware_threads_of_one_core_are_in_each_others_way():
    assert told(plan("warn", live("0"), mask="8"))["overlaps-run"].startswith("CPU 8 is on cores in use by")
    with pytest.raises(PlanError, match="CPU 8 is on cores in use"):
        plan("exclusive", live("0"), mask="8")


def test_what_others_reserve_and_what_this_run_reserves_count():
    assert "overlaps-run" in told(plan("warn", live("3"), ranks=2, reserve=1))
    assert "overlaps-run" in told(plan("warn", live("").replace(held=CpuSet((0,))), mask="0"))


@pytest.mark.parametrize("sharing", list(Sharing))
def test_nothing_is_told_where_nothing_overlaps(sharing):
    made = plan(sharing, live("0-3"), mask="4-7")
    assert not told(made).keys() & {"overlaps-run"}
    assert plan(sharing).replace(request=made.request) == plan("warn").replace(request=made.request)


def test_on_a_recorded_machine_no_run_is_known_and_that_is_told():
    made = make_plan(make_machine(Shape(cores=4)), Request(sharing=Sharing.AVOID))
    assert "--avoid changes nothing" in made.notes[-1].text


def test_share_is_silent_and_exclusive_refuses():
    made = plan("share", live("0-7"))
    assert not told(made).keys() & {"overlaps-run", "avoided"}
    with pytest.raises(PlanError) as caught:
        plan("exclusive", live("2-3", "serve", 99))
    assert caught.value.message == "not exclusive: CPUs 2-3 are in use by run serve (pid 99)"


def test_many_runs_are_counted_and_ranks_of_a_job_named_once():
    runs = [live(str(cpu), f"r{cpu // 2}", pid=cpu) for cpu in range(8)] + [live("0", "r9", pid=9)]
    text = told(plan("warn", *runs))["overlaps-run"]
    assert "by run r0 (pid 0), run r1 (pid 2), run r2 (pid 4) and 2 more as well" in text


cpu_sets = st.sets(st.integers(0, 15)).map(CpuSet)


@given(
    st.lists(cpu_sets, max_size=3), st.integers(1, 6), st.sampled_from(sorted(STRATEGIES)),
    st.sampled_from(["auto", "all", 1]), st.sampled_from(["adjacent", "split"]),
)  # fmt: skip
def test_avoid_never_touches_a_core_of_others_and_packs_ranks_no_closer(held, ranks, strategy, smt, order):
    machine = make_machine(DUAL.replace(numbering=order))
    runs = tuple(live(str(cpus), f"r{i}") for i, cpus in enumerate(held))
    request = Request(ranks=ranks, strategy=strategy, smt=smt, sharing=Sharing.AVOID)
    cores = machine.at(Level.CORE)
    busy = union(core.cpus for core in touched(cores, union(held)))
    try:
        made = make_plan(machine, request, runs)
    except PlanError as error:
        assert "in use by run" in error.message or not _fits(machine, request)
        return
    used = [one.cpuset for one in made.placements]
    assert union(used).isdisjoint(busy)
    assert made.idle.isdisjoint(busy)
    if strategy != "all":
        assert len(touched(cores, union(used))) >= ranks


def _fits(machine, request):
    try:
        return bool(make_plan(machine, request))
    except PlanError:
        return False
