"""Known faults of other launchers and binding tools: each test shows that ompbind does not have the fault.

Some faults are tested elsewhere: JSON of lscpu with bare dashes in test_sources.py, exit codes, signals and
arguments in live/test_run.py, masks of launchers in live/test_exec.py.
"""

import re
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.compat.frameworks import FrameworkInput
from ompbind.compat.reading import fill_request
from ompbind.cpuset import CpuSet, union
from ompbind.errors import MaskError, OmpbindError, PlanError, RequestError
from ompbind.machine.model import Level, make_domains
from ompbind.machine.sources.reading import read_machine
from ompbind.masks.parse import parse_mask
from ompbind.openmp.binding import TEXT_LIMIT, Bind, parse_places
from ompbind.planning.planner import make_plan
from ompbind.planning.rank_command import RunSpec, make_command, make_local_identities, make_thread_variables
from ompbind.planning.request import Request, Sharing
from ompbind.planning.strategies.strategies import STRATEGIES
from tests.long import examples
from tests.machines import Shape, make_machine, write_tree
from tests.planning.test_planner import lists
from tests.planning.test_promises import cases
from tests.recordings import RECORDINGS, recorded

NUMBERINGS = ("adjacent", "split", "round-robin")
DUAL = make_machine(Shape(packages=2, cores=4, smt=2))  # nodes of CPUs 0-3,8-11 and 4-7,12-15
ADJACENT = make_machine(Shape(packages=2, cores=4, smt=2, numbering="adjacent"))
SNC = make_machine(Shape(packages=2, nodes=2, cores=4))  # four nodes of four CPUs


def plan(machine, **options):
    mask = options.pop("mask", None)
    return make_plan(machine, Request(mask=parse_mask(mask) if mask is not None else None, **options))


def sets(made):
    return [placement.cpuset for placement in made.placements]


def is_disjoint(made):
    return all(cpus.isdisjoint(other) for cpus, other in combinations(sets(made), 2))


def environments(made, base=None, **spec):
    run_spec = RunSpec(argv=("app",), run_id="r", base=base or {}, **spec)
    return [make_command(made, identity, run_spec).env for identity in make_local_identities(made)]


def renumbered(machine, numbers):
    """Return the same machine with other numbers of its NUMA nodes."""
    return machine.replace(
        nodes=tuple(node.replace(number=numbers[node.number]) for node in machine.nodes),
        domains=tuple(
            domain.replace(os_id=numbers[domain.os_id]) if domain.level is Level.NODE else domain
            for domain in machine.domains
        ),
    )


def with_level(machine, level, blocks):
    """Return the same machine with domains of one more level."""
    parts = {known: [(domain.os_id, domain.cpus) for domain in machine.at(known)] for known in machine.levels}
    parts[level] = [(None, CpuSet.from_list(text)) for text in blocks]
    return machine.replace(domains=make_domains(machine.online, parts))


# --- Strategies by their names in vLLM ---------------------------------------------------------------------


@pytest.mark.parametrize("numbering", NUMBERINGS)
@pytest.mark.parametrize(
    ("strategy", "ranks", "level"), [("all", 2, None), ("cores", 8, Level.CORE), ("nodes", 2, Level.NODE)]
)
@pytest.mark.parametrize("smt", [1, "all"])
def test_strategies_with_names_from_vllm_give_one_place_per_domain(strategy, ranks, level, smt, numbering):
    machine = make_machine(Shape(packages=2, cores=4, smt=2, numbering=numbering))
    domains = [domain.cpus for domain in machine.at(level)] if level else [machine.online] * ranks
    first = CpuSet(core.cpus.first for core in machine.at(Level.CORE))
    made = plan(machine, ranks=ranks, strategy=strategy, smt=smt)
    assert sets(made) == [cpus & first if smt == 1 else cpus for cpus in domains]
    assert [placement.places for placement in made.placements] == [(cpus,) for cpus in sets(made)]


