"""Readers of machines, on trees written for the test: sysfs, cgroups, archives, other systems."""

import bz2
import gzip
import io
import lzma
import os
import tarfile
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.errors import MachineError
from ompbind.machine.model import Level
from ompbind.machine.sources import archive as archive_module
from ompbind.machine.sources.archive import ArchiveRoot
from ompbind.machine.sources.linux.cgroup import Throttling, read_limits, read_oom_kills, read_throttling
from ompbind.machine.sources.linux.reader import make_counted_machine, read_recorded
from ompbind.machine.sources.reading import read_machine
from ompbind.machine.sources.root import DirectoryRoot
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from tests.long import examples
from tests.machines import DictRoot, Shape, kernel_mask, make_machine, shape_files, write_tree

SHAPES = [
    Shape(packages=packages, nodes=nodes, l3s=2, cores=2, smt=smt, numbering=numbering)
    for packages in (1, 2, 4)
    for nodes in (1, 2)
    for smt in (1, 2, 8)
    for numbering in ("adjacent", "split", "round-robin")
]


def extents(machine, level):
    return [domain.cpus for domain in machine.at(level)]


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_plain_machines_have_the_written_domains(shape):
    machine = read_recorded(DictRoot(shape_files(shape)))
    expected = make_machine(shape)
    assert (machine.online, machine.allowed) == (expected.online, expected.online)
    for level in (Level.PACKAGE, Level.NODE, Level.L3, Level.CORE):
        assert extents(machine, level) == extents(expected, level)
    assert [(node.number, node.cpus, node.memory_bytes) for node in machine.nodes] == [
        (node.number, node.cpus, 1 << 30) for node in expected.nodes
    ]
    for ranks in (1, 2, 3):
        assert str(make_plan(machine, Request(ranks=ranks))) == str(make_plan(expected, Request(ranks=ranks)))


@pytest.mark.parametrize(
    "shape", [shape for shape in SHAPES if shape.smt == 2 and shape.packages == 2], ids=repr
)
def test_a_directory_is_read_like_the_files_in_it(tmp_path, shape):
    machine = read_machine(str(write_tree(tmp_path, shape)))
    assert machine.replace(source="") == read_recorded(DictRoot(shape_files(shape))).replace(source="")


CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"


def test_offline_and_absent_cpus_are_in_no_domain(tmp_path):
    files = {f"{CPU}/online": "0-2,5-7\n", f"{CPU}/present": "0-7\n"}
    machine = read_machine(str(write_tree(tmp_path, Shape(cores=4, smt=2), files)))
    assert (str(machine.online), str(machine.offline)) == ("0-2,5-7", "3-4")
    assert [str(cpus) for cpus in extents(machine, Level.CORE)] == ["0", "1,5", "2,6", "7"]


def test_online_cpus_are_read_one_by_one_on_old_kernels(tmp_path):
    root = write_tree(tmp_path, Shape(cores=4), {f"{CPU}/cpu2/online": "0\n"})
    (root / CPU / "online").unlink()
    (root / CPU / "present").unlink()
    machine = read_machine(str(root))
    assert (str(machine.online), str(machine.offline)) == ("0-1,3", "2")


def test_names_of_old_kernels_and_lists_alone_are_enough(tmp_path):
    shape = Shape(packages=2, cores=2, smt=2)
    expected = make_machine(shape)
    tree = write_tree(tmp_path, shape)
    for cpu in range(8):
        directory = tree / CPU / f"cpu{cpu}/topology"
        (directory / "core_cpus").rename(directory / "thread_siblings")
        (directory / "package_cpus").rename(directory / "core_siblings")
        (directory / "core_cpus_list").unlink()
        for index in (1, 2):
            cache = tree / CPU / f"cpu{cpu}/cache/index{index}"
            cpus = CpuSet.from_mask((cache / "shared_cpu_map").read_text())
            (cache / "shared_cpu_map").unlink()
            (cache / "shared_cpu_list").write_text(f"{cpus}\n")
    machine = read_machine(str(tree))
    for level in (Level.PACKAGE, Level.L3, Level.CORE):
        assert extents(machine, level) == extents(expected, level)


