"""Machines with plain and with odd files in sysfs, and what the reader makes of each."""

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet, union
from ompbind.errors import MachineError
from ompbind.machine.model import Level
from ompbind.machine.read import read_machine
from ompbind.machine.read.linux import add_isolated, make_counted_machine, read_recorded, read_root
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.report.topology import render_limits
from tests.machines import DictRoot, Shape, sets, shape_files, tree_files, write_tree
from tests.tables import rows

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
SHAPE = Shape(packages=2, cores=4, smt=2)


def read(files):
    return read_recorded(DictRoot({path: text for path, text in files.items() if text is not None}))


def topology(cpus, name, texts):
    pairs = zip(cpus, texts, strict=True)
    return {f"{CPU}/cpu{cpu}/topology/{name}": text for cpu, text in pairs if text is not None}


def without(files, *names):
    return {path: text for path, text in files.items() if path.rpartition("/")[2] not in names}


def test_offline_and_absent_cpus_are_in_no_domain():
    files = shape_files(Shape(cores=4, smt=2)) | {f"{CPU}/online": "0-2,5-7\n", f"{CPU}/present": "0-7\n"}
    machine = read(files)
    assert (str(machine.online), str(machine.offline)) == ("0-2,5-7", "3-4")
    assert sets(machine, Level.CORE) == ["0", "1,5", "2,6", "7"]
    files = without(shape_files(Shape(cores=4)), "online", "present") | {f"{CPU}/cpu2/online": "0\n"}
    assert str(read(files).online) == "0-1,3", "without lists of CPUs, directories count"
    cpuinfo = {"proc/cpuinfo": "".join(f"processor\t: {cpu}\n\n" for cpu in range(6))}
    assert (str(read(files | cpuinfo).online), str(read(cpuinfo).online)) == ("0-1,3-5", "0-5")


@pytest.mark.parametrize(("online", "offline", "affinity", "found", "allowed", "named"), [
    ("0", "", "1", "0-7", "1", "CPU 1"), ("0", "", "0-1", "0-7", "0-1", "CPU 1"),
    ("0-1", "6-7", "3,5", "0-5", "3,5", "CPUs 3,5"), ("0-3", "4-7", "1-2", "0-3", "1-2", ""),
])  # fmt: skip
def test_the_kernel_counts_more_than_a_file_that_a_container_replaces(
    online, offline, affinity, found, allowed, named
):
    files = shape_files(Shape(cores=8)) | {f"{CPU}/online": online, f"{CPU}/offline": offline}
    live = read_root(DictRoot(files), CpuSet.from_list(affinity), "x86_64")
    assert (str(live.online), str(live.allowed)) == (found, allowed)
    assert [f"cpu/online ({online}) lacks {named}," in remark for remark in live.remarks] == [True] * bool(
        named
    )
    status = {"proc/self/status": f"Cpus_allowed_list:\t{affinity}\n"}
    recorded = read(files | status)  # its mask may have offline CPUs, unless it has no CPU of the file
    is_replaced = CpuSet.from_list(affinity).isdisjoint(CpuSet.from_list(online))
    assert (str(recorded.online), str(recorded.allowed)) == (
        (found, allowed) if is_replaced else (online, online)
    )


CORES = [f"{cpu},{cpu + 8}" for cpu in range(8)]
MASKS = [f"{0x101 << cpu % 8:x}" for cpu in range(16)]


