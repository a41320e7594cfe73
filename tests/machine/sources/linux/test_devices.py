"""Reading devices: recorded machines against an independent reader, and trees written for the test."""

import json
import subprocess
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.machine.devices import DeviceKind
from ompbind.machine.sources.archive import ArchiveRoot
from ompbind.machine.sources.linux.devices import read_devices
from ompbind.machine.sources.linux.pci import read_functions, read_locality
from ompbind.machine.sources.linux.reader import read_recorded
from ompbind.machine.sources.reading import read_machine
from ompbind.machine.sources.root import DirectoryRoot
from ompbind.record import Record
from tests.device_trees import BUS, DeviceTree
from tests.long import examples
from tests.machines import DictRoot, Shape
from tests.recordings import name_of, recorded

RECORDINGS = recorded("devices/*.tar.gz")
RECORDED = [pytest.param(path, id=name_of(path)) for path in RECORDINGS] or [
    pytest.param(None, marks=pytest.mark.skip("no recordings: OMPTEST_TOPOLOGIES names their directory"))
]

TWO_NODES = Shape(packages=2, cores=4)
FIRST, SECOND = CpuSet(range(4)), CpuSet(range(4, 8))
UUID = "GPU-46f77619-68bf-8f9d-7cfb-61fa9c4ca69{}"


# Recorded machines


class Reason(Record):
    """Why the CPUs of some functions of a recording are others than those of the oracle."""

    recording: str
    functions: str  # the beginning of their addresses
    near: CpuSet
    oracle: str
    why: str


NO_NODE = "numa_node is -1 on a machine with two nodes: not known, where the oracle takes all CPUs"
REASONS = (
    Reason(recording="hwloc-32em64t-2n8c+dax+nvme+mic+dimms", functions="0000:7f", near=EMPTY,
           oracle="0-15", why=NO_NODE),
    Reason(recording="hwloc-32em64t-2n8c+dax+nvme+mic+dimms", functions="0000:ff", near=EMPTY,
           oracle="0-15", why=NO_NODE),
    Reason(recording="hwloc-32em64t-2n8c+dax+nvme+mic+dimms", functions="0000:00:02.0",
           near=CpuSet(range(4)), oracle="0-7",
           why="the function has CPUs 0-3; the oracle has the smallest object around them, a NUMA node"),
    Reason(recording="hwloc-40intel64-4n10c+pci-conflicts", functions="0000", near=EMPTY, oracle="0-39",
           why="numa_node is -1 on a machine with four nodes, and 0xf is no mask of a kernel"),
)  # fmt: skip
"""All functions of the recordings whose CPUs differ from those of the oracle."""

UNNAMED = {"ve": "no driver directory in the recording has the names of vector engines"}
"""Beginnings of names that only the oracle has, and why."""


def read_oracle(path):
    text = path.with_name(path.name.removesuffix(".tar.gz") + ".devices.json").read_text()
    return {entry["bus_id"]: entry for entry in json.loads(text)}


@pytest.mark.parametrize("path", RECORDED)
def test_all_functions_of_recordings_are_near_the_cpus_of_the_oracle(path):
    """This compares all PCI functions, not only devices, because the same rules apply to all."""
    oracle, machine = read_oracle(path), read_machine(str(path))
    root = ArchiveRoot(path.read_bytes(), path.name)
    functions = [function for function in read_functions(root) if function.address in oracle]
    assert len(functions) >= 2
    rows = [row for row in REASONS if row.recording == name_of(path)]
    for function in functions:
        reason = next((row for row in rows if function.address.startswith(row.functions)), None)
        near, expected = read_locality(root, function, machine).cpus, oracle[function.address]["near"]
        if reason:
            assert (near, expected) == (reason.near, reason.oracle), (function, reason.why)
        else:
            assert str(near) == expected, function