def test_levels_that_repeat_others_are_dropped(tmp_path):
    shape = Shape(packages=2, cores=4, smt=2)
    parts = shape.partitions()
    files = {}
    for cpu in range(16):
        core = next(cpus for cpus in parts[Level.CORE] if cpu in cpus)
        package = next(cpus for cpus in parts[Level.PACKAGE] if cpu in cpus)
        directory = f"{CPU}/cpu{cpu}/topology"
        files |= {
            f"{directory}/die_cpus": kernel_mask(package),
            f"{directory}/die_id": "-1",
            f"{directory}/cluster_cpus": kernel_mask(core),
            f"{directory}/book_siblings": kernel_mask(package),
            f"{directory}/book_id": "7",
        }
    machine = read_machine(str(write_tree(tmp_path, shape, files)))
    assert machine.at(Level.DIE) == machine.at(Level.CLUSTER) == ()
    assert [(book.cpus, book.os_id) for book in machine.at(Level.BOOK)] == [
        (cpus, 7) for cpus in parts[Level.PACKAGE]
    ]


def test_instruction_caches_are_ignored(tmp_path):
    files = {f"{CPU}/cpu{cpu}/cache/index1/type": "Instruction\n" for cpu in range(4)}
    assert read_machine(str(write_tree(tmp_path, Shape(cores=4), files))).at(Level.L2) == ()


@pytest.mark.parametrize("text", ["²", "9" * 5000, "-1", "65535", "4294967295", "x"])
def test_malformed_numbers_are_left_out(tmp_path, text):
    files = {f"{CPU}/cpu{cpu}/topology/physical_package_id": text for cpu in range(4)}
    files |= {f"{NODE}/node0/distance": f"10 {text}", f"{NODE}/node0/meminfo": f"MemTotal: {text}\nMemTotal:"}
    files |= {"proc/mounts": "cgroup2 /c cgroup2 rw 0 0\n", "c/cpu.max": f"{'9' * 400} {text}"}
    machine = read_machine(str(write_tree(tmp_path, Shape(cores=4), files)))
    assert [package.os_id for package in machine.at(Level.PACKAGE)] == [None]
    assert machine.quota is None


def test_padded_and_endless_files_are_read(tmp_path):
    tree = write_tree(tmp_path, Shape(cores=2), {f"{CPU}/online": "0-1\n" + "\0" * 4096})
    (tree / CPU / "present").unlink()
    (tree / CPU / "present").symlink_to("/dev/zero")
    assert str(read_machine(str(tree)).online) == "0-1"


def test_pipes_in_a_tree_do_not_block(tmp_path):
    tree = write_tree(tmp_path, Shape(cores=2))
    (tree / CPU / "present").unlink()
    os.mkfifo(tree / CPU / "present")
    assert str(read_machine(str(tree)).online) == "0-1"


@pytest.mark.parametrize(
    "size", [b"-0000000020", b"+0000000020", b"0000_000010", b"\x80" + b"\0" * 9 + b"\x04"]
)
def test_odd_sizes_in_archives_are_errors(tmp_path, size):
    header = bytearray(512)
    header[:22] = b"m/sys/devices/system/x"
    header[124 : 124 + len(size)] = size
    header[156:157] = b"0"
    (tmp_path / "odd.tar.gz").write_bytes(
        gzip.compress(bytes(header) + b"0-3\n".ljust(512, b"\0") + bytes(1024))
    )
    with pytest.raises(MachineError):
        read_machine(str(tmp_path / "odd.tar.gz"))