# --- Ranks and the lists that name their CPUs --------------------------------------------------------------


@pytest.mark.parametrize("text", ["8-15|0-7", "0|1-3", "1-3|0", "4-7|0-1|8-15", "15|0-2|14", "3|2|1|0"])
def test_ranks_keep_the_order_of_their_lists_of_any_length(text):
    """vLLM sorted places by length and highest CPU: rank 0 of "0-31|32-63" got 32-63."""
    made = plan(SNC, ranks=text.count("|") + 1, mask=text)
    assert lists(made) == text.split("|")


@given(st.permutations(range(16)), st.lists(st.integers(1, 15), min_size=1, max_size=6, unique=True))
def test_ranks_keep_the_order_of_any_lists(cpus, cuts):
    bounds = [0, *sorted(cuts), 16]
    parts = [tuple(cpus[start:stop]) for start, stop in pairwise(bounds)]
    text = "|".join(",".join(map(str, part)) for part in parts)
    assert [placement.cpus for placement in plan(SNC, ranks=len(parts), mask=text).placements] == parts


def test_a_list_over_two_nodes_is_one_rank_with_one_place():
    """vLLM cut such a list into a place for each node, and ranks no longer fitted the lists."""
    (first, second) = plan(SNC, ranks=2, mask="0-7|8-11").placements
    assert [str(place) for place in first.places] == ["0-7"]
    assert (first.nodes, second.nodes) == ((0, 1), (2,))


@pytest.mark.parametrize(("text", "ranks"), [("0|1", 3), ("0|1|2", 2), ("0|1", 1)])
def test_lists_that_do_not_fit_the_ranks_are_refused(text, ranks):
    """vLLM started what it could, or failed when places ran out."""
    with pytest.raises(MaskError, match=f"{text.count('|') + 1} parts for {ranks} rank"):
        plan(SNC, ranks=ranks, mask=text)


@pytest.mark.parametrize(
    ("text", "marked", "message"),
    [
        ("0|7-4", "7-4", "reversed"),  # an empty list in vLLM
        ("0|-1", "-", "negative"),  # the CPU -1 in vLLM
        ("", "", "empty"),
        ("0-3|", "", "empty"),
        ("0-3|4-17", "4-17", "CPUs 16-17 do not exist"),  # OpenMP runtimes drop them silently
        ("0,99", "99", "CPU 99 does not exist"),  # sched_setaffinity drops it silently
        ("0-3|3-5", "3-5", "both get CPU 3"),
        ("0-7|2", "2", "both get CPU 2"),
    ],
)
def test_lists_that_other_tools_accept_silently_are_refused_with_a_position(text, marked, message):
    with pytest.raises(MaskError, match=message) as caught:
        plan(SNC, ranks=text.count("|") + 1, mask=text)
    assert text[slice(*caught.value.span)] == marked
    assert caught.value.hint


@pytest.mark.parametrize("machine", [DUAL, ADJACENT])
def test_a_mask_is_pruned_only_on_request_and_with_a_note(machine):
    """vLLM left half the CPUs out of a list that named siblings, without a word."""
    (placement,) = plan(machine, mask="0-15").placements
    assert (len(placement.cpus), placement.threads) == (16, 16)
    made = plan(machine, mask="0-15", smt=1)
    assert (len(made.placements[0].cpus), made.placements[0].threads) == (8, 8)
    text = "the mask names CPUs 0-15; --smt 1 uses only 1 CPU of each core"
    assert text in [note.text for note in made.notes if note.code == "smt"]
    assert "smt" not in {note.code for note in plan(machine, mask="0-15", smt=2).notes}


