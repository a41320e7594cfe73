"""Memory policies: which policy each rank gets, and the notes on it."""

import re

import pytest

from ompbind.cli.plan import FORMATS
from ompbind.cpuset import CpuSet
from ompbind.errors import PlanError, RequestError
from ompbind.machine.nodes import add_nearest_nodes
from ompbind.planning.plan import MemoryPolicy
from ompbind.planning.request import MemoryMode
from tests.machines import Shape, make_machine
from tests.planning.test_planner import plan_on

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


@pytest.mark.parametrize(("name", "options", "expected"), [
    ("numactl", {"memory": LOCAL}, "--membind=0\n.*--membind=1"),
    ("numactl", {}, "--membind=0\n.*--membind=1"),
    ("numactl", {"memory": PREFERRED}, "--preferred=0\n.*--preferred=1"),
    ("numactl", {"memory": PREFERRED, "ranks": 1}, "--preferred-many=0-1"),
    ("numactl", {"memory": MemoryMode.WEIGHTED, "ranks": 1}, "--weighted-interleave=0-1"),
    ("systemd", {"memory": MemoryMode.WEIGHTED, "ranks": 1}, None),
    ("slurm", {}, "--mem-bind=mask_mem:0x1,0x2"),
    ("docker", {}, "--cpuset-mems=0\\b.*\n.*--cpuset-mems=1\\b"),
    ("systemd", {"memory": LOCAL, "ranks": 1}, "NUMAPolicy=bind\nNUMAMask=\nNUMAMask=0-1"),
    ("systemd", {"memory": PREFERRED, "ranks": 1}, None), ("taskset", {}, None),
])  # fmt: skip
def test_exports_have_the_policy_if_the_tool_supports_it(name, options, expected):
    plan = planned(**options)
    render = FORMATS[name].render
    taken = [[{} for _ in plan.placements]] if FORMATS[name].takes == "variables" else []
    if expected:
        assert re.search(f"{expected}$" if name != "docker" else expected, render(plan, *taken))
    else:
        with pytest.raises(RequestError):
            render(plan, *taken)


def test_modes_have_the_numbers_of_the_kernel_and_the_main_node_has_the_most_cpus():
    modes = [(PREFERRED, (3,)), (PREFERRED, (0, 3)), (MemoryMode.BIND, (0, 3)), (INTERLEAVE, (3,))]
    policies = [MemoryPolicy(mode=mode, nodes=nodes, main_node=nodes[0]) for mode, nodes in modes]
    assert [policy.kernel_mode for policy in policies] == [1, 5, 2, 3]
    for mask, main_node in (("3-6", 1), ("2-5", 0)):
        memory = planned(mask=mask, ranks=1, memory=PREFERRED).placements[0].memory
        assert (memory.nodes, memory.main_node) == ((0, 1), main_node)
        assert memory.main_node_only.kernel_text == f"prefer:{main_node}"
