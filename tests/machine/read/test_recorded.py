"""Recorded machines, if available: ompbind reads each as an independent reader does, in each format."""

import functools
import json
import subprocess

import pytest

from ompbind.cli.topo import render_json, render_listing, render_tree
from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.errors import MachineError, OmpbindError
from ompbind.machine.devices import DeviceKind
from ompbind.machine.model import Level
from ompbind.machine.read import read_machine
from ompbind.machine.read.archive import ArchiveRoot
from ompbind.machine.read.linux_devices import read_functions, read_locality
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request, Sharing
from ompbind.planning.strategies import STRATEGIES
from ompbind.report.picture import render_machine_svg
from ompbind.report.text import WIDTH
from tests.oracles import find_differences
from tests.recordings import NO_RECORDINGS, RECORDINGS, name_of, recorded, sampled
from tests.tables import rows

COMPARE = json.loads((RECORDINGS / "compare.json").read_text()) if recorded("compare.json") else {}
DUMPS = recorded("dumps/*.tar.gz")
XML = recorded("xml/*.xml")
ARCHIVES = recorded("devices/*.tar.gz")
ORACLES = {path.name.removesuffix(".devices.json"): path for path in recorded("devices/*.devices.json")}
REQUESTS = [
    Request(ranks=2), Request(ranks=5, strategy="spread", threads=1), Request(ranks=None, strategy="nodes"),
    Request(ranks=None, strategy="packages"), Request(ranks=None, strategy="l3", smt="all"),
    *(Request(ranks=ranks, strategy=name) for ranks in (1, 4, 7) for name in STRATEGIES),
]  # fmt: skip


def plans(machine):
    for request in REQUESTS:
        try:
            yield str(make_plan(machine, request))
        except OmpbindError as error:
            yield type(error).__name__


@functools.cache
def read(path):
    """Read a recording with its devices; the test is skipped if ompbind refuses it with a message."""
    try:
        return read_machine(str(path), devices=True)
    except MachineError as error:
        assert error.message
        return pytest.skip("ompbind refuses this recording")


@pytest.mark.parametrize("path", sampled(DUMPS))
def test_a_recording_is_read_like_an_independent_reader_does(path):
    name = name_of(path)
    assert list(find_differences(RECORDINGS, name, COMPARE.get(name, {}).get("skip", {}))) == []


@pytest.mark.parametrize("path", sampled(DUMPS + XML + ARCHIVES))
def test_a_recording_survives_its_json_with_its_devices(path, tmp_path):
    machine = read(path)
    (tmp_path / "machine.json").write_text(render_json(machine))
    again = read_machine(str(tmp_path / "machine.json"), devices=True)
    assert again.replace(source=machine.source) == machine
    assert list(plans(again)) == list(plans(machine))
    assert read_machine(str(tmp_path / "machine.json")).devices == ()


@pytest.mark.parametrize("path", sampled(DUMPS + ARCHIVES))
def test_a_recording_unpacked_is_the_same_machine_with_the_same_devices(path, tmp_path):
    machine = read(path)
    subprocess.run(["tar", "-xf", path, "-C", tmp_path], check=True, timeout=60)
    directory = next(tmp_path.glob("**/sys")).parent
    assert read_machine(str(directory), devices=True).replace(source=machine.source) == machine
    if (directory / "sys/bus").exists():
        (directory / "sys/bus").rename(directory / "bus-without-links")
        without_bus = read_machine(str(directory), devices=True).devices
        assert [device.address for device in without_bus] == [device.address for device in machine.devices]


INFERRED = {
    "ghw-i7-1270P", "hwloc-20em64t-hybrid-1p6c2t+2ca4co1t", "iree-synthetic_raptor_lake",
    "mob-galaxy-s5-global", "mob-galaxy-s9-global", "mob-huawei-honor-6", "mob-pixel-8",
}  # fmt: skip
"""The hybrid processors that do not report kinds of cores."""


@pytest.mark.parametrize("path", sampled(DUMPS + XML))
def test_levels_and_nodes_are_partitions_of_the_cpus_and_views_fit_a_terminal(path):
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
def test_the_xml_of_a_machine_gives_the_plans_of_its_recording(xml, dump):
    files = [*recorded(f"xml/{xml}.xml"), *recorded(f"dumps/{dump}.tar.gz")]
    if len(files) < 2:
        pytest.skip(NO_RECORDINGS)
    described, recording = (read_machine(str(path)) for path in files)
    recording = recording.replace(quota=None)  # XML has none
    assert list(plans(described)) == list(plans(recording))
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
    return {entry["bus_id"]: entry for entry in json.loads(ORACLES[name_of(path)].read_text())}


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


@pytest.mark.parametrize("path", sampled([path for path in XML + ARCHIVES if name_of(path) in ORACLES]))
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
