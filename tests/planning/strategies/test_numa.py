"""The strategy numa: NUMA nodes by OS number, split where a node has several packages, books or drawers."""

import pytest

from ompbind.cpuset import CpuSet
from ompbind.machine.model import CoreKind, Level
from ompbind.masks.parse import parse_mask
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from tests.machines import Shape, make_machine
from tests.planning.test_faults_of_others import BOOKS, renumbered, with_level
from tests.planning.test_planner import lists

SNC = make_machine(Shape(packages=2, nodes=2, cores=4))  # four nodes of four CPUs, two in each package
PACKAGES = with_level(make_machine(Shape(cores=8)), Level.PACKAGE, ["0-3", "4-7"])  # in one node
FLAT = PACKAGES.replace(
    nodes=(), domains=tuple(domain for domain in PACKAGES.domains if domain.level is not Level.NODE)
)


def make_kind(name, cpus, strength):
    return CoreKind(name=name, cpus=CpuSet(cpus), strength=strength, source="capacity")


CLUSTERS = PACKAGES.replace(
    kinds=(make_kind("performance", range(4, 8), 1024), make_kind("efficiency", range(4), 400))
)
"""As Linux on Arm without ACPI shows a big.LITTLE chip."""


@pytest.mark.parametrize(
    ("machine", "ranks", "expected"),
    [
        (SNC, 3, ["0-3", "4-7", "8-11"]),
        (SNC, None, ["0-3", "4-7", "8-11", "12-15"]),
        (SNC, 8, ["0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15"]),
        (renumbered(SNC, {0: 0, 1: 2, 2: 1, 3: 3}), 3, ["0-3", "8-11", "4-7"]),
        (renumbered(SNC, {0: 8, 1: 2, 2: 1, 3: 0}), 2, ["12-15", "8-11"]),
        (SNC.replace(memory_allowed=CpuSet([2])), 1, ["8-11"]),
        (SNC.replace(memory_allowed=CpuSet([2])), 2, ["0-3", "8-11"]),
        (SNC.replace(allowed=CpuSet([5, 6, 13])), 2, ["5-6", "13"]),
        (PACKAGES, 2, ["0-3", "4-7"]),
        (PACKAGES, None, ["0-3", "4-7"]),
        (PACKAGES, 3, ["0-1", "2-3", "4-7"]),
        (FLAT, 2, ["0-3", "4-7"]),
        (CLUSTERS, 1, ["0-7"]),
        (BOOKS, 1, ["0-7"]),
        (BOOKS, None, ["0-7", "8-15"]),
    ],
)
def test_ranks_get_numa_nodes_or_their_packages(machine, ranks, expected):
    assert lists(make_plan(machine, Request(ranks=ranks, strategy="numa"))) == expected


def test_requested_nodes_keep_their_order():
    request = Request(ranks=2, strategy="numa", nodes=parse_mask("node:#3,node:#0"))
    assert lists(make_plan(SNC, request)) == ["12-15", "0-3"]


def test_every_domain_has_a_rank_with_the_requested_cores():
    made = make_plan(PACKAGES, Request(ranks=2, strategy="numa", cores=3))
    assert lists(made) == ["0-2", "4-6"]