def test_masks_use_os_numbers_inside_any_affinity_mask():
    """likwid-pin counts among the allowed CPUs; torch's run_cpu, MPICH and Open MPI use CPU 0 regardless."""
    limited = DUAL.replace(allowed=CpuSet([1, 5, 6]))
    assert lists(plan(limited, mask="5")) == ["5"]
    assert lists(plan(DUAL.replace(allowed=CpuSet([1])))) == ["1"]
    with pytest.raises(MaskError, match="CPU 0 is not allowed"):
        plan(limited, mask="0-1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0-1", "0-1"), ("8-15", "8-15"), ("12,4", "4,12")],
)
def test_lists_may_have_ranges_and_name_only_siblings(text, expected):
    """run_cpu knew no ranges; ipexrun made an empty list of second siblings."""
    assert lists(plan(DUAL, mask=text)) == [expected]


# --- Hardware threads --------------------------------------------------------------------------------------


@pytest.mark.parametrize("numbering", NUMBERINGS)
@pytest.mark.parametrize("limit", range(1, 9))
@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name not in ("l2", "books", "drawers")])
def test_smt_is_a_limit_for_every_number_numbering_and_strategy(strategy, limit, numbering):
    """vLLM took every number above 1 for "all", and 1 for CPU numbers that are also numbers of cores."""
    machine = make_machine(Shape(packages=2, nodes=2, cores=2, smt=8, numbering=numbering))
    for sibling in ("first", "last"):
        made = plan(machine, ranks=2, strategy=strategy, smt=limit, sibling=sibling)
        for placement in made.placements:
            for core in machine.at(Level.CORE):
                used = tuple(core.cpus & placement.cpuset)
                siblings = tuple(core.cpus)
                assert used in ((), siblings[:limit] if sibling == "first" else siblings[-limit:])
            assert placement.threads == len(placement.cpus)


def test_smt_zero_is_refused():
    """vLLM made a place without a CPU of it."""
    with pytest.raises(RequestError, match="--smt 0"):
        Request(smt=0)


@pytest.mark.parametrize(
    ("numbering", "expected"), [("adjacent", ["0", "2", "4", "6"]), ("split", ["0", "1", "2", "3"])]
)
def test_core_numbers_are_not_used_as_cpu_numbers(numbering, expected):
    """torch's run_cpu used numbers of cores as numbers of CPUs: both siblings of half the cores."""
    machine = make_machine(Shape(cores=4, smt=2, numbering=numbering))
    assert lists(plan(machine, ranks=4, strategy="cores")) == expected


# --- Reserved cores ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name not in ("l2", "books", "drawers")])
@pytest.mark.parametrize("bind", list(Bind))
def test_reserved_cpus_are_in_no_place_and_no_count(strategy, bind):
    """vLLM lowered the number of threads and left the CPU in the place."""
    if strategy == "cores":
        with pytest.raises(PlanError, match="no core left"):
            plan(DUAL, ranks=2, strategy=strategy, reserve=1)
        return
    made = plan(DUAL, ranks=2, strategy=strategy, reserve=1, bind=bind)
    assert made.reserved
    for placement, env in zip(made.placements, environments(made), strict=True):
        assert made.reserved.isdisjoint(placement.cpuset | union(placement.places))
        assert env["OMP_NUM_THREADS"] == str(len(placement.cpus))
        assert env["OMPBIND_RESERVED_CPUS"] == str(placement.reserved)


@pytest.mark.parametrize(
    ("mask", "reserve", "expected", "reserved"),
    [
        ("0-3|4-7", 1, ["0-2", "4-6"], ["3,11", "7,15"]),
        ("0-3|4-7", 3, ["0", "4"], ["1-3,9-11", "5-7,13-15"]),
        ("4-5,12-13|0-1,8-9", 1, ["4,12", "0,8"], ["5,13", "1,9"]),
        ("0-7", 1, ["0-2", "4-6"], ["3,11", "7,15"]),
    ],
)
def test_reserve_works_with_lists_too(mask, reserve, expected, reserved):
    """vLLM reserves nothing if lists are given; here siblings of a reserved CPU are reserved too."""
    made = plan(DUAL, ranks=2, mask=mask, reserve=reserve)
    assert lists(made) == expected
    assert [str(placement.reserved) for placement in made.placements] == reserved
    assert [placement.threads for placement in made.placements] == [
        len(placement.cpus) for placement in made.placements
    ]


