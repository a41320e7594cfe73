"""All readers on arbitrary input: the result is a machine that can be planned for, or a MachineError."""

import gzip
import io
import json
import re
import tarfile

from hypothesis import given
from hypothesis import strategies as st

from ompbind.cli.topo import render_json, render_listing, render_tree
from ompbind.cpuset import CpuSet
from ompbind.errors import MachineError, OmpbindError
from ompbind.machine.read import read_machine
from ompbind.machine.read.linux import read_recorded
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request, Sharing
from ompbind.report.picture import render_machine_svg
from tests.device_trees import BUS, DeviceTree
from tests.long import examples
from tests.machine.read.test_sources import DEVICE, GPU, MINIMAL, NEW, V1, V2, node, summary
from tests.machines import DictRoot, Shape, shape_files


def check(read, *args):
    """Read a machine; make a plan for it and render it."""
    try:
        machine = read(*args)
    except MachineError as error:
        assert error.message
        return
    assert machine.allowed
    assert machine.allowed <= machine.online
    assert all(device.cpus <= machine.online for device in machine.devices)
    assert {device.node for device in machine.devices} <= {None, *(node.number for node in machine.nodes)}
    try:
        make_plan(machine, Request(ranks=2, sharing=Sharing.SHARE, smt="all"))
    except OmpbindError as error:
        assert error.message
    render_tree(machine)
    render_listing(machine)
    render_machine_svg(machine)
    assert json.loads(render_json(machine))["online"] == str(machine.online)


def check_file(directory, content):
    path = directory.getbasetemp() / "fuzzed"
    path.write_bytes(content)
    check(lambda: read_machine(str(path), devices=True))


PIECES = [b"0x", b"-", b"0", b"\xff", b'"', b"<", b"9" * 11, b"9" * 5000, b"0xf...f", b"null", b"{"]


def mutate(data, whole):
    """Cut, repeat, replace and insert pieces of a text."""
    text = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 40))
        copied = bytes(text[at : at + length])
        piece = data.draw(st.one_of(st.binary(max_size=8), st.sampled_from(PIECES), st.just(copied)))
        text[at : at + data.draw(st.integers(0, length))] = piece
    return bytes(text)


