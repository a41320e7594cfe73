"""Reading devices of trees written for the test; test_recorded.py compares those of real machines."""

import pytest

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.machine.devices import find_kind, find_ordinal
from ompbind.machine.read.linux import read_recorded
from ompbind.machine.read.linux_devices import read_devices
from ompbind.machine.read.root import DirectoryRoot
from tests.device_trees import BUS, DeviceTree
from tests.machines import Shape
from tests.tables import rows

TWO_NODES = Shape(packages=2, cores=4)
FIRST, SECOND = CpuSet(range(4)), CpuSet(range(4, 8))
UUID = "GPU-46f77619-68bf-8f9d-7cfb-61fa9c4ca69{}"


@pytest.fixture
def tree():
    return DeviceTree(TWO_NODES)


@pytest.fixture
def read(tree, tmp_path):
    """Write the tree and read its devices."""

    def read_tree(**options):
        root = DirectoryRoot(str(tree.write(tmp_path / "root")))
        return read_devices(root, read_recorded(root), **options)

    return read_tree


def test_gpus_have_the_uuid_and_the_file_of_their_driver(tree, read):
    """The driver shows question marks until a program has used the GPU."""
    for number, (bus, node) in enumerate((("06", FIRST), ("c6", SECOND))):
        address = tree.add(f"0000:{bus}:00.0", "0302", local=node, node=number, names="drm/renderD128")
        tree.add_nvidia(address, UUID.format(number), 1 - number, **{"GPU Excluded": ("No", "Yes")[number]})
    odd = ("GPU-????????-????-????-????-????????????", "", "GPU-", UUID[4:].format(0), "GPU-;ls")
    for number, uuid in enumerate(odd):
        tree.add_nvidia(tree.add(f"0000:e{number}:00.0", "0302", node=0), uuid, number + 2)
    first, second, *others = read()
    assert (first.name, first.uuid, first.cpus, first.node) == ("gpu:0", UUID.format(0), FIRST, 0)
    assert (second.name, second.uuid, second.cpus, second.node) == ("gpu:1", UUID.format(1), SECOND, 1)
    assert (first.names, first.product) == (("renderD128", "nvidia1"), "2335")
    assert (first.excluded, second.excluded) == ("", "NVIDIA's driver excludes it")
    assert {(gpu.uuid, gpu.excluded) for gpu in others} == {("", "")}


@pytest.mark.parametrize(("pci_class", "vendor", "names", "kind"), rows("""
    0302 | 10de |                     | gpu
    0300 | 10de | card0 renderD128    | gpu
    0300 | 10de | nvml3 cuda0         | gpu 0
    0300 | 1002 | opencl0d7 rsmi12    | gpu 12
    0300 | 1002 | opencl0d1           | gpu
    1200 | 1da3 | accel0              | accelerator
    0b40 | 1bcf | cuda rsmi           | accelerator
    0300 | 1a03 | card0 controlD64    | display
    0300 | 102b |                     | display
    0207 | 15b3 | mlx5_0              | nic
    0c06 | 1077 | qib0                | nic
    0207 | 15b3 |                     |
    0600 | 8086 | eth0                |
    0108 | 144d | nvme0n1             |
"""))  # fmt: skip
def test_class_vendor_and_names_decide_kind_and_ordinal(pci_class, vendor, names, kind):
    found = (find_kind(pci_class, vendor, names.split()), find_ordinal(tuple(names.split())))
    assert " ".join(str(fact) for fact in found if fact is not None) == kind
    assert find_kind("0300", "10de", is_driven=True) == "gpu"


def test_names_are_in_the_order_of_their_numbers_and_fit_into_variables(tree, read):
    names = "net/eth10 net/eth9 infiniband/mlx5_11 infiniband/mlx5_2 net/a,b net/\x1b[31m net/\xe4"
    tree.add("0000:06:00.0", "0200", node=0, names=f"{names} net/{'x' * 65}")
    for domain in ("10000", "deadbeef"):  # domains of 32 bits
        tree.add(f"{domain}:00:04.0", "0200", names=f"net/eth{domain}", node=1)
    nic, *others = read()
    assert nic.names == ("eth9", "eth10", "mlx5_2", "mlx5_11")
    assert nic.rdma_names == ("mlx5_2", "mlx5_11")
    assert [(d.address, d.index) for d in others] == [("10000:00:04.0", 1), ("deadbeef:00:04.0", 2)]


CPUS = {"first": FIRST, "second": SECOND, "all": FIRST | SECOND, "3": CpuSet((3,)), "none": EMPTY,
        "3,second": CpuSet((3,)) | SECOND, "99": CpuSet((99,)), "-": None}  # fmt: skip


