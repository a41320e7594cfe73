"""Plans on simple machines: tables of the CPUs that each strategy allocates, and properties of all plans."""

import pytest

from ompbind.cpuset import CpuSet
from ompbind.machine.model import Level
from ompbind.masks.mask import parse_mask
from ompbind.openmp.binding import Bind
from ompbind.planning.plan import name_ranks
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Compat, Request, Sharing
from ompbind.workers.placed import make_environment
from tests.machines import Shape, make_machine, with_domains

DUAL = Shape(packages=2, cores=4, smt=2)  # CPUs 0-7, siblings 8-15
ROBIN = Shape(packages=2, cores=4, smt=2, numbering="round-robin")  # even CPUs in package 0
POWER = Shape(packages=2, cores=2, smt=8, numbering="adjacent")
SNC = Shape(packages=2, nodes=2, l3s=1, cores=4, smt=1)  # four nodes of four cores


def plan_on(machine, runs=(), **options):
    mask = options.pop("mask", None)
    request = Request(mask=parse_mask(mask) if isinstance(mask, str) else mask, **options)
    return make_plan(machine, request, runs)


def plan(shape, machine=None, **options):
    return plan_on(machine or make_machine(shape), **options)


def lists(made):
    return [str(placement.cpuset) for placement in made.placements]


def notes(made):
    return {note.code: note.text for note in made.notes}


def texts_of(made, code):
    return [note.text for note in made.notes if note.code == code]


@pytest.mark.parametrize(("shape", "options", "expected"), [
    (DUAL, {"ranks": 1}, "0-7"), (DUAL, {"ranks": 2}, "0-3 4-7"),
    (DUAL, {"ranks": 4, "smt": "all"}, "0-1,8-9 2-3,10-11 4-5,12-13 6-7,14-15"),
    (DUAL, {"ranks": 2, "sibling": "last"}, "8-11 12-15"), (ROBIN, {"ranks": 2}, "0,2,4,6 1,3,5,7"),
    (ROBIN, {"ranks": 4, "smt": "all"}, "0,2,8,10 4,6,12,14 1,3,9,11 5,7,13,15"),
    (POWER, {"ranks": 2}, "0-3,8-11 16-19,24-27"),
    (POWER, {"ranks": 4, "smt": 3}, "0-2 8-10 16-18 24-26"), (SNC, {"ranks": 2}, "0-7 8-15"),
    (SNC, {"ranks": 6}, "0-2 3-5 6-7 8-10 11-13 14-15"),
    (DUAL, {"ranks": 2, "strategy": "compact", "threads": 2}, "0-1 2-3"),
    (DUAL, {"ranks": 2, "strategy": "spread", "threads": 2}, "0-1 4-5"),
    (SNC, {"ranks": "auto", "strategy": "packages"}, "0-7 8-15"),
    (DUAL, {"ranks": 3, "strategy": "nodes"}, "0-1 2-3 4-7"),
    (DUAL, {"ranks": 3, "strategy": "cores"}, "0 1 2"), (DUAL, {"ranks": 2, "strategy": "all"}, "0-7 0-7"),
    (DUAL, {"ranks": "auto", "strategy": "compact", "threads": 3}, "0-2 4-6"),
    (DUAL, {"ranks": 2, "mask": "0,1,8,9"}, "0,8 1,9"), (DUAL, {"ranks": "auto", "mask": "7|0-1"}, "7 0-1"),
    (DUAL, {"ranks": 2, "mask": "auto"}, "0-3 4-7"), (DUAL, {"ranks": 2, "mask": "none"}, "0-15 0-15"),
    (DUAL, {"ranks": 2, "mask": "0-3|2-5", "sharing": Sharing.SHARE}, "0-3 2-5"),
    (Shape(cores=2), {"ranks": 5, "sharing": Sharing.SHARE}, "0 0 0 1 1"),
    (DUAL, {"ranks": 3, "cores": 2, "strategy": "nodes"}, "0-1 2-3 4-5"),
    (DUAL, {"ranks": "auto", "cores": 2}, "0-1 2-3 4-5 6-7"),
    (DUAL, {"ranks": "auto", "cores": 1, "strategy": "nodes"}, "0 4"),
    (DUAL, {"ranks": 2, "cores": 1, "mask": "0,8,1,9,2"}, "0,8 1,9"),
    (DUAL, {"ranks": 2, "reserve": 1, "smt": "all"}, "0-2,8-10 4-6,12-14"),
    (DUAL, {"ranks": 2, "reserve_total": 1}, "0-2 4-7"),
    (DUAL, {"ranks": 2, "reserve": 1, "mask": "3,1,0|7,5"}, "1,3 7"),
    (DUAL, {"ranks": 2, "reserve_total": 3, "mask": "0-3|4-7"}, "0-1 4-6"),
])  # fmt: skip
def test_ranks_get(shape, options, expected):
    assert lists(plan(shape, **options)) == expected.split()