@pytest.mark.parametrize("path", RECORDED)
def test_devices_of_recordings_have_the_class_and_the_names_of_the_oracle(path):
    oracle = read_oracle(path)
    for device in read_machine(str(path), devices=True).devices:
        entry = oracle[device.address]
        names = {os_device["name"] for os_device in entry["os"]}
        assert device.pci_class == entry["class"]
        assert set(device.names) == {name for name in names if not name.startswith(tuple(UNNAMED))}


@pytest.mark.parametrize("path", RECORDED)
def test_relevant_functions_of_recordings_are_devices(path):
    """Network functions without a name are none: no driver uses them."""
    found = {device.address: device for device in read_machine(str(path), devices=True).devices}
    for address, entry in read_oracle(path).items():
        names = {os_device["name"] for os_device in entry["os"]}
        is_device = entry["class"].startswith(("03", "12", "0b40")) or (
            entry["class"].startswith(("02", "0c06")) and names
        )
        assert (address in found) == bool(is_device), (address, entry)
        if entry["class"] == "0300":
            assert found[address].kind is DeviceKind.DISPLAY


def test_a_recording_has_its_virtio_interface_although_its_function_has_no_directory_for_it():
    path = next((path for path in RECORDINGS if "pcidomain32bits" in path.name), None)
    if path is None:
        pytest.skip("no recordings: OMPTEST_TOPOLOGIES names their directory")
    (nic,) = (device for device in read_machine(str(path), devices=True).devices if device.kind == "nic")
    assert (nic.names, str(nic.cpus), nic.node) == (("ens3",), "0", 0)


@pytest.mark.parametrize("path", RECORDED)
def test_archives_and_directories_have_the_same_devices(path, tmp_path):
    subprocess.run(["tar", "-xzf", path, "-C", tmp_path], check=True)  # options of tarfile differ by version
    directory = next(tmp_path.glob("**/sys/devices")).parent.parent
    packed = read_machine(str(path), devices=True).devices
    assert packed == read_machine(str(directory), devices=True).devices
    (directory / "sys/bus").rename(directory / "bus-without-links")
    without_bus = read_machine(str(directory), devices=True).devices
    assert [d.address for d in without_bus] == [d.address for d in packed]
    if "fakepcilocalities" not in path.name:  # its function 0000:43:00.0 is below three bridges
        assert [d.cpus for d in without_bus] == [d.cpus for d in packed]


# Trees


def read(tree, tmp_path, **options):
    root = DirectoryRoot(str(tree.write(tmp_path / "root")))
    return read_devices(root, read_recorded(root), **options)


def test_gpus_have_the_uuid_and_the_file_of_their_driver(tmp_path):
    tree = DeviceTree(TWO_NODES)
    for number, (bus, node) in enumerate((("06", FIRST), ("c6", SECOND))):
        address = tree.add(f"0000:{bus}:00.0", "0302", local=node, node=number, names="drm/renderD128")
        tree.add_nvidia(address, UUID.format(number), 1 - number)
    first, second = read(tree, tmp_path)
    assert (first.name, first.uuid, first.cpus, first.node) == ("gpu:0", UUID.format(0), FIRST, 0)
    assert (second.name, second.uuid, second.cpus, second.node) == ("gpu:1", UUID.format(1), SECOND, 1)
    assert (first.names, first.product) == (("renderD128", "nvidia1"), "2335")


@pytest.mark.parametrize(
    "uuid",
    [
        "GPU-????????-????-????-????-????????????",
        "",
        "GPU-",
        "46f77619-68bf-8f9d-7cfb-61fa9c4ca692",
        "GPU-;ls",
    ],
)
def test_a_uuid_that_is_none_is_unknown(uuid, tmp_path):
    """The driver shows question marks until a program has used the GPU."""
    tree = DeviceTree(TWO_NODES)
    tree.add_nvidia(tree.add("0000:06:00.0", "0302", node=0), uuid, 0)
    (gpu,) = read(tree, tmp_path)
    assert (gpu.uuid, gpu.excluded) == ("", "")