@pytest.mark.parametrize(("own", "bridge", "cpus", "at"), rows("""
    1 -         | - -       | second   | 1
    0 3         | - -       | 3        | 0
    -1 all      | -1 all    | none     | -
    -1 all      | 1 second  | second   | 1
    -1 none     | -1 second | second   | 1
    -1 first    | 1 second  | first    | 0
    -1 3,second | 0 first   | 3,second | -
    1 all       | 0 first   | second   | 1
    7 all       | 1 all     | second   | 1
    1 99        | - -       | second   | 1
"""))  # fmt: skip
def test_files_of_a_function_or_its_bridges_decide_where_it_is(tree, read, tmp_path, own, bridge, cpus, at):
    path = "0000:00:01.0/0000:01:00.0/0000:02:00.0"
    tree.add("0000:00:01.0/0000:01:00.0", "0604", node=-1, local=CPUS["all"])
    for function, pci_class, words in ((path, "0302", own), ("0000:00:01.0", "0604", bridge)):
        node, local = words.split()
        tree.add(function, pci_class, node=None if node == "-" else node, local=CPUS[local])
    (gpu,) = read()
    assert (gpu.cpus, str(gpu.node)) == (CPUS[cpus], at.replace("-", "None"))
    (tmp_path / "root/sys/bus").rename(tmp_path / "bus")  # the directories contain the bridges, too
    root = DirectoryRoot(str(tmp_path / "root"))
    assert read_devices(root, read_recorded(root)) == (gpu,)


def test_the_nearest_bridge_decides_and_a_node_without_cpus_is_near_another(tree, read):
    tree.add("0000:00:01.0", "0604", node=0, local=FIRST)
    tree.add("0000:00:01.0/0000:01:00.0", "0604", node=1, local=SECOND)
    tree.add("0000:00:01.0/0000:01:00.0/0000:02:00.0", "0302", node=-1, local=CPUS["all"])
    directory = "sys/devices/system/node/node2"
    tree.files |= {f"{directory}/cpumap": "0\n", f"{directory}/distance": "30 20 10\n"}
    tree.files[f"{directory}/meminfo"] = "Node 2 MemTotal: 1048576 kB\n"
    tree.add("0000:03:00.0", "0302", node=2, local=EMPTY)
    assert [(gpu.cpus, gpu.node) for gpu in read()] == [(SECOND, 1)] * 2


def test_the_only_node_of_a_machine_is_near_all_devices(tmp_path):
    tree = DeviceTree(Shape(cores=8))
    pairs = ((-1, CPUS["all"]), (-1, None), (None, None), (0, CPUS["all"]), (3, CPUS["all"]))
    for number, (node, local) in enumerate(pairs):
        tree.add(f"0000:0{number}:00.0", "0302", node=node, local=local)
    root = DirectoryRoot(str(tree.write(tmp_path)))
    found = read_devices(root, read_recorded(root))
    assert [(gpu.cpus, gpu.node) for gpu in found] == [(CPUS["all"], 0)] * 5


@pytest.mark.parametrize(("pci_class", "names", "driver", "excluded"), [
    ("0200", "net/eth0", "", ["", "virtual function of 0000:03:00.0"]),
    ("0200", "", "vfio-pci", [""]), ("0200", "", "mlx5_core", [""]),
    ("0380", "", "vfio-pci", ["reserved by vfio-pci for a virtual machine", ""]),
])  # fmt: skip
def test_virtual_functions_count_if_the_physical_one_does_not(tree, read, pci_class, names, driver, excluded):
    physical = tree.add("0000:03:00.0", pci_class, "8086", node=0, names=names, driver=driver)
    tree.add("0000:03:00.1", pci_class, "8086", node=0, names="net/eth0v0", physical=physical)
    devices = read()
    assert [device.excluded for device in devices] == excluded
    assert (devices[-1].names, devices[-1].physical) == (("eth0v0",), physical)


@pytest.mark.parametrize("shift", [0, 28], ids=["function bits", "high bits"])
def test_kfd_nodes_decide_the_order_of_devices_and_those_of_one_function_are_partitions(tree, read, shift):
    """Kernels before 6.9 write the number of the partition in the bits of the PCI function."""
    for node in (0, 1):
        tree.add_kfd(node, cpu_cores_count=4, simd_count=0)
    places = [(socket, part) for socket in (1, 0) for part in range(3)]
    for number, (socket, part) in enumerate(places):
        if not part:
            tree.add(f"000{socket}:02:00.0", "1200", "1002", node=socket, names="drm/card0 drm/renderD128")
        tree.add_kfd(2 + number, simd_count=304, location_id=0x200 | part << shift, domain=socket,
                     unique_id=0xF00DF00DF00DF000 + number, drm_render_minor=128 + number)  # fmt: skip
    tree.add("0000:01:00.0", "0380", "1002", node=0, names="drm/card0 drm/renderD140")
    tree.add_kfd(8, simd_count=440, location_id=0x100, unique_id=1, drm_render_minor=140)
    *parts, whole = read()
    assert [(d.name, d.address[:4], d.partition, d.ordinal, d.node, d.uuid, d.names) for d in parts] == [
        (f"gpu:{n}", f"000{socket}", part, n, socket, f"GPU-f00df00df00df00{n}", (f"renderD{128 + n}",))
        for n, (socket, part) in enumerate(places)
    ]
    assert (whole.uuid, whole.names) == ("GPU-0000000000000001", ("card0", "renderD140"))


