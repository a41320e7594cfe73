"""A machine as values: which CPU sits in which core, cache, NUMA node and package.

- A *CPU* is one hardware thread, by its OS number.
- A *core* is the set of CPUs that share one physical core. This set identifies it, never a `core_id`, which
  repeats across packages.
- A *domain* is a set of cores that share something: a cache, a die, a package.
- A *node* is a NUMA node; it may have no CPU or no memory.
- *Allowed* CPUs are online, in the affinity mask that ompbind was started with, and in its cgroup's cpuset.
- A *core kind* is a set of cores of a hybrid processor with equal performance.
- CPUs *excluded by default* are allowed, but the kernel keeps other work off them (isolated, nohz_full), or
  they share a core with such CPUs. They are used only if a mask names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from itertools import combinations, islice
from typing import Literal, TypeAlias

from ompbind.cpuset import EMPTY, CpuSet, named, union
from ompbind.errors import MachineError
from ompbind.machine.devices import Device
from ompbind.record import Record


class Level(StrEnum):
    """What the cores of a domain share, usually the widest level first."""

    DRAWER = "drawer"
    BOOK = "book"
    PACKAGE = "package"
    NODE = "node"
    DIE = "die"
    L3 = "l3"
    CLUSTER = "cluster"
    L2 = "l2"
    CORE = "core"

    @property
    def label(self) -> str:
        """The name for messages: "NUMA node", "L3", "package"."""
        return {"node": "NUMA node", "l2": "L2", "l3": "L3"}.get(self.value, self.value)


class Domain(Record):
    """One domain; `index` is its logical number at its level, `size_bytes` the known size of a cache."""

    level: Level
    index: int
    cpus: CpuSet
    os_id: int | None = None
    size_bytes: int | None = None

    @property
    def title(self) -> str:
        """The level and its number: "package 0", "NUMA node 8"."""
        return f"{self.level.label} {self.os_id if self.level is Level.NODE else self.index}"


class Node(Record):
    """One NUMA node by its OS number.

    `nearest` is set for a node that lacks something: the closest nodes with CPUs for a node without CPUs,
    the closest nodes with memory for a node without memory. `distances` are the firmware's (ACPI SLIT, 10 is
    local), in the order of `Machine.nodes`. `memory_bytes` is None if it is unknown.
    """

    number: int
    cpus: CpuSet
    memory_bytes: int | None = None
    distances: tuple[int, ...] = ()
    nearest: tuple[int, ...] = ()


CoreKindName: TypeAlias = Literal["performance", "efficiency"]
CORE_KIND_NAMES: tuple[CoreKindName, ...] = ("performance", "efficiency")
"""The names of the fast and the economical cores of a hybrid processor."""

CoreChoice: TypeAlias = CoreKindName | Literal["cache", "fast", "all"]
CORE_CHOICES: tuple[CoreChoice, ...] = (*CORE_KIND_NAMES, "cache", "fast", "all")
"""The values of `--core-kind`: also the cores with the most L3 cache each, and the fastest ones."""


class CoreKind(Record):
    """Cores of a hybrid processor with equal performance; `strength` is relative, 1024 for the fastest.

    Several kinds may have one name: both the big and the middle cores of a phone are for performance.
    `source` is what distinguishes the kinds: "type", "capacity", "part", "topology" or "frequency".
    """

    name: CoreKindName
    cpus: CpuSet
    strength: int
    source: str

    @property
    def inferred_from(self) -> str:
        """The facts that the kind is inferred from, "" if the machine reports it."""
        facts = {"topology": "hardware threads and L2 caches", "frequency": "frequencies"}
        return (facts | {"part": "part numbers"}).get(self.source, "")


class TaskLimit(Record):
    """A limit on processes and threads (tasks): `used` exist, and `name` says where the limit is set."""

    name: str
    limit: int
    used: int = 0

    @property
    def left(self) -> int:
        """How many more tasks may start."""
        return max(0, self.limit - self.used)

    def __str__(self) -> str:
        return f"{self.name} leaves {self.left} of {self.limit} processes and threads"


KIND: Literal["kind"] = "kind"
Column: TypeAlias = Level | Literal["kind"]
"""A column of a table: the domains of a level, or the kinds of cores."""


class Table:
    """The cores of a machine as rows in topology order, and a column per level with the number of the domain.

        row       0     1     2     3
        cores     0,4   1,5   2,6   3,7
        package   0     0     0     0
        l3        0     0     1     None    None: in no domain of this level
        kind      0     0     0     1       the index of the kind in `Machine.kinds`

    `cores` has the CPUs of each core, `core_of` the row of each CPU.
    """

    def __init__(self, domains: Iterable[Domain], kinds: Iterable[CoreKind]) -> None:
        self.levels: dict[Level, list[Domain]] = {}
        for domain in domains:
            self.levels.setdefault(domain.level, []).append(domain)
        self.cores = tuple(core.cpus for core in self.levels.get(Level.CORE, ()))
        self.core_of = {cpu: row for row, cpus in enumerate(self.cores) for cpu in cpus}
        self._kinds = tuple(kinds)
        self._columns: dict[str, tuple[int | None, ...]] = {}

    def rows(self, cpus: CpuSet) -> list[int]:
        """Return the cores with some of these CPUs, in topology order."""
        return sorted({self.core_of[cpu] for cpu in cpus if cpu in self.core_of})

    def whole(self, cpus: CpuSet) -> CpuSet:
        """Return all CPUs of the cores with some of these CPUs."""
        return union(self.cores[row] for row in self.rows(cpus))

    def sort(self, cpus: CpuSet) -> Iterator[int]:
        """Yield CPUs core by core in topology order, so that the hardware threads of a core are adjacent."""
        for row in self.rows(cpus):
            yield from self.cores[row] & cpus

    def number_of(self, level: Level) -> dict[int, int]:
        """Map each CPU in a domain of a level to the logical number of the domain."""
        return {cpu: domain.index for domain in self.levels.get(level, ()) for cpu in domain.cpus}

    def column(self, column: Column) -> tuple[int | None, ...]:
        """Return for each row the number of the domain, or of the kind, that has the core's first CPU."""
        if column not in self._columns:
            kinds = {cpu: number for number, kind in enumerate(self._kinds) for cpu in kind.cpus}
            number_of = kinds if column == KIND else self.number_of(column)
            self._columns[column] = tuple(number_of.get(cpus.first) for cpus in self.cores)
        return self._columns[column]