@pytest.mark.parametrize(("missing", "name", "texts", "level", "expected"), [
    ("core_cpus|shared_cpu_map", "thread_siblings", MASKS, Level.CORE, CORES),
    ("core_cpus", "", [], Level.CORE, CORES),  # from L1 caches
    ("/cpu0/", "", [], Level.CORE, CORES),  # from the sets of other CPUs
    ("nothing", "die_cpus", [f"{1 << cpu:x}" for cpu in range(16)], Level.DIE, []),
    ("nothing", "cluster_cpus", MASKS, Level.CLUSTER, []),
    ("package_cpus", "physical_package_id", ["65535"] * 16, Level.PACKAGE, ["0-15"]),
    ("nothing", "physical_package_id", ["65535"] * 16, Level.PACKAGE, ["0-3,8-11", "4-7,12-15"]),
])  # fmt: skip
def test_missing_files_are_replaced_and_repeated_levels_are_dropped(missing, name, texts, level, expected):
    files = {path: text for path, text in shape_files(SHAPE).items() if not re.search(missing, path)}
    machine = read(files | topology(range(len(texts)), name, texts))
    assert bool(machine.remarks) == (missing == "core_cpus")
    found = [(str(domain.cpus), domain.os_id) for domain in machine.at(level)]
    assert found == [(cpus, None) for cpus in expected]


def test_caches_have_sizes_and_those_of_instructions_are_no_levels():
    files = {f"{CPU}/cpu{cpu}/cache/index1/type": "Instruction\n" for cpu in range(4)}
    files |= {f"{CPU}/cpu{cpu}/cache/index2/size": "1024K\n" for cpu in range(4)}
    machine = read_recorded(DictRoot(shape_files(Shape(cores=4)) | files), devices=True)
    assert (machine.at(Level.L2), [cache.size_bytes for cache in machine.at(Level.L3)]) == ((), [1 << 20])


def test_padded_and_endless_files_and_pipes_are_no_problem(tmp_path):
    tree = write_tree(tmp_path, Shape(cores=2), {f"{CPU}/online": "0-1\n" + "\0" * 4096})
    for make in (lambda path: path.symlink_to("/dev/zero"), os.mkfifo):
        (tree / CPU / "present").unlink()
        make(tree / CPU / "present")
        assert str(read_machine(str(tree)).online) == "0-1"


@pytest.mark.parametrize(("cpus", "cores", "each"), [(8, 4, 2), (8, None, 1), (6, 4, 1), (1, 1, 1)])
def test_systems_without_sysfs_give_counts(cpus, cores, each):
    machine = make_counted_machine(cpus, cores, "Darwin")
    assert not machine.bindable
    assert len(machine.at(Level.CORE)) == cpus // each
    assert ("cores" in machine.remarks[0]) is (cores is not None)
    assert make_plan(machine, Request()).placements[0].threads == cpus // each
    bare = read({f"{CPU}/online": f"0-{cpus - 1}\n"})
    assert (len(bare.at(Level.CORE)), bool(bare.remarks), len(bare.nodes)) == (cpus, True, 1)


def test_packages_smaller_than_clusters_are_grouped_by_number():
    """A phone whose sibling sets of packages have one CPU each."""
    files = shape_files(Shape(cores=4)) | topology(range(4), "package_cpus", "1248")
    files |= topology(range(4), "cluster_cpus", "33cc") | topology(range(4), "physical_package_id", "0011")
    machine = read(files)
    assert sets(machine, Level.PACKAGE) == ["0-1", "2-3"]
    assert machine.remarks == ("packages partially overlap clusters: physical_package_id is used instead",)


def test_caches_with_an_empty_set_of_cpus_are_private_to_their_core_and_overlaps_are_reported():
    """Itanium: maps of zeros, and two threads in each core."""
    empty = {f"{CPU}/cpu{cpu}/cache/index2/shared_cpu_map": "0" for cpu in range(4)}
    adjacent = shape_files(Shape(cores=2, smt=2, numbering="adjacent"))
    assert sets(read(adjacent | empty), Level.L3) == ["0-1", "2-3"]
    files = {f"{CPU}/cpu{cpu}/cache/index2/shared_cpu_map": "0ff0" for cpu in range(4, 12)}
    assert any("partially overlap" in remark for remark in read(shape_files(SHAPE) | files).remarks)


def nodes_of(machine):
    return [(node.number, str(node.cpus)) for node in machine.nodes]


