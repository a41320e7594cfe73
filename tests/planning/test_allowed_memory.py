"""NUMA nodes whose memory is not allowed (cpuset.mems): no plan names them, and their CPUs are used last."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.errors import MaskError, PlanError, RequestError
from ompbind.machine.model import Level, find_overlapping
from ompbind.machine.sources.reading import read_machine
from ompbind.masks.parse import parse_mask
from ompbind.planning.memory import measure_remote_memory
from ompbind.planning.metrics import measure_plan
from ompbind.planning.planner import make_plan
from ompbind.planning.rationale import make_reasons
from ompbind.planning.request import MemoryMode, Request
from ompbind.planning.strategies.strategies import STRATEGIES
from tests.machines import Shape, make_machine
from tests.planning.test_promises import cases
from tests.recordings import RECORDINGS
from tests.report.test_export import READ, render

NAMED = tuple(name for name in READ if name in ("numactl", "slurm", "docker", "systemd"))
"""The formats that name NUMA nodes."""


def with_distances(machine, distances=None):
    """The machine with a distance for each pair of nodes: 12 in a package, 21 between packages."""
    per_package = len(machine.nodes) // len(machine.at(Level.PACKAGE))
    count = len(machine.nodes)
    rows = distances or [
        [10 if a == b else 12 if a // per_package == b // per_package else 21 for b in range(count)]
        for a in range(count)
    ]
    nodes = (node.replace(distances=tuple(row)) for node, row in zip(machine.nodes, rows, strict=True))
    return machine.replace(nodes=tuple(nodes))


FOUR = with_distances(make_machine(Shape(packages=2, nodes=2, cores=4)))
"""Nodes 0 and 1 in package 0, nodes 2 and 3 in package 1; node N has CPUs 4N to 4N+3."""


def plan(machine=FOUR, mems=None, **options):
    """Make a plan where only the memory of the nodes `mems` is allowed."""
    for name in ("mask", "nodes"):
        if name in options:
            options[name] = parse_mask(options[name])
    allowed = None if mems is None else CpuSet.from_list(mems)
    return make_plan(machine.replace(memory_allowed=allowed), Request(**{"ranks": 2, **options}))


def lists(made):
    return [str(placement.cpuset) for placement in made.placements]


@pytest.mark.parametrize(
    ("mems", "options", "expected"),
    [
        # no more cores than the nodes with allowed memory have
        ("1", {"strategy": "compact", "cores": 2}, ["4-5", "6-7"]),
        ("1", {"strategy": "spread", "cores": 1}, ["4", "6"]),
        ("1", {"strategy": "balanced", "cores": 2}, ["4-5", "6-7"]),
        ("1", {"strategy": "cores"}, ["4", "5"]),
        ("1", {"strategy": "compact", "threads": 2}, ["4-5", "6-7"]),
        ("2-3", {"strategy": "spread", "cores": 2}, ["8-9", "12-13"]),
        ("3", {"strategy": "nodes", "ranks": 1}, ["12-15"]),
        ("1,3", {"strategy": "nodes"}, ["4-7", "12-15"]),
        ("2-3", {"strategy": "packages", "ranks": 1}, ["8-15"]),
        ("1,3", {"strategy": "packages", "cores": 2}, ["4-5", "12-13"]),
        ("3", {"cores": 2, "ranks": 1, "service_cores": 1, "reserve": 1}, ["12-14"]),
        # some cores with remote memory: the nearest, and no more than needed
        ("2", {"strategy": "compact", "cores": 3}, ["8-10", "11-13"]),
        ("3", {"strategy": "compact", "cores": 4}, ["8-11", "12-15"]),
        ("1", {"strategy": "nodes"}, ["0-3", "4-7"]),
        ("2", {"strategy": "nodes", "ranks": 3}, ["0-3", "8-11", "12-15"]),
        ("3", {"strategy": "cores", "ranks": 5}, ["8", "12", "13", "14", "15"]),
        # shares of all cores
        ("3", {}, ["0-7", "8-15"]),
        ("3", {"strategy": "nodes", "ranks": None}, ["0-3", "4-7", "8-11", "12-15"]),
        ("2", {"strategy": "compact", "ranks": 3}, ["0-4", "5-6,8-10", "11-15"]),
        # a mask or a list of nodes is used as given
        ("3", {"mask": "0-7", "strategy": "compact", "cores": 1}, ["0", "1"]),
        ("3", {"mask": "0-1|12"}, ["0-1", "12"]),
        ("3", {"mask": "node:0,12-13", "strategy": "compact", "cores": 1}, ["0", "1"]),
        ("3", {"mask": "all", "strategy": "compact", "cores": 1}, ["0", "1"]),
        ("3", {"mask": "auto", "strategy": "compact", "cores": 1}, ["12", "13"]),
        ("3", {"nodes": "node:0,node:3", "strategy": "nodes", "ranks": 1}, ["0-3"]),
    ],
)
def test_cores_with_remote_memory_are_used_last(mems, options, expected):
    assert lists(plan(mems=mems, **options)) == expected


@pytest.mark.parametrize(
    ("mems", "options", "expected"),
    [
        ("0-3", {}, [(0, 1), (2, 3)]),
        ("0,2", {}, [(0,), (2,)]),
        ("1", {}, [(1,), (1,)]),
        ("0,3", {"ranks": 4}, [(0,), (0,), (3,), (3,)]),
        ("2-3", {"ranks": 4}, [(2, 3), (2, 3), (2,), (3,)]),  # both are equally far from nodes 0 and 1
        ("0,9", {"ranks": 4}, [(0,)] * 4),
        ("9", {"ranks": 4}, [()] * 4),
        ("2", {"mask": "none"}, [(2,), (2,)]),
        ("3", {"mask": "0-7|8"}, [(3,), (3,)]),
    ],
)
def test_memory_comes_from_the_nearest_allowed_nodes(mems, options, expected):
    assert [placement.memory_nodes for placement in plan(mems=mems, **options).placements] == expected


def test_without_distances_all_allowed_nodes_are_near():
    machine = make_machine(Shape(packages=2, nodes=2, cores=4))
    made = plan(machine, "1,3", ranks=4)
    assert [placement.memory_nodes for placement in made.placements] == [(1, 3), (1,), (1, 3), (3,)]


def test_nodes_without_cpus_count_and_nodes_without_memory_do_not():
    far, near, empty = FOUR.nodes[0], FOUR.nodes[1], FOUR.nodes[2]
    nodes = (
        far,
        near.replace(cpus=CpuSet(), nearest=(0,)),
        empty.replace(memory_bytes=0, nearest=(3,)),
        FOUR.nodes[3],
    )
    made = plan(FOUR.replace(nodes=nodes), "1-2", mask="0-3|8-11")
    assert [placement.memory_nodes for placement in made.placements] == [(1,), (1,)]


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        ({}, "memory-remote", "CPUs 0-11 (ranks 0-1) use memory of other nodes"),
        ({"strategy": "cores"}, None, ""),
        ({"strategy": "cores", "ranks": 5}, "memory-remote", "CPU 8 (rank 0) uses memory of other nodes"),
        ({"mask": "0,12|13"}, "memory-remote", "CPU 0 (rank 0) uses memory of other nodes"),
        ({"memory": MemoryMode.BIND}, "memory-limited", "CPUs 0-11 (ranks 0-1) use memory of other nodes"),
    ],
)
def test_one_note_names_the_ranks_with_remote_memory(options, code, text):
    made = plan(mems="3", **options)
    notes = [note for note in made.notes if "not allowed" in note.text]
    assert [note.code for note in notes] == [code] * bool(code)
    assert all(text in note.text and "(cpuset.mems: 3): " in note.text for note in notes)
    assert [note.warning for note in notes] == [code == "memory-limited"] * bool(code)


def test_only_a_memory_policy_that_cannot_be_honoured_is_an_error_with_strict():
    assert lists(plan(mems="3", strict=True)) == lists(plan())
    assert plan(mems="3", strict=True, memory=MemoryMode.BIND, strategy="cores").placements
    with pytest.raises(PlanError, match=r"memory of NUMA nodes 0-2 is not allowed \(cpuset.mems: 3\)"):
        plan(mems="3", strict=True, memory=MemoryMode.BIND)


def test_reasons_name_the_cpus_that_are_used_last():
    def reasons(**options):
        made = plan(**options)
        return {reason.about: reason.text for reason in make_reasons(made, measure_plan(made))}

    assert "CPUs 0-11 are used last: memory of their NUMA node is not allowed." in reasons(mems="3")["CPUs"]
    assert "Memory of NUMA nodes 0-2 is not allowed (cpuset.mems: 3)" in reasons(mems="3")["memory"]
    assert "used last" not in reasons(mems="3", mask="0-3")["CPUs"]
    assert "used last" not in reasons(mems="0-3")["CPUs"]
    assert "equal shares" not in reasons(mems="2", cores=3)["borders"]


@pytest.mark.parametrize(
    ("name", "options", "cpus", "numactl"),
    [
        ("syn-cg2-memsonly1", {}, ["0-3", "4-7"], ["1", "1"]),
        ("hwloc-16amd64-8n2c-cpusets", {"cores": 2}, ["2-3", "5-6"], ["1", "2-3"]),
        ("hwloc-16amd64-8n2c-cpusets", {"strategy": "nodes", "ranks": 3}, ["2-3", "5", "6"], ["1", "2", "3"]),
        ("hwloc-32amd64-4s2n4c-cgroup", {}, None, None),
        ("hwloc-32amd64-4s2n4c-cgroup2", {}, None, None),
        ("rec-uv-8n-disallowed", {}, None, None),
    ],
)
def test_recorded_machines_with_memory_that_is_not_allowed(name, options, cpus, numactl):
    path = RECORDINGS / "dumps" / f"{name}.tar.gz"
    if not path.exists():
        pytest.skip(f"there is no recording {name}")
    machine = read_machine(str(path))
    made = make_plan(machine, Request(**{"ranks": 2, **options}))
    assert cpus in (None, lists(made))
    shown = [str(CpuSet(nodes)) for _, nodes in READ["numactl"](render("numactl", made))]
    assert numactl in (None, shown)
    check_no_forbidden_node(made)


def check_no_forbidden_node(made):
    """No placement, no policy and no export names a node whose memory is not allowed."""
    allowed = set(made.machine.memory_allowed)
    for placement in made.placements:
        assert set(placement.memory_nodes) <= allowed
        assert placement.memory is None or set(placement.memory.nodes) <= allowed
    for name in NAMED:
        try:
            ranks = READ[name](render(name, made))
        except RequestError:
            continue  # the tool has no such policy
        assert all(nodes is None or set(nodes) <= allowed for _, nodes in ranks)


@st.composite
def restricted_cases(draw):
    """Draw a machine with distances and some nodes whose memory is allowed, and a request."""
    machine, request = draw(cases())
    count = len(machine.nodes)
    distance = st.sampled_from([12, 17, 21])
    rows = [[10 if a == b else draw(distance) for b in range(count)] for a in range(count)]
    machine = draw(st.sampled_from([machine, with_distances(machine, rows)]))
    mems = draw(st.sets(st.integers(0, count), min_size=1).map(CpuSet))
    return machine.replace(memory_allowed=mems), request.replace(
        memory=draw(st.sampled_from(list(MemoryMode)))
    )


@given(restricted_cases())
def test_no_plan_and_no_export_names_memory_that_is_not_allowed(case):
    try:
        made = make_plan(*case)
    except (PlanError, MaskError):
        assume(False)
    check_no_forbidden_node(made)
    if case[1].mask is None:
        check_used_last(made)


def check_used_last(made):
    """A core with remote memory is used only if no core with local memory is idle."""
    strategy = STRATEGIES[made.request.strategy]
    remote = CpuSet(measure_remote_memory(made.machine))
    usable = made.machine.default_cpus & made.machine.cpus_of_kind(made.request.core_kind)
    taken = made.used | made.reserved
    cores = find_overlapping(made.machine.at(Level.CORE), usable)
    idle = [core for core in cores if core.cpus.isdisjoint(taken)]
    level = Level.NODE if made.request.strategy == "numa" else strategy.level
    if level:
        domains = find_overlapping(made.machine.at(level), usable)
        local = [domain for domain in domains if (domain.cpus & usable).isdisjoint(remote)]
        far = [domain for domain in domains if domain.cpus & usable <= remote]
        used_far = any(not domain.cpus.isdisjoint(made.used) for domain in far)
        assert not used_far or all(
            not domain.cpus.isdisjoint(taken) for domain in local if fits(made, domain)
        )
    elif not made.used.isdisjoint(remote):
        assert all(core.cpus & usable <= remote for core in idle)


def fits(made, domain):
    """Whether the cores that a rank requests fit in a domain."""
    usable = made.machine.default_cpus & made.machine.cpus_of_kind(made.request.core_kind)
    cores = len(find_overlapping(made.machine.at(Level.CORE), domain.cpus & usable))
    return cores >= (made.request.cores or 0) + made.request.other_cores


@given(cases())
def test_if_all_memory_is_allowed_plans_are_the_same(case):
    machine, request = case
    everything = CpuSet(node.number for node in machine.nodes)

    def placements(allowed):
        try:
            return make_plan(machine.replace(memory_allowed=allowed), request).placements
        except (PlanError, MaskError):
            return None

    assert placements(None) == placements(everything)
