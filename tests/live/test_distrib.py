"""Plans compared with hwloc-distrib, an independent program, on described machines: no measure is worse."""

import pytest

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.machine.model import Level
from ompbind.machine.read.hwloc_xml import parse_xml
from ompbind.planning.metrics import measure
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from tests.live.conftest import required, run_program
from tests.long import LONG

DESCRIBED = """
pack:2 numa:1 l3:1 core:4 pu:2
pack:2 numa:2 l3:2 core:3 pu:1
pack:1 numa:1 l3:4 core:8 pu:2
pack:3 numa:1 l3:2 core:5 pu:2
pack:2 numa:4 l3:2 core:4 pu:1
numa:1 pack:4 l3:1 core:4 pu:2
pack:2 numa:1 l3:1 l2:4 core:2 pu:1
pack:1 numa:3 l3:1 core:7 pu:1
pack:4 numa:2 l3:3 core:2 pu:4
pack:1 core:12 pu:8
pack:2 die:2 numa:1 l3:2 core:3 pu:2
core:5 pu:1
""".strip().splitlines()


def sort_key(metrics):
    """The key by which plans are compared, most important number first; the lower key is better."""
    borders = [each.crossing for each in metrics.borders] + [each.touched for each in metrics.borders]
    return metrics.shared, metrics.idle, metrics.largest - metrics.smallest, *borders, metrics.mixed


@pytest.mark.parametrize("source", DESCRIBED)
def test_no_measure_is_worse_than_with_hwloc_distrib(tmp_path, source):
    """With 1 to 64 ranks, as many as cores, one fewer, and about twice as many as nodes."""
    path = tmp_path / "machine.xml"
    lstopo = required("lstopo-no-graphics", "lstopo")
    run_program(lstopo, "-i", source, "--of", "xml", "-f", str(path), check=True)
    machine = parse_xml(path.read_bytes(), "xml").replace(isolated=EMPTY, nohz_full=EMPTY)  # as hwloc-distrib
    cores, nodes = len(machine.at(Level.CORE)), len(machine.at(Level.NODE))
    numbers = range(1, 65) if LONG else (1, 2, 3, 4, 5, 6, 12, 13, 16, 31, 48, 64)
    wanted = {*numbers, cores, cores - 1, 2 * nodes - 1, 2 * nodes + 1}
    for ranks in sorted(number for number in wanted if 1 <= number <= len(machine.allowed)):
        printed = run_program(required("hwloc-distrib"), "-i", str(path), str(ranks), check=True).stdout
        theirs = [CpuSet.from_mask(text.replace("0x", "")) & machine.allowed for text in printed.split()]
        plan = make_plan(machine, Request(ranks=ranks, smt="all"))
        ours = [rank.cpuset for rank in plan.placements]
        left, right = (sort_key(measure(machine, machine.allowed, sets)) for sets in (ours, theirs))
        assert left <= right, ranks
        assert left[:3] != right[:3] or all(a <= b for a, b in zip(left, right, strict=True)), ranks
