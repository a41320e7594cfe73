"""Devices in hwloc XML: of recorded machines against what hwloc says of them, and of hand-written files."""

import json
from collections import Counter

import pytest

from ompbind.cpuset import CpuSet
from ompbind.errors import MachineError
from ompbind.machine.sources.hwloc_xml import parse_xml
from ompbind.machine.sources.reading import read_machine
from tests.recordings import recorded

XML = {path.stem: path for path in recorded("xml/*.xml")}
SAYINGS = {path.name.removesuffix(".devices.json"): path for path in recorded("devices/*.devices.json")}
NAMES = sorted(XML.keys() & SAYINGS.keys())

CLASSES = ("02", "03", "0c06", "12", "0b40")
"""PCI classes that may be devices of ranks."""


def read_sayings(name):
    rows = json.loads(SAYINGS[name].read_text())
    return {row["bus_id"]: row for row in rows if row["class"].startswith(CLASSES)}


@pytest.mark.parametrize("name", NAMES)
def test_devices_of_recorded_machines_are_where_hwloc_puts_them(name):
    machine = read_machine(str(XML[name]), devices=True)
    expected = read_sayings(name)
    addresses = {device.address for device in machine.devices}
    assert addresses == {
        address for address, row in expected.items() if row["class"][:2] not in ("02", "0c") or row["os"]
    }
    for device in machine.devices:
        row = expected[device.address]
        assert str(device.cpus) == row["near"], device
        assert device.pci_class == row["class"]
        assert all(device.cpus <= node.cpus for node in machine.nodes if node.number == device.node)


@pytest.mark.parametrize("name", NAMES)
def test_names_and_uuids_of_recorded_machines_are_those_of_hwloc(name):
    machine = read_machine(str(XML[name]), devices=True)
    for address, row in read_sayings(name).items():
        devices = [device for device in machine.devices if device.address == address]
        names = Counter(name for device in devices for name in device.names)
        assert set(names) == {found["name"] for found in row["os"]}, address
        if not any(found.get("NVIDIAUUID") or found.get("AMDUUID") for found in row["os"]):
            assert not any(device.uuid for device in devices)
    uuids = [device.uuid for device in machine.devices if device.uuid]
    assert len(set(uuids)) == len(uuids)


@pytest.mark.parametrize("name", NAMES)
def test_names_of_rdma_are_those_of_hwloc(name):
    """The type openfabrics is 3 in versions 1 and 2. Version 3 adds bits: 16 of networks, 32 of RDMA."""
    found = [found for row in read_sayings(name).values() for found in row["os"]]
    rdma = {row["name"] for row in found if row["kind"] in ("3", "48")}
    devices = read_machine(str(XML[name]), devices=True).devices
    assert {name for device in devices for name in device.rdma_names} == rdma


KINDS = {
    "prrte-turin-4gpu": (4, 7, 0, 1),
    "prrte-turin-4gpu-nvml": (4, 7, 0, 1),
    "flux-ipa20": (4, 6, 4, 1),
    "flux-tuo.TPX": (12, 5, 0, 0),
    "flux-tuo.CPX": (24, 5, 0, 0),
    "mpibind-eas-tioga": (8, 5, 0, 0),
    "mpibind-epyc-corona-p2": (8, 3, 0, 1),
    "mpibind-coral-lassen": (4, 6, 0, 1),
    "mpibind-coral-ea-hwloc1": (4, 4, 0, 1),
    "mpibind-cts1-pascal": (2, 3, 0, 1),
    "hwlocxml-24em64t-2n6c2t-pci": (3, 3, 0, 1),
    "hwlocxml-power8gpudistances": (4, 0, 0, 0),
    "hwlocxml-cxlmem+dax.v3": (0, 1, 0, 1),
}
"""GPUs, NICs, accelerators and displays of recorded machines, counted by hand."""


@pytest.mark.parametrize("name", sorted(KINDS.keys() & XML.keys()))
def test_kinds_of_devices_of_recorded_machines(name):
    found = Counter(device.kind for device in read_machine(str(XML[name]), devices=True).devices)
    assert tuple(found[kind] for kind in ("gpu", "nic", "accelerator", "display")) == KINDS[name]


GPU = (
    '<object type="PCIDev" pci_busid="0000:06:00.0" pci_type="0302 [10de:2335] [10de:18be] a1">'
    '<object type="OSDev" name="cuda0"/><object type="OSDev" name="nvml0">'
    '<info name="NVIDIAUUID" value="GPU-46f77619-68bf-8f9d-7cfb-61fa9c4ca692"/></object></object>'
)


