"""Plans compared with hwloc-distrib, an independent program, on described machines: no measure is worse.

`python -m tests.live.test_distrib` prints the measures of both, summed.
"""

import subprocess
import tempfile
from pathlib import Path

import pytest

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.machine.model import Level
from ompbind.machine.read.hwloc_xml import parse_xml
from ompbind.planning.metrics import measure
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from tests.live.conftest import required
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


def run(*command):
    return subprocess.run(command, capture_output=True, check=True, timeout=120).stdout


def read(source, path):
    """Convert a description into XML with hwloc; read it, and the numbers of ranks to compare.

    These are 1 to 64, the cores, the cores - 1, twice the nodes - 1, twice the nodes + 1.
    """
    run(required("lstopo-no-graphics", "lstopo"), "-i", source, "--of", "xml", "-f", str(path))
    machine = parse_xml(path.read_bytes(), "xml").replace(isolated=EMPTY, nohz_full=EMPTY)  # as hwloc-distrib
    cores, nodes = len(machine.at(Level.CORE)), len(machine.at(Level.NODE))
    wanted = {*range(1, 65), cores, cores - 1, 2 * nodes - 1, 2 * nodes + 1}
    return machine, sorted(ranks for ranks in wanted if 1 <= ranks <= len(machine.allowed))


def compare(machine, path, ranks):
    """Return the measures of the plans of ompbind and of hwloc-distrib; lower is better for all."""
    theirs = run(required("hwloc-distrib"), "-i", str(path), str(ranks)).decode().split()
    sets = [CpuSet.from_mask(text.replace("0x", "")) & machine.allowed for text in theirs]
    ours = [rank.cpuset for rank in make_plan(machine, Request(ranks=ranks, smt="all")).placements]
    return measure(machine, machine.allowed, ours), measure(machine, machine.allowed, sets)


def imbalance(metrics):
    return metrics.largest - metrics.smallest


def sort_key(metrics):
    """The key by which plans are compared, most important number first; the lower key is better."""
    crossings = (border.crossing for border in metrics.borders)
    touched = (border.touched for border in metrics.borders)
    return metrics.shared, metrics.idle, imbalance(metrics), *crossings, *touched, metrics.mixed


@pytest.mark.parametrize("source", DESCRIBED)
def test_no_measure_is_worse_than_with_hwloc_distrib(tmp_path, source):
    machine, ranks = read(source, tmp_path / "machine.xml")
    few = {*ranks[:6], *ranks[-3:], *({12, 13, 16, 31, 48} & {*ranks})}
    for number in ranks if LONG else sorted(few):
        ours, theirs = (sort_key(found) for found in compare(machine, tmp_path / "machine.xml", number))
        assert ours <= theirs, number
        assert ours[:3] != theirs[:3] or all(a <= b for a, b in zip(ours, theirs, strict=True)), number


def across(level):
    return lambda found: sum(border.crossing for border in found.borders if border.level is level)


SHOWN = {
    "cores shared": lambda found: found.shared, "cores idle": lambda found: found.idle,
    "largest - smallest rank": imbalance, "ranks across nodes": across(Level.NODE),
    "ranks across packages": across(Level.PACKAGE), "ranks across L3s": across(Level.L3),
}  # fmt: skip


def show(title, pairs):
    """Print the sums of the measures of ompbind and of hwloc-distrib."""
    print(f"{title}; better: {sum(sort_key(ours) < sort_key(theirs) for ours, theirs in pairs)}")
    print(f"  {'summed, fewer is better':32} ompbind  hwloc-distrib")
    for name, value in SHOWN.items():
        ours, theirs = (sum(value(found) for found in side) for side in zip(*pairs, strict=True))
        print(f"  {name:32} {ours:7}  {theirs:13}")


if __name__ == "__main__":
    compared = []
    with tempfile.TemporaryDirectory() as place:
        xml = Path(place, "machine.xml")
        for described in DESCRIBED:
            shape, numbers = read(described, xml)
            compared += [compare(shape, xml, ranks) for ranks in numbers]
    show(f"{len(compared)} plans of {len(DESCRIBED)} machines", compared)
    even = [pair for pair in compared if imbalance(pair[1]) <= 1]
    show(f"{len(even)} of them, in which hwloc-distrib's shares differ by no more than a core", even)
