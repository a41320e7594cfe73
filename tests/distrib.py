"""Plans beside those of hwloc-distrib, on described and recorded machines.

    python -m tests.distrib

prints what both make of the described machines, added up: an independent program's way to divide a machine.
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
from ompbind.machine.sources.table import read_machine
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


def run(*command, **env):
    done = subprocess.run(command, capture_output=True, env={**os.environ, **env}, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def as_xml(source, folder):
    """Have hwloc write what it reads of a description, an XML file or a recording.

    What is too new, or too old, for this hwloc it gets as files that tell what ompbind has read; None when
    ompbind cannot read it either.
    """
    path = folder / "machine.xml"
    if str(source).endswith(".tar.gz"):
        run("tar", "-xzf", str(source), "-C", str(folder))
        done = write_xml(path, next(one for one in folder.iterdir() if one.is_dir()))
    else:
        done = subprocess.run(
            [LSTOPO, "-i", str(source), "--of", "xml", "-f", str(path)], capture_output=True
        )
    if done.returncode != 0:
        try:
            machine = read_machine(str(source))
        except MachineError:
            return None
        assert write_xml(path, write_files(folder / "tree", machine)).returncode == 0
    return path


def write_xml(path, root):
    """Have hwloc write what it reads of a folder with files of a machine, and remove these."""
    env = {"HWLOC_FSROOT": str(root), "HWLOC_COMPONENTS": "linux,stop", "HWLOC_THISSYSTEM": "0"}
    command = [LSTOPO, "--of", "xml", "-f", str(path)]
    done = subprocess.run(command, capture_output=True, env={**os.environ, **env}, timeout=120)
    shutil.rmtree(root)
    return done


def write_files(root, machine):
    """Write the files of a machine; CPUs that no domain has get one together, or one a core for caches."""
    cores = [core.cpus for core in machine.at(Level.CORE)]
    parts = {Level.CORE: cores}
    for level in (Level.PACKAGE, Level.NODE, Level.L3):
        sets = [one.cpus for one in machine.at(level)]
        rest = machine.online - union(sets)
        alone = [core for core in cores if core <= rest] if level is Level.L3 else [rest]
        parts[level] = [*sets, *alone] if rest else sets
    for name, text in tree_files(parts, machine.online).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def counts(machine):
    """1 to 64 ranks, and as many as there are cores, one less, and twice the nodes, one less and one more."""
    cores = sum(not core.cpus.isdisjoint(machine.allowed) for core in machine.at(Level.CORE))
    nodes = len(machine.at(Level.NODE))
    wanted = {*range(1, 65), cores, cores - 1, 2 * nodes - 1, 2 * nodes + 1}
    return sorted(ranks for ranks in wanted if 1 <= ranks <= len(machine.allowed))


def compare(machine, path, ranks):
    """Return what ompbind and hwloc-distrib make of a machine, measured; fewer is better everywhere."""
    theirs = run("hwloc-distrib", "-i", str(path), str(ranks)).decode().split()
    sets = [CpuSet.from_mask(text.replace("0x", "")) & machine.allowed for text in theirs]
    plan = make_plan(machine, Request(ranks=ranks, smt="all"))
    ours = [one.cpuset for one in plan.placements]
    return measure(machine, machine.allowed, ours), measure(machine, machine.allowed, sets)


def read(path):
    """Read the machine that hwloc wrote; it does not set CPUs apart, so neither does ompbind here."""
    return parse_xml(path.read_bytes(), "xml").replace(isolated=EMPTY, nohz_full=EMPTY)


def main():
    pairs = []
    for source in DESCRIBED:
        with tempfile.TemporaryDirectory() as folder:
            path = as_xml(source, Path(folder))
            machine = read(path)
            pairs += [compare(machine, path, ranks) for ranks in counts(machine)]
    show(f"{len(pairs)} plans of {len(DESCRIBED)} machines", pairs)
    even = [pair for pair in pairs if pair[1].imbalance <= 1]
    show(f"{len(even)} of them, in which hwloc-distrib's shares differ by no more than a core", even)


def show(title, pairs):
    """Print the sums of the measures of ompbind and of hwloc-distrib."""
    print(f"{title}; better: {sum(ours.order < theirs.order for ours, theirs in pairs)}")
    print(f"  {'summed, fewer is better':32} ompbind  hwloc-distrib")
    for name, value in SHOWN.items():
        ours, theirs = (sum(value(found) for found in side) for side in zip(*pairs, strict=True))
        print(f"  {name:32} {ours:7}  {theirs:13}")


def across(measures, *levels):
    return sum(border.crossing for border in measures.borders if border.level in levels)


SHOWN = {
    "cores shared": lambda found: found.shared,
    "cores idle": lambda found: found.idle,
    "largest less smallest rank": lambda found: found.imbalance,
    "ranks across nodes": lambda found: across(found, Level.NODE),
    "ranks across packages": lambda found: across(found, Level.PACKAGE),
    "ranks across L3s": lambda found: across(found, Level.L3),
}


if __name__ == "__main__":
    main()
