"""Memory of ranks: NUMA nodes whose memory is not allowed (cpuset.mems), and memory policies.

No plan names nodes whose memory is not allowed, and their CPUs are used last.
"""

import re

import pytest

from ompbind.cli.plan import FORMATS
from ompbind.cpuset import CpuSet
from ompbind.errors import PlanError, RequestError
from ompbind.machine.nodes import add_nearest_nodes
from ompbind.masks.mask import parse_mask
from ompbind.planning.plan import MemoryPolicy
from ompbind.planning.request import MemoryMode
from tests.machines import Shape, make_machine, with_distances
from tests.planning.test_planner import lists, plan_on
from tests.tables import rows

UNKNOWN = make_machine(Shape(packages=2, nodes=2, cores=4))
FOUR = with_distances(UNKNOWN, [(10, 12, 21, 21), (12, 10, 21, 21), (21, 21, 10, 12), (21, 21, 12, 10)])
"""Nodes 0 and 1 in package 0, nodes 2 and 3 in package 1; node N has CPUs 4N to 4N+3."""


def plan(machine=FOUR, mems=None, nodes=None, **options):
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


UNLIKE = FOUR.replace(nodes=(
    FOUR.nodes[0], FOUR.nodes[1].replace(cpus=CpuSet(), nearest=(0,)),
    FOUR.nodes[2].replace(memory_bytes=0, nearest=(3,)), FOUR.nodes[3],
))  # fmt: skip
"""Node 1 has no CPUs, and node 2 no memory."""


@pytest.mark.parametrize(("machine", "mems", "options", "expected"), [
    (FOUR, "0-3", {}, [(0, 1), (2, 3)]), (FOUR, "0,3", {"ranks": 4}, [(0,), (0,), (3,), (3,)]),
    (FOUR, "2-3", {"ranks": 4}, [(2, 3), (2, 3), (2,), (3,)]),  # equally far from nodes 0 and 1
    (FOUR, "9", {"ranks": 4}, [()] * 4),
    (FOUR, "2", {"mask": "none"}, [(2,), (2,)]), (FOUR, "3", {"mask": "0-7|8"}, [(3,), (3,)]),
    (UNKNOWN, "1,3", {"ranks": 4}, [(1, 3), (1,), (1, 3), (3,)]),
    (UNLIKE, "1-2", {"mask": "0-3|8-11"}, [(1,), (1,)]),
])  # fmt: skip
def test_memory_comes_from_the_nearest_allowed_nodes(machine, mems, options, expected):
    assert [p.memory_nodes for p in plan(machine, mems, **options).placements] == expected


@pytest.mark.parametrize(("options", "code", "text"), [
    ({}, "memory-remote", "ranks 0-1"), ({"strategy": "cores"}, None, ""),
    ({"strategy": "cores", "ranks": 5}, "memory-remote", "rank 0"),
    ({"mask": "0,12|13"}, "memory-remote", "rank 0"),
    ({"memory": MemoryMode.BIND}, "memory-limited", "ranks 0-1"),
    ({"memory": MemoryMode.BIND, "strategy": "cores"}, None, ""),
])  # fmt: skip
def test_one_note_names_ranks_with_remote_memory_and_strict_refuses_other_policies(options, code, text):
    made = plan(mems="3", **options)
    notes = [note for note in made.notes if "not allowed" in note.text]
    assert [note.code for note in notes] == [code] * bool(code)
    assert all(text in note.text and "(cpuset.mems: 3): " in note.text for note in notes)
    assert [note.warning for note in notes] == [code == "memory-limited"] * bool(code)
    if code == "memory-limited":
        with pytest.raises(PlanError, match=r"memory of NUMA nodes 0-2 is not allowed \(cpuset.mems: 3\)"):
            plan(mems="3", strict=True, **options)
    else:
        assert lists(plan(mems="3", strict=True, **options)) == lists(made)


DUAL = make_machine(Shape(packages=2, cores=4))
LOCAL, PREFERRED, INTERLEAVE = MemoryMode.LOCAL, MemoryMode.PREFERRED, MemoryMode.INTERLEAVE


def planned(machine=DUAL, **options):
    return plan_on(machine, **{"ranks": 2, "memory": MemoryMode.BIND, **options})


def policies(plan):
    return [placement.memory.kernel_text if placement.memory else None for placement in plan.placements]


FAR_NODES = (
    DUAL.nodes[0].replace(distances=(10, 20)), DUAL.nodes[1].replace(memory_bytes=0, distances=(20, 10)),
)  # fmt: skip
NEAREST = DUAL.replace(nodes=add_nearest_nodes(FAR_NODES, {}))
EMPTY = DUAL.replace(nodes=(DUAL.nodes[0], DUAL.nodes[1].replace(memory_bytes=0)))
NO_NODES = DUAL.replace(nodes=(), domains=tuple(d for d in DUAL.domains if d.level != "node"))