def test_ranks_share_smt_cores_only_if_necessary_and_cores_without_a_node_can_be_reserved_too():
    machine = with_domains(make_machine(Shape(cores=6)), {Level.CORE: ["0-1", "2-3", "4", "5"]})
    assert lists(plan(None, machine=machine, ranks=5)) == ["0", "1", "2", "4", "5"]
    assert lists(plan(None, machine=machine, ranks=5, smt="all")) == ["0", "1", "2-3", "4", "5"]
    machine = with_domains(make_machine(Shape(cores=8)), {Level.NODE: ["0-3"]})
    assert len(plan(None, machine=machine, ranks=1, reserve_total=5).reserved) == 5


@pytest.mark.parametrize(("shape", "allowed", "options", "expected"), [
    (DUAL, "2,10", {}, "2,10"), (DUAL, "2,10", {"ranks": "auto"}, "2,10"),
    (DUAL, "2,10", {"cores": 1}, "2,10"), (DUAL, "2,10", {"threads": 1}, "2,10"),
    (Shape(cores=1, smt=4), "0-3", {}, "0-3"),
    (POWER, "8-15", {}, "8-11"), (POWER, "8-13", {"strategy": "compact"}, "8-11"), (DUAL, "10", {}, "10"),
    # everywhere else one hardware thread per core
    (DUAL, "2,10", {"smt": 1}, "2"), (DUAL, "2,10", {"ranks": 2}, "2 10"), (DUAL, "2-3,10", {}, "2-3"),
    (DUAL, "2,10", {"outside_ranks": 1}, "2"), (DUAL, "2,10", {"compat": Compat(framework="vllm")}, "2"),
    (DUAL, "2,10", {"group": "one"}, "2"), (DUAL, "2,10", {"mask": "10"}, "10"),
])  # fmt: skip
def test_the_only_rank_has_all_hardware_threads_of_the_only_core(shape, allowed, options, expected):
    made = plan(None, machine=make_machine(shape, allowed=CpuSet.from_list(allowed)), **options)
    assert lists(made) == expected.split()
    is_told = "all hardware threads are used, as only one core is allowed" in notes(made).get("smt", "")
    assert is_told == (len(made.used) > 1 and made.used == made.machine.allowed and len(lists(made)) == 1)


def test_notes_report_idle_and_shared_cores_and_ranks_across_nodes():
    assert "shared-cores" in notes(plan(DUAL, ranks=9))
    assert "idle" in notes(plan(SNC, ranks=3, strategy="nodes"))
    crossing = plan(SNC, ranks=2)
    assert "crosses-nodes" in notes(crossing)
    assert [placement.nodes for placement in crossing.placements] == [(0, 1), (2, 3)]
    assert {note.code: note.warning for note in plan(DUAL, ranks=2, threads=9).notes}["oversubscribed"]


@pytest.mark.parametrize(("value", "threads", "remedy"), [
    ("5,1", None, "OMP_NUM_THREADS of --env or --keep-env"), ("4", None, ""), ("{size}", None, ""),
    ("2", 5, "--threads"), ("9", 5, "OMP_NUM_THREADS of --env or --keep-env"),
])  # fmt: skip
def test_a_thread_count_of_the_user_can_be_too_large(value, threads, remedy):
    notes = plan(DUAL, ranks=2, threads=threads, user_variables=(("OMP_NUM_THREADS", value),)).notes
    texts = [note.text.partition("(")[2] for note in notes if note.code == "oversubscribed"]
    assert texts == ([f"lower {remedy})"] if remedy else [])


