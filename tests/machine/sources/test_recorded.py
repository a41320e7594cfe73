"""Recorded machines, if available: ompbind reads each as an independent reader does, in each format."""

import functools
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from ompbind.cpuset import union
from ompbind.errors import MachineError, OmpbindError
from ompbind.machine.model import Level
from ompbind.machine.sources.reading import read_machine
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request, Sharing
from ompbind.planning.strategies.strategies import STRATEGIES
from ompbind.report.diagram.svg import render_svg
from ompbind.report.text import WIDTH
from ompbind.report.topology import render_json, render_listing, render_tree
from tests.oracle_report import compare_dump
from tests.recordings import RECORDINGS, recorded, sampled

COMPARE = json.loads((RECORDINGS / "compare.json").read_text()) if recorded("compare.json") else {}
DUMPS = recorded("dumps/*.tar.gz")
XML = recorded("xml/*.xml")
WHY = "no recordings: OMPTEST_TOPOLOGIES names their directory"
NONE = pytest.param(None, marks=pytest.mark.skip(WHY))
REQUESTS = [
    Request(ranks=2),
    Request(ranks=5, strategy="spread", threads=1),
    Request(ranks=None, strategy="nodes"),
    Request(ranks=None, strategy="packages"),
    Request(ranks=None, strategy="l3", smt="all"),
]


def names(paths):
    return [pytest.param(path, id=path.name.partition(".")[0]) for path in paths] or [NONE]


def plans(machine, requests=REQUESTS):
    for request in requests:
        try:
            yield str(make_plan(machine, request))
        except OmpbindError as error:
            yield type(error).__name__


@functools.cache
def read_or_none(path):
    """Read a recording, None if ompbind refuses it; then the error has a message."""
    try:
        return read_machine(str(path))
    except MachineError as error:
        assert error.message
        return None


@pytest.mark.parametrize("path", names(DUMPS))
def test_a_recording_is_read_like_an_independent_reader_does(path):
    name = path.name.removesuffix(".tar.gz")
    findings = list(compare_dump(RECORDINGS, name, COMPARE.get(name, {}).get("skip", {})))
    assert findings
    assert not [finding for finding in findings if finding.verdict == "DIFFER"]


@pytest.mark.parametrize("path", names(DUMPS))
def test_a_recording_survives_its_json(path, tmp_path):
    if (machine := read_or_none(path)) is None:
        return
    (tmp_path / "machine.json").write_text(render_json(machine))
    again = read_machine(str(tmp_path / "machine.json"))
    assert again.replace(source=machine.source) == machine
    assert list(plans(again)) == list(plans(machine))


@pytest.mark.parametrize("path", names(XML + recorded("devices/*.tar.gz")))
def test_the_devices_of_a_recording_survive_its_json(path, tmp_path):
    machine = read_machine(str(path), devices=True)
    (tmp_path / "machine.json").write_text(render_json(machine))
    again = read_machine(str(tmp_path / "machine.json"), devices=True)
    assert again.replace(source=machine.source) == machine
    assert read_machine(str(tmp_path / "machine.json")).devices == ()


@pytest.mark.parametrize("path", sampled(DUMPS) or [NONE])
def test_a_recording_unpacked_is_the_same_machine(path, tmp_path):
    if (machine := read_or_none(path)) is None:
        return
    subprocess.run(["tar", "-xf", path, "-C", tmp_path], check=True, timeout=60)
    directory = next(tmp_path.glob("**/sys")).parent
    assert read_machine(str(directory)).replace(source=machine.source) == machine


@pytest.mark.parametrize("path", names(DUMPS + XML))
def test_levels_and_nodes_are_partitions_of_the_cpus(path):
    if (machine := read_or_none(path)) is None:
        return
    cores = [core.cpus for core in machine.at(Level.CORE)]
    assert union(cores) == machine.online
    assert sum(map(len, cores)) == len(machine.online)
    assert machine.allowed <= machine.online
    assert sum(len(node.cpus) for node in machine.nodes) == len(union(node.cpus for node in machine.nodes))
    for level in machine.levels:
        domains = machine.at(level)
        assert [domain.index for domain in domains] == list(range(len(domains)))
        assert sum(len(domain.cpus) for domain in domains) == len(union(domain.cpus for domain in domains))
    plan = make_plan(machine, Request(ranks=2, smt="all", sharing=Sharing.SHARE))
    assert union(placement.cpuset for placement in plan.placements) <= machine.allowed