def test_a_gpu_that_its_driver_excludes_is_excluded(tmp_path):
    tree = DeviceTree(TWO_NODES)
    for number, word in enumerate(("Yes", "No")):
        address = tree.add(f"0000:0{number}:00.0", "0302", node=0)
        tree.add_nvidia(address, UUID.format(number), number, **{"GPU Excluded": word})
    excluded, usable = read(tree, tmp_path)
    assert (excluded.address, excluded.excluded) == ("0000:00:00.0", "NVIDIA's driver excludes it")
    assert usable.excluded == ""


@pytest.mark.parametrize(
    ("pci_class", "vendor", "names", "kind"),
    [
        ("0300", "1a03", "drm/card0", "display"),
        ("0300", "102b", "", "display"),
        ("0300", "1002", "drm/card1 drm/renderD128", "gpu"),
        ("0302", "10de", "", "gpu"),
        ("0380", "1002", "", "gpu"),
        ("1200", "1002", "", "gpu"),
        ("1200", "1da3", "accel/accel0", "accelerator"),
        ("0b40", "8086", "", "accelerator"),
        ("0200", "8086", "net/eth0", "nic"),
        ("0207", "15b3", "infiniband/mlx5_0", "nic"),
        ("0c06", "1077", "infiniband/qib0", "nic"),
        ("0200", "8086", "", None),
        ("0600", "8086", "net/eth0", None),
        ("0108", "144d", "", None),
    ],
)
def test_class_vendor_and_names_decide_the_kind(pci_class, vendor, names, kind, tmp_path):
    tree = DeviceTree(TWO_NODES)
    tree.add("0000:06:00.0", pci_class, vendor, node=0, names=names)
    assert [device.kind for device in read(tree, tmp_path)] == ([kind] if kind else [])


def test_names_are_in_the_order_of_their_numbers_and_fit_into_variables(tmp_path):
    tree = DeviceTree(TWO_NODES)
    names = (
        "net/eth10 net/eth9 infiniband/mlx5_11 infiniband/mlx5_2 net/a,b net/\x1b[31m net/\xe4 net/"
        + "x" * 65
    )
    tree.add("0000:06:00.0", "0200", node=0, names=names)
    (nic,) = read(tree, tmp_path)
    assert nic.names == ("eth9", "eth10", "mlx5_2", "mlx5_11")
    assert nic.rdma_names == ("mlx5_2", "mlx5_11")


def test_domains_of_32_bits_are_read(tmp_path):
    tree = DeviceTree(TWO_NODES)
    tree.add("10000:00:04.0", "0200", names="net/eth1", node=1)
    tree.add("deadbeef:00:04.0", "0200", names="net/eth2", node=1)
    tree.add("0000:00:04.0", "0200", names="net/eth0", node=1)
    assert [(d.address, d.index) for d in read(tree, tmp_path)] == [
        ("0000:00:04.0", 0), ("10000:00:04.0", 1), ("deadbeef:00:04.0", 2),
    ]  # fmt: skip


# Locality

NODE_0, NODE_1, UNKNOWN = (FIRST, 0), (SECOND, 1), (EMPTY, None)
ALL = FIRST | SECOND
LAST_OF_0 = CpuSet((3,))