def test_reserving_everything_is_refused():
    """vLLM warns and reserves nothing."""
    with pytest.raises(PlanError, match="no core left"):
        plan(DUAL, ranks=2, reserve=4)


# --- NUMA nodes --------------------------------------------------------------------------------------------


def test_nodes_are_found_by_allowed_cpus_not_by_allowed_memory(tmp_path):
    """vLLM took nodes from Mems_allowed: rank 0 of a pod on node 1 was sent to node 0, without CPUs."""
    files = {
        "proc/self/cgroup": "0::/pod\n",
        "proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
        "proc/self/status": "Cpus_allowed_list:\t4-7,12-15\nMems_allowed_list:\t0-1\n",
        "sys/fs/cgroup/pod/cpuset.cpus.effective": "4-7,12-15\n",
        "sys/fs/cgroup/pod/cpuset.mems.effective": "0-1\n",
    }
    machine = read_machine(str(write_tree(tmp_path, Shape(packages=2, cores=4, smt=2), files)))
    assert lists(plan(machine, ranks=None, strategy="nodes")) == ["4-7"]
    assert lists(plan(machine, ranks=2, strategy="nodes")) == ["4-5", "6-7"]
    assert lists(plan_as_vllm(machine, 2)) == ["12-13", "14-15"]
    assert [placement.memory_nodes for placement in plan(machine, ranks=2).placements] == [(1,), (1,)]


def plan_as_vllm(machine, ranks, env=None):
    """The plan with --compat vllm on an x86-64 machine; vLLM does not know the architecture "test"."""
    machine = machine.replace(arch="x86_64") if machine.arch == "test" else machine
    source = FrameworkInput(machine=machine, env=env or {})
    return make_plan(machine, fill_request(Request(ranks=ranks), "vllm", source))


def can_use_memory(machine, node):
    return machine.memory_allowed is None or node in machine.memory_allowed


def test_nodes_without_cpus_get_no_rank():
    """Other tools counted nodes with only memory (CXL, HBM) as nodes to bind to."""
    far = SNC.nodes[0].replace(number=9, cpus=CpuSet(), nearest=(0,))
    made = plan(SNC.replace(nodes=(*SNC.nodes, far)), ranks=None, strategy="nodes")
    assert lists(made) == ["0-3", "4-7", "8-11", "12-15"]


@pytest.mark.parametrize(
    "numbers", [(3, 2, 1, 0), (0, 8, 252, 255), (4, 0, 12, 8), (1, 2, 3, 4), (12, 13, 14, 15)]
)
@pytest.mark.parametrize(
    "strategy", [name for name in STRATEGIES if name not in ("l2", "books", "drawers", "numa")]
)
def test_numbers_of_nodes_are_never_compared_with_numbers_of_cpus(numbers, strategy):
    """vLLM looked for node numbers among CPU numbers; others assume numbers from 0 without gaps."""
    other = renumbered(SNC, dict(enumerate(numbers)))
    for ranks in (1, 2, 3, 4, 5):
        before, after = (plan(machine, ranks=ranks, strategy=strategy) for machine in (SNC, other))
        assert lists(before) == lists(after)
        for placement, same in zip(before.placements, after.placements, strict=True):
            assert sorted(same.nodes) == sorted(numbers[node] for node in placement.nodes)
            assert same.memory_nodes == tuple(sorted(same.nodes))
    assert lists(plan(other, mask=f"node:#{numbers[2]}")) == ["8-11"]
    assert lists(plan(other, mask="node:2")) == ["8-11"]
    with pytest.raises(MaskError, match="no node with OS number 7"):
        plan(other, mask="node:#7")