@pytest.mark.parametrize(("machine", "options", "expected", "code", "text"), [
    (UNKNOWN, {"ranks": 3, "cores": 4, "service_cores": 1}, ["bind:0", "bind:1", "bind:2"], "", ""),
    (DUAL, {"memory": LOCAL}, [None, None], "", ""), (DUAL, {}, ["bind:0", "bind:1"], "", ""),
    (DUAL, {"ranks": 1, "memory": PREFERRED}, ["prefer (many):0-1"], "", ""),
    (DUAL, {"ranks": 1, "memory": INTERLEAVE}, ["interleave:0-1"], "", ""),
    (DUAL, {"ranks": 1, "memory": MemoryMode.WEIGHTED}, ["weighted interleave:0-1"], "", ""),
    (DUAL, {"mask": "none"}, ["bind:0-1", "bind:0-1"], "", ""), (NEAREST, {}, ["bind:0", "bind:0"], "", ""),
    (EMPTY, {}, ["bind:0", None], "memory-unset", "rank 1: no NUMA node with memory is known"),
    (DUAL.replace(memory_allowed=CpuSet((0, 7))), {}, ["bind:0", "bind:0"], "memory-limited",
     "node 1 is not allowed (cpuset.mems: 0,7): rank 1 with"),
    (DUAL.replace(memory_allowed=CpuSet((7,))), {}, [None, None], "memory-unset",
     "ranks 0-1: memory of NUMA nodes 0-1 is not"),
    (NO_NODES, {}, [None, None], "memory-unset", "ranks 0-1: no NUMA node with memory is known"),
    (DUAL.replace(bindable=False), {}, [None, None], "memory-unset", "this system cannot bind memory"),
    (DUAL.replace(refused_policies=(("bind", "a filter"),)), {}, [None, None], "memory-unset",
     "0-1: a filter"),
    (DUAL.replace(refused_policies=(("weighted", "old"),)), {}, ["bind:0", "bind:1"], "", ""),
    (DUAL.replace(prefers_one_node=True), {"ranks": 1, "memory": PREFERRED}, ["prefer:0"],
     "memory-limited", "from Linux 5.15 on): rank 0: 0"),
    (DUAL.replace(prefers_one_node=True), {"memory": PREFERRED}, ["prefer:0", "prefer:1"], "", ""),
])  # fmt: skip
def test_ranks_have_the_nodes_of_their_cpus_and_notes_name_exceptions(machine, options, expected, code, text):
    plan = planned(machine, **options)
    assert policies(plan) == expected
    notes = [note for note in plan.notes if note.code.startswith("memory")]
    assert [note.code for note in notes] == [code] * bool(code)
    assert all(text in note.text for note in notes)
    is_error = code in ("memory-unset", "memory-limited")
    assert all(note.warning == is_error for note in notes)
    if is_error:
        with pytest.raises(PlanError, match="memory|NUMA node"):
            planned(machine, strict=True, **options)
    else:
        assert policies(planned(machine, strict=True, **options)) == expected


EXPORTS = """
    numactl |  | --membind=0-1         | --preferred-many=0-1 | --interleave=0-1         | --weighted-interleave=0-1
    systemd |  | NUMAPolicy=bind NUMAMask= NUMAMask=0-1 | error | NUMAPolicy=interleave NUMAMask= NUMAMask=0-1 | error
    docker  |  | --cpuset-mems=0-1     | error                | error                    | error
    slurm   |  | --mem-bind=mask_mem:0x3 | error              | error                    | error
    taskset |  | error                 | error                | error                    | error
    vllm    |  | error                 | error                | error                    | error
    sglang  |  | error                 | error                | error                    | error
"""  # noqa: E501


@pytest.mark.parametrize("cells", rows(EXPORTS))
def test_exports_have_the_policy_of_run_or_an_error_if_the_tool_has_none(cells):
    row = FORMATS[cells[0]]
    for mode, expected in zip(MemoryMode, cells[1:], strict=True):
        plan = planned(ranks=1, memory=mode)
        taken = [[{}]] if row.takes == "variables" else []
        if expected == "error":
            with pytest.raises(RequestError):
                row.render(plan, *taken)
        else:
            words = row.render(plan, *taken).split()
            assert " ".join(filter(re.compile("(?i).*(mem|numa[mp]|prefer|inter)").match, words)) == expected
            assert bool(plan.placements[0].memory) == bool(expected)


def test_modes_have_the_numbers_of_the_kernel_and_the_main_node_has_the_most_cpus():
    modes = [(PREFERRED, (3,)), (PREFERRED, (0, 3)), (MemoryMode.BIND, (0, 3)), (INTERLEAVE, (3,))]
    policies = [MemoryPolicy(mode=mode, nodes=nodes, main_node=nodes[0]) for mode, nodes in modes]
    assert [policy.kernel_mode for policy in policies] == [1, 5, 2, 3]
    for mask, main_node in (("3-6", 1), ("2-5", 0)):
        memory = planned(mask=mask, ranks=1, memory=PREFERRED).placements[0].memory
        assert (memory.nodes, memory.main_node) == ((0, 1), main_node)
        assert memory.main_node_only.kernel_text == f"prefer:{main_node}"
