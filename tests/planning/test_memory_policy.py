"""Memory policies: which policy each rank gets, and the notes on it."""

import json
import re
from pathlib import Path

import pytest

from ompbind.cpuset import CpuSet
from ompbind.errors import PlanError, RequestError
from ompbind.machine.nodes import add_nearest_nodes
from ompbind.machine.sources.ompbind_json import make_machine_from_json
from ompbind.machine.sources.reading import read_machine
from ompbind.masks.parse import parse_mask
from ompbind.planning.plan import MemoryPolicy
from ompbind.planning.planner import make_plan
from ompbind.planning.request import MemoryMode, Request
from ompbind.report.export.formats import FORMATS
from ompbind.report.export.tool_options import render_numactl
from ompbind.report.plan import render_plan
from ompbind.report.plan_json import plan_record
from ompbind.report.topology import render_json
from tests.machines import Shape, make_machine, write_tree

DUAL = make_machine(Shape(packages=2, cores=4))


def planned(machine=DUAL, mask=None, **options):
    request = {"ranks": 2, "memory": MemoryMode.BIND, **options}
    return make_plan(machine, Request(mask=parse_mask(mask) if mask else None, **request))


def policies(plan):
    return [placement.memory.kernel_text if placement.memory else None for placement in plan.placements]


def memory_notes(plan):
    return {note.code: note for note in plan.notes if note.code.startswith("memory")}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"memory": MemoryMode.LOCAL}, [None, None]),
        ({}, ["bind:0", "bind:1"]),
        ({"memory": MemoryMode.PREFERRED}, ["prefer:0", "prefer:1"]),
        ({"memory": MemoryMode.INTERLEAVE}, ["interleave:0", "interleave:1"]),
        ({"ranks": 1}, ["bind:0-1"]),
        ({"ranks": 1, "memory": MemoryMode.PREFERRED}, ["prefer (many):0-1"]),
        ({"ranks": 1, "memory": MemoryMode.INTERLEAVE}, ["interleave:0-1"]),
        ({"strategy": "all"}, ["bind:0-1", "bind:0-1"]),
        ({"mask": "none"}, ["bind:0-1", "bind:0-1"]),
    ],
)
def test_ranks_have_the_nodes_of_their_cpus(options, expected):
    assert policies(planned(**options)) == expected


def test_the_first_node_has_the_most_cpus():
    (placement,) = planned(mask="3-6", ranks=1, memory=MemoryMode.PREFERRED).placements
    memory = placement.memory
    assert (memory.nodes, memory.main_node, memory.main_node_only.kernel_text) == ((0, 1), 1, "prefer:1")
    (placement,) = planned(mask="2-5", ranks=1).placements
    assert placement.memory.main_node == 0


def without_memory(*numbers):
    nodes = [
        node.replace(memory_bytes=0, distances=(20, 10) if node.number else (10, 20))
        if node.number in numbers
        else node
        for node in DUAL.nodes
    ]
    return DUAL.replace(nodes=add_nearest_nodes(nodes, {}))


@pytest.mark.parametrize(
    ("machine", "options", "expected", "codes"),
    [
        (DUAL, {}, ["bind:0", "bind:1"], {}),
        (DUAL, {"ranks": 1}, ["bind:0-1"], {"memory-several": "memory of rank 0 may come from several"}),
        (DUAL, {"ranks": 1, "memory": MemoryMode.INTERLEAVE}, ["interleave:0-1"], {}),
        (
            DUAL,
            {"memory": MemoryMode.INTERLEAVE},
            ["interleave:0", "interleave:1"],
            {"memory-single": "nothing to interleave for ranks 0-1: the memory of each comes from one NUMA"},
        ),
        (
            without_memory(1),
            {},
            ["bind:0", "bind:0"],
            {"memory-nearest": "NUMA node 1 has no memory: memory of rank 1 comes from the nearest"},
        ),
        (
            DUAL.replace(nodes=(DUAL.nodes[0], DUAL.nodes[1].replace(memory_bytes=0))),
            {},
            ["bind:0", None],
            {"memory-unset": "--memory bind will not be set for rank 1: no NUMA node with memory is known"},
        ),
        (
            DUAL.replace(memory_allowed=CpuSet((0, 7))),
            {},
            ["bind:0", "bind:0"],
            {"memory-limited": "node 1 is not allowed (cpuset.mems: 0,7): CPUs 4-7 (rank 1) use memory of"},
        ),
        (
            DUAL.replace(memory_allowed=CpuSet((7,))),
            {},
            [None, None],
            {"memory-unset": "--memory bind will not be set for ranks 0-1: memory of NUMA nodes 0-1 is not"},
        ),
        (
            DUAL.replace(memory_allowed=CpuSet((1,))),
            {"ranks": 1},
            ["bind:1"],
            {"memory-limited": "node 0 is not allowed (cpuset.mems: 1): CPUs 0-3 (rank 0) use memory of"},
        ),
        (
            DUAL.replace(
                nodes=(), domains=tuple(domain for domain in DUAL.domains if domain.level != "node")
            ),
            {},
            [None, None],
            {"memory-unset": "ranks 0-1: no NUMA node with memory is known"},
        ),
        (
            DUAL.replace(bindable=False),
            {},
            [None, None],
            {"memory-unset": "ranks 0-1: this system cannot bind memory"},
        ),
    ],
)
def test_notes_explain_the_policies(machine, options, expected, codes):
    plan = planned(machine, **options)
    assert policies(plan) == expected
    notes = memory_notes(plan)
    assert set(notes) == set(codes)
    assert all(text in notes[code].text for code, text in codes.items())
    warnings = {"memory-unset", "memory-limited"} & set(codes)
    assert {code for code, note in notes.items() if note.warning} == warnings
    if warnings:
        with pytest.raises(PlanError, match="memory"):
            planned(machine, strict=True, **options)
    else:
        assert policies(planned(machine, strict=True, **options)) == expected