def test_a_truncated_archive_is_an_error(tmp_path):
    packed = pack(write_tree(tmp_path / "t", Shape()), tmp_path / "m.tar.gz")
    whole = (tmp_path / "m.tar.gz").read_bytes()
    (tmp_path / "m.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(MachineError, match="truncated"):
        read_machine(packed)


def test_masks_are_read_before_lists(tmp_path):
    files = {f"{CPU}/cpu{cpu}/topology/core_cpus_list": "0-3\n" for cpu in range(4)}
    machine = read_machine(str(write_tree(tmp_path, Shape(cores=4), files)))
    assert len(machine.at(Level.CORE)) == 4


def test_nodes_without_cpus_or_memory_have_nearest_nodes(tmp_path):
    files = {
        f"{NODE}/node0/distance": "10 20 15 40",
        f"{NODE}/node1/meminfo": "Node 1 MemTotal: 0 kB",
        f"{NODE}/node1/distance": "20 10 30 35",
        f"{NODE}/node2/cpumap": "0\n",
        f"{NODE}/node2/meminfo": "Node 2 MemTotal: 4096 kB",
        f"{NODE}/node2/distance": "15 30 10 50",
        f"{NODE}/node7/cpulist": "\n",
        f"{NODE}/node7/distance": "40 35 50 10",
    }
    machine = read_machine(str(write_tree(tmp_path, Shape(packages=2, cores=2), files)))
    assert {node.number: node.nearest for node in machine.nodes} == {0: (), 1: (0,), 2: (0,), 7: (1,)}
    assert [domain.os_id for domain in machine.at(Level.NODE)] == [0, 1]


def test_a_machine_without_topology_files_is_flat_and_has_a_remark(tmp_path):
    (tmp_path / CPU).mkdir(parents=True)
    (tmp_path / CPU / "online").write_text("0-3\n")
    machine = read_machine(str(tmp_path))
    assert len(machine.at(Level.CORE)) == 4
    assert machine.remarks
    assert [node.number for node in machine.nodes] == [0]


@pytest.mark.parametrize("source", ["nowhere", "{empty}", "{junk}"])
def test_sources_without_a_machine_are_errors(tmp_path, source):
    (tmp_path / "empty").mkdir()
    (tmp_path / "junk").write_bytes(b"\x1f\x8bjunk")
    with pytest.raises(MachineError) as caught:
        read_machine(source.format(empty=tmp_path / "empty", junk=tmp_path / "junk"))
    assert caught.value.exit_code == 2


MOUNTINFO = "30 20 0:26 {top} {point} rw - {kind} {kind} rw,{options}\n"


@pytest.mark.parametrize(
    ("files", "cpuset", "quota"),
    [
        ({}, None, None),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "proc/self/mountinfo": MOUNTINFO.format(
                    top="/", point="/sys/fs/cgroup", kind="cgroup2", options=""
                ),
                "sys/fs/cgroup/cpuset.cpus.effective": "0-7\n",
                "sys/fs/cgroup/a/b/cpuset.cpus.effective": "0-3\n",
                "sys/fs/cgroup/a/cpu.max": "250000 100000\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            },
            "0-3",
            2.5,
        ),
        (
            {  # the group has no cpuset controller: the nearest one above counts
                "proc/self/cgroup": "0::/a/b\n",
                "proc/mounts": "cgroup2 /cg cgroup2 rw 0 0\n",
                "cg/a/cpuset.cpus.effective": "2-3\n",
                "cg/a/b/cpu.max": "50000 100000\n",
            },
            "2-3",
            0.5,
        ),
        (
            {  # version 1, each controller on its own; in a container the mount shows its group as root
                "proc/self/cgroup": "4:cpuset:/docker/x\n3:cpu,cpuacct:/docker/x\n",
                "proc/self/mountinfo": MOUNTINFO.format(
                    top="/docker/x", point="/sys/fs/cgroup/cpuset", kind="cgroup", options="cpuset"
                )
                + MOUNTINFO.format(
                    top="/docker/x", point="/sys/fs/cgroup/cpu", kind="cgroup", options="cpu,cpuacct"
                ),
                "sys/fs/cgroup/cpuset/cpuset.cpus": "1,3\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            "1,3",
            1.5,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/\n",
                "proc/mounts": "cgroup /c cgroup rw,cpu,cpuacct 0 0\n",
                "c/cpu.cfs_quota_us": "-1\n",
                "c/cpu.cfs_period_us": "100000\n",
            },
            None,
            None,
        ),
        (
            {
                "proc/self/cpuset": "/job\n",
                "proc/mounts": "cpuset /dev/cpuset cpuset rw 0 0\n",
                "dev/cpuset/job/cpus": "4-5\n",
            },
            "4-5",
            None,
        ),
        (
            {  # the mount shows another group, whose name only begins alike
                "proc/self/cgroup": "0::/docker/xyz\n",
                "proc/self/mountinfo": MOUNTINFO.format(
                    top="/docker/x", point="/cg", kind="cgroup2", options=""
                ),
                "cg/yz/cpuset.cpus.effective": "7\n",
                "cg/docker/xyz/cpuset.cpus.effective": "0-1\n",
            },
            "0-1",
            None,
        ),
    ],
    ids=["none", "v2", "v2-no-controller", "v1-container", "v1-unlimited", "cpuset-only", "top-is-a-prefix"],
)
def test_cgroup_limits(tmp_path, files, cpuset, quota):
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    limits = read_limits(DirectoryRoot(str(tmp_path)))
    assert limits.cpuset == (CpuSet.from_list(cpuset) if cpuset else None)
    assert limits.quota == quota