@pytest.mark.parametrize("version", ["460.91.03", "470.57.02", "550.54.14", "garbage"])
def test_mig_instances_are_partitions(tree, read, version):
    """Later drivers give them UUIDs of their own, which are unknown."""
    tree.add_nvidia(tree.add("0000:06:00.0", "0302", node=1), UUID.format(0), 3)
    text = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Tue\n"
    tree.files["proc/driver/nvidia/version"] = text
    for minor, path in ((30, "gi1"), (31, "gi1/ci0"), (39, "gi2"), (40, "gi2/ci0"), (41, "gi2/ci1")):
        text = f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
        tree.files[f"proc/driver/nvidia/capabilities/gpu3/mig/{path}/access"] = text
    names = [f"MIG-{UUID.format(0)}/{instance}" for instance in ("1/0", "2/0", "2/1")]
    assert [(d.partition, d.node, d.ordinal, d.excluded, d.names, d.uuid) for d in read()] == [
        (n, 1, None, "", (f"nvidia-cap{cap}", "nvidia3"), names[n] if version == "460.91.03" else "")
        for n, cap in enumerate((31, 40, 41))
    ]


@pytest.mark.parametrize(("vendor", "mounts", "files", "missing"), rows("""
    10de |                         | nvidiactl nvidia0                 |
    10de |                         | nvidiactl nvidia1 dri/renderD128  | nvidia0
    10de |                         | nvidia0                           | nvidiactl
    1002 |                         | kfd dri/renderD128                |
    1002 |                         | dri/renderD128                    | kfd
    8086 |                         | dri/renderD128                    |
    8086 |                         |                                   | dri/renderD128
    10de | /dev devtmpfs           |                                   |
    10de | /dev devtmpfs           | nvidiactl nvidia1                 |
    10de | /dev devtmpfs /dev tmpfs |                                  | nvidiactl
    10de | /dev/shm devtmpfs       |                                   | nvidiactl
    10de | /dev tmpfs              | nvidiactl nvidia1                 | nvidia0
"""))  # fmt: skip
def test_a_gpu_without_its_device_files_is_excluded(tree, read, tmp_path, vendor, mounts, files, missing):
    """On a host, the first program that uses a GPU of NVIDIA makes them; the last mount of /dev counts."""
    address = tree.add("0000:06:00.0", "0380", vendor, node=0, names="drm/card0 drm/renderD128")
    if vendor == "10de":
        tree.add_nvidia(address, UUID.format(0), 0)
    if vendor == "1002":
        tree.add_kfd(1, simd_count=304, location_id=0x600)
    directory = tmp_path / "dev"
    for name in ("", *files.split()):
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.touch() if name else path.mkdir()
    words = mounts.replace("/dev", str(directory)).split()
    tree.files["proc/self/mountinfo"] = "".join(
        f"{number} 1 0:6 / {where} rw,relatime shared:2 - {kind} udev rw\n"
        for number, (where, kind) in enumerate(zip(words[::2], words[1::2], strict=True))
    )
    (gpu,) = read(device_files=str(directory))
    assert gpu.excluded == (f"{directory}/{missing} does not exist" if missing else "")


def test_a_gpu_without_a_driver_is_excluded_on_this_machine_only(tree, read, tmp_path):
    tree.add("0000:06:00.0", "0302", node=0)
    (gpu,) = read(device_files=str(tmp_path))
    assert gpu.excluded == "no driver that computes uses it"
    root = DirectoryRoot(str(tmp_path / "root"))
    assert read_devices(root, read_recorded(root))[0].excluded == ""


def test_links_in_a_loop_and_out_of_the_tree_are_no_error(tree, read):
    targets = enumerate(("0000:00:00.0", "/etc", "../../.."))
    tree.links |= {"sys/class/net/eth0": "eth0", **{f"{BUS}/0000:00:0{n}.0": target for n, target in targets}}
    assert read() == ()
