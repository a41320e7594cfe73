"""A machine as values: which CPU sits in which core, cache, NUMA node and package.

Words: a *CPU* is one hardware thread, by its OS number. A *core* is the CPUs that share one physical
core; its identity is that set, never a `core_id`, which repeats across packages. A *domain* is a set
of cores that share something. A *node* is a NUMA node; it may have no CPU or no memory. *Allowed* are
the CPUs that are online, in the affinity mask of the launcher at start, and in its cgroup's cpuset.
A *core kind* is the cores of a hybrid processor that are equally strong. CPUs *set apart* are allowed,
but the kernel keeps other work off them (isolated, nohz_full): they are for those who name them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import combinations, islice
from typing import Literal

from ompbind.cpuset import EMPTY, CpuSet, named, union
from ompbind.errors import MachineError
from ompbind.record import Record


class Level(StrEnum):
    """What the cores of a domain share, from the widest to the narrowest usual extent."""

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
        """What people call it: "NUMA node", "L3", "package"."""
        return {"node": "NUMA node", "l2": "L2", "l3": "L3"}.get(self.value, self.value)


class Domain(Record):
    """One domain: its level, its logical number on the machine, its CPUs, and its OS number if any."""

    level: Level
    index: int
    cpus: CpuSet
    os_id: int | None = None

    @property
    def title(self) -> str:
        """Its level and logical number, a NUMA node's by the OS: "package 0", "NUMA node 8"."""
        return f"{self.level.label} {self.os_id if self.level is Level.NODE else self.index}"


class Node(Record):
    """One NUMA node by its OS number; `nearest` are the nodes that serve what this one lacks.

    For a node without CPUs `nearest` are the closest nodes with CPUs, for a node without memory the
    closest nodes with memory; otherwise it is empty. `distances` are as the firmware gives them,
    in the order of `Machine.nodes`; `memory_bytes` is None where it is unknown.
    """

    number: int
    cpus: CpuSet
    memory_bytes: int | None = None
    distances: tuple[int, ...] = ()
    nearest: tuple[int, ...] = ()


KindName = Literal["performance", "efficiency"]
"""What users call the strong and the economical cores of a hybrid processor."""


class CoreKind(Record):
    """Cores of a hybrid processor that are alike; `strength` is relative, 1024 for the strongest.

    Several kinds may have one name: a phone has big and middle cores for performance. `source` is what
    told them apart: "type" (cpu_core, cpu_atom), "capacity" (cpu_capacity) or "frequency".
    """

    name: KindName
    cpus: CpuSet
    strength: int
    source: str


