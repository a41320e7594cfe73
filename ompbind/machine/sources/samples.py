"""Sample machines: rows of `sample_table` → machines, for examples, tests and plans without a recording.

A row says how many cores there are, how many of them share a cache, a NUMA node or a package, and how Linux
numbers their CPUs. Two cores with two CPUs each:

    numbering   core 0   core 1
    split       0,2      1,3       the first CPU of all cores, then the second: most x86 machines
    adjacent    0-1      2-3       POWER, s390x, hybrid processors
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.errors import MachineError
from ompbind.machine.core_kinds import CoreTraits, make_kinds
from ompbind.machine.devices import Device, DeviceKind, number_devices
from ompbind.machine.model import (
    CoreKind,
    CoreKindName,
    Level,
    Machine,
    Node,
    Partition,
    drop_repeated,
)
from ompbind.machine.nodes import add_nearest_nodes
from ompbind.record import Record
from ompbind.text import suggest_name


class SampleCores(Record):
    """Equal cores next to each other: their number and the CPUs of each.

    For a hybrid processor also the kind that Linux reports, and the highest frequency in MHz.
    """

    count: int
    smt: int = 1
    kind: CoreKindName | None = None
    megahertz: int = 0


class SampleMemory(Record):
    """The memory of the NUMA nodes: bytes of each.

    `numbers` are the numbers of nodes, 0, 1, … if empty. `distances` are those between two nodes of one
    package and of two packages, 0 if unknown. Nodes without CPUs: `far_bytes` is the memory of each, 0 if
    there are none, and `far_distances` are from the node that it belongs to, from its package, from another.
    """

    bytes: int
    numbers: tuple[int, ...] = ()
    distances: tuple[int, int] = (0, 0)
    far_bytes: int = 0
    far_distances: tuple[int, int, int] = (0, 0, 0)


class SampleDevice(Record):
    """A device: PCI address, the NUMA node that it is near, names, vendor and product in hexadecimal."""

    address: str
    node: int
    names: tuple[str, ...] = ()
    kind: DeviceKind = DeviceKind.GPU
    vendor: str = ""
    product: str = ""
    uuid: str = ""


class SampleMachine(Record):
    """A sample machine.

    `summary` are a few words for lists, `model` says exactly what it is. `shared` are the cores in each
    domain of a level, in order; a single number is for all domains.
    """

    name: str
    summary: str
    model: str
    arch: str
    cores: tuple[SampleCores, ...]
    shared: tuple[tuple[Level, tuple[int, ...]], ...]
    numbering: str = "split"
    memory: SampleMemory
    devices: tuple[SampleDevice, ...] = ()


def find_sample(source: str, samples: Sequence[SampleMachine]) -> SampleMachine:
    """Return the sample that a topology source such as "sample:epyc-2p" names.

    Raises MachineError with a similar name and all names.
    """
    prefix, _, name = source.partition(":")
    found = next((sample for sample in samples if sample.name == name), None)
    if found is None:
        message = f"there is no sample machine {name!r}" if name else f"{source!r} lacks a name"
        names = "; ".join(f"{prefix}:{sample.name} ({sample.summary})" for sample in samples)
        raise MachineError(message, hint=f"{_suggest(prefix, name, samples)}use one of: {names}")
    return found


def _suggest(prefix: str, name: str, samples: Sequence[SampleMachine]) -> str:
    """Return a question with the sample whose name is similar, or ""."""
    near = suggest_name(name, (sample.name for sample in samples))
    return f"did you mean {prefix}:{near}? Otherwise " if near else ""


def make_sample_machine(sample: SampleMachine, source: str, *, devices: bool = False) -> Machine:
    """Make the machine of a sample; all its CPUs are allowed."""
    cores = _number_cpus(sample)
    online = union(cores)
    parts = {level: _group(cores, sizes) for level, sizes in sample.shared}
    nodes = _make_nodes(sample, parts)
    domains: dict[Level, Partition] = {
        level: [(index if level in _NUMBERED else None, cpus) for index, cpus in enumerate(sets)]
        for level, sets in parts.items()
        if level is not Level.NODE
    }
    domains[Level.CORE] = [(None, cpus) for cpus in cores]
    machine = Machine(
        source=source, arch=sample.arch, online=online, allowed=online, nodes=nodes,
        kinds=_make_kinds(sample, cores),
    ).with_domains(drop_repeated(domains, nodes))  # fmt: skip
    return machine.replace(devices=_make_devices(sample, nodes)) if devices else machine


_NUMBERED = (Level.PACKAGE, Level.BOOK, Level.DRAWER)
"""Levels whose domains have numbers of the firmware, which count from 0 here."""


def _number_cpus(sample: SampleMachine) -> list[CpuSet]:
    """Return the CPUs of each core, in machine order."""
    threads = [cores.smt for cores in sample.cores for _ in range(cores.count)]
    if sample.numbering == "adjacent":
        return [CpuSet(range(*bounds)) for bounds in pairwise(accumulate(threads, initial=0))]
    return [CpuSet(range(core, smt * len(threads), len(threads))) for core, smt in enumerate(threads)]


def _group(cores: Sequence[CpuSet], sizes: tuple[int, ...]) -> list[CpuSet]:
    """Return the CPUs of each domain; `sizes` are their numbers of cores, a single size is for all."""
    counts = sizes if len(sizes) > 1 else sizes * (len(cores) // sizes[0])
    return [union(cores[start:end]) for start, end in pairwise(accumulate(counts, initial=0))]


class _Site(Record):
    """Where the memory of a NUMA node is: at which CPUs and in which package; `is_far` if it has no CPUs."""

    cpus: CpuSet
    package: CpuSet
    is_far: bool = False


def _make_nodes(sample: SampleMachine, parts: dict[Level, list[CpuSet]]) -> tuple[Node, ...]:
    """Make the NUMA nodes with CPUs, then those without: each belongs to the node at the same position."""
    memory, packages = sample.memory, parts[Level.PACKAGE]
    near = [
        _Site(cpus=cpus, package=next((package for package in packages if cpus <= package), cpus))
        for cpus in parts[Level.NODE]
    ]
    sites = [*near, *(site.replace(is_far=True) for site in near)] if memory.far_bytes else near
    nodes = [
        Node(
            number=number,
            cpus=EMPTY if site.is_far else site.cpus,
            memory_bytes=memory.far_bytes if site.is_far else memory.bytes,
            distances=tuple(_measure(memory, site, other) for other in sites)
            if any(memory.distances)
            else (),
        )
        for number, site in zip(memory.numbers or range(len(sites)), sites, strict=True)
    ]
    return add_nearest_nodes(nodes, {})


def _measure(memory: SampleMemory, left: _Site, right: _Site) -> int:
    """Return the distance between two nodes."""
    if left == right:
        return 10
    own, package, other = memory.far_distances if left.is_far or right.is_far else (10, *memory.distances)
    return own if left.cpus == right.cpus else package if left.package == right.package else other


def _make_kinds(sample: SampleMachine, cores: Sequence[CpuSet]) -> tuple[CoreKind, ...]:
    groups = _group(cores, tuple(kind.count for kind in sample.cores))
    return make_kinds(
        [
            CoreTraits(cpus=cpus, type=kind.kind, frequency=kind.megahertz or None)
            for kind, cpus in zip(sample.cores, groups, strict=True)
        ]
    )


def _make_devices(sample: SampleMachine, nodes: Sequence[Node]) -> tuple[Device, ...]:
    cpus = {node.number: node.cpus for node in nodes}
    return number_devices(
        Device(
            kind=device.kind, index=0, address=device.address, cpus=cpus[device.node], node=device.node,
            names=device.names, rdma_names=device.names[1:] if device.kind is DeviceKind.NIC else (),
            vendor=device.vendor, product=device.product, uuid=device.uuid,
        )
        for device in sample.devices
    )  # fmt: skip