class Machine(Record):
    """One machine, and what this process may use of it.

    `source` names the topology source, `arch` the architecture. The kernel uses the `online` CPUs and not the
    `offline` CPUs; this process may use the `allowed` CPUs. `nodes` are NUMA nodes. `domains` contain all
    known levels, always with cores. `kinds` are ordered by strength, strongest first, and empty if all cores
    are equal. `fast` are the CPUs of the L3 caches with the best cores, none if these are equal or unknown.
    `isolated` and `nohz_full` are the kernel's lists of these names. `quota` is the CPU time of
    the cgroup in CPUs, None without a limit. `task_limit` is the limit that leaves the fewest tasks.
    `bindable` is False on systems without affinity masks. `remarks` describe facts that the reader could not
    read or had to correct. `memory_allowed` are the NUMA nodes whose memory may be used, None if unknown.
    `restrictions` are why online CPUs are not allowed: (CPUs, a clause about what excludes them) pairs.
    `refused_policies` are the modes of --memory that the kernel refuses, each with the reason, and with
    `prefers_one_node` it can prefer one NUMA node only; both are read before a plan with --memory is made.
    `devices` are in device order; they, and sizes of caches in files of Linux, are read on request only.
    """

    source: str
    arch: str
    online: CpuSet
    allowed: CpuSet
    offline: CpuSet = EMPTY
    domains: tuple[Domain, ...] = ()
    nodes: tuple[Node, ...] = ()
    kinds: tuple[CoreKind, ...] = ()
    fast: CpuSet = EMPTY
    isolated: CpuSet = EMPTY
    nohz_full: CpuSet = EMPTY
    quota: float | None = None
    task_limit: TaskLimit | None = None
    bindable: bool = True
    remarks: tuple[str, ...] = ()
    memory_allowed: CpuSet | None = None
    restrictions: tuple[tuple[CpuSet, str], ...] = ()
    refused_policies: tuple[tuple[str, str], ...] = ()
    prefers_one_node: bool = False
    devices: tuple[Device, ...] = ()

    @cached_property
    def table(self) -> Table:
        """The cores in topology order, with the numbers of their domains."""
        return Table(self.domains, self.kinds)

    def at(self, level: Level, cpus: CpuSet | None = None) -> tuple[Domain, ...]:
        """Return the domains of one level in logical order: all of them, or those with some of these CPUs."""
        domains = self.table.levels.get(level, ())
        return tuple(domain for domain in domains if cpus is None or not domain.cpus.isdisjoint(cpus))

    def with_domains(self, partitions: Mapping[Level, Partition]) -> Machine:
        """Return the machine with domains of these levels and of its NUMA nodes, and with more remarks."""
        domains = make_domains(self.online, {**partitions, Level.NODE: make_node_partition(self.nodes)})
        made = self.replace(domains=domains)
        return made.replace(remarks=(*self.remarks, *_find_inconsistencies(made)))

    def with_cache_sizes(self, sizes: Mapping[tuple[Level, int], int]) -> Machine:
        """Return the machine with sizes of caches, in bytes by level and first CPU of each cache."""
        domains = (
            domain.replace(size_bytes=sizes.get((domain.level, domain.cpus.first))) for domain in self.domains
        )
        return self.replace(domains=tuple(domains)) if sizes else self

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels that this machine has, widest first."""
        return tuple(self.table.levels)

    @property
    def exclusion_reasons(self) -> tuple[tuple[str, CpuSet], ...]:
        """Why CPUs are excluded by default: (name of the kernel's list, CPUs) for each list with CPUs."""
        reasons = (("isolated", self.isolated), ("nohz_full", self.nohz_full))
        return tuple((name, cpus) for name, cpus in reasons if cpus)

    @property
    def isolated_siblings(self) -> CpuSet:
        """Allowed CPUs that are not isolated, but share a core with isolated CPUs."""
        isolated = union(cpus for _, cpus in self.exclusion_reasons)
        return self.table.whole(isolated) & self.allowed - isolated if isolated else EMPTY

    @property
    def excluded_by_default(self) -> CpuSet:
        """Isolated CPUs and siblings that are used only if a mask names them; none if no other is allowed."""
        isolated = union(cpus for _, cpus in self.exclusion_reasons) & self.allowed
        choices = (isolated | self.isolated_siblings, isolated)
        return next((excluded for excluded in choices if not self.allowed <= excluded), EMPTY)

    @property
    def default_cpus(self) -> CpuSet:
        """The CPUs that are used without a mask."""
        return self.allowed - self.excluded_by_default

    def cpus_of_kind(self, name: CoreChoice) -> CpuSet:
        """Return the CPUs of one kind of core; all, if cores are equal, but no efficiency core."""
        if name == "all":
            return self.online
        if name == "cache":
            return self._find_largest_caches() or self.online
        if name == "fast":
            return self.fast or next((kind.cpus for kind in self.kinds), self.online)
        if not self.kinds:
            return self.online if name == "performance" else EMPTY
        return union(kind.cpus for kind in self.kinds if kind.name == name)

    def _find_largest_caches(self) -> CpuSet:
        """Return the CPUs of the L3 caches with the most bytes for each core; none if sizes are unknown."""
        caches = self.at(Level.L3)
        shares = [(cache.size_bytes or 0) / len(self.at(Level.CORE, cache.cpus)) for cache in caches]
        is_known = all(shares) and sum(map(len, (cache.cpus for cache in caches))) == len(self.online)
        largest = (c.cpus for c, share in zip(caches, shares, strict=True) if share == max(shares))
        return union(largest) if is_known else EMPTY


MAX_CPUS, MAX_NODES = 1 << 13, 1 << 10
"""Online CPUs and NUMA nodes of a machine at most, as in Linux (NR_CPUS, MAX_NUMNODES)."""


def check_size(cpus: int = 0, nodes: int = 0) -> None:
    """Raise MachineError for more CPUs or NUMA nodes than Linux supports, before they take memory."""
    for number, limit, noun in ((cpus, MAX_CPUS, "CPUs"), (nodes, MAX_NODES, "NUMA nodes")):
        if number > limit:
            message = f"{number} {noun} are more than the limit of {limit}"
            raise MachineError(message, hint=f"use at most {limit} {noun}")


Partition = list[tuple[int | None, CpuSet]]
"""The domains of one level as a source reports them: (OS number or None, CPUs), in any order."""


def make_node_partition(nodes: Iterable[Node]) -> Partition:
    """Return the NUMA nodes with CPUs as domains."""
    return [(node.number, node.cpus) for node in nodes if node.cpus]


def make_domains(online: CpuSet, partitions: Mapping[Level, Partition]) -> tuple[Domain, ...]:
    """Make the domains of all levels, widest level first, with logical numbers in machine order.

    A domain loses CPUs that are not online or that an earlier domain of its level has; an empty domain is
    dropped. A CPU in no core becomes a core of its own.

    Logical numbers follow the nesting, not the OS numbers of CPUs: all cores of package 0 come before all
    cores of package 1. So a domain is sorted by the first CPU of each domain around it, outermost first, then
    by its own first CPU.
    """
    kept: dict[Level, Partition] = {}
    for level, parts in partitions.items():
        free, kept[level] = online, []
        for os_id, cpus in parts:
            if not cpus.isdisjoint(free):
                kept[level].append((os_id, cpus & free))
                free = free - cpus
    cores = kept.setdefault(Level.CORE, [])
    cores += [(None, CpuSet((cpu,))) for cpu in online - union(cpus for _, cpus in cores)]
    widths = {level: max(len(cpus) for _, cpus in parts) for level, parts in kept.items() if parts}
    by_width = sorted(widths, key=lambda level: (-widths[level], len(kept[level]), list(Level).index(level)))
    domains: list[Domain] = []
    outer: list[dict[int, int]] = []  # for each wider level, the first CPU of the domain of each CPU
    for level in by_width:
        firsts = [cpus.first for _, cpus in kept[level]]
        paths = [(*(first_of.get(first, first) for first_of in outer), first) for first in firsts]
        ranked = sorted(zip(paths, kept[level], strict=True), key=lambda pair: pair[0])
        for index, (_, (os_id, cpus)) in enumerate(ranked):
            domains.append(Domain(level=level, index=index, cpus=cpus, os_id=os_id))
        if level is not by_width[-1]:
            outer.append({cpu: path[-1] for path, (_, cpus) in ranked for cpu in cpus})
    return tuple(domains)


def drop_repeated(partitions: Mapping[Level, Partition], nodes: Iterable[Node]) -> dict[Level, Partition]:
    """Drop dies and clusters that only repeat another level, as kernels report them if there are none.

    Drops a die of one CPU or of a whole package, and all clusters if they are equal to another level.
    """
    levels = {**partitions, Level.NODE: make_node_partition(nodes)}
    shapes = {level: {cpus for _, cpus in sets} for level, sets in levels.items()}
    packages, clusters = shapes.get(Level.PACKAGE, set()), shapes.pop(Level.CLUSTER, set())
    dies = [die for die in partitions.get(Level.DIE, []) if len(die[1]) > 1 and die[1] not in packages]
    kept = [] if clusters in shapes.values() else partitions.get(Level.CLUSTER, [])
    return {**partitions, Level.DIE: dies, Level.CLUSTER: kept}


def _find_inconsistencies(machine: Machine) -> Iterator[str]:
    if without_node := machine.allowed - union(node.cpus for node in machine.at(Level.NODE)):
        yield f"in no NUMA node: {named('CPU', without_node)}"
    sets = {level: machine.at(level) for level in machine.levels if level is not Level.CORE}
    owners = {level: {cpu: domain for domain in sets[level] for cpu in domain.cpus} for level in sets}
    for wide, narrow in combinations(sets, 2):
        pairs = ((owners[wide].get(inner.cpus.first, inner), inner) for inner in sets[narrow])
        crossing = ((a, b) for a, b in pairs if not (a.cpus <= b.cpus or b.cpus <= a.cpus))
        for outer, inner in islice(crossing, 1):  # one pair of two levels is enough
            yield f"{outer.title} and {inner.title} partially overlap"


def render_gpu_remark(numbers: Iterable[int]) -> str:
    """Return the remark on nodes that are the memory of GPUs."""
    return f"{named('NUMA node', numbers)} excluded: GPU memory"