def test_tables_and_json_have_policies_only_if_they_are_requested():
    assert "bind 1" in render_plan(planned())
    assert "memory" not in render_plan(planned(memory=MemoryMode.LOCAL)).replace("memory of", "")
    ranks = plan_record(planned(ranks=1), [{}])["ranks"]
    assert ranks[0]["memory"] == {"mode": "bind", "nodes": [0, 1]}
    assert plan_record(planned(ranks=1, memory=MemoryMode.LOCAL), [{}])["ranks"][0]["memory"] is None


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("numactl", {"memory": MemoryMode.LOCAL}, "--membind=0\n.*--membind=1"),
        ("numactl", {}, "--membind=0\n.*--membind=1"),
        ("numactl", {"memory": MemoryMode.PREFERRED}, "--preferred=0\n.*--preferred=1"),
        ("numactl", {"memory": MemoryMode.PREFERRED, "ranks": 1}, "--preferred-many=0-1"),
        ("numactl", {"memory": MemoryMode.INTERLEAVE, "ranks": 1}, "--interleave=0-1"),
        ("slurm", {}, "--mem-bind=mask_mem:0x1,0x2"),
        ("slurm", {"memory": MemoryMode.INTERLEAVE}, None),
        ("slurm", {"memory": MemoryMode.PREFERRED}, None),
        ("docker", {}, "--cpuset-mems=0\\b.*\n.*--cpuset-mems=1\\b"),
        ("docker", {"memory": MemoryMode.INTERLEAVE}, None),
        ("systemd", {"memory": MemoryMode.LOCAL, "ranks": 1}, "NUMAPolicy=bind\nNUMAMask=\nNUMAMask=0-1"),
        (
            "systemd",
            {"memory": MemoryMode.INTERLEAVE, "ranks": 1},
            "NUMAPolicy=interleave\nNUMAMask=\nNUMAMask=0-1",
        ),
        ("systemd", {"memory": MemoryMode.PREFERRED, "ranks": 1}, None),
        ("taskset", {}, None),
        ("vllm", {}, None),
        ("rankfile", {"memory": MemoryMode.PREFERRED}, None),
    ],
)
def test_exports_have_the_policy_if_the_tool_supports_it(name, options, expected):
    plan = planned(**options)
    render = FORMATS[name].load()
    taken = [[{} for _ in plan.placements]] if FORMATS[name].takes == "variables" else []
    if expected:
        assert re.search(f"{expected}$" if name != "docker" else expected, render(plan, *taken))
    else:
        with pytest.raises(RequestError):
            render(plan, *taken)


def test_without_a_policy_numactl_gets_no_memory_option():
    plan = planned(DUAL.replace(memory_allowed=CpuSet((7,))))
    assert render_numactl(plan).splitlines()[1] == "numactl --physcpubind=4-7"


@pytest.mark.parametrize(
    ("mode", "nodes", "number"),
    [
        (MemoryMode.PREFERRED, (3,), 1),
        (MemoryMode.PREFERRED, (0, 3), 5),
        (MemoryMode.BIND, (0, 3), 2),
        (MemoryMode.INTERLEAVE, (3,), 3),
    ],
)
def test_modes_have_the_numbers_of_the_kernel(mode, nodes, number):
    assert MemoryPolicy(mode=mode, nodes=nodes, main_node=nodes[0]).kernel_mode == number


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"cpuset.mems.effective": "1\n"}, CpuSet((1,))),
        ({"cpuset.mems.effective": "\n", "cpuset.mems": "0\n"}, CpuSet((0,))),
    ],
)
def test_recordings_have_the_memory_that_a_cpuset_allows(tmp_path, files, expected):
    groups = {
        "proc/self/cgroup": "0::/pod\n",
        "proc/self/mountinfo": "1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "proc/self/status": "Mems_allowed_list:\t0\n",  # of the process that made the recording
        **{f"sys/fs/cgroup/pod/{name}": text for name, text in files.items()},
    }
    tree = write_tree(tmp_path / "machine", Shape(packages=2, cores=4), groups)
    machine = read_machine(str(tree))
    assert machine.memory_allowed == expected
    again = make_machine_from_json(json.loads(render_json(machine)), machine.source)
    assert again == machine


def test_a_live_machine_has_the_memory_that_this_process_may_use():
    status = Path("/proc/self/status").read_text()
    found = re.search(r"^Mems_allowed_list:\s*(\S+)$", status, re.MULTILINE)
    assert read_machine().memory_allowed == (CpuSet.from_list(found[1]) if found else None)
