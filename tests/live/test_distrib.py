"""Plans compared with those of hwloc-distrib, on described and recorded machines: no measure is worse."""

import os
import shutil
import subprocess

import pytest

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.errors import MachineError
from ompbind.machine.hwloc_xml import parse_xml
from ompbind.machine.sources import read_machine
from ompbind.measures import measure
from ompbind.plan import make_plan
from ompbind.request import Request
from ompbind.topology import Level
from tests.live.conftest import required
from tests.machines import tree_files
from tests.recordings import recorded

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
RECORDED = [*recorded("xml/*.xml"), *recorded("dumps/*.tar.gz")]


def run(*command, **env):
    done = subprocess.run(command, capture_output=True, env={**os.environ, **env}, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def as_xml(source, folder):
    """Have hwloc write what it reads of a description, an XML file or a recording; None if it cannot."""
    lstopo, path = required("lstopo-no-graphics", "lstopo"), folder / "machine.xml"
    given, env = ("-i", str(source)), {}
    if root := as_tree(source, folder):
        given = ()
        env = {"HWLOC_FSROOT": str(root), "HWLOC_COMPONENTS": "linux,stop", "HWLOC_THISSYSTEM": "0"}
    command = [lstopo, *given, "--of", "xml", "-f", str(path)]
    done = subprocess.run(command, capture_output=True, env={**os.environ, **env}, timeout=120)
    if root:
        shutil.rmtree(root)
    return path if done.returncode == 0 else None


def as_tree(source, folder):
    """Unpack a recording; write one of what XML tells that is newer than this hwloc reads; else None."""
    if str(source).endswith(".tar.gz"):
        run("tar", "-xzf", str(source), "-C", str(folder))
        return next(one for one in folder.iterdir() if one.is_dir())
    if not str(source).endswith(".xml") or 'version="3.' not in source.read_text()[:400]:
        return None
    machine = read_machine(str(source))
    parts = {
        level: [one.cpus for one in machine.at(level)] for level in (Level.PACKAGE, Level.NODE, Level.L3)
    }
    cores = [core.cpus for core in machine.at(Level.CORE)]
    whole = {Level.L3: cores}
    parts = {level: sets or whole.get(level, [machine.online]) for level, sets in parts.items()}
    if any(union(sets) != machine.online for sets in parts.values()):
        return None
    for name, text in tree_files({**parts, Level.CORE: cores}, machine.online).items():
        (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "tree" / name).write_text(text)
    return folder / "tree"


def counts(machine):
    """1 to 64 ranks, and as many as there are cores, one less, and twice the nodes, one less and one more."""
    cores = sum(not core.cpus.isdisjoint(machine.allowed) for core in machine.at(Level.CORE))
    nodes = len(machine.at(Level.NODE))
    wanted = {*range(1, 65), cores, cores - 1, 2 * nodes - 1, 2 * nodes + 1}
    return sorted(ranks for ranks in wanted if 1 <= ranks <= len(machine.allowed))


def compare(machine, path, ranks):
    """Return what ompbind and hwloc-distrib make of a machine, measured; fewer is better everywhere."""
    theirs = run(required("hwloc-distrib"), "-i", str(path), str(ranks)).decode().split()
    sets = [CpuSet.from_mask(text.replace("0x", "")) & machine.allowed for text in theirs]
    plan = make_plan(machine, Request(ranks=ranks, smt="all"))
    ours = [one.cpuset for one in plan.placements]
    return measure(machine, machine.allowed, ours), measure(machine, machine.allowed, sets)


@pytest.mark.parametrize("source", [*DESCRIBED, *(pytest.param(one, id=one.name) for one in RECORDED)])
def test_no_measure_is_worse_than_that_of_hwloc_distrib(tmp_path, source):
    """Measures are compared in their order, and one by one where both share out all cores equally."""
    path = as_xml(source, tmp_path)
    if path is None:
        pytest.skip("hwloc cannot read it")
    try:
        machine = parse_xml(path.read_bytes(), "xml").replace(isolated=EMPTY, nohz_full=EMPTY)
    except MachineError as error:
        pytest.skip(error.message)
    for ranks in counts(machine):
        ours, theirs = compare(machine, path, ranks)
        assert ours.order <= theirs.order, ranks
        if ours.order[:3] == theirs.order[:3]:
            worse = [pair for pair in zip(ours.order, theirs.order, strict=True) if pair[0] > pair[1]]
            assert not worse, (ranks, ours, theirs)
