"""Recorded machines, if available: ompbind reads each as an independent reader, the oracle, does."""

import functools
import json

import pytest

from ompbind.cli.topo import render_json, render_listing, render_tree
from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.errors import MachineError
from ompbind.machine.devices import DeviceKind
from ompbind.machine.model import Level
from ompbind.machine.read import read_machine
from ompbind.machine.read.archive import ArchiveRoot
from ompbind.machine.read.linux_devices import read_functions, read_locality
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request, Sharing
from ompbind.report.picture import render_machine_svg
from ompbind.report.text import WIDTH
from tests.recordings import ANSWERS, NO_RECORDINGS, RECORDINGS, name_of, recorded, sampled
from tests.tables import rows

COMPARE = json.loads((RECORDINGS / "compare.json").read_text()) if recorded("compare.json") else {}
DUMPS = recorded("dumps/*.tar.gz")
XML = recorded("xml/*.xml")
ARCHIVES = recorded("devices/*.tar.gz")


@functools.cache
def read(path):
    """Read a recording with its devices; the test is skipped if ompbind refuses it with a message."""
    try:
        return read_machine(str(path), devices=True)
    except MachineError as error:
        assert error.message
        return pytest.skip("ompbind refuses this recording")


def sets(values):
    return frozenset(cpus for text in values if (cpus := CpuSet.from_list(text)))


def extents(machine, level):
    return frozenset(domain.cpus for domain in machine.at(level))


def gather(pairs):
    """The CPUs of each number; CPUs without a number are left out."""
    groups = {}
    for number, cpu in pairs:
        if number is not None:
            groups.setdefault(number, []).append(cpu)
    return {number: CpuSet(cpus) for number, cpus in groups.items()}


def nodes_without_cpus(machine, oracle):
    """The CPUs nearest to each node without CPUs; near all CPUs is the same as near none."""
    cpus = {node.number: node.cpus for node in machine.nodes}
    all_cpus = union(cpus.values())
    local = {node["os"]: CpuSet.from_list(node["cpus"]) for node in oracle["numa"]}
    cpuless = [node for node in machine.nodes if not node.cpus and node.number in local]
    ours = {node.number: union(cpus[near] for near in node.nearest) or all_cpus for node in cpuless}
    return ours, {node.number: local[node.number] or all_cpus for node in cpuless}


def distances(machine, oracle):
    """The distances between nodes that both readers have."""
    matrix = next((found for found in oracle["numa_distances"] if found["indexing"] == "os"), None)
    if matrix is None:
        return None, None
    numbers = [node.number for node in machine.nodes]

    def pairs(numbers, rows):
        named = zip(numbers, rows, strict=True)
        return {(node, to): value for node, row in named for to, value in zip(numbers, row, strict=False)}

    ours = pairs(numbers, [node.distances for node in machine.nodes])
    theirs = pairs(matrix["nodes"], matrix["values"])
    shared = ours.keys() & theirs.keys()
    return {pair: ours[pair] for pair in shared}, {pair: theirs[pair] for pair in shared}


def groups(machine, oracle, level, kind):
    """A level that the oracle has as groups, unless they equal another level."""
    reported = [group for group in oracle["groups"] if group.get("kind") != "100"]  # 100: made from distances
    found = [group["cpus"] for group in reported if group.get("subtype") == kind]
    others = frozenset(domain.cpus for domain in machine.domains if domain.level is not level)
    return extents(machine, level) - others, sets(found) - others


def compare_fields(machine, oracle):
    """Yield each field, the name in `compare.json` that excuses a difference, and both values."""
    yield "online", "", (machine.online, CpuSet.from_list(oracle["online"]))
    yield "allowed", "", (machine.allowed, CpuSet.from_list(oracle["allowed"]))
    siblings = sets(pu["siblings"] for pu in oracle["pus"])
    yield "siblings", "cores", (extents(machine, Level.CORE), siblings)
    for key in ("core_logical", "package_logical", "die_logical", "l2", "l3"):
        level, name = Level(key.removesuffix("_logical")), key.replace("_logical", "s")
        theirs = gather((pu[key], pu["os"]) for pu in oracle["pus"])
        yield name, name, (extents(machine, level), frozenset(theirs.values()))
    for name, level in (("clusters", Level.CLUSTER), ("books", Level.BOOK), ("drawers", Level.DRAWER)):
        yield name, name, groups(machine, oracle, level, name[:-1].title())
    # the first of the closest nodes of each CPU
    closest = gather((pu["numa_local"][0], pu["os"]) for pu in oracle["pus"] if pu["numa_local"])
    yield "nodes", "nodes", ({node.number: node.cpus for node in machine.nodes if node.cpus}, closest)
    yield "cpuless_nodes", "nodes", nodes_without_cpus(machine, oracle)
    memory = {node["os"]: node["local_memory"] or 0 for node in oracle["numa"]}
    yield "memory", "nodes", ({node.number: node.memory_bytes or 0 for node in machine.nodes}, memory)
    yield "distances", "nodes", distances(machine, oracle)