def test_numbers_of_nodes_may_have_two_digits():
    """torch's run_cpu read one digit: node 1 included nodes 10 and 11."""
    machine = make_machine(Shape(packages=4, nodes=3, cores=2))
    made = plan(machine, ranks=None, strategy="nodes")
    assert lists(made) == [f"{2 * node}-{2 * node + 1}" for node in range(12)]
    assert [placement.nodes for placement in made.placements] == [(node,) for node in range(12)]


def test_memory_comes_from_the_nodes_of_the_ranks_own_cpus():
    """vLLM bound memory to the node of the first CPU: of the parent, or of a list over several nodes."""
    assert [placement.memory_nodes for placement in plan(SNC, ranks=4).placements] == [(0,), (1,), (2,), (3,)]
    assert [placement.memory_nodes for placement in plan(SNC, ranks=2, mask="12-15,2|4-11").placements] == [
        (0, 3),
        (1, 2),
    ]
    bare = SNC.nodes[1].replace(memory_bytes=0, nearest=(0,))
    machine = SNC.replace(nodes=(SNC.nodes[0], bare, *SNC.nodes[2:]))
    assert [placement.memory_nodes for placement in plan(machine, ranks=4).placements] == [
        (0,),
        (0,),
        (2,),
        (3,),
    ]


# --- More ranks than domains, and copies of one program ----------------------------------------------------

BOOKS = with_level(
    with_level(make_machine(Shape(cores=16)), Level.BOOK, ["0-3", "4-7", "8-11", "12-15"]),
    Level.DRAWER,
    ["0-7", "8-15"],
).replace(arch="s390x")


@pytest.mark.parametrize("ranks", range(1, 17))
@pytest.mark.parametrize("strategy", ["balanced", "nodes", "packages", "books", "drawers"])
def test_more_ranks_than_domains_never_reuse_cpus(strategy, ranks):
    """On s390x vLLM assigned books round-robin: rank 4 with 4 books got the CPUs of rank 0."""
    made = plan(BOOKS, ranks=ranks, strategy=strategy)
    assert len(made.placements) == ranks
    assert all(sets(made))
    assert is_disjoint(made)


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("env", [{}, {"CPU_VISIBLE_MEMORY_NODES": "1,0"}])
def test_copies_of_a_server_never_get_the_same_cpus(ranks, env):
    """Data-parallel replicas of vLLM and SGLang all used the CPUs of the first replica."""
    made = plan_as_vllm(DUAL, ranks, env)
    assert len(made.placements) == ranks
    assert is_disjoint(made)


@pytest.mark.parametrize(
    ("shape", "options", "expected"),
    [
        (Shape(cores=36), {"ranks": 4, "threads": 4, "strategy": "spread"}, [4, 4, 4, 4]),  # ipexrun: three
        (Shape(cores=10), {"ranks": 3}, [4, 3, 3]),  # ipexrun: one core idle
        (Shape(cores=2, smt=2), {"ranks": 4}, [1, 1, 1, 1]),  # ipexrun: empty lists
    ],
)
def test_all_ranks_start_and_all_have_cpus(shape, options, expected):
    made = plan(make_machine(shape), **options)
    assert sorted((len(cpus) for cpus in sets(made)), reverse=True) == expected
    assert is_disjoint(made)


def test_ranks_are_spread_over_both_packages():
    """mpibind packed eight tasks on one of two packages, and gave some tasks three CPUs for two threads."""
    machine = make_machine(Shape(packages=2, cores=18, smt=2))
    for strategy in ("balanced", "spread", "nodes", "packages"):
        made = plan(machine, ranks=8, strategy=strategy)
        packages = machine.at(Level.PACKAGE)
        used = [[not cpus.isdisjoint(package.cpus) for package in packages] for cpus in sets(made)]
        assert sorted(used) == [[False, True]] * 4 + [[True, False]] * 4
        assert all(placement.threads == len(placement.cpus) for placement in made.placements)


