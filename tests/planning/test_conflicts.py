"""Plans on a machine where other runs live: what is told, left to them, refused; and what runs tell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.errors import MaskError, OmpbindError, PlanError
from ompbind.machine.model import Level, touched
from ompbind.masks.mask import parse_mask
from ompbind.planning.occupancy import NAME_LIMIT, Claimant, LiveRun, find_kin, find_others, tidy
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request, Sharing
from ompbind.planning.strategies.table import STRATEGIES
from ompbind.registry.claim_format import HEAD, TEXT_LIMIT, make_live_run, make_text, parse_text
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


def claimant(**changes):
    return Claimant(run_id="mine", pid=1, uid=0, started=5).replace(**changes)


def test_the_runs_around_this_one_are_not_others():
    outer, inner = live("0", "outer"), live("1", "inner", inside="outer")
    beside, loop = live("2", "beside", inside="outer"), live("3", "loop", inside="loop")
    runs = (outer, inner, beside, loop)
    assert find_others(runs, claimant(inside="inner")) == (beside, loop)
    assert find_others(runs, claimant(inside="outer")) == (inner, beside, loop)
    assert find_others(runs, claimant(inside="loop")) == (outer, inner, beside)
    assert find_others(runs, claimant()) == runs
    foreign = live("4", "inner", uid=5)
    assert find_others((*runs, foreign), claimant(inside="inner")) == (beside, loop, foreign)


def test_ranks_of_one_job_are_kin_those_of_another_user_are_not():
    mine, foreign = live("0", "mine"), live("1", "mine", uid=5)
    assert find_others((mine, foreign), claimant(slot=1)) == (foreign,)
    assert find_kin((mine, foreign), claimant(slot=1)) == (mine,)
    assert find_others((mine, foreign), claimant()) == (mine, foreign)


def test_a_run_tells_of_its_ranks_and_holds_what_it_reserves():
    made = plan("avoid", live("0"), ranks=2, reserve=1)
    run = make_live_run(made, claimant(inside="around"))
    assert [(rank, str(cpus)) for rank, cpus in run.ranks] == [(0, "1-2"), (1, "4-6")]
    assert run.held == union(one.cpuset for one in made.placements) | made.reserved
    assert (str(run.avoided), run.inside) == ("0,8", "around")
    rank = make_live_run(made, claimant(slot=1, rank=9))
    assert rank.ranks == ((9, made.placements[1].cpuset),)
    assert rank.held == run.held


names = st.text(min_size=1, max_size=NAME_LIMIT).map(tidy)
sets = st.sets(st.integers(0, 8191), max_size=40).map(CpuSet)


@given(names, names | st.just(""), st.lists(st.tuples(st.integers(0, 99), sets)), sets)
def test_what_is_written_is_read(name, inside, ranks, cpus):
    run = LiveRun(
        run_id=name, pid=3, uid=1000, started=1_700_000_000, ranks=tuple(ranks), held=cpus, avoided=cpus,
        inside=inside, pid_space=4026531836,
    )  # fmt: skip
    assert parse_text(make_text(run), 1000) == run
    assert parse_text(make_text(run)[:-1], 1000) is None


def test_a_text_too_long_leaves_single_ranks_out():
    ranks = tuple((rank, CpuSet((rank % 8,))) for rank in range(60_000))
    run = live("0-7", ranks=ranks)
    text = make_text(run)
    assert len(text.encode()) <= TEXT_LIMIT
    assert parse_text(text, 0) == run.replace(ranks=())
    largest = live("0-8191", ranks=tuple((cpu, CpuSet((cpu,))) for cpu in range(8192)))
    assert parse_text(make_text(largest), 0) == largest


GOOD = make_text(live("0-3"))
keys = st.sampled_from(["run", "pid", "started", "inside", "held", "avoided", "rank", "new"])
values = st.text() | st.sampled_from(["0-3", "0 1-2", "-1", "9" * 40, "1e9", "²", "0-99999", "x"])


@given(st.lists(st.tuples(keys, values)))
def test_whatever_others_write_is_a_run_that_can_be_planned_around_or_none(pairs):
    text = GOOD + "".join(f"{key} {value}\n" for key, value in pairs)
    run = parse_text(text, 7)
    if run is None:
        return
    assert run.uid == 7
    assert run.run_id.isprintable()
    try:
        made = plan("avoid", run)
    except OmpbindError as error:
        assert error.message.isprintable()
    else:
        assert all(note.text.isprintable() for note in made.notes)


@pytest.mark.parametrize(
    "text",
    ["", "\n", f"{HEAD}\n", GOOD.replace(" 1\n", " 2\n", 1), GOOD.replace("pid", "dip"),
     GOOD.replace("held 0-3", "held 0-8192"), GOOD.replace("rank 0 0-3", "rank 0 3-0"),
     GOOD.replace("held 0-3", "held 0-6:2")],
)  # fmt: skip
def test_what_is_no_run(text):
    assert parse_text(text, 0) is None


def test_names_are_short_and_move_no_terminal():
    assert tidy("a\x1b[31m\n\r\x85\u202e\udcffb" + "x" * 999)[:12] == "a?[31m?????b"
    assert len(tidy("x" * 999)) == NAME_LIMIT
    assert parse_text(GOOD.replace("other", "\x1b]0;x\x07"), 0).run_id == "?]0;x?"
    assert parse_text(GOOD.replace("held 0-3", "held "), 0).held == EMPTY
