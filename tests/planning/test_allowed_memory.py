"""NUMA nodes whose memory is not allowed (cpuset.mems): no plan names them, and their CPUs are used last."""

import pytest

from ompbind.cpuset import CpuSet
from ompbind.errors import PlanError
from ompbind.masks.mask import parse_mask
from ompbind.planning.request import MemoryMode
from tests.machines import Shape, make_machine, with_distances
from tests.planning.test_planner import lists, plan_on

UNKNOWN = make_machine(Shape(packages=2, nodes=2, cores=4))
FOUR = with_distances(UNKNOWN, [(10, 12, 21, 21), (12, 10, 21, 21), (21, 21, 10, 12), (21, 21, 12, 10)])
"""Nodes 0 and 1 in package 0, nodes 2 and 3 in package 1; node N has CPUs 4N to 4N+3."""


def plan(machine=FOUR, mems=None, nodes=None, **options):
    """Make a plan where only the memory of the nodes `mems` is allowed."""
    allowed = None if mems is None else CpuSet.from_list(mems)
    named = parse_mask(nodes) if nodes else None
    return plan_on(machine.replace(memory_allowed=allowed), **{"ranks": 2, "nodes": named, **options})


@pytest.mark.parametrize(("mems", "options", "expected"), [
    # no more cores than the nodes with allowed memory have
    ("1", {"strategy": "compact", "cores": 2}, "4-5 6-7"), ("1", {"strategy": "spread", "cores": 1}, "4 6"),
    ("2-3", {"strategy": "spread", "cores": 2}, "8-9 12-13"), ("1,3", {"strategy": "nodes"}, "4-7 12-15"),
    ("1,3", {"strategy": "packages", "cores": 2}, "4-5 12-13"),
    ("3", {"cores": 2, "ranks": 1, "service_cores": 1, "reserve": 1}, "12-14"),
    # some cores with remote memory: the nearest, and no more than needed
    ("2", {"strategy": "compact", "cores": 3}, "8-10 11-13"),
    ("2", {"strategy": "nodes", "ranks": 3}, "0-3 8-11 12-15"),
    ("3", {"strategy": "cores", "ranks": 5}, "8 12 13 14 15"),
    # shares of all cores
    ("3", {}, "0-7 8-15"), ("2", {"strategy": "compact", "ranks": 3}, "0-4 5-6,8-10 11-15"),
    # a mask or a list of nodes is used as given
    ("3", {"mask": "0-7", "strategy": "compact", "cores": 1}, "0 1"), ("3", {"mask": "0-1|12"}, "0-1 12"),
    ("3", {"mask": "auto", "strategy": "compact", "cores": 1}, "12 13"),
    ("3", {"nodes": "node:0,node:3", "strategy": "nodes", "ranks": 1}, "0-3"),
])  # fmt: skip
def test_cores_with_remote_memory_are_used_last(mems, options, expected):
    assert lists(plan(mems=mems, **options)) == expected.split()


@pytest.mark.parametrize(("machine", "mems", "options", "expected"), [
    (FOUR, "0-3", {}, [(0, 1), (2, 3)]), (FOUR, "0,3", {"ranks": 4}, [(0,), (0,), (3,), (3,)]),
    (FOUR, "2-3", {"ranks": 4}, [(2, 3), (2, 3), (2,), (3,)]),  # equally far from nodes 0 and 1
    (FOUR, "9", {"ranks": 4}, [()] * 4),
    (FOUR, "2", {"mask": "none"}, [(2,), (2,)]), (FOUR, "3", {"mask": "0-7|8"}, [(3,), (3,)]),
    (UNKNOWN, "1,3", {"ranks": 4}, [(1, 3), (1,), (1, 3), (3,)]),
])  # fmt: skip
def test_memory_comes_from_the_nearest_allowed_nodes(machine, mems, options, expected):
    assert [p.memory_nodes for p in plan(machine, mems, **options).placements] == expected


def test_nodes_without_cpus_count_and_nodes_without_memory_do_not():
    first, near, empty, last = FOUR.nodes
    near = near.replace(cpus=CpuSet(), nearest=(0,))
    empty = empty.replace(memory_bytes=0, nearest=(3,))
    made = plan(FOUR.replace(nodes=(first, near, empty, last)), "1-2", mask="0-3|8-11")
    assert [placement.memory_nodes for placement in made.placements] == [(1,), (1,)]


@pytest.mark.parametrize(("options", "code", "text"), [
    ({}, "memory-remote", "ranks 0-1"), ({"strategy": "cores"}, None, ""),
    ({"strategy": "cores", "ranks": 5}, "memory-remote", "rank 0"),
    ({"mask": "0,12|13"}, "memory-remote", "rank 0"),
    ({"memory": MemoryMode.BIND}, "memory-limited", "ranks 0-1"),
])  # fmt: skip
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