@pytest.mark.parametrize(("allowed", "ranks"), [([0], 2), ([1], 2), ([0, 1], 4), ([0, 8], 3)])
def test_ranks_do_not_share_a_cpu_unless_asked(allowed, ranks):
    """srun --overcommit put four tasks on CPU 0 with CPU 1 idle."""
    machine = DUAL.replace(allowed=CpuSet(allowed))
    with pytest.raises(PlanError, match=f"{ranks} ranks do not fit"):
        plan(machine, ranks=ranks)
    shared = sets(plan(machine, ranks=ranks, sharing=Sharing.SHARE))
    loads = [sum(cpu in cpus for cpus in shared) for cpu in allowed]
    assert max(loads) - min(loads) <= 1


# --- Threads -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quota", "ranks", "threads"),
    [
        (None, 1, [96]),
        (7.65, 1, [7]),
        (0.5, 1, [1]),
        (7.65, 2, [3, 3]),
        (2.0, 4, [1, 1, 1, 1]),
        (96.0, 1, [96]),
        (200.0, 2, [48, 48]),
    ],
)
def test_all_threads_together_are_at_most_the_floor_of_the_quota(quota, ranks, threads):
    """torch starts a thread for each CPU of the host; one thread too many throttles the whole cgroup."""
    machine = make_machine(Shape(packages=2, cores=48), quota=quota)
    assert [placement.threads for placement in plan(machine, ranks=ranks).placements] == threads


@given(cases(masks=False))
def test_every_rank_has_threads_and_places_in_a_form_that_every_runtime_reads(case):
    """{0-3} is an error in every runtime; 0 threads or an empty number mean something else in each."""
    machine, request = case
    try:
        made = make_plan(machine, request)
    except PlanError:
        return
    for placement in made.placements:
        variables = make_thread_variables(placement, request)
        assert machine.quota or request.threads is not None or placement.threads == len(placement.cpus)
        assert variables["OMP_NUM_THREADS"] == str(placement.threads)
        assert placement.threads >= 1
        places = variables["OMP_PLACES"]
        assert (places is None) == (variables["OMP_PROC_BIND"] == "false") == (request.bind is Bind.NONE)
        if places is not None:
            assert re.fullmatch(r"\{\d+(:\d+)?(,\d+(:\d+)?)*\}(,\{\d+(:\d+)?(,\d+(:\d+)?)*\})*", places)
            widest, *others = parse_places(places)
            plain = ",".join("{" + ",".join(map(str, place)) + "}" for place in (widest, *others))
            assert places == plain or len(plain) > TEXT_LIMIT
            assert union([widest, *others]) == placement.cpuset
            assert request.bind is Bind.EXACT or widest == placement.cpuset
            assert len(others) < max(len(placement.cpus), placement.threads)


@examples(0.3)
@given(st.sets(st.integers(0, 2047), min_size=1), st.sampled_from([Bind.RANK, Bind.THREAD, Bind.EXACT]))
def test_long_places_are_runs_with_a_length_and_never_with_a_dash(cpus, bind):
    machine = make_machine(Shape(packages=2, cores=1024))
    made = plan(machine, mask=",".join(map(str, sorted(cpus))), bind=bind)
    text = make_thread_variables(made.placements[0], made.request)["OMP_PLACES"] or "{0}"
    assert len(text) <= TEXT_LIMIT
    assert re.fullmatch(r"\{\d+(:\d+)?(,\d+(:\d+)?)*\}(,\{\d+\})*", text)


def test_very_long_places_are_written_as_runs():
    machine = make_machine(Shape(packages=2, cores=1024))
    (placement,) = plan(machine).placements
    assert make_thread_variables(placement, Request())["OMP_PLACES"] == "{0:2048}"