EVENTS = "low 0\nhigh 3\nmax 9\noom 8\noom_kill {}\noom_group_kill 7\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        ({}, None),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "proc/self/mountinfo": MOUNTINFO.format(top="/", point="/cg", kind="cgroup2", options=""),
                "cg/a/b/memory.events": EVENTS.format(2),
                "cg/a/memory.events": EVENTS.format(5),
            },
            2,
        ),
        (
            {  # the group has no memory controller: the nearest one above accounts for it
                "proc/self/cgroup": "0::/a/b\n",
                "proc/mounts": "cgroup2 /cg cgroup2 rw 0 0\n",
                "cg/a/memory.events": EVENTS.format(5),
            },
            5,
        ),
        ({"proc/self/cgroup": "0::/\n", "proc/mounts": "cgroup2 /cg cgroup2 rw 0 0\n"}, None),
        (
            {  # version 1; the hierarchy of version 2 beside it has no memory
                "proc/self/cgroup": "4:memory:/docker/x\n1:cpu:/docker/x\n0::/docker/x\n",
                "proc/self/mountinfo": MOUNTINFO.format(top="/", point="/cg/two", kind="cgroup2", options="")
                + MOUNTINFO.format(top="/docker/x", point="/cg/cpu", kind="cgroup", options="cpu")
                + MOUNTINFO.format(top="/docker/x", point="/cg/memory", kind="cgroup", options="memory"),
                "cg/memory/memory.oom_control": CONTROL.format(3),
                "cg/cpu/memory.oom_control": CONTROL.format(4),
            },
            3,
        ),
        (
            {  # the counter of a group of version 1 excludes its descendants
                "proc/self/cgroup": "4:memory:/x\n",
                "proc/mounts": "cgroup /c cgroup rw,memory 0 0\n",
                "c/memory.oom_control": CONTROL.format(3),
            },
            None,
        ),
        (
            {  # a kernel before 4.13
                "proc/self/cgroup": "4:memory:/x\n",
                "proc/mounts": "cgroup /c cgroup rw,memory 0 0\n",
                "c/x/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\n",
            },
            None,
        ),
        (
            {
                "proc/self/cgroup": "0::/\n",
                "proc/mounts": "cgroup2 /cg cgroup2 rw 0 0\n",
                "cg/memory.events": "oom_kill\noom_kill x y\noom_kill -1\n",
            },
            None,
        ),
    ],
    ids=["none", "v2", "v2-no-controller", "v2-top", "v1", "v1-parent", "v1-old", "junk"],
)
def test_oom_kills_are_counted_by_the_cgroup(tmp_path, files, kills):
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert read_oom_kills(DirectoryRoot(str(tmp_path))) == kills


