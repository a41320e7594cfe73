"""Machines for tests: `Machine` values for the planner, and sysfs trees for the readers."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from ompbind.cpuset import CpuSet, union
from ompbind.machine.model import CoreKind, Level, Machine, Node, make_domains
from ompbind.record import Record


def kernel_mask(cpus: CpuSet) -> str:
    """Write a set as the kernel writes masks, high word first: "000000ff" or "00000001,00000000"."""
    words = max(1, -(-cpus.bits.bit_length() // 32))
    return ",".join(f"{cpus.bits >> 32 * word & 0xFFFFFFFF:08x}" for word in reversed(range(words)))


def sets(machine: Machine, level: Level) -> list[str]:
    return [str(domain.cpus) for domain in machine.at(level)]


class Shape(Record):
    """A regular machine; counts are per object of the level above, `numbering` is the order of CPU numbers.

    "adjacent": siblings have adjacent numbers; "split": first siblings of all cores, then second siblings;
    "round-robin": like "split", but adjacent numbers are in different packages.
    """

    packages: int = 1
    nodes: int = 1
    l3s: int = 1
    cores: int = 4
    smt: int = 1
    numbering: str = "split"

    @property
    def all_cores(self) -> int:
        return self.packages * self.nodes * self.l3s * self.cores

    def siblings(self, core: int) -> CpuSet:
        if self.numbering == "adjacent":
            return CpuSet(range(core * self.smt, (core + 1) * self.smt))
        number = core
        if self.numbering == "round-robin":
            per_package = self.all_cores // self.packages
            number = (core % per_package) * self.packages + core // per_package
        return CpuSet(number + thread * self.all_cores for thread in range(self.smt))

    def blocks(self, count: int) -> list[CpuSet]:
        """The CPUs of `count` equal runs of cores."""
        size = self.all_cores // count
        runs = (range(i * size, (i + 1) * size) for i in range(count))
        return [CpuSet(cpu for core in run for cpu in self.siblings(core)) for run in runs]

    def partitions(self) -> dict[Level, list[CpuSet]]:
        nodes = self.packages * self.nodes
        counts = {Level.PACKAGE: self.packages, Level.NODE: nodes, Level.L3: nodes * self.l3s}
        return {level: self.blocks(count) for level, count in {**counts, Level.CORE: self.all_cores}.items()}


def make_machine(shape: Shape, *, allowed: CpuSet | None = None, **changes: object) -> Machine:
    """Make the machine of a shape; `changes` are fields of the machine."""
    parts = shape.partitions()
    online = CpuSet(range(shape.all_cores * shape.smt))
    numbered = (Level.PACKAGE, Level.NODE)
    named = {
        level: [(i if level in numbered else None, cpus) for i, cpus in enumerate(sets)]
        for level, sets in parts.items()
    }
    nodes = (Node(number=i, cpus=cpus, memory_bytes=1 << 30) for i, cpus in enumerate(parts[Level.NODE]))
    return Machine(
        source="test",
        arch="test",
        online=online,
        allowed=online if allowed is None else allowed,
        domains=make_domains(online, named),
        nodes=tuple(nodes),
    ).replace(**changes)


def with_domains(machine: Machine, given: Mapping[Level, Iterable[str]], **changes: object) -> Machine:
    """Return the machine with given domains of some levels; CPUs in none of the given cores are offline.

    NUMA nodes that are given have no memory.
    """
    sets = {level: [*map(CpuSet.from_list, texts)] for level, texts in given.items()}
    online = union(sets[Level.CORE]) if Level.CORE in sets else machine.online
    parts = {level: [(domain.os_id, domain.cpus) for domain in machine.at(level)] for level in machine.levels}
    parts |= {level: [*enumerate(cpus)] for level, cpus in sets.items()}
    nodes = () if Level.NODE in given else machine.nodes
    values = {"online": online, "allowed": online, "nodes": nodes, "domains": make_domains(online, parts)}
    return machine.replace(**{**values, **changes})


def make_kinds(performance: CpuSet, efficiency: CpuSet) -> tuple[CoreKind, ...]:
    rows = (("performance", performance, 1024), ("efficiency", efficiency, 500))
    return tuple(CoreKind(name=name, cpus=cpus, strength=each, source="type") for name, cpus, each in rows)


def with_distances(machine: Machine, distances: Iterable[Iterable[int]]) -> Machine:
    pairs = zip(machine.nodes, distances, strict=True)
    return machine.replace(nodes=tuple(node.replace(distances=tuple(row)) for node, row in pairs))


def write_tree(root: Path, shape: Shape, files: dict[str, str] | None = None) -> Path:
    """Write the sysfs tree of a shape below `root`; `files` are added, or replace files of the tree."""
    for path, text in {**shape_files(shape), **(files or {})}.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return root


def shape_files(shape: Shape) -> dict[str, str]:
    return tree_files(shape.partitions(), CpuSet(range(shape.all_cores * shape.smt)))


def tree_files(parts: dict[Level, list[CpuSet]], online: CpuSet) -> dict[str, str]:
    """The files of a machine with these packages, nodes, L3 caches and cores; each L2 is of one core."""
    tree = {
        "sys/devices/system/cpu/online": f"{online}\n",
        "sys/devices/system/cpu/present": f"{online}\n",
        "proc/self/cgroup": "0::/\n",
    }
    count = len(parts[Level.NODE])
    for number, node in enumerate(parts[Level.NODE]):
        directory = f"sys/devices/system/node/node{number}"
        tree[f"{directory}/cpumap"] = kernel_mask(node) + "\n"
        tree[f"{directory}/cpulist"] = f"{node}\n"
        tree[f"{directory}/meminfo"] = f"Node {number} MemTotal:       1048576 kB\n"
        tree[f"{directory}/distance"] = " ".join("10" if i == number else "20" for i in range(count))
    owners = {level: {cpu: cpus for cpus in sets for cpu in cpus} for level, sets in parts.items()}
    packages = [cpus & online for cpus in parts[Level.PACKAGE]]
    for cpu in online:
        domains = {level: owners[level][cpu] & online for level in owners}
        files = {
            "topology/core_cpus": kernel_mask(domains[Level.CORE]),
            "topology/core_cpus_list": str(domains[Level.CORE]),
            "topology/package_cpus": kernel_mask(domains[Level.PACKAGE]),
            "topology/physical_package_id": str(packages.index(domains[Level.PACKAGE])),
        }
        for index, (level, shared) in enumerate(((1, Level.CORE), (2, Level.CORE), (3, Level.L3))):
            files[f"cache/index{index}/level"] = str(level)
            files[f"cache/index{index}/type"] = "Data" if level == 1 else "Unified"
            files[f"cache/index{index}/shared_cpu_map"] = kernel_mask(domains[shared])
        tree |= {f"sys/devices/system/cpu/cpu{cpu}/{name}": f"{text}\n" for name, text in files.items()}
    return tree


class DictRoot:
    """A `Root` with files from a dictionary, text by path; symbolic links are not followed."""

    name = "given"

    def __init__(self, files: dict[str, str], links: dict[str, str] | None = None) -> None:
        self.files = files
        self.links = links or {}

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def names(self, path: str) -> list[str]:
        start = len(path) + 1
        return sorted({name[start:].split("/")[0] for name in self.files if name.startswith(path + "/")})

    def link(self, path: str) -> str | None:
        return self.links.get(path)
