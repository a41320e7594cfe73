"""Plans beside other live runs: what is reported, avoided and refused."""

import re

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet, union
from ompbind.errors import MaskError, PlanError
from ompbind.machine.read import read_machine
from ompbind.planning.metrics import measure_plan
from ompbind.planning.other_runs import LiveRun
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request, Sharing
from tests.machines import Shape, make_machine
from tests.planning.test_planner import lists, notes, plan_on
from tests.planning.test_promises import cases
from tests.tables import rows

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
    several = options.get("mask", "") != "8"  # threads
    assert ("OMP_WAIT_POLICY=passive" in note.text) == several
    policy = (("KMP_BLOCKTIME", "0"),)
    assert "OMP_WAIT_POLICY" not in str(plan("warn", *runs, user_variables=policy, **options).notes)
    with pytest.raises(PlanError) as caught:
        plan("exclusive", *runs, **options)
    assert caught.value.message == f"not exclusive: {text}"


MACHINES = {
    "dual": make_machine(DUAL), "caches": make_machine(Shape(l3s=3, cores=6)),
    "bound": make_machine(DUAL, memory_allowed=CpuSet((0,))),
}  # fmt: skip


@pytest.mark.parametrize(("name", "claimed", "options", "expected"), rows("""
    dual        | 0                       |                               | 1
    dual        | 5                       |                               | 0
    dual        | 0-3                     | ranks=2                       | 4 6
    dual        | 0                       | cores=4                       | 4-7
    dual        | 0-1                     | cores=2 threads=1             | 2-3
    dual        | 0                       | cores=2 smt=all               | 1-2,9-10
    dual        | 0                       | ranks=2 strategy=compact      | 1 2
    dual        | 4                       | ranks=2 strategy=spread       | 0 5
    dual        | 0                       | cores=2 ranks=2 strategy=nodes | 1-2 4-5
    dual        | 2                       | cores=2 reserve=1             | 0-1
    dual        | 0                       | reserve_total=2               | 1
    dual        | 3                       | cores=3 service_cores=1       | 4-7,15
    dual        | 0,7                     | cores=3 service_cores=1       | 0-3,11 shared
    dual        | 0,4                     | cores=4                       | 0-3 shared
    dual        | 0-7                     |                               | 0 shared
    dual        | 0-2,4-6                 | ranks=3                       | 0 2 4 shared
    dual        | 0                       | ranks=auto cores=4            | 0-3 4-7 shared
    bound       | 0-3                     | cores=4                       | 0-3 shared
    core-i9     | 0-1                     |                               | 2
    core-i9     | 0-15                    |                               | 0 shared
    core-i9     | 0                       | cores=8                       | 0,2,4,6,8,10,12,14 shared
    core-i9     | 16                      | cores=4 core_kind=efficiency  | 20-23
    eight-nodes | 0,16                    | cores=4 ranks=2               | 4-7 20-23
    eight-nodes | 0,4,8,12,16,20,24,28    | cores=4                       | 0-3 shared
    power9-2p   | 0                       | cores=2 smt=1                 | 80,84
    caches      |                         | cores=2 container=10          | 2-3
    caches      |                         | cores=2 container=17          | 16-17
    caches      |                         | cores=4 container=4           | 6-9
    caches      |                         | cores=4 container=5           | 12-15
    caches      |                         | cores=6 ranks=3 container=4   | 6-11 12-17 0-5
    caches      | 0-1                     | cores=2 container=8           | 2-3
    caches      | 0-17                    | container=1                   | 0 shared
"""))  # fmt: skip
def test_free_cores_are_used_if_no_rank_loses(name, claimed, options, expected):
    """Containers of 2 cores begin at one of 9 disjoint places in a cache, and of 4 cores at one of 3."""
    values = dict(pair.split("=") for pair in options.split())
    values = {key: int(text) if text.isdigit() else text for key, text in {"cores": "1", **values}.items()}
    machine = MACHINES.get(name) or read_machine(f"sample:{name}")
    made = plan("prefer-free", *([live(claimed)] if claimed else []), machine=machine, **values)
    is_shared = "overlaps-run" in notes(made)
    assert [*lists(made), *(["shared"] if is_shared else [])] == expected.split()
    if made.request.sharing is Sharing.AVOID:
        begins = f"this container begins at CPU {made.placements[0].cpus[0]}: ", "free cores are used: CPU"
        (text,) = (note.text for note in made.notes if note.text.startswith(begins))
        assert "(--share" in text


def test_groups_use_free_cores_only_together():
    groups = [Request(group=f"{cores}", cores=cores, sharing=Sharing.PREFER_FREE) for cores in (1, 2)]
    for claimed, expected in (("0", "1 2-3"), ("1", "0 2-3"), ("5-7", "0 1-2"), ("1-7", "0 1-2")):
        assert lists(make_plan(make_machine(DUAL), groups, [live(claimed)])) == expected.split()


@given(cases(), st.lists(st.sets(st.integers(0, 30)).map(CpuSet), max_size=3), st.sampled_from([0, 0, 7, 12]))
def test_a_plan_on_free_cores_is_never_worse(case, claimed, container):
    machine, request = case
    request = request.replace(mask=None, cores=request.cores and 1 + request.cores % 2)
    runs = tuple(live(str(cpus), f"r{i}") for i, cpus in enumerate(claimed))
    try:
        usual = make_plan(machine, request, runs)
    except PlanError as error:
        with pytest.raises(PlanError, match=re.escape(error.message)):
            make_plan(machine, request.replace(sharing=Sharing.PREFER_FREE), runs)
        return
    made = make_plan(machine, request.replace(sharing=Sharing.PREFER_FREE, container=container), runs)
    overlaps = not (usual.used | usual.reserved).isdisjoint(machine.table.whole(union(claimed)))
    event(f"overlaps: {overlaps}, {made.request.sharing}")
    if made.request.sharing is Sharing.WARN:
        assert (made.placements, made.notes) == (usual.placements, usual.notes)
        return
    assert overlaps or container
    assert (made.used | made.reserved).isdisjoint(machine.table.whole(union(claimed)))
    for old, new in zip(usual.placements, made.placements, strict=True):
        assert (len(old.cpus), len(old.cpuset), old.threads) == (len(new.cpus), len(new.cpuset), new.threads)
    before, after = measure_plan(usual), measure_plan(made)
    assert (after.smallest, after.largest, after.shared) == (before.smallest, before.largest, before.shared)
    assert after.mixed <= before.mixed
    for old, new in zip(before.borders, after.borders, strict=True):
        assert new.crossing <= old.crossing
        assert new.touched <= old.touched