def test_the_cpuset_limits_what_is_allowed(tmp_path):
    files = {
        "proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
        "sys/fs/cgroup/cpuset.cpus.effective": "1-2\n",
        "sys/fs/cgroup/cpu.max": "150000 100000\n",
    }
    machine = read_machine(str(write_tree(tmp_path, Shape(cores=4), files)))
    assert (str(machine.allowed), str(machine.online), machine.quota) == ("1-2", "0-3", 1.5)


def pack(directory, path, *, format_=tarfile.USTAR_FORMAT, name="machine"):
    with tarfile.open(path, "w:gz", format=format_) as archive:
        archive.add(directory, arcname=name)
    return str(path)


@pytest.mark.parametrize(
    ("format_", "name"),
    [
        (tarfile.USTAR_FORMAT, "machine"),
        (tarfile.USTAR_FORMAT, "."),
        (tarfile.USTAR_FORMAT, "m" * 90),
        (tarfile.GNU_FORMAT, "m" * 120),
        (tarfile.PAX_FORMAT, "m" * 120),
        (tarfile.PAX_FORMAT, "maschine-ü"),
    ],
)
def test_archives_are_read_like_directories(tmp_path, format_, name):
    tree = write_tree(tmp_path / "tree", Shape(packages=2, cores=2, smt=2))
    (tree / "sys/devices/system/cpu/cpu0/driver").symlink_to("../../../bus")
    packed = read_machine(pack(tree, tmp_path / "m.tar.gz", format_=format_, name=name))
    assert packed.replace(source="") == read_machine(str(tree)).replace(source="")


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz", "w"])
def test_archives_are_recognized_by_their_content(tmp_path, mode):
    tree = write_tree(tmp_path / "tree", Shape(cores=2))
    with tarfile.open(tmp_path / "recording", mode) as archive:
        archive.add(tree, arcname="m")
    assert str(read_machine(str(tmp_path / "recording")).online) == "0-1"


def test_links_in_archives_are_followed(tmp_path):
    tree = write_tree(tmp_path / "tree", Shape(cores=2), {f"{CPU}/cpufreq/policy1/cpuinfo_max_freq": "7"})
    (tree / CPU / "cpu1/cpufreq").symlink_to("../cpufreq/policy1")
    (tree / CPU / "cpu0/cpufreq").symlink_to("../cpu1/cpufreq")
    (tree / CPU / "cpu0/loop").symlink_to("loop")
    (tree / CPU / "cpu0/away").symlink_to("../../../../../../../../etc")
    root = ArchiveRoot(Path(pack(tree, tmp_path / "m.tar.gz")).read_bytes(), "packed")
    assert root.read(f"{CPU}/cpu0/cpufreq/cpuinfo_max_freq") == "7"
    assert root.names(f"{CPU}/cpu0/cpufreq") == ["cpuinfo_max_freq"]
    assert root.read(f"{CPU}/cpu0/loop/x") is None
    assert root.read(f"{CPU}/cpu0/away/hostname") is None