class Machine(Record):
    """One machine; `quota` is the CPU time it may use, in CPUs, or None where nothing limits it.

    `domains` has every level that the machine knows, cores always. `kinds` are ordered by strength,
    strongest first, and empty where all cores are alike. `bindable` is False on systems that cannot
    confine a process to CPUs. `remarks` tell what the reader could not make sense of. `memory_allowed` are
    the NUMA nodes whose memory may be used, None where nobody tells.
    """

    source: str
    arch: str
    online: CpuSet
    allowed: CpuSet
    offline: CpuSet = EMPTY
    domains: tuple[Domain, ...] = ()
    nodes: tuple[Node, ...] = ()
    kinds: tuple[CoreKind, ...] = ()
    isolated: CpuSet = EMPTY
    nohz_full: CpuSet = EMPTY
    quota: float | None = None
    bindable: bool = True
    remarks: tuple[str, ...] = ()
    memory_allowed: CpuSet | None = None

    def at(self, level: Level) -> tuple[Domain, ...]:
        """Return the domains of one level by logical number; empty when the machine has no such level."""
        return tuple(domain for domain in self.domains if domain.level is level)

    def with_domains(self, partitions: "Mapping[Level, Partition]") -> "Machine":
        """Return the machine with domains, those of its nodes included, and remarks on oddities."""
        domains = make_domains(self.online, {**partitions, Level.NODE: node_partition(self.nodes)})
        made = self.replace(domains=domains)
        return made.replace(remarks=(*self.remarks, *_find_oddities(made)))

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels this machine has, widest first."""
        return tuple(dict.fromkeys(domain.level for domain in self.domains))

    @property
    def exclusion_reasons(self) -> tuple[tuple[str, CpuSet], ...]:
        """What sets CPUs apart, and which: name and set, for those that set any apart."""
        reasons = (("isolated", self.isolated), ("nohz_full", self.nohz_full))
        return tuple((name, cpus) for name, cpus in reasons if cpus)

    @property
    def excluded_by_default(self) -> CpuSet:
        """The CPUs that are set apart; none where that would leave no other CPU that is allowed."""
        excluded_by_default = union(cpus for _, cpus in self.exclusion_reasons)
        return EMPTY if self.allowed <= excluded_by_default else excluded_by_default & self.allowed

    @property
    def ordinary(self) -> CpuSet:
        """The CPUs that are used without being named: what is allowed and not set apart."""
        return self.allowed - self.excluded_by_default

    def of_kind(self, name: KindName | Literal["all"]) -> CpuSet:
        """Return the CPUs of one kind of core, or of all; where cores are alike they are for performance."""
        if name == "all":
            return self.online
        if not self.kinds:
            return self.online if name == "performance" else EMPTY
        return union(kind.cpus for kind in self.kinds if kind.name == name)


CPUS, NODES = 1 << 13, 1 << 10
"""CPUs online and NUMA nodes that a machine may have; Linux knows no more (NR_CPUS, MAX_NUMNODES)."""


def check_size(cpus: int = 0, nodes: int = 0) -> None:
    """Refuse what no machine has, before room is made for it; raises MachineError."""
    for number, most, noun in ((cpus, CPUS, "CPUs"), (nodes, NODES, "NUMA nodes")):
        if number > most:
            raise MachineError(f"{number} {noun} are more than any machine has", hint=f"the most are {most}")


Partition = list[tuple[int | None, CpuSet]]
"""The domains of one level as a reader finds them: (OS number or None, CPUs), in any order."""


def node_partition(nodes: Iterable[Node]) -> Partition:
    """Return the NUMA nodes that have CPUs as domains."""
    return [(node.number, node.cpus) for node in nodes if node.cpus]


def make_domains(online: CpuSet, partitions: Mapping[Level, Partition]) -> tuple[Domain, ...]:
    """Number the domains of every level along the machine, widest level first.

    CPUs that are not online are dropped, and CPUs that an earlier domain of the level has, and so are
    domains that this leaves empty. A CPU that no core claims is a core of its own.
    """
    kept = {level: _clean(online, parts) for level, parts in partitions.items()}
    cores = kept.get(Level.CORE, [])
    lonely = online - union(cpus for _, cpus in cores)
    kept[Level.CORE] = [*cores, *((None, CpuSet((cpu,))) for cpu in lonely)]
    order = sorted((level for level in kept if kept[level]), key=lambda lv: _extent(kept[lv], lv))
    return tuple(_numbered(kept, order))


def drop_repeated(partitions: Mapping[Level, Partition], nodes: Iterable[Node]) -> dict[Level, Partition]:
    """Drop dies and clusters that tell nothing: kernels that know of none repeat another level there.

    A die of one CPU, or of a whole package, is none; clusters are none where all repeat another level.
    """
    levels = {**partitions, Level.NODE: node_partition(nodes)}
    shapes = {level: frozenset(cpus for _, cpus in sets) for level, sets in levels.items()}
    packages = shapes.get(Level.PACKAGE, frozenset())
    dies = [one for one in partitions.get(Level.DIE, []) if len(one[1]) > 1 and one[1] not in packages]
    clusters = shapes.pop(Level.CLUSTER, frozenset())
    kept = partitions.get(Level.CLUSTER, []) if clusters not in shapes.values() else []
    return {**partitions, Level.DIE: dies, Level.CLUSTER: kept}


def _clean(online: CpuSet, parts: Partition) -> Partition:
    kept: Partition = []
    free = online
    for os_id, cpus in parts:
        if not cpus.isdisjoint(free):
            kept.append((os_id, cpus & free))
            free = free - cpus
    return kept


def _extent(parts: Partition, level: Level) -> tuple[int, int, int]:
    return -max(len(cpus) for _, cpus in parts), len(parts), list(Level).index(level)


def _numbered(kept: Mapping[Level, Partition], order: Sequence[Level]) -> Iterator[Domain]:
    """Order by the first CPU of every enclosing domain, outermost first, as one walks the machine."""
    outer: list[dict[int, int]] = []
    for level in order:
        firsts = [cpus.first for _, cpus in kept[level]]
        ways = [tuple(seen.get(first, first) for seen in outer) for first in firsts]
        ranked = sorted(zip(ways, firsts, kept[level], strict=True), key=lambda one: one[:2])
        for index, (_, _, (os_id, cpus)) in enumerate(ranked):
            yield Domain(level=level, index=index, cpus=cpus, os_id=os_id)
        if level is not order[-1]:
            outer.append({cpu: first for _, first, (_, cpus) in ranked for cpu in cpus})


def kind_by_cpu(kinds: Iterable[CoreKind]) -> dict[int, str]:
    """Map every CPU of `kinds` to the name of its kind of core."""
    return {cpu: kind.name for kind in kinds for cpu in kind.cpus}


def index_by_cpu(domains: Iterable[Domain]) -> dict[int, int]:
    """Map every CPU of `domains` to the logical number of its domain."""
    return {cpu: domain.index for domain in domains for cpu in domain.cpus}


def touched(domains: Iterable[Domain], cpus: CpuSet) -> tuple[Domain, ...]:
    """Return those of `domains` that have at least one of `cpus`."""
    return tuple(domain for domain in domains if not domain.cpus.isdisjoint(cpus))


def _find_oddities(machine: Machine) -> Iterator[str]:
    """Yield what no machine should have: allowed CPUs in no node, domains that cut through each other."""
    homeless = machine.allowed - union(one.cpus for one in machine.at(Level.NODE))
    if homeless:
        yield f"in no NUMA node: {named('CPU', homeless)}"
    sets = {level: machine.at(level) for level in machine.levels if level is not Level.CORE}
    owners = {level: {cpu: one for one in sets[level] for cpu in one.cpus} for level in sets}
    for wide, narrow in combinations(sets, 2):
        pairs = ((owners[wide].get(inner.cpus.first, inner), inner) for inner in sets[narrow])
        crossing = ((a, b) for a, b in pairs if not (a.cpus <= b.cpus or b.cpus <= a.cpus))
        for outer, inner in islice(crossing, 1):  # the first shows what is wrong with both levels
            yield f"{outer.title} and {inner.title} cut through each other"


def gpu_remark(numbers: Iterable[int]) -> str:
    """Say that nodes are left out because they are the memory of GPUs."""
    return f"{named('NUMA node', numbers)} left out: GPU memory"


def with_nearest(nodes: Sequence[Node], told: Mapping[int, CpuSet]) -> tuple[Node, ...]:
    """Add to nodes without CPUs or without memory the closest ones that have what they lack.

    `told` are the nodes that firmware calls closest to a node, by its number; else distances decide.
    """
    return tuple(node.replace(nearest=_nearest(node, nodes, told.get(node.number, EMPTY))) for node in nodes)


def serving(nodes: Iterable[Node]) -> dict[int, tuple[int, ...]]:
    """Map every node to those that have memory for it: itself, or else the nearest."""
    return {node.number: node.nearest if node.memory_bytes == 0 else (node.number,) for node in nodes}


def _nearest(node: Node, nodes: Sequence[Node], told: CpuSet) -> tuple[int, ...]:
    if not node.cpus:
        helpers = [other.number for other in nodes if other.cpus]
    elif node.memory_bytes == 0:
        helpers = [other.number for other in nodes if other.memory_bytes]
    else:
        return ()
    known = dict(zip((other.number for other in nodes), node.distances, strict=False))
    away = {number: known[number] for number in helpers if number in known}
    closest = (number for number, far in away.items() if far == min(away.values()))
    return tuple(number for number in helpers if number in told) or tuple(closest)
