"""Machines with odd files, and what the reader of sysfs makes of each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet, union
from ompbind.errors import MachineError
from ompbind.machine.model import Level
from ompbind.machine.sources.linux.reader import add_isolated, read_recorded
from ompbind.masks.parse import parse_mask
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from tests.machines import DictRoot, Shape, shape_files, tree_files

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
SHAPE = Shape(packages=2, cores=4, smt=2)


def read(files):
    return read_recorded(DictRoot({path: text for path, text in files.items() if text is not None}))


def sets(machine, level):
    return [str(domain.cpus) for domain in machine.at(level)]


def topology(cpus, name, texts):
    """A file in the topology directory of each CPU, from a list of texts."""
    return {
        f"{CPU}/cpu{cpu}/topology/{name}": text
        for cpu, text in zip(cpus, texts, strict=True)
        if text is not None
    }


def without(files, *names):
    return {path: text for path, text in files.items() if path.rpartition("/")[2] not in names}


def test_halves_of_a_package_with_one_number_and_different_cores_are_joined():
    """Haswell's cluster-on-die: two sibling sets in each package, but only two package numbers."""
    halves = shape_files(Shape(packages=4, cores=2))
    halves |= topology(range(8), "physical_package_id", "00001111")
    halves |= topology(range(8), "core_id", "01450145")
    machine = read(halves)
    assert [(str(package.cpus), package.os_id) for package in machine.at(Level.PACKAGE)] == [
        ("0-3", 0),
        ("4-7", 1),
    ]
    assert machine.remarks == ("halves of packages are joined by physical_package_id",)