@pytest.mark.parametrize("path", sampled(DUMPS))
def test_a_recording_is_read_like_an_independent_reader_does(path):
    """Fields with known differences are not compared; a recording may be refused if the oracle refuses it."""
    name = name_of(path)
    answer = RECORDINGS / f"oracle/{name}.json"
    if not answer.exists():
        pytest.skip(f"no independent reader has read {name}: there is no oracle/{name}.json")
    oracle = json.loads(answer.read_text())
    try:
        machine = read_machine(str(path))
    except MachineError:
        assert "error" in oracle
        return
    known = COMPARE.get(name, {}).get("skip", {})
    for field, excuse, (ours, theirs) in () if "error" in oracle else compare_fields(machine, oracle):
        assert ours == theirs or excuse in known, field


INFERRED = {
    "ghw-i7-1270P", "hwloc-20em64t-hybrid-1p6c2t+2ca4co1t", "iree-synthetic_raptor_lake",
    "mob-galaxy-s5-global", "mob-galaxy-s9-global", "mob-huawei-honor-6", "mob-pixel-8",
}  # fmt: skip
"""The hybrid processors that do not report kinds of cores."""


@pytest.mark.parametrize("path", sampled(DUMPS + XML + ARCHIVES))
def test_levels_are_partitions_and_views_fit_a_terminal_and_json_keeps_a_machine(path, tmp_path):
    (tmp_path / "machine.json").write_text(render_json(read(path)))
    again = read_machine(str(tmp_path / "machine.json"), devices=True).replace(source=str(path))
    assert again == read(path).replace(restrictions=())
    machine = read(path).replace(source=path.name, devices=())
    assert union(core.cpus for core in machine.at(Level.CORE)) == machine.online
    assert machine.allowed <= machine.online
    assert any(kind.inferred_from for kind in machine.kinds) == (name_of(path) in INFERRED)
    for parts in (machine.nodes, *map(machine.at, machine.levels)):
        assert sum(len(part.cpus) for part in parts) == len(union(part.cpus for part in parts))
    for domains in map(machine.at, machine.levels):
        assert [domain.index for domain in domains] == list(range(len(domains)))
    plan = make_plan(machine, Request(ranks=2, smt="all", sharing=Sharing.SHARE))
    assert union(placement.cpuset for placement in plan.placements) <= machine.allowed
    tree, listing = render_tree(machine).split("\n"), render_listing(machine).split("\n")
    assert max(map(len, tree + listing)) <= WIDTH
    assert len(tree) <= 72
    assert [*listing, ""].index("") == 1 + len(machine.online | machine.offline)
    assert render_machine_svg(machine).endswith("</svg>\n")


PAIRS = rows("""
    hwlocx86-AMD-19h-Zen3-2xEpyc-7763          | rec-zen3-2x7763
    mpibind-cascade-lake-ap-snl-hwloc1         | rec-cascadelake-ap-4n
    mpibind-knl-quad-cache-hwloc1              | rec-knl7250-quad-cache
    mpibind-coral-ea-hwloc1                    | rec-power8-smt8
    hwlocxml-power8gpudistances                | rec-power8-gpu
    hwlocxml-16amd64-8n2c-cpusets              | hwloc-16amd64-8n2c-cpusets
    hwlocxml-96em64t-4n4d3ca2co-pci            | hwloc-96em64t-4no4pa3ca2co
    hwlocx86-Intel-RaptorLake-Corei7-1370P     | hwloc-20em64t-hybrid-1p6c2t+2ca4co1t
""")