@pytest.mark.parametrize(
    ("node", "local", "bridge_node", "bridge_local", "near"),
    [
        (1, SECOND, -1, ALL, NODE_1),
        (1, None, None, None, NODE_1),
        (0, LAST_OF_0, None, None, (LAST_OF_0, 0)),
        (-1, ALL, -1, ALL, UNKNOWN),
        (-1, None, None, None, UNKNOWN),
        (None, None, None, None, UNKNOWN),
        (-1, ALL, 1, SECOND, NODE_1),
        (-1, EMPTY, -1, SECOND, NODE_1),
        (-1, FIRST, 1, SECOND, NODE_0),
        (-1, LAST_OF_0 | SECOND, 0, FIRST, (LAST_OF_0 | SECOND, None)),
        (0, SECOND, 0, FIRST, NODE_1),
        (1, ALL, 0, FIRST, NODE_1),
        (7, ALL, -1, ALL, UNKNOWN),
        (7, ALL, 1, ALL, NODE_1),
        (1, CpuSet((99,)), None, None, NODE_1),
    ],
    ids=str,
)
def test_files_of_a_function_or_of_its_bridges_decide_where_it_is(
    node, local, bridge_node, bridge_local, near, tmp_path
):
    tree = DeviceTree(TWO_NODES)
    tree.add("0000:00:01.0", "0604", node=bridge_node, local=bridge_local)
    tree.add("0000:00:01.0/0000:01:00.0", "0604", node=-1, local=ALL)
    tree.add("0000:00:01.0/0000:01:00.0/0000:02:00.0", "0302", node=node, local=local)
    (gpu,) = read(tree, tmp_path)
    assert (gpu.cpus, gpu.node) == near
    (tmp_path / "root/sys/bus").rename(tmp_path / "bus")  # the directories contain the bridges, too
    root = DirectoryRoot(str(tmp_path / "root"))
    assert read_devices(root, read_recorded(root)) == (gpu,)


def test_the_nearest_bridge_decides(tmp_path):
    tree = DeviceTree(TWO_NODES)
    tree.add("0000:00:01.0", "0604", node=0, local=FIRST)
    tree.add("0000:00:01.0/0000:01:00.0", "0604", node=1, local=SECOND)
    tree.add("0000:00:01.0/0000:01:00.0/0000:02:00.0", "0302", node=-1, local=ALL)
    (gpu,) = read(tree, tmp_path)
    assert (gpu.cpus, gpu.node) == NODE_1


@pytest.mark.parametrize(("node", "local"), [(-1, ALL), (-1, None), (None, None), (0, ALL), (3, ALL)])
def test_the_only_node_of_a_machine_is_near_all_devices(node, local, tmp_path):
    tree = DeviceTree(Shape(cores=8))
    tree.add("0000:02:00.0", "0302", node=node, local=local)
    (gpu,) = read(tree, tmp_path)
    assert (gpu.cpus, gpu.node) == (ALL, 0)


def test_a_device_at_a_node_without_cpus_is_near_the_nearest_node(tmp_path):
    tree = DeviceTree(TWO_NODES)
    directory = "sys/devices/system/node/node2"
    tree.files |= {f"{directory}/cpumap": "0\n", f"{directory}/distance": "30 20 10\n"}
    tree.files[f"{directory}/meminfo"] = "Node 2 MemTotal: 1048576 kB\n"
    tree.add("0000:02:00.0", "0302", node=2, local=EMPTY)
    (gpu,) = read(tree, tmp_path)
    assert (gpu.cpus, gpu.node) == NODE_1


# Virtual functions


@pytest.mark.parametrize(
    ("names", "driver", "usable"),
    [("net/eth0", "", False), ("", "vfio-pci", True), ("", "mlx5_core", True)],
)
def test_virtual_functions_count_if_their_physical_function_is_not_usable(names, driver, usable, tmp_path):
    tree = DeviceTree(TWO_NODES)
    physical = tree.add("0000:03:00.0", "0200", node=0, names=names, driver=driver)
    tree.add("0000:03:00.1", "0200", node=0, names="net/eth0v0", physical=physical)
    virtual = read(tree, tmp_path)[-1]
    assert (virtual.names, virtual.physical) == (("eth0v0",), physical)
    assert virtual.excluded == ("" if usable else f"virtual function of {physical}")


def test_a_gpu_for_virtual_machines_is_excluded_and_its_virtual_functions_are_not(tmp_path):
    tree = DeviceTree(TWO_NODES)
    physical = tree.add("0000:03:00.0", "0380", "8086", node=0, driver="vfio-pci")
    tree.add("0000:03:00.1", "0380", "8086", node=0, names="drm/renderD128", physical=physical)
    whole, virtual = read(tree, tmp_path)
    assert whole.excluded == "reserved by vfio-pci for a virtual machine"
    assert virtual.excluded == ""