@pytest.mark.parametrize(
    ("numbers", "core_ids", "packages"),
    [
        ("00110011", "01010101", 4),  # Itanium cells: the cores of both packages have the same numbers
        ("00110011", [None] * 8, 4),
        ("00000000", "01234567", 4),  # all packages have number 0
        ("00110011", "01234567", 2),  # each half is half of a node (s390 books)
    ],
)
def test_repeated_numbers_of_packages_do_not_join_them(numbers, core_ids, packages):
    files = shape_files(Shape(packages=packages, nodes=4 // packages, cores=2))
    files |= {f"{CPU}/cpu{cpu}/topology/package_cpus": f"{3 << cpu // 2 * 2:x}" for cpu in range(8)}
    files |= topology(range(8), "physical_package_id", numbers) | topology(range(8), "core_id", core_ids)
    if packages == 2:
        files |= {f"{NODE}/node{node}/cpumap": text for node, text in enumerate(("f", "f0", "0", "0"))}
    assert sets(read(files), Level.PACKAGE) == ["0-1", "2-3", "4-5", "6-7"]


@pytest.mark.parametrize(
    ("numbers", "packages", "os_ids"),
    [
        ("00001111", ["0-3", "4-7"], [0, 1]),
        (["65535"] * 8, ["0-7"], [None]),
        (["-1"] * 8, [], []),
        (["0"] * 7 + [None], [], []),
    ],
)
def test_packages_without_sibling_files_are_grouped_by_number(numbers, packages, os_ids):
    files = without(shape_files(Shape(cores=8)), "package_cpus", "physical_package_id")
    machine = read(files | topology(range(8), "physical_package_id", numbers))
    assert sets(machine, Level.PACKAGE) == packages
    assert [package.os_id for package in machine.at(Level.PACKAGE)] == os_ids


def test_packages_smaller_than_clusters_are_grouped_by_number():
    """A phone whose sibling sets of packages have one CPU each."""
    files = shape_files(Shape(cores=4)) | topology(range(4), "package_cpus", "1248")
    files |= topology(range(4), "cluster_cpus", "33cc") | topology(range(4), "physical_package_id", "0011")
    machine = read(files)
    assert sets(machine, Level.PACKAGE) == ["0-1", "2-3"]
    assert machine.remarks == ("packages partially overlap clusters: physical_package_id is used instead",)


def test_modules_of_two_cores_are_two_cores_that_share_a_cache():
    """AMD's family 15h: one core by sibling sets, two by `core_id`."""
    files = shape_files(Shape(cores=2, smt=2, numbering="adjacent"))
    machine = read(files | topology(range(4), "core_id", "0123"))
    assert sets(machine, Level.CORE) == ["0", "1", "2", "3"]
    assert sets(machine, Level.L2) == ["0-1", "2-3"]


@pytest.mark.parametrize(
    ("core_ids", "cpuinfo"),
    [
        ("0044", ""),  # POWER counts cores in fours
        ([None] * 4, ""),
        ("0123", "vendor_id: AuthenticAMD\ncpu family: 23\n"),
        ("0123", "vendor_id: GenuineIntel\ncpu family: 21\n"),
    ],
)
def test_other_processors_have_no_modules(core_ids, cpuinfo):
    files = shape_files(Shape(cores=2, smt=2, numbering="adjacent")) | topology(range(4), "core_id", core_ids)
    assert sets(read(files | {"proc/cpuinfo": cpuinfo}), Level.CORE) == ["0-1", "2-3"]


def test_nodes_that_are_not_online_are_dropped():
    machine = read(shape_files(SHAPE) | {f"{NODE}/online": "1", f"{NODE}/node1/cpumap": "ffff"})
    assert [(node.number, str(node.cpus)) for node in machine.nodes] == [(1, "0-15")]


def test_the_first_node_has_all_cpus_if_no_node_lists_any():
    machine = read(without(shape_files(Shape(cores=4)), "cpumap", "cpulist"))
    assert [str(node.cpus) for node in machine.nodes] == ["0-3"]


def test_zero_memory_in_all_nodes_is_unknown():
    files = shape_files(SHAPE) | {f"{NODE}/node{node}/meminfo": "Node 0 MemTotal: 0 kB" for node in (0, 1)}
    assert [(node.memory_bytes, node.nearest) for node in read(files).nodes] == [(None, ())] * 2


def test_cores_without_sibling_sets_are_read_from_l1_caches():
    files = without(shape_files(SHAPE), "core_cpus", "core_cpus_list")
    machine = read(files)
    assert sets(machine, Level.CORE) == sets(read(shape_files(SHAPE)), Level.CORE)
    assert machine.remarks == ("core siblings are unknown: shared L1 caches are used instead",)


def test_a_cpu_without_topology_files_is_in_the_sets_of_other_cpus():
    files = {path: text for path, text in shape_files(SHAPE).items() if "/cpu5/" not in path}
    machine = read(files)
    assert "5,13" in sets(machine, Level.CORE)
    assert sorted(sets(machine, Level.PACKAGE)) == ["0-3,8-11", "4-7,12-15"]
    assert machine.remarks == ()


def test_a_cpu_in_no_file_is_a_core_of_its_own_and_reported():
    files = {path: text for path, text in shape_files(Shape(cores=4)).items() if "/cpu3/" not in path}
    files = {
        path: text.replace("f", "7") if path.endswith("package_cpus") else text
        for path, text in files.items()
    }
    machine = read(files)
    assert sets(machine, Level.CORE) == ["0", "1", "2", "3"]
    assert sets(machine, Level.PACKAGE) == ["0-2"]
    assert machine.remarks == ("core siblings of CPU 3 are unknown: assumed to have none",)


def test_caches_with_an_empty_set_of_cpus_are_private_to_their_core():
    """Itanium: maps of zeros, and two threads in each core."""
    files = shape_files(Shape(cores=2, smt=2, numbering="adjacent"))
    files |= {f"{CPU}/cpu{cpu}/cache/index2/shared_cpu_map": "0" for cpu in range(4)}
    assert sets(read(files), Level.L3) == ["0-1", "2-3"]


def test_packages_are_read_without_cores():
    """Old kernels of s390 have sibling sets of packages only."""
    files = without(shape_files(Shape(packages=2, cores=2)), "core_cpus", "core_cpus_list", "shared_cpu_map")
    machine = read(files)
    assert sets(machine, Level.PACKAGE) == ["0-1", "2-3"]
    assert "each CPU counts as a core" in machine.remarks[0]


@pytest.mark.parametrize(
    ("masks", "dies"),
    [
        (["f0f"] * 4 + ["f0f0"] * 4, []),  # each package one die
        ([f"{0x101 << cpu:x}" for cpu in range(8)], [f"{cpu},{cpu + 8}" for cpu in range(8)]),
        (["303", "303", "c0c", "c0c"] + ["f0f0"] * 4, ["0-1,8-9", "2-3,10-11"]),  # one package without dies
        (["303", "303", "c0c", "c0c", "3030", "3030", "c0c0", "c0c0"],
         ["0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"]),
    ],
)  # fmt: skip
def test_dies_are_kept_unless_they_repeat_another_level(masks, dies):
    assert sets(read(shape_files(SHAPE) | topology(range(16), "die_cpus", masks * 2)), Level.DIE) == dies


def test_dies_of_one_cpu_are_dropped():
    """Kernels report each CPU as a die on machines without dies."""
    each = [f"{1 << cpu:x}" for cpu in range(16)]
    assert sets(read(shape_files(SHAPE) | topology(range(16), "die_cpus", each)), Level.DIE) == []


def test_a_machine_without_lists_of_cpus_is_read_from_directories_and_cpuinfo():
    files = without(shape_files(Shape(cores=4)), "online", "present")
    assert str(read(files | {f"{CPU}/cpu2/online": "0"}).online) == "0-1,3"
    cpuinfo = {"proc/cpuinfo": "".join(f"processor\t: {cpu}\n\n" for cpu in range(6))}
    assert str(read(files | {f"{CPU}/cpu2/online": "0"} | cpuinfo).online) == "0-1,3-5"
    assert str(read(cpuinfo).online) == "0-5"


def test_sparse_numbers_and_a_missing_cpu_0_are_read_as_they_are():
    cores = [CpuSet([6]), CpuSet([7]), CpuSet([10, 300])]
    whole = union(cores)
    parts = {Level.PACKAGE: [whole], Level.NODE: [whole], Level.L3: [whole], Level.CORE: cores}
    assert sets(read(tree_files(parts, whole)), Level.CORE) == ["6", "7", "10,300"]
    assert sets(read(tree_files(parts, whole - CpuSet([10]))), Level.CORE) == ["6", "7", "300"]


def test_a_cpu_of_several_nodes_belongs_to_the_first():
    files = shape_files(SHAPE) | {f"{NODE}/node1/cpumap": "ffff"}
    machine = read(files)
    assert [str(node.cpus) for node in machine.nodes] == ["0-3,8-11", "4-7,12-15"]
    assert machine.remarks == (
        "NUMA node 1 lists CPUs of other nodes: each CPU belongs to the first node that lists it",
    )
    same = read(files | {f"{NODE}/node0/cpumap": "ffff", f"{NODE}/node0/distance": "10 20"})
    assert [(str(node.cpus), node.nearest) for node in same.nodes] == [("0-15", ()), ("", (0,))]


def test_cpu_directories_of_a_node_replace_its_list():
    files = without(shape_files(Shape(packages=2, cores=2)), "cpumap", "cpulist")
    files |= {f"{NODE}/node{cpu // 2}/cpu{cpu}/online": "1" for cpu in range(4)}
    assert [str(node.cpus) for node in read(files).nodes] == ["0-1", "2-3"]


def test_cpus_in_no_node_are_reported():
    machine = read(shape_files(SHAPE) | {f"{NODE}/node1/cpumap": "0"})
    assert machine.remarks == ("in no NUMA node: CPUs 4-7,12-15",)


MEMORY = {
    f"{NODE}/node2/cpumap": "0",
    f"{NODE}/node2/meminfo": "Node 2 MemTotal: 4096 kB",
    f"{NODE}/node2/distance": "17 28 10",
    f"{NODE}/node0/distance": "10 21 17",
    f"{NODE}/node1/distance": "21 10 28",
}


@pytest.mark.parametrize(
    ("extra", "nearest"),
    [
        ({}, (0,)),
        ({f"{NODE}/node2/access0/initiators/node1/x": ""}, (1,)),
        (
            {
                f"{NODE}/node2/access0/initiators/node0/x": "",
                f"{NODE}/node2/access1/initiators/node1/x": "",
            },
            (1,),
        ),
        ({f"{NODE}/node2/access1/initiators/node9/x": ""}, (0,)),
        ({f"{NODE}/node2/distance": "20 20 10"}, (0, 1)),
        ({f"{NODE}/node2/distance": None}, ()),
    ],
    ids=["distance", "initiator", "access1-first", "initiator-absent", "equal", "nothing"],
)
def test_a_node_without_cpus_is_near_to_its_initiators_or_by_distance(extra, nearest):
    assert read(shape_files(SHAPE) | MEMORY | extra).nodes[2].nearest == nearest


def test_memory_of_gpus_is_excluded_and_reported():
    gpu = {"proc/driver/nvidia/gpus/0004:04:00.0/numa_status": "Node: 2\nStatus: online\n"}
    machine = read(shape_files(SHAPE) | MEMORY | gpu)
    assert [(node.number, node.distances) for node in machine.nodes] == [(0, (10, 21)), (1, (21, 10))]
    assert machine.remarks == ("NUMA node 2 excluded: GPU memory",)


def test_domains_that_partially_overlap_are_reported():
    files = shape_files(SHAPE)
    files |= {f"{CPU}/cpu{cpu}/cache/index2/shared_cpu_map": "0ff0" for cpu in range(4, 12)}
    assert any("partially overlap" in remark for remark in read(files).remarks)


@pytest.mark.parametrize(
    ("isolated", "nohz", "plain", "note"),
    [
        ("\n", "(null)\n", "0-7", None),
        ("6-7\n", "", "0-5", "not used because isolated: CPUs 6-7"),
        ("", "7", "0-6", "not used because nohz_full: CPU 7"),
        ("6", "6-7", "0-5", "not used because isolated or nohz_full: CPUs 6-7"),
        ("0-7", "", "0-7", None),
    ],
)
def test_cpus_excluded_by_default_are_used_if_a_mask_names_them(isolated, nohz, plain, note):
    machine = read(shape_files(Shape(cores=8)) | {f"{CPU}/isolated": isolated, f"{CPU}/nohz_full": nohz})
    made = make_plan(machine, Request(ranks=1))
    assert str(made.placements[0].cpuset) == plain
    notes = [note_.text for note_ in made.notes if note_.code == "set-apart"]
    it = "them" if note and "CPUs" in note else "it"
    assert notes == ([] if note is None else [f"{note} (name {it} by number in --mask to use {it})"])


@pytest.mark.parametrize(
    ("mask", "cpus"),
    [
        ("all", "0-2,4-5"), ("^0", "1-2,4-5"), ("node:0", "0-2"), ("node:1", "4-5"), ("core:3", "3"),
        ("node:0.core:2-3", "2-3"), ("2-3", "2-3"), ("0x8", "3"), ("node:1,6", "4-6"), ("auto", "0-2,4-5"),
    ],
)  # fmt: skip
def test_masks_name_excluded_cpus_by_number_or_by_domains_without_other_cpus(mask, cpus):
    machine = read(shape_files(Shape(packages=2, cores=4)) | {f"{CPU}/isolated": "3,6-7"})
    assert str(make_plan(machine, Request(mask=parse_mask(mask))).placements[0].cpuset) == cpus


@pytest.mark.parametrize(
    ("affinity", "allowed", "isolated", "result"),
    [
        ("0-2,4-7", "0-7", "3", "0-7"),  # as the kernel starts every process
        ("0-1", "0-7", "3", "0-1"),  # narrowed on purpose
        ("4", "4-7", "4-7", "4"),  # placed on one of the isolated CPUs
        ("0-7", "0-7", "", "0-7"),
    ],
)
def test_isolated_cpus_are_allowed_with_the_default_affinity_mask(affinity, allowed, isolated, result):
    made = add_isolated(*map(CpuSet.from_list, (affinity, allowed, isolated)))
    assert str(made & CpuSet.from_list(allowed)) == result


def test_a_machine_without_an_allowed_cpu_is_an_error():
    group = {"proc/mounts": "cgroup2 /c cgroup2 rw 0 0\n", "c/cpuset.cpus.effective": "99"}
    with pytest.raises(MachineError, match="no CPU of given is allowed"):
        read(shape_files(SHAPE) | group)


@given(st.data())
def test_any_numbering_with_any_gaps_is_read(data):
    """Numbers are shuffled and CPUs offline: each level has the written sets without the offline CPUs."""
    shape = data.draw(
        st.builds(
            Shape,
            packages=st.integers(1, 3),
            nodes=st.integers(1, 2),
            l3s=st.integers(1, 2),
            cores=st.integers(1, 3),
            smt=st.sampled_from([1, 2, 4]),
        )
    )
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
    for ranks in (1, 2):
        if ranks <= len(online):
            made = make_plan(machine, Request(ranks=ranks, smt="all"))
            assert union(placement.cpuset for placement in made.placements) <= online