@pytest.mark.parametrize(("options", "passive"), [
    ({"strategy": "all"}, "ranks 0-1"), ({"mask": "none"}, "ranks 0-1"), ({"mask": "0-3|2-5"}, "ranks 0-1"),
    ({"mask": "0-3|0-3|4-7", "ranks": 3}, "ranks 0-1"), ({"mask": "0-3|3", "threads": 4}, "ranks 0-1"),
    ({"mask": "0-3|3"}, "rank 0"),  # rank 1 has one thread
    ({}, ""), ({"ranks": 9}, ""),  # each rank has its own CPUs, at least hardware threads
    ({"strategy": "all", "threads": 1}, ""), ({"strategy": "all", "processes_per_rank": 8}, ""),
    ({"strategy": "all", "processes_per_rank": 4}, "ranks 0-1"),
    ({"strategy": "all", "threads": 4}, ""),  # a CPU for each thread
    ({"strategy": "all", "user_variables": (("OMP_NUM_THREADS", "8"),)}, "ranks 0-1"),
    *(({"strategy": "all", "user_variables": ((name, "0"),)}, "")
      for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")),
])  # fmt: skip
def test_threads_of_ranks_that_share_cpus_wait_passively(options, passive):
    made = plan(DUAL, **{"ranks": 2, "sharing": Sharing.SHARE, **options})
    assert name_ranks(placement for placement in made.placements if placement.waits_passively) == passive
    assert [passive in text for text in texts_of(made, "waiting")] == [True] * bool(passive)
    for base in ({}, {"OMP_WAIT_POLICY": "active"}, {"KMP_BLOCKTIME": "1"}):
        set_ = {make_environment(made, placement.rank, base).get("GOMP_SPINCOUNT")
                for placement in made.placements if placement.waits_passively}  # fmt: skip
        assert set_ <= ({None} if base else {"0"})


def test_place_lists_too_long_for_a_runtime_fall_back_with_a_note():
    shape = Shape(packages=2, nodes=4, l3s=4, cores=64, numbering="adjacent")
    assert len(plan(shape, ranks=1).placements[0].places) == 1
    made = plan(shape, ranks=1, bind=Bind.EXACT)
    assert made.placements[0].places == ()
    assert "places-too-long" in notes(made)


@pytest.mark.parametrize(("isolated", "options", "expected", "unused"), [
    ("0", {}, "1-3 4-7", "CPUs 0,8"), ("0", {"smt": "all"}, "1-3,9-11 4-7,12-15", "CPUs 0,8"),
    ("0", {"ranks": 1, "mask": "node:0"}, "1-3,9-11", "CPUs 0,8"),
    ("0", {"ranks": 1, "mask": "core:0"}, "8", ""), ("0", {"ranks": 1, "mask": "0,8"}, "0,8", ""),
    ("0-7", {}, "8-11 12-15", ""), ("0-15", {}, "0-3 4-7", ""),
])  # fmt: skip
def test_siblings_of_isolated_cpus_are_left_idle_and_a_note_names_them(isolated, options, expected, unused):
    machine = make_machine(DUAL, isolated=CpuSet.from_list(isolated))
    made = plan(DUAL, machine, **{"ranks": 2, **options})
    assert lists(made) == expected.split()
    noted = [f"isolated: {unused} (" in text for text in texts_of(made, "set-apart")]
    assert noted == [True] * bool(unused)


BOUND, SHARED_CPUS = "OpenMP threads are bound to one CPU each", "share CPUs while others stay idle"
SERVED = "on the first CPU of their rank, not on its service CPUs"


@pytest.mark.parametrize(("mask", "options", "expected", "note"), [
    ("3-4", {}, "thread 3-4 4", BOUND), ("0-3", {"ranks": 4}, "rank 0", ""), ("4-7", {}, "rank 4-7", ""),
    ("0-3", {"service_total": 1}, "thread 0-3 1 2", SERVED),
    ("4-5|0-1", {"ranks": 2, "bind_given": True}, "rank 4-5", f"threads of rank 1 {SHARED_CPUS}"),
    ("0-3", {"bind": Bind.NONE}, "none", f"{SHARED_CPUS} (--bind thread"),
    ("0-1,8-9", {"bind": Bind.CORE}, "core 0-1,8-9 1,9", f"{SHARED_CPUS} (--bind thread"),
    ("0-1", {"bind": Bind.CORE}, "core 0-1 1", f"{BOUND} (--bind core)"),
    ("0-1", {"bind": Bind.EXACT}, "exact 0 1", f"{BOUND} (--bind exact)"),
    ("0-3", {"processes_per_rank": 2}, "rank 0-3", f"{SHARED_CPUS} (start one rank per CPU)"),
])  # fmt: skip
def test_threads_of_ranks_are_bound_on_isolated_cpus_or_a_warning_says_so(mask, options, expected, note):
    """The kernel does not move threads to CPUs 0-3 and 8-11 here; a mode that the user chooses is kept."""
    made = plan(DUAL, make_machine(DUAL, isolated=CpuSet.from_list("0-3,8-11")), mask=mask, **options)
    assert " ".join(map(str, (made.request.bind, *made.placements[0].places))) == expected
    noted = [known for known in made.notes if known.code == "isolated"]
    assert [note in known.text for known in noted] == [True] * bool(note)
    assert [known.warning for known in noted] == [SHARED_CPUS in note] * bool(note)


@pytest.mark.parametrize(("cores", "offline", "expected"), [
    # four threads are used of each core that has eight, although some are offline
    (["0-7", "8-15", "16-23"], "", "0-3,8-11,16-19"),
    (["0-1", "8-9", "16-17"], "2-7,10-15,18-23", "0-1,8-9,16-17"),
    # cores of four threads use one
    (["0,2", "4,6", "8,10"], "1,3,5,7,9,11", "0,4,8"),
])  # fmt: skip
def test_threads_of_power_are_counted_although_some_are_offline(cores, offline, expected):
    machine = make_machine(Shape(cores=24), arch="ppc64le", offline=CpuSet.from_list(offline))
    assert lists(plan(None, with_domains(machine, {Level.CORE: cores}))) == [expected]


@pytest.mark.parametrize(("mask", "options", "is_noted"), [
    ("core:0,1|core:2", {"ranks": 2}, True), ("core:0-3", {"smt": 1}, False), ("0-3,8-11", {}, False),
    ("^core:0", {}, False),
])  # fmt: skip
def test_a_note_says_that_a_domain_means_all_hardware_threads(mask, options, is_noted):
    texts = [note.text for note in plan(DUAL, mask=mask, **options).notes]
    found = ["up to 2 per core" in text for text in texts if "domains in the mask" in text]
    assert found == [True] * is_noted