# --- Environments ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [None, "none", "4-7|0-3"])
def test_an_inherited_list_of_places_is_never_shared_by_ranks(mask):
    """With vLLM's nobind every worker inherited one OMP_PLACES: all of them on the same CPUs."""
    base = {"OMP_PLACES": "{0,1},{2,3}", "OMP_PROC_BIND": "true", "GOMP_CPU_AFFINITY": "0-1"}
    envs = environments(plan(DUAL, ranks=2, mask=mask), base)
    places = [env.get("OMP_PLACES") for env in envs]
    assert places == [None, None] if mask == "none" else len(set(places)) == 2
    assert not [env for env in envs if "GOMP_CPU_AFFINITY" in env]
    assert [env["OMP_PROC_BIND"] for env in envs] == (["false"] * 2 if mask == "none" else ["true"] * 2)


def test_no_environment_is_changed_and_none_is_shared():
    """vLLM set variables of its own process, and the values for the last rank stayed."""
    base = {"OMP_PLACES": "{0}", "HOME": "/"}
    first, second = environments(plan(DUAL, ranks=2), base)
    assert base == {"OMP_PLACES": "{0}", "HOME": "/"}
    first["HOME"] = "/changed"
    assert second["HOME"] == "/"


def test_places_are_not_used_up():
    """vLLM gave each place to one rank only: after a restart no place was left."""
    assert [plan(DUAL, ranks=2, reserve=1) for _ in range(3)] == [plan(DUAL, ranks=2, reserve=1)] * 3


# --- Machines ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["riscv64", "sparc64", "loongarch64", "s390x", "no such thing", ""])
def test_architectures_make_no_difference(arch):
    """vLLM binds only on a list of architectures."""
    for machine in (DUAL, ADJACENT, SNC):
        for strategy in ("balanced", "nodes", "cores", "spread"):
            options = {"ranks": 2, "strategy": strategy, "bind": Bind.THREAD}
            assert lists(plan(machine.replace(arch=arch), **options)) == lists(plan(machine, **options))


def test_threads_of_a_core_are_found_by_its_siblings_not_by_the_architecture():
    """vLLM took CPU numbers modulo 8 on POWER, and all CPUs as cores on Arm."""
    power = make_machine(Shape(cores=4, smt=8, numbering="split"), arch="ppc64le")
    assert [len(placement.cpus) for placement in plan(power, ranks=4).placements] == [4, 4, 4, 4]
    arm = make_machine(Shape(cores=4, smt=4, numbering="adjacent"), arch="aarch64")
    assert lists(plan(arm, ranks=4)) == ["0", "4", "8", "12"]


MACHINES = recorded("dumps/*.tar.gz")


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.name) for path in MACHINES]
    or [pytest.param(None, marks=pytest.mark.skip(f"no recordings in {RECORDINGS}"))],
)
def test_no_recorded_machine_has_any_of_these_faults(path):
    try:
        machine = read_machine(str(path))
    except OmpbindError:
        return
    nodes = [node.cpus & machine.default_cpus for node in machine.at(Level.NODE)]
    nodes = [cpus for cpus in nodes if cpus]
    one_per_node = plan(machine, ranks=None, strategy="nodes", smt="all")
    assert sorted(map(str, sets(one_per_node))) == sorted(map(str, nodes))
    assert is_disjoint(one_per_node)
    compat = plan_as_vllm(machine, None)
    assert all(sets(compat))
    assert is_disjoint(compat)
    numbers = [placement.nodes for placement in compat.placements]
    assert all(len(nodes_of_rank) <= 1 for nodes_of_rank in numbers)
    usable = [number for (number,) in filter(None, numbers) if can_use_memory(machine, number)]
    assert usable == sorted(usable)
    if not usable:  # memory is only allowed on nodes without allowed CPUs
        return
    reverse = ",".join(map(str, dict.fromkeys(usable[::-1])))
    backwards = plan_as_vllm(machine, None, {"CPU_VISIBLE_MEMORY_NODES": reverse})
    assert [placement.nodes for placement in backwards.placements] == [(node,) for node in usable[::-1]]