def test_archives_that_unpack_to_too_much_are_refused_in_little_memory(tmp_path):
    """Zeros compress a thousandfold, so a small archive may unpack to a huge size."""
    header = tarfile.TarInfo("m/sys/devices/system/cpu/online")
    header.size = archive_module.UNPACKED_LIMIT
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(header.tobuf())
    for _ in range(archive_module.UNPACKED_LIMIT // (1 << 24) + 1):
        packed += packer.compress(bytes(1 << 24))
    (tmp_path / "large.tar.gz").write_bytes(packed + packer.flush())
    tracemalloc.start()
    with pytest.raises(MachineError, match="more than 512 MiB"):
        read_machine(str(tmp_path / "large.tar.gz"))
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_headers_of_archives_that_are_too_long_are_refused_in_little_memory(tmp_path):
    """A header gives the length of the name or the attributes after it."""
    header = tarfile.TarInfo("m/attributes")
    header.type, header.size = tarfile.XHDTYPE, 1 << 28
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(header.tobuf()) + b"".join(packer.compress(bytes(1 << 24)) for _ in range(16))
    tracemalloc.start()
    with pytest.raises(MachineError, match="a header says that it has 268435456 bytes"):
        ArchiveRoot(packed + packer.flush(), "long")
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_archives_of_too_many_members_are_refused(monkeypatch):
    monkeypatch.setattr(archive_module, "MEMBER_LIMIT", 1000)
    headers = [tarfile.TarInfo(f"m/{number}").tobuf() for number in range(1001)]
    assert ArchiveRoot(b"".join(headers[1:]), "full").read("m/1000") == ""
    with pytest.raises(MachineError, match="more than 1000 members"):
        ArchiveRoot(b"".join(headers), "many")


def test_archives_with_too_much_text_are_refused():
    """Many files of moderate size, and members with long names."""
    file = tarfile.TarInfo("m/file")
    file.size = 1 << 23
    texts = b"".join(file.tobuf() + bytes([at]) * file.size for at in range(9))
    names = b"".join(tarfile.TarInfo(f"{at}{'n' * (1 << 23)}").tobuf(tarfile.GNU_FORMAT) for at in range(9))
    for content in (texts, names):
        with pytest.raises(MachineError, match="have more than 64 MiB"):
            ArchiveRoot(content, "full")


@pytest.mark.parametrize("pack_", [gzip.compress, bz2.compress, lzma.compress])
def test_archives_in_several_streams_are_read_completely(tmp_path, pack_):
    """Parallel compressors and `cat` write several streams."""
    whole = gzip.decompress(
        Path(pack(write_tree(tmp_path / "t", Shape(cores=4)), tmp_path / "m.tgz")).read_bytes()
    )
    half = len(whole) // 1024 * 512
    (tmp_path / "m").write_bytes(pack_(whole[:half]) + pack_(whole[half:]))
    machine = read_machine(str(tmp_path / "m"))
    assert (str(machine.online), machine.remarks) == ("0-3", ())


def test_truncated_archives_without_compression_are_errors(tmp_path):
    pack(write_tree(tmp_path / "t", Shape(cores=4)), tmp_path / "m.tgz")
    whole = gzip.decompress((tmp_path / "m.tgz").read_bytes())
    (tmp_path / "m.tar").write_bytes(whole[: len(whole.rstrip(b"\0")) // 2 // 512 * 512 + 100])
    with pytest.raises(MachineError, match="truncated"):
        read_machine(str(tmp_path / "m.tar"))


def test_hard_links_and_other_directories_named_sys_are_handled(tmp_path):
    tree = write_tree(tmp_path / "t", Shape(cores=4), {"proc/sys/kernel/osrelease": "6.1\n"})
    (tree / CPU / "present").unlink()
    os.link(tree / CPU / "online", tree / CPU / "present")
    with tarfile.open(tmp_path / "m.tar", "w") as archive:
        archive.add(tree / "proc", arcname="m/proc")
        archive.add(tree / "sys", arcname="m/sys")
    root = ArchiveRoot((tmp_path / "m.tar").read_bytes(), "m")
    assert root.read(f"{CPU}/present") == root.read(f"{CPU}/online") == "0-3\n"


@examples(0.6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_archives_are_a_machine_or_a_machine_error(tmp_path, data):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        info = tarfile.TarInfo("m/sys/devices/system/cpu/online")
        info.size = 4
        archive.addfile(info, io.BytesIO(b"0-3\n"))
    whole = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "d.tar.gz").write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        machine = read_machine(str(tmp_path / "d.tar.gz"))
    except MachineError:
        return
    assert machine.online


names = st.sampled_from(
    ["online", "present", "cpu0/topology/core_cpus", "cpu1/topology/package_cpus", "cpu0/online"]
)
texts = st.text(alphabet="0123456789,-abcf \n\0(nul)", max_size=12)


@given(st.dictionaries(names, texts, max_size=5), texts, texts)
def test_any_tree_is_a_machine_or_a_machine_error(files, cpulist, cgroup):
    tree = {f"{CPU}/{name}": text for name, text in files.items()}
    tree |= {f"{NODE}/node0/cpulist": cpulist, f"{NODE}/node3/cpumap": cpulist, "proc/self/cgroup": cgroup}
    try:
        machine = read_recorded(DictRoot(tree))
    except MachineError:
        return
    assert machine.allowed
    make_plan(machine, Request())


@pytest.mark.parametrize(("cpus", "cores", "each"), [(8, 4, 2), (8, None, 1), (6, 4, 1), (1, 1, 1)])
def test_systems_without_sysfs_give_counts(cpus, cores, each):
    machine = make_counted_machine(cpus, cores, "Darwin")
    assert not machine.bindable
    assert len(machine.at(Level.CORE)) == cpus // each
    assert "Darwin" in machine.remarks[0]
    assert ("cores" in machine.remarks[0]) is (cores is not None)
    made = make_plan(machine, Request())
    assert made.placements[0].threads == cpus // each


def test_missing_members_and_directories_are_empty(tmp_path):
    packed = Path(pack(write_tree(tmp_path / "t", Shape()), tmp_path / "m.tar.gz")).read_bytes()
    root = ArchiveRoot(packed, "packed")
    assert root.read("sys/nothing") is None
    assert root.names("sys/nothing") == []
    assert "cpu0" in root.names(CPU)
    assert DirectoryRoot(str(tmp_path)).read("no\0name") is None


THROTTLED = [
    # files, counters
    ({}, None),
    ({"proc/7/cgroup": "0::/a/b\n", "proc/self/mountinfo": "1 2 0:3 / /cg rw - cgroup2 cgroup2 rw\n"}, None),
    (
        {
            "proc/7/cgroup": "0::/a\n",
            "proc/self/mountinfo": "1 2 0:3 / /cg rw - cgroup2 cgroup2 rw\n",
            "cg/a/cpu.stat": "usage_usec 9\n",  # without the cpu controller
        },
        None,
    ),
    (
        {
            "proc/7/cgroup": "0::/a/b/c\n",
            "proc/self/cgroup": "0::/other\n",
            "proc/self/mountinfo": "1 2 0:3 / /cg rw - cgroup2 cgroup2 rw\n",
            "cg/a/b/c/cpu.stat": "usage_usec 9\n",
            "cg/a/b/cpu.stat": "usage_usec 9\nnr_periods 8\nnr_throttled 3\nthrottled_usec 1500000\n",
            "cg/a/cpu.stat": "nr_periods 2\nnr_throttled 1\nthrottled_usec 500000\n",
            "cg/other/cpu.stat": "nr_periods 90\nthrottled_usec 7000000\n",
        },
        ("cg/a/b", 10, 4, 2.0),
    ),
    (
        {
            "proc/7/cgroup": "4:memory:/x\n2:cpu,cpuacct:/a\n",
            "proc/self/mountinfo": "1 2 0:3 / /c rw - cgroup cgroup rw,cpu,cpuacct\n"
            "1 2 0:3 / /m rw - cgroup cgroup rw,memory\n",
            "c/a/cpu.stat": "nr_periods 4\nnr_throttled 1\nthrottled_time 250000000\n",
            "c/cpu.stat": "nr_periods 0\nthrottled_time x\n",
            "m/x/cpu.stat": "nr_periods 7\nthrottled_time 9000000000\n",
        },
        ("c/a", 4, 1, 0.25),
    ),
]


@pytest.mark.parametrize(("files", "counters"), THROTTLED)
def test_the_throttling_of_a_process_is_that_of_its_cgroups(tmp_path, files, counters):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = read_throttling(DirectoryRoot(str(tmp_path)), "7")
    assert (found and tuple(found.as_dict().values())) == counters


def test_throttling_since_an_earlier_reading():
    before = Throttling(cgroup="c", periods=4, throttled_periods=1, throttled_s=0.25)
    after = Throttling(cgroup="c", periods=10, throttled_periods=4, throttled_s=1.0)
    assert after.since(before) == Throttling(cgroup="c", periods=6, throttled_periods=3, throttled_s=0.75)
    assert before.since(after) == Throttling(cgroup="c")  # the cgroup was created again