@pytest.mark.parametrize("path", names(DUMPS + XML))
def test_the_tree_and_the_table_fit_a_terminal(path):
    if (machine := read_or_none(path)) is None:
        return
    machine = machine.replace(source=path.name)
    tree = render_tree(machine).split("\n")
    assert max(map(len, tree)) <= WIDTH
    assert len(tree) <= 72
    listing = render_listing(machine).split("\n")
    assert max(map(len, listing)) <= WIDTH
    assert len(listing) == 1 + len(machine.online | machine.offline)
    assert render_svg(machine).endswith("</svg>")


@pytest.mark.parametrize(
    ("xml", "dump"),
    [
        ("hwlocx86-AMD-19h-Zen3-2xEpyc-7763", "rec-zen3-2x7763"),
        ("hwlocx86-Intel-ArrowLake-CoreUltra5-225U", "rec-arrowlake-225u"),
        ("mpibind-cts1-pascal", "rec-broadwell-pascal"),
        ("mpibind-cascade-lake-ap-snl-hwloc1", "rec-cascadelake-ap-4n"),
        ("mpibind-epyc-corona-p2", "rec-epyc7402-nps1"),
        ("mpibind-epyc-dual-sock-hwloc1", "rec-epyc7551-2s"),
        ("mpibind-knl-quad-cache-hwloc1", "rec-knl7250-quad-cache"),
        ("mpibind-coral-ea-hwloc1", "rec-power8-smt8"),
        ("hwlocxml-power8gpudistances", "rec-power8-gpu"),
        ("hwlocxml-16amd64-8n2c-cpusets", "hwloc-16amd64-8n2c-cpusets"),
        ("hwlocxml-16em64t-4s2c2t", "hwloc-16em64t-4s2c2t"),
        ("hwlocxml-96em64t-4n4d3ca2co-pci", "hwloc-96em64t-4no4pa3ca2co"),
        ("hwlocx86-Intel-RaptorLake-Corei7-1370P", "hwloc-20em64t-hybrid-1p6c2t+2ca4co1t"),
    ],
)
def test_the_xml_of_a_machine_gives_the_plans_of_its_recording(xml, dump):
    files = [*recorded(f"xml/{xml}.xml"), *recorded(f"dumps/{dump}.tar.gz")]
    if len(files) < 2:
        pytest.skip(WHY)
    described, recording = (read_machine(str(path)) for path in files)
    recording = recording.replace(quota=None)  # XML has none
    assert list(plans(described)) == list(plans(recording))
    many = [Request(ranks=ranks, strategy=name) for ranks in (1, 3, 4, 7, 8) for name in STRATEGIES]
    assert list(plans(described, many)) == list(plans(recording, many))
    assert [kind.name for kind in described.kinds] == [kind.name for kind in recording.kinds]


def make_recordings(directory, online, siblings):
    """A directory with a recording of two cores, 0 and 1, and an oracle with these siblings of both."""
    path = directory / "tree/sys/devices/system/cpu"
    for cpu in (0, 1):
        (path / f"cpu{cpu}/topology").mkdir(parents=True)
        (path / f"cpu{cpu}/topology/core_cpus").write_text(f"{1 << cpu}\n")
    (path / "online").write_text(f"{online}\n")
    for name in ("dumps", "oracle"):
        (directory / name).mkdir()
    with tarfile.open(directory / "dumps/made.tar.gz", "w:gz") as archive:
        archive.add(directory / "tree", arcname="made")
    none = dict.fromkeys(("package_logical", "die_logical", "l2", "l3"))
    pus = [
        {"os": cpu, "core_logical": int(text.split("-")[0]), "siblings": text, "numa_local": [0], **none}
        for cpu, text in enumerate(siblings)
    ]
    nodes = [{"os": 0, "cpus": "0-1", "local_memory": 0}]
    oracle = {
        "online": "0-1",
        "allowed": "0-1",
        "pus": pus,
        "numa": nodes,
        "groups": [],
        "numa_distances": [],
    }
    (directory / "oracle/made.json").write_text(json.dumps(oracle))
    (directory / "compare.json").write_text("{}")


@pytest.mark.parametrize(
    ("online", "siblings", "code", "line", "differs"),
    [
        ("0-1", ("0", "1"), 0, "made: agree: online", 0),
        ("0-1", ("0-1", "0-1"), 1, "DIFFER: cores: ompbind 0 1, oracle 0-1", 2),
        ("0-2", ("0", "1"), 0, "corrected: silent: online 2: core siblings of CPU 2 are unknown", 0),
    ],
)
def test_the_report_counts_what_differs(tmp_path, online, siblings, code, line, differs):
    """The report finds a difference, and shows what ompbind corrects."""
    make_recordings(tmp_path, online, siblings)
    script = Path(__file__).parents[2] / "oracle_report.py"
    run = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, timeout=60)
    assert run.returncode == code, run.stderr
    assert line in run.stdout
    assert run.stdout.endswith(f"total differs = {differs}\n")