def test_lists_of_nodes_are_corrected():
    files = shape_files(SHAPE)
    assert nodes_of(read(files | {f"{NODE}/online": "1", f"{NODE}/node1/cpumap": "ffff"})) == [(1, "0-15")]
    machine = read(files | {f"{NODE}/node1/cpumap": "ffff"})
    assert nodes_of(machine) == [(0, "0-3,8-11"), (1, "4-7,12-15")]
    assert "NUMA node 1 lists CPUs of other nodes" in machine.remarks[0]
    both = {f"{NODE}/node{n}/cpumap": "ffff" for n in (0, 1)}
    same = read(files | both | {f"{NODE}/node0/distance": "10 20"})
    assert [(str(node.cpus), node.nearest) for node in same.nodes] == [("0-15", ()), ("", (0,))]
    assert read(files | {f"{NODE}/node1/cpumap": "0"}).remarks == ("in no NUMA node: CPUs 4-7,12-15",)
    assert nodes_of(read(without(shape_files(Shape(cores=4)), "cpumap", "cpulist"))) == [(0, "0-3")]
    empty = {f"{NODE}/node{node}/meminfo": "Node 0 MemTotal: 0 kB" for node in (0, 1)}
    assert [(node.memory_bytes, node.nearest) for node in read(files | empty).nodes] == [(None, ())] * 2
    files = without(shape_files(Shape(packages=2, cores=2)), "cpumap", "cpulist")
    files |= {f"{NODE}/node{cpu // 2}/cpu{cpu}/online": "1" for cpu in range(4)}
    assert nodes_of(read(files)) == [(0, "0-1"), (1, "2-3")]


MEMORY = {
    f"{NODE}/node2/cpumap": "0",
    f"{NODE}/node2/meminfo": "Node 2 MemTotal: 4096 kB",
    f"{NODE}/node2/distance": "17 28 10",
    f"{NODE}/node0/distance": "10 21 17",
    f"{NODE}/node1/distance": "21 10 28",
}


@pytest.mark.parametrize(("extra", "nearest"), [
    ({}, (0,)),
    ({"access0/initiators/node0/x": "", "access1/initiators/node1/x": ""}, (1,)),
    ({"access1/initiators/node9/x": ""}, (0,)),
    ({"distance": "20 20 10"}, (0, 1)),
])  # fmt: skip
def test_a_node_without_cpus_is_near_to_its_initiators_or_by_distance(extra, nearest):
    extra = {f"{NODE}/node2/{name}": text for name, text in extra.items()}
    assert read(shape_files(SHAPE) | MEMORY | extra).nodes[2].nearest == nearest


def test_memory_of_gpus_is_excluded_and_reported():
    gpu = {"proc/driver/nvidia/gpus/0004:04:00.0/numa_status": "Node: 2\nStatus: online\n"}
    machine = read(shape_files(SHAPE) | MEMORY | gpu)
    assert [(node.number, node.distances) for node in machine.nodes] == [(0, (10, 21)), (1, (21, 10))]
    assert machine.remarks == ("NUMA node 2 excluded: GPU memory",)


@pytest.mark.parametrize(("isolated", "nohz", "used", "note"), rows("""
    6-7      |        | 0-5 | not used because isolated: CPUs 6-7
             | (null) | 0-7 |
             | 7      | 0-6 | not used because nohz_full: CPU 7
    6        | 6-7    | 0-5 | not used because isolated or nohz_full: CPUs 6-7
    0-7      |        | 0-7 |
"""))  # fmt: skip
def test_cpus_excluded_by_default_are_named(isolated, nohz, used, note):
    files = {f"{CPU}/isolated": f"{isolated}\n", f"{CPU}/nohz_full": f"{nohz}\n"}
    made = make_plan(read(shape_files(Shape(cores=8)) | files), Request(ranks=1))
    assert str(made.placements[0].cpuset) == used
    notes = [note_.text.partition(" (")[0] for note_ in made.notes if note_.code == "set-apart"]
    assert notes == [note][: len(note)]