@pytest.mark.parametrize(
    ("xml", "dump"),
    [pytest.param(*pair, marks=pytest.mark.long if at % 4 else ()) for at, pair in enumerate(PAIRS)],
)
def test_the_xml_of_a_machine_has_the_domains_of_its_recording(xml, dump):
    files = [*recorded(f"xml/{xml}.xml"), *recorded(f"dumps/{dump}.tar.gz")]
    if len(files) < 2:
        pytest.skip(NO_RECORDINGS)
    described, recording = (read_machine(str(path)) for path in files)

    def usable(machine, level):
        return [domain.cpus & machine.allowed for domain in machine.at(level, machine.allowed)]

    for level in {*described.levels, *recording.levels}:
        assert usable(described, level) == usable(recording, level)
    assert [kind.name for kind in described.kinds] == [kind.name for kind in recording.kinds]


REASONS = {
    ("hwloc-32em64t-2n8c+dax+nvme+mic+dimms", "0000:7f"): (EMPTY, "0-15"),
    ("hwloc-32em64t-2n8c+dax+nvme+mic+dimms", "0000:ff"): (EMPTY, "0-15"),
    ("hwloc-32em64t-2n8c+dax+nvme+mic+dimms", "0000:00:02.0"): (CpuSet(range(4)), "0-7"),
    ("hwloc-40intel64-4n10c+pci-conflicts", "0000"): (EMPTY, "0-39"),
}
"""CPUs of functions of a recording that differ from those of the oracle.

The oracle takes all CPUs if numa_node is -1, and the smallest object around the CPUs of a function.
"""


def read_oracle(path):
    return {entry["bus_id"]: entry for entry in json.loads(ANSWERS[name_of(path)].read_text())}


@pytest.mark.parametrize("path", sampled(ARCHIVES))
def test_all_functions_of_recordings_are_near_the_cpus_of_the_oracle(path):
    """This compares all PCI functions, not only devices, because the same rules apply to all."""
    oracle, machine = read_oracle(path), read(path)
    root = ArchiveRoot(path.read_bytes(), path.name)
    functions = {address: found for address, found in read_functions(root).items() if address in oracle}
    assert len(functions) >= 2
    for address, directories in functions.items():
        near, expected = read_locality(root, directories, machine)[0], oracle[address]["near"]
        known = (pair for (name, start), pair in REASONS.items()
                 if name == name_of(path) and address.startswith(start))  # fmt: skip
        assert (near, expected) == next(known, (CpuSet.from_list(expected), expected)), address


@pytest.mark.parametrize("path", sampled([path for path in XML + ARCHIVES if name_of(path) in ANSWERS]))
def test_devices_of_recordings_are_those_of_the_oracle(path):
    """Network functions without a name are none: no driver uses them. Vector engines have no driver here."""
    machine, oracle = read(path), read_oracle(path)
    relevant = {address: row for address, row in oracle.items()
                if row["class"].startswith(("03", "12", "0b40"))
                or (row["class"].startswith(("02", "0c06")) and row["os"])}  # fmt: skip
    assert {device.address for device in machine.devices} == set(relevant)
    for device in machine.devices:
        row = relevant[device.address]
        assert device.pci_class == row["class"]
        if path.suffix != ".xml" and row["class"] == "0300":
            assert device.kind is DeviceKind.DISPLAY
        if path.suffix == ".xml":
            assert str(device.cpus) == row["near"], device
        assert all(device.cpus <= node.cpus for node in machine.nodes if node.number == device.node)
    for address, row in relevant.items():
        devices = [device for device in machine.devices if device.address == address]
        known = {found["name"] for found in row["os"] if path.suffix == ".xml" or found["name"][:2] != "ve"}
        assert {name for device in devices for name in device.names} == known
        if not any(found.get("NVIDIAUUID") or found.get("AMDUUID") for found in row["os"]):
            assert not any(device.uuid for device in devices)
        # The type openfabrics is 3 in versions 1 and 2. Version 3 adds bits: 16 of networks, 32 of RDMA.
        rdma = {found["name"] for found in row["os"] if found["kind"] in ("3", "48")}
        assert path.suffix != ".xml" or {name for device in devices for name in device.rdma_names} == rdma
    uuids = [device.uuid for device in machine.devices if device.uuid]
    assert len(set(uuids)) == len(uuids)