# Partitions


@pytest.mark.parametrize("shift", [0, 28], ids=["function bits", "high bits"])
def test_kfd_nodes_of_one_function_are_partitions(shift, tmp_path):
    """Kernels before 6.9 write the number of the partition in the bits of the PCI function."""
    tree = DeviceTree(TWO_NODES)
    tree.add_kfd(0, cpu_cores_count=4, simd_count=0)
    tree.add_kfd(1, cpu_cores_count=4, simd_count=0)
    for socket in (0, 1):
        tree.add(f"000{socket}:02:00.0", "1200", "1002", node=socket, names="drm/card0 drm/renderD128")
        for part in range(3):
            number = socket * 3 + part
            location = 0x200 | part << shift
            tree.add_kfd(2 + number, simd_count=304, location_id=location, domain=socket,
                         unique_id=0xF00DF00DF00DF000 + number, drm_render_minor=128 + number)  # fmt: skip
    devices = read(tree, tmp_path)
    assert [(d.name, d.address[:4], d.partition, d.ordinal, d.node) for d in devices] == [
        (f"gpu:{number}", f"000{number // 3}", number % 3, number, number // 3) for number in range(6)
    ]
    assert [device.uuid for device in devices] == [f"GPU-f00df00df00df00{number}" for number in range(6)]
    assert [device.names for device in devices] == [(f"renderD{128 + number}",) for number in range(6)]


def test_an_identifier_of_several_partitions_identifies_none(tmp_path):
    tree = DeviceTree(TWO_NODES)
    tree.add("0000:02:00.0", "1200", "1002", node=0)
    for part in range(2):
        tree.add_kfd(part, simd_count=304, location_id=0x200, unique_id=1 << 63)
    assert [(d.partition, d.uuid, d.ordinal) for d in read(tree, tmp_path)] == [(0, "", 0), (1, "", 1)]


def test_the_order_of_kfd_decides_the_device_order(tmp_path):
    tree = DeviceTree(TWO_NODES)
    for node, bus in enumerate((0xC1, 0x01, 0x41)):
        tree.add(f"0000:{bus:02x}:00.0", "0380", "1002", node=0, names="drm/card0 drm/renderD128")
        tree.add_kfd(node + 4, simd_count=440, location_id=bus << 8, unique_id=node + 1)
    devices = read(tree, tmp_path)
    assert [device.address[5:7] for device in devices] == ["c1", "01", "41"]
    assert devices[0].uuid == "GPU-0000000000000001"
    assert devices[0].names == ("card0", "renderD128")


def add_mig(tree, version):
    address = tree.add("0000:06:00.0", "0302", node=1)
    tree.add_nvidia(address, UUID.format(0), 3)
    tree.files["proc/driver/nvidia/version"] = (
        f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Tue\n"
    )
    for minor, path in ((30, "gi1"), (31, "gi1/ci0"), (39, "gi2"), (40, "gi2/ci0"), (41, "gi2/ci1")):
        text = f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
        tree.files[f"proc/driver/nvidia/capabilities/gpu3/mig/{path}/access"] = text


def test_mig_instances_are_partitions(tmp_path):
    tree = DeviceTree(TWO_NODES)
    add_mig(tree, "460.91.03")
    devices = read(tree, tmp_path)
    assert [device.uuid for device in devices] == [
        f"MIG-{UUID.format(0)}/{instance}" for instance in ("1/0", "2/0", "2/1")
    ]
    assert [device.names for device in devices] == [(f"nvidia-cap{n}", "nvidia3") for n in (31, 40, 41)]
    assert [(d.partition, d.node, d.ordinal, d.excluded) for d in devices] == [
        (n, 1, None, "") for n in range(3)
    ]


@pytest.mark.parametrize("version", ["470.57.02", "550.54.14", "garbage"])
def test_the_own_uuids_of_mig_instances_are_unknown(version, tmp_path):
    tree = DeviceTree(TWO_NODES)
    add_mig(tree, version)
    for device in read(tree, tmp_path):
        assert device.uuid == device.excluded == ""


def test_an_archive_has_the_devices_of_its_directory(tmp_path):
    """Names are empty directories here, and a function is found through links."""
    tree = DeviceTree(TWO_NODES)
    add_mig(tree, "460.91.03")
    physical = tree.add("0000:00:01.0/0000:03:00.0", "0200", node=0, names="net/eth0 infiniband/mlx5_0")
    tree.add(
        "0000:00:01.0/0000:03:00.1", "0200", node=0, names="net/eth1", physical=physical, driver="mlx5_core"
    )
    tree.add("0000:02:00.0", "1200", "1002", node=0)
    for part in range(2):
        tree.add_kfd(part, simd_count=304, location_id=0x200, unique_id=part + 1)
    devices = read(tree, tmp_path)
    with tarfile.open(tmp_path / "root.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "root", arcname="root")
    assert read_machine(str(tmp_path / "root.tar.gz"), devices=True).devices == devices
    assert [(device.kind, device.physical) for device in devices[-2:]] == [("nic", ""), ("nic", physical)]
    assert len(devices) == 7


# Access


def make_device_files(directory, names):
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).touch()
    return str(directory)


@pytest.mark.parametrize(
    ("vendor", "files", "missing"),
    [
        ("10de", "nvidiactl nvidia0", ""),
        ("10de", "nvidiactl nvidia1 dri/renderD128", "nvidia0"),
        ("10de", "nvidia0", "nvidiactl"),
        ("1002", "kfd dri/renderD128", ""),
        ("1002", "dri/renderD128", "kfd"),
        ("1002", "kfd dri/renderD129", "dri/renderD128"),
        ("8086", "dri/renderD128", ""),
        ("8086", "", "dri/renderD128"),
    ],
)
def test_a_gpu_without_its_device_files_is_excluded(vendor, files, missing, tmp_path):
    tree = DeviceTree(TWO_NODES)
    address = tree.add("0000:06:00.0", "0380", vendor, node=0, names="drm/card0 drm/renderD128")
    if vendor == "10de":
        tree.add_nvidia(address, UUID.format(0), 0)
    if vendor == "1002":
        tree.add_kfd(1, simd_count=304, location_id=0x600)
    directory = make_device_files(tmp_path / "dev", files.split())
    (gpu,) = read(tree, tmp_path, device_files=directory)
    assert gpu.excluded == (f"{directory}/{missing} does not exist" if missing else "")


@pytest.mark.parametrize(
    ("mounts", "files", "reason"),
    [
        ("/dev devtmpfs", "", ""),
        ("/dev devtmpfs", "nvidiactl nvidia1", ""),
        ("/dev tmpfs", "", "nvidiactl does not exist"),
        ("/dev devtmpfs /dev tmpfs", "", "nvidiactl does not exist"),
        ("/dev/shm devtmpfs", "", "nvidiactl does not exist"),
        ("/dev tmpfs", "nvidiactl nvidia1", "nvidia0 does not exist"),
        ("", "", "nvidiactl does not exist"),
    ],
)
def test_missing_files_of_nvidia_exclude_a_gpu_only_in_a_container(mounts, files, reason, tmp_path):
    """On a host, the first program that uses a GPU makes them; the last mount of a directory counts."""
    tree = DeviceTree(TWO_NODES)
    tree.add_nvidia(tree.add("0000:06:00.0", "0302", node=0), UUID.format(0), 0)
    tree.add("0000:07:00.0", "0380", "1002", node=0, names="drm/renderD128")
    directory = make_device_files(tmp_path / "dev", files.split())
    words = mounts.replace("/dev", directory).split()
    tree.files["proc/self/mountinfo"] = "".join(
        f"{number} 1 0:6 / {where} rw,relatime shared:2 - {kind} udev rw\n"
        for number, (where, kind) in enumerate(zip(words[::2], words[1::2], strict=True))
    )
    nvidia, amd = read(tree, tmp_path, device_files=directory)
    assert nvidia.excluded == (f"{directory}/{reason}" if reason else "")
    assert amd.excluded == f"{directory}/dri/renderD128 does not exist"  # the kernel makes this file


def test_a_gpu_without_a_driver_is_excluded_on_this_machine_only(tmp_path):
    tree = DeviceTree(TWO_NODES)
    tree.add("0000:06:00.0", "0302", node=0)
    (gpu,) = read(tree, tmp_path, device_files=str(tmp_path))
    assert gpu.excluded == "no driver that computes uses it"
    root = DirectoryRoot(str(tmp_path / "root"))
    assert read_devices(root, read_recorded(root))[0].excluded == ""


# Untrusted recordings

WORDS = st.sampled_from(
    ["", "0x", "0x030200", "0x10de", "-1", "0", "99999999999999999999", "ff", "ffffffff,ffffffff",
     "0-3", "1-0", "\0", "GPU-", "Device Minor: 0", "GPU UUID: GPU-1", "simd_count 1\nlocation_id 512",
     "simd_count x", "unique_id 18446744073709551616\nsimd_count 4", "domain 99999999999\nsimd_count 4",
     "é", "0xg"]
)  # fmt: skip


@examples(3)
@given(st.data())
def test_garbage_in_files_and_links_is_no_error(data):
    tree = DeviceTree(TWO_NODES)
    address = tree.add("0000:00:01.0/0000:06:00.0", "0302", node=0, local=FIRST, names="drm/renderD128")
    tree.add_nvidia(address, UUID.format(0), 0)
    tree.add("0000:02:00.0", "1200", "1002", node=0)
    tree.add_kfd(1, simd_count=304, location_id=0x200, unique_id=7)
    files = {path.replace("sys/devices/pci0000:06/0000:00:01.0/", f"{BUS}/"): text
             for path, text in tree.files.items()}  # fmt: skip
    changed = sorted(path for path in files if "pci" in path or "nvidia" in path or "kfd" in path)
    for path in data.draw(st.lists(st.sampled_from(changed), max_size=6)):
        files[path] = data.draw(st.one_of(WORDS, st.text(max_size=9)))
    links = dict(tree.links)
    for path in data.draw(st.lists(st.sampled_from(sorted(links)), max_size=2)):
        links[path] = data.draw(st.text("/.:0123ab", max_size=30))
    name = data.draw(st.text("/.:0123abxyz", max_size=14))
    files[f"{BUS}/{name}/class"] = "0x030200"
    root = DictRoot(files, links)
    machine = read_recorded(root)
    for device in read_devices(root, machine):
        assert device.cpus <= machine.online
        assert not device.cpus or device.node in (0, 1, None)


@examples(0.5)
@given(st.lists(st.text("/.:0129afgz", max_size=20), max_size=5))
def test_garbage_in_the_names_of_functions_is_no_error(names):
    root = DictRoot({**DeviceTree(TWO_NODES).files, **{f"{BUS}/{name}/class": "0x030200" for name in names}})
    read_devices(root, read_recorded(root))


def test_links_in_a_loop_and_out_of_the_tree_are_no_error(tmp_path):
    tree = DeviceTree(TWO_NODES)
    tree.links |= {
        f"{BUS}/0000:00:0{n}.0": target for n, target in enumerate(("0000:00:00.0", "/etc", "../../.."))
    }
    tree.links["sys/class/net/eth0"] = "eth0"
    tree.links["sys/class/drm/card0"] = "../../devices/pci0000:00/0000:00:02.0/drm/card0"
    assert read(tree, tmp_path) == ()