@pytest.mark.parametrize(
    ("line", "isolated", "nohz_full"),
    rows("""
    quiet isolcpus=2-3 nohz_full=4,5 rcu_nocbs=6 | 2-3 | 4-5
    isolcpus=managed_irq,domain,5-N              | 5-7 |
    isolcpus=nohz,2-3 isolcpus=nohz,domain,7     | 7   | 2-3,7
    rcu_nocbs=all isolcpus=some nohz_full        |     |
    nohz_full=all                                |     | 0-7
"""),
)
def test_a_recording_has_the_isolated_cpus_of_its_command_line(line, isolated, nohz_full):
    files = shape_files(Shape(cores=8)) | {"proc/cmdline": f"{line}\n"}
    machine = read(files)
    assert (str(machine.isolated), str(machine.nohz_full)) == (isolated, nohz_full)
    assert str(read(files | {f"{CPU}/isolated": "1\n"}).exclusion_reasons[0][1]) == "1"


def test_isolated_cpus_are_allowed_with_the_default_affinity_mask():
    for affinity, allowed, isolated, result in (
        ("0-2,4-7", "0-7", "3", "0-7"),  # as the kernel starts every process
        ("0-1", "0-7", "3", "0-1"),  # narrowed on purpose
        ("4", "4-7", "4-7", "4"),  # placed on one of the isolated CPUs
    ):
        made = add_isolated(*map(CpuSet.from_list, (affinity, allowed, isolated)))
        assert str(made & CpuSet.from_list(allowed)) == result


def test_the_cpus_of_an_isolated_cgroup_are_isolated_and_its_process_has_the_memory_of_its_status():
    group = {"proc/self/cgroup": "0::/p\n", "proc/mounts": "cgroup2 /c cgroup2 rw 0 0\n"}
    group |= {"c/p/cpuset.cpus.effective": "1-2", "c/p/cpuset.cpus.partition": "isolated\n"}
    group |= {"c/p/cpu.max": "150000 100000\n", "proc/self/status": "Mems_allowed_list:\t0,5\n"}
    machine = read_root(DictRoot(shape_files(Shape(cores=4)) | group), CpuSet(range(4)), "x86_64")
    assert (str(machine.isolated), str(machine.default_cpus), machine.quota) == ("1-2", "1-2", 1.5)
    assert machine.memory_allowed == CpuSet((0, 5))
    shown = ["allowed: 2 CPUs (1-2)", "isolated: CPUs 1-2", "CPU time: 1.5 CPUs (cgroup quota)"]
    assert [*render_limits(machine)] == shown


def test_a_machine_without_an_allowed_cpu_is_an_error():
    group = {"proc/mounts": "cgroup2 /c cgroup2 rw 0 0\n", "c/cpuset.cpus.effective": "99"}
    with pytest.raises(MachineError, match="no CPU of given is allowed"):
        read(shape_files(SHAPE) | group)


@given(st.data())
def test_any_numbering_with_any_gaps_is_read(data):
    """Numbers are shuffled and CPUs offline: each level has the written sets without the offline CPUs."""
    counts = {"packages": 3, "nodes": 2, "l3s": 2, "cores": 3}
    sizes = {name: data.draw(st.integers(1, most)) for name, most in counts.items()}
    shape = Shape(**sizes, smt=data.draw(st.sampled_from([1, 2, 4])))
    count = shape.all_cores * shape.smt
    numbers = data.draw(st.lists(st.integers(0, 4 * count), min_size=count, max_size=count, unique=True))
    offline = CpuSet(data.draw(st.sets(st.sampled_from(numbers), max_size=count - 1)))
    parts = {
        level: [CpuSet(numbers[cpu] for cpu in cpus) for cpus in sets_]
        for level, sets_ in shape.partitions().items()
    }
    online = CpuSet(numbers) - offline
    machine = read(tree_files(parts, online) | {f"{CPU}/present": str(CpuSet(numbers))})
    assert (machine.online, machine.offline, machine.allowed) == (online, offline, online)
    for level, written in parts.items():
        expected = {cpus & online for cpus in written if cpus & online}
        assert {domain.cpus for domain in machine.at(level)} == expected
    made = make_plan(machine, Request(ranks=min(2, len(online)), smt="all"))
    assert union(placement.cpuset for placement in made.placements) <= online
