"""Compare plans with hwloc-distrib, an independent program, on described machines.

    python -m tests.distrib

prints the measures of both, summed.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.machine.model import Level
from ompbind.machine.read.hwloc_xml import parse_xml
from ompbind.planning.metrics import measure
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request

LSTOPO = shutil.which("lstopo-no-graphics") or "lstopo"
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
    """Convert a description into XML with hwloc, and read it; hwloc-distrib excludes no CPUs."""
    run(LSTOPO, "-i", source, "--of", "xml", "-f", str(path))
    return parse_xml(path.read_bytes(), "xml").replace(isolated=EMPTY, nohz_full=EMPTY)


def counts(machine):
    """Numbers of ranks: 1 to 64, the cores, the cores - 1, twice the nodes - 1, twice the nodes + 1."""
    cores, nodes = len(machine.at(Level.CORE)), len(machine.at(Level.NODE))
    wanted = {*range(1, 65), cores, cores - 1, 2 * nodes - 1, 2 * nodes + 1}
    return sorted(ranks for ranks in wanted if 1 <= ranks <= len(machine.allowed))


def compare(machine, path, ranks):
    """Return the measures of the plans of ompbind and of hwloc-distrib; lower is better for all."""
    theirs = run("hwloc-distrib", "-i", str(path), str(ranks)).decode().split()
    sets = [CpuSet.from_mask(text.replace("0x", "")) & machine.allowed for text in theirs]
    plan = make_plan(machine, Request(ranks=ranks, smt="all"))
    ours = [placement.cpuset for placement in plan.placements]
    return measure(machine, machine.allowed, ours), measure(machine, machine.allowed, sets)


def across(metrics, *levels):
    return sum(border.crossing for border in metrics.borders if border.level in levels)


SHOWN = {
    "cores shared": lambda found: found.shared,
    "cores idle": lambda found: found.idle,
    "largest - smallest rank": lambda found: found.imbalance,
    "ranks across nodes": lambda found: across(found, Level.NODE),
    "ranks across packages": lambda found: across(found, Level.PACKAGE),
    "ranks across L3s": lambda found: across(found, Level.L3),
}


def show(title, pairs):
    """Print the sums of the measures of ompbind and of hwloc-distrib."""
    print(f"{title}; better: {sum(ours.sort_key < theirs.sort_key for ours, theirs in pairs)}")
    print(f"  {'summed, fewer is better':32} ompbind  hwloc-distrib")
    for name, value in SHOWN.items():
        ours, theirs = (sum(value(found) for found in side) for side in zip(*pairs, strict=True))
        print(f"  {name:32} {ours:7}  {theirs:13}")


if __name__ == "__main__":
    compared = []
    with tempfile.TemporaryDirectory() as place:
        xml = Path(place, "machine.xml")
        for described in DESCRIBED:
            shape = read(described, xml)
            compared += [compare(shape, xml, ranks) for ranks in counts(shape)]
    show(f"{len(compared)} plans of {len(DESCRIBED)} machines", compared)
    even = [pair for pair in compared if pair[1].imbalance <= 1]
    show(f"{len(even)} of them, in which hwloc-distrib's shares differ by no more than a core", even)