def node(number, inside=""):
    cpus = f"0x{3 << 2 * number:x}"
    cores = "".join(
        f'<object type="PU" os_index="{cpu}" cpuset="0x{1 << cpu:x}"/>'
        for cpu in (2 * number, 2 * number + 1)
    )
    return (
        f'<object type="Package" os_index="{number}" cpuset="{cpus}">'
        f'<object type="NUMANode" os_index="{number}" cpuset="{cpus}" local_memory="1024"/>'
        f"{cores}{inside}</object>"
    )


def read_devices(inside, beside="", online="0xf"):
    top = f'<object type="Machine" cpuset="{online}">'
    body = f"{top}{node(0)}{node(1, inside)}{beside}</object>"
    return parse_xml(f'<topology version="2.0">{body}</topology>'.encode(), "test", devices=True).devices


def test_gpu_inside_a_bridge_is_near_the_package_around_it():
    (gpu,) = read_devices(f'<object type="Bridge">{GPU}</object>')
    assert (gpu.name, gpu.address, gpu.vendor, gpu.product) == ("gpu:0", "0000:06:00.0", "10de", "2335")
    assert (gpu.cpus, gpu.node, gpu.partition) == (CpuSet((2, 3)), 1, None)
    assert (gpu.names, gpu.ordinal) == (("cuda0", "nvml0"), 0)
    assert gpu.uuid == "GPU-46f77619-68bf-8f9d-7cfb-61fa9c4ca692"


def test_place_of_a_device_beside_all_nodes_is_not_known():
    (gpu,) = read_devices("", f'<object type="Bridge">{GPU}</object>')
    assert (gpu.cpus, gpu.node) == (CpuSet(), None)


def test_device_is_near_online_cpus():
    (gpu,) = read_devices(GPU, online="0x7")
    assert gpu.cpus == CpuSet([2])


def test_names_belong_to_the_innermost_function():
    bridge = '<object type="PCIDev" pci_busid="0000:05:00.0" pci_type="0200 [15b3:a2d6]">'
    name = '<object type="OSDev" name="eth0" osdev_type="2"/>'
    gpu, nic = read_devices(f"{bridge}{GPU}{name}</object>")
    assert (gpu.names, nic.names) == (("cuda0", "nvml0"), ("eth0",))


def amd(address, *uuids):
    names = (
        f'<object type="OSDev" name="rsmi{i}"><info name="AMDUUID" value="{uuid}"/></object>'
        for i, uuid in enumerate(uuids)
    )
    return (
        f'<object type="PCIDev" pci_busid="{address}" pci_type="1200 [1002:74a0]">{"".join(names)}</object>'
    )


@pytest.mark.parametrize(
    ("uuids", "expected"),
    [
        (["a3"], ["GPU-00000000000000a3"]),  # hwloc leaves out leading zeros
        (["0"], [""]),  # made anonymous
        (["a3", "a4"], ["GPU-00000000000000a3", "GPU-00000000000000a4"]),
        (["a3", "a3"], ["", ""]),  # partitions that cannot be distinguished
    ],
)
def test_uuids_of_amd(uuids, expected):
    devices = read_devices(amd("0000:02:00.0", *uuids))
    assert [device.uuid for device in devices] == expected
    assert [device.partition for device in devices] == ([None] if len(uuids) == 1 else [0, 1])


def test_domains_of_32_bits():
    (gpu,) = read_devices(GPU.replace("0000:", "10000000:"))
    assert gpu.address == "10000000:06:00.0"


@pytest.mark.parametrize(
    "address", ["", "06:00.0", "0000:06:00", "0000:0g:00.0", "0000:06:00:0", "0000.06.00.0", "²000:06:00.0"]
)
def test_invalid_address_is_an_error(address):
    with pytest.raises(MachineError, match="PCI address"):
        read_devices(GPU.replace("0000:06:00.0", address))


@pytest.mark.parametrize(
    "type_", ["", "0302", "0302 [", "0302 [10de", "0302 [:]", "xyz [10de:2335]", "03²2 [10de:0]"]
)
def test_incomplete_type_is_no_crash(type_):
    devices = read_devices(GPU.replace("0302 [10de:2335] [10de:18be] a1", type_))
    assert all(set(device.vendor) <= set("10de") for device in devices)
