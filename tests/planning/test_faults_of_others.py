"""Known faults of other launchers and binding tools: each test shows that ompbind does not have the fault.

Most of these faults are tested where ompbind does the same thing: masks, strategies, threads, signals.
"""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.errors import MaskError
from ompbind.machine.model import Level
from ompbind.machine.read import read_machine
from tests.machines import Shape, make_machine, write_tree
from tests.planning.test_planner import lists
from tests.planning.test_planner import plan_on as plan

DUAL = make_machine(Shape(packages=2, cores=4, smt=2))  # nodes of CPUs 0-3,8-11 and 4-7,12-15
SNC = make_machine(Shape(packages=2, nodes=2, cores=4))  # four nodes of four CPUs


def renumbered(machine, numbers):
    """Return the same machine with other numbers of its NUMA nodes."""
    return machine.replace(
        nodes=tuple(node.replace(number=numbers[node.number]) for node in machine.nodes),
        domains=tuple(
            domain.replace(os_id=numbers[domain.os_id]) if domain.level is Level.NODE else domain
            for domain in machine.domains
        ),
    )


@given(st.permutations(range(16)), st.lists(st.integers(1, 15), min_size=1, max_size=6, unique=True))
def test_ranks_keep_the_order_of_any_lists(cpus, cuts):
    """vLLM sorted places by length and highest CPU: rank 0 of "0-31|32-63" got 32-63."""
    bounds = [0, *sorted(cuts), 16]
    parts = [tuple(cpus[start:stop]) for start, stop in pairwise(bounds)]
    text = "|".join(",".join(map(str, part)) for part in parts)
    assert [placement.cpus for placement in plan(SNC, ranks=len(parts), mask=text).placements] == parts


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
    assert lists(plan(machine, ranks="auto", strategy="nodes")) == ["4-7"]
    far = SNC.nodes[0].replace(number=9, cpus=CpuSet(), nearest=(0,))  # only memory (CXL, HBM): no rank
    made = plan(SNC.replace(nodes=(*SNC.nodes, far)), ranks="auto", strategy="nodes")
    assert lists(made) == ["0-3", "4-7", "8-11", "12-15"]
    assert [placement.memory_nodes for placement in plan(machine, ranks=2).placements] == [(1,), (1,)]


@pytest.mark.parametrize("numbers", [(3, 2, 1, 0), (0, 8, 252, 255)])
@pytest.mark.parametrize("strategy", ["balanced", "compact", "spread", "packages", "nodes"])
def test_numbers_of_nodes_are_never_compared_with_numbers_of_cpus(numbers, strategy):
    """vLLM looked for node numbers among CPU numbers; others assume numbers from 0 without gaps."""
    other = renumbered(SNC, dict(enumerate(numbers)))
    for ranks in (1, 2, 3, 5):
        before, after = (plan(machine, ranks=ranks, strategy=strategy) for machine in (SNC, other))
        assert lists(before) == lists(after)
        for placement, same in zip(before.placements, after.placements, strict=True):
            assert sorted(same.nodes) == sorted(numbers[node] for node in placement.nodes)
            assert same.memory_nodes == tuple(sorted(same.nodes))
    assert lists(plan(other, mask=f"node:#{numbers[2]}")) == lists(plan(other, mask="node:2")) == ["8-11"]
    with pytest.raises(MaskError, match="no node with OS number 7"):
        plan(other, mask="node:#7")
