"""The machine as a tree and as a table, on small and large machines, in terminals of any width."""

import pytest

from ompbind.cli.topo import LINES, render_listing, render_tree
from ompbind.cpuset import CpuSet
from ompbind.errors import MaskError
from ompbind.machine.model import CoreKind
from ompbind.masks.mask import parse_mask
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.report.text import WIDTH, Screen, render_cpus
from tests.machines import Shape, make_machine


def test_evenly_spaced_cpus_are_one_stride():
    for cpus, text in {
        "": "", "3": "3", "0-7": "0-7", "0,2,4": "0,2,4", "1,5,9,13": "1-13:4", "0,2,5": "0,2,5",
        "0-1,8-9,16-17,24-25": "0-25:2/8", "0-3,8,12,16,20,24": "0-3,8-24:4", "0-1,4,8": "0-1,4,8",
        "0,8,12,16,20,21": "0,8,12,16,20-21",
    }.items():  # fmt: skip
        assert render_cpus(CpuSet.from_list(cpus)) == text
        assert CpuSet.from_list(text) == CpuSet.from_list(cpus)


def test_limits_kinds_and_states_are_shown():
    machine = make_machine(
        Shape(packages=2, cores=4), allowed=CpuSet(range(6)), isolated=CpuSet([5]), nohz_full=CpuSet([4, 5]),
        offline=CpuSet([9]), quota=2.5, memory_allowed=CpuSet([1, 5]),
        kinds=(CoreKind(name="performance", cpus=CpuSet(range(4)), strength=1024, source="type"),
               CoreKind(name="efficiency", cpus=CpuSet(range(4, 8)), strength=600, source="type")),
    ).replace(remarks=("something odd",))  # fmt: skip
    assert render_tree(machine).splitlines() == [
        "test: test, 8 CPUs, 8 cores, 2 packages, 2 NUMA nodes", "allowed: 6 CPUs (0-5)",
        "memory not allowed: NUMA node 0", "offline: CPU 9",
        "isolated: CPU 5 (used only if named in a mask)",
        "nohz_full: CPUs 4-5 (used only if named in a mask)", "performance cores: CPUs 0-3 (strength 1024)",
        "efficiency cores: CPUs 4-7 (strength 600)", "CPU time: 2.5 CPUs (cgroup quota)",
        "  package 0, NUMA node 0 (1.0 GiB), L3 0", "    4 × performance core (1 CPU): 0-3",
        "  package 1, NUMA node 1 (1.0 GiB), L3 1", "    2 × efficiency core (1 CPU): 4-5",
        "    2 × efficiency core (1 CPU): 6-7, not allowed", "note: something odd",
    ]  # fmt: skip
    states = [" ".join(line.split()[5:]) for line in render_listing(machine).splitlines()]
    assert states[4:] == [
        "performance allowed", "efficiency nohz_full", "efficiency isolated, nohz_full",
        "efficiency not allowed", "efficiency not allowed", "- offline",
    ]  # fmt: skip


@pytest.mark.parametrize("width", [40, WIDTH])
def test_trees_of_large_machines_fit_a_screen(width):
    for shape in (Shape(packages=8, nodes=2, l3s=4, cores=16, smt=2), Shape(cores=512)):
        lines = render_tree(make_machine(shape), Screen(width=width)).splitlines()
        assert len(lines) <= LINES + 4 or width < WIDTH
        assert max(map(len, lines)) <= width


def test_numbers_in_masks_are_shown_where_they_differ():
    """Only the second package is allowed, so its numbers in masks begin with 0."""
    machine = make_machine(Shape(packages=2, nodes=2, cores=2), allowed=CpuSet(range(4, 8)))
    tree = render_tree(machine).splitlines()
    assert "  package 1 = package:0" in tree
    assert "    NUMA node 3 = node:1 (1.0 GiB), L3 3 = l3:1: 2 × core (1 CPU): 6-7" in tree
    plan = make_plan(machine, Request(mask=parse_mask("node:1")))
    assert str(plan.placements[0].cpuset) == "6-7"
    with pytest.raises(MaskError) as caught:
        make_plan(machine, Request(mask=parse_mask("node:2")))
    assert "node:#2-3" in caught.value.hint


def test_control_characters_from_files_do_not_reach_the_terminal():
    odd = make_machine(Shape(cores=1)).replace(source="a\033[31mb", arch="x\ud800", remarks=("c\007d",))
    shown = render_tree(odd)
    assert "a?[31mb: x?, 1 CPU" in shown
    assert "note: c?d" in shown
