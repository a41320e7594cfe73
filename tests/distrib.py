"""Compare plans with hwloc-distrib, an independent program, on described and recorded machines.

    python -m tests.distrib

prints the measures of both on the described machines, summed.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.errors import MachineError
from ompbind.machine.model import Level
from ompbind.machine.sources.hwloc_xml import parse_xml
from ompbind.machine.sources.reading import read_machine
from ompbind.planning.metrics import measure
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from tests.machines import tree_files

LSTOPO = shutil.which("lstopo-no-graphics") or "lstopo"
DESCRIBED = [
    "pack:2 numa:1 l3:1 core:4 pu:2",
    "pack:2 numa:2 l3:2 core:3 pu:1",
    "pack:1 numa:1 l3:4 core:8 pu:2",
    "pack:3 numa:1 l3:2 core:5 pu:2",
    "pack:2 numa:4 l3:2 core:4 pu:1",
    "numa:1 pack:4 l3:1 core:4 pu:2",
    "pack:2 numa:1 l3:1 l2:4 core:2 pu:1",
    "pack:1 numa:3 l3:1 core:7 pu:1",
    "pack:4 numa:2 l3:3 core:2 pu:4",
    "pack:1 core:12 pu:8",
    "pack:2 die:2 numa:1 l3:2 core:3 pu:2",
    "core:5 pu:1",
]


def run(*command):
    return subprocess.run(command, capture_output=True, check=True, timeout=120).stdout


def as_xml(source, directory):
    """Convert a description, an XML file or a recording into XML with hwloc; return its path.

    If the source is too new or too old for this hwloc, ompbind reads it and writes a sysfs tree for hwloc.
    None if ompbind cannot read it either.
    """
    path = directory / "machine.xml"
    if str(source).endswith(".tar.gz"):
        run("tar", "-xzf", str(source), "-C", str(directory))
        code = write_xml(path, next(child for child in directory.iterdir() if child.is_dir()))
    else:
        convert = [LSTOPO, "-i", str(source), "--of", "xml", "-f", str(path)]
        code = subprocess.run(convert, capture_output=True).returncode
    if code:
        try:
            machine = read_machine(str(source))
        except MachineError:
            return None
        assert write_xml(path, write_files(directory / "tree", machine)) == 0
    return path


def write_xml(path, root):
    """Convert a sysfs tree into XML with hwloc, and remove the tree; return the exit code of hwloc."""
    env = {"HWLOC_FSROOT": str(root), "HWLOC_COMPONENTS": "linux,stop", "HWLOC_THISSYSTEM": "0"}
    command = [LSTOPO, "--of", "xml", "-f", str(path)]
    done = subprocess.run(command, capture_output=True, env={**os.environ, **env}, timeout=120)
    shutil.rmtree(root)
    return done.returncode


def write_files(root, machine):
    """Write the sysfs tree of a machine; CPUs in no domain get a common one, or an L3 cache for each core."""
    cores = [core.cpus for core in machine.at(Level.CORE)]
    parts = {Level.CORE: cores}
    for level in (Level.PACKAGE, Level.NODE, Level.L3):
        sets = [domain.cpus for domain in machine.at(level)]
        rest = machine.online - union(sets)
        added = [core for core in cores if core <= rest] if level is Level.L3 else [rest]
        parts[level] = [*sets, *added] if rest else sets
    for name, text in tree_files(parts, machine.online).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def counts(machine):
    """Numbers of ranks: 1 to 64, the cores, the cores - 1, twice the nodes - 1, twice the nodes + 1."""
    cores = sum(not core.cpus.isdisjoint(machine.allowed) for core in machine.at(Level.CORE))
    nodes = len(machine.at(Level.NODE))
    wanted = {*range(1, 65), cores, cores - 1, 2 * nodes - 1, 2 * nodes + 1}
    return sorted(ranks for ranks in wanted if 1 <= ranks <= len(machine.allowed))


def compare(machine, path, ranks):
    """Return the measures of the plans of ompbind and of hwloc-distrib; lower is better for all."""
    theirs = run("hwloc-distrib", "-i", str(path), str(ranks)).decode().split()
    sets = [CpuSet.from_mask(text.replace("0x", "")) & machine.allowed for text in theirs]
    plan = make_plan(machine, Request(ranks=ranks, smt="all"))
    ours = [placement.cpuset for placement in plan.placements]
    return measure(machine, machine.allowed, ours), measure(machine, machine.allowed, sets)


def read(path):
    """Read XML of hwloc; no CPUs are excluded by default, as hwloc-distrib uses all."""
    return parse_xml(path.read_bytes(), "xml").replace(isolated=EMPTY, nohz_full=EMPTY)


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
    for described in DESCRIBED:
        with tempfile.TemporaryDirectory() as place:
            xml = as_xml(described, Path(place))
            shape = read(xml)
            compared += [compare(shape, xml, ranks) for ranks in counts(shape)]
    show(f"{len(compared)} plans of {len(DESCRIBED)} machines", compared)
    even = [pair for pair in compared if pair[1].imbalance <= 1]
    show(f"{len(even)} of them, in which hwloc-distrib's shares differ by no more than a core", even)