def packed_tree():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, text in shape_files(Shape(cores=2)).items():
            member = tarfile.TarInfo(f"m/{path}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
        link = tarfile.TarInfo("m/sys/devices/system/cpu/cpu0/cpufreq")
        link.type, link.linkname = tarfile.SYMTYPE, "../cpufreq/policy0"
        archive.addfile(link)
    return buffer.getvalue()


def tree_with_devices():
    """The files and links of a machine with two GPUs; each file is below its link in the bus's directory."""
    tree = DeviceTree(Shape(packages=2, cores=2, smt=2))
    address = tree.add("0000:06:00.0", "0302", node=0, local=CpuSet(range(2)), names="drm/renderD128")
    tree.add_nvidia(address, "GPU-46f77619-68bf-8f9d-7cfb-61fa9c4ca690", 0)
    tree.add("0000:02:00.0", "1200", "1002", node=0)
    tree.add_kfd(1, simd_count=304, location_id=0x200, unique_id=7)
    return {re.sub("sys/devices/pci[^/]*", BUS, path): text for path, text in tree.files.items()}, tree.links


TREE, LINKS = tree_with_devices()
PACKED = packed_tree()
WITH_DEVICES = f'<topology version="2.0"><object type="Machine">{node(0)}{node(1, GPU)}</object></topology>'
SAMPLES = [
    b"", PACKED, V1.encode(), V2.encode(), WITH_DEVICES.encode(),
    json.dumps({**MINIMAL, "devices": [DEVICE]}).encode(), json.dumps(NEW).encode(),
    json.dumps({"lscpu": summary(1)}).encode(), render_json(read_recorded(DictRoot(TREE))).encode(),
]  # fmt: skip


@examples(3)
@given(data=st.data(), sample=st.sampled_from(SAMPLES))
def test_files_with_faults(tmp_path_factory, data, sample):
    damaged = mutate(data, sample)
    check_file(tmp_path_factory, damaged)
    if sample == PACKED:
        check_file(tmp_path_factory, gzip.compress(damaged))
        packed = gzip.compress(sample)
        check_file(tmp_path_factory, packed[: data.draw(st.integers(0, len(packed)))])


WORDS = "pack: numa: core: pu: l3: die: group: [numa] ( ) indexes= memory= , : * = 1GB 2 3 0 99"
STEPS = st.tuples(st.sampled_from(["pack", "numa", "l3", "core", "group"]), st.integers(1, 3))
INDEXES = st.sampled_from(["", "(indexes=core)", "(indexes=2*2:1*2)", "(indexes=1*2:2*1)"])


@given(
    st.lists(st.sampled_from([*WORDS.split(), " "]), max_size=16),
    st.lists(STEPS, max_size=4, unique_by=lambda step: step[0]),
    INDEXES,
)
def test_any_description(pieces, steps, indexes):
    check(read_machine, "synthetic:" + "".join(pieces))
    nearly_right = " ".join(f"{name}:{count}" for name, count in steps)
    check(read_machine, f"synthetic:{nearly_right} pu:2{indexes}")


EXTRA = """devices/system/cpu/isolated devices/system/cpu/nohz_full devices/system/cpu/cpu0/cpu_capacity
    devices/system/cpu/cpu3/cpu_capacity devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq
    devices/system/cpu/cpu1/online devices/system/cpu/cpu0/topology/die_cpus
    devices/system/cpu/cpu0/topology/cluster_cpus devices/system/cpu/cpu0/topology/core_id
    devices/system/node/node7/meminfo devices/system/node/node1/access1/initiators/node0/x
    devices/cpu_core/cpus ../proc/self/cgroup ../proc/mounts ../proc/self/mountinfo ../proc/self/cpuset
    ../proc/cpuinfo ../proc/meminfo ../c/cpu.max ../c/cpuset.cpus ../proc/driver/nvidia/gpus/0/numa_status"""
PATHS = [*sorted(TREE), *(f"sys/{path}".replace("sys/../", "") for path in EXTRA.split())]
DEVICE_PATHS = [path for path in sorted(TREE) if "pci" in path or "nvidia" in path or "kfd" in path]
TEXTS = st.text(alphabet="0123456789,-abcdef \n\0(nul):", max_size=14) | st.sampled_from(
    ["0-7", "ffffffff", "0", "", "65535", "-1", "cgroup2 /c cgroup2 rw 0 0\n", "0::/a\n", "Node: 1", "é",
     "0x", "0xg", "0x030200", "0x10de", "9" * 20, "1-0", "GPU-", "Device Minor: 0", "GPU UUID: GPU-1",
     "simd_count 1\nlocation_id 512", "simd_count x", "unique_id 18446744073709551616\nsimd_count 4",
     "domain 99999999999\nsimd_count 4"]
)  # fmt: skip


@examples(5)
@given(
    st.dictionaries(st.sampled_from(PATHS) | st.sampled_from(DEVICE_PATHS), st.none() | TEXTS, max_size=8),
    st.dictionaries(st.sampled_from(sorted(LINKS)), st.text("/.:0123ab", max_size=30), max_size=2),
    st.lists(st.text("/.:0123abgxyz", max_size=20), max_size=5),
)
def test_trees_with_faults(changed, links, functions):
    """Texts of files, targets of links, and names of functions are wrong."""
    added = {f"{BUS}/{name}/class": "0x030200" for name in functions}
    files = {path: text for path, text in {**TREE, **added, **changed}.items() if text is not None}
    check(lambda: read_recorded(DictRoot(files, {**LINKS, **links}), devices=True))
