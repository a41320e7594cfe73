"""Sample machines: rows of `SAMPLES` → machines, for examples, tests and plans without a recording.

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
from ompbind.machine.model import CoreKindName, Level, Machine, Node, Partition, drop_repeated
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
        near = suggest_name(name, (sample.name for sample in samples))
        question = f"did you mean {prefix}:{near}? Otherwise " if near else ""
        raise MachineError(message, hint=f"{question}use one of: {names}")
    return found


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
    groups = _group(cores, tuple(kind.count for kind in sample.cores))
    traits = [
        CoreTraits(cpus=cpus, type=kind.kind, frequency=kind.megahertz or None)
        for kind, cpus in zip(sample.cores, groups, strict=True)
    ]
    machine = Machine(
        source=source, arch=sample.arch, online=online, allowed=online, nodes=nodes
    ).with_domains(drop_repeated(domains, nodes))
    machine = machine.replace(kinds=make_kinds(machine, traits))
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
    measured = sites if any(memory.distances) else []
    nodes = [
        Node(
            number=number,
            cpus=EMPTY if site.is_far else site.cpus,
            memory_bytes=memory.far_bytes if site.is_far else memory.bytes,
            distances=tuple(_measure(memory, site, other) for other in measured),
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


_GIB = 1 << 30
_NVIDIA, _MELLANOX = "10de", "15b3"


def _make_gpu(address: str, node: int, *names: str) -> SampleDevice:
    """Return a GPU of the examples; its UUID is made from its address."""
    uuid = f"GPU-46f77619-68bf-8f9d-7cfb-61fa9c4ca69{address[5]}"
    return SampleDevice(
        address=address, node=node, names=names, vendor=_NVIDIA, product="2335", uuid=uuid
    )  # fmt: skip


def _make_a100(address: str, node: int) -> SampleDevice:
    return SampleDevice(address=address, node=node, vendor=_NVIDIA, product="20b0")


def _make_nic(address: str, node: int, *names: str, product: str = "", vendor: str = "") -> SampleDevice:
    return SampleDevice(
        address=address, node=node, names=names, kind=DeviceKind.NIC, vendor=vendor, product=product
    )


def _make_connectx6(address: str, node: int, *names: str) -> SampleDevice:
    return _make_nic(address, node, *names, vendor=_MELLANOX, product="101b")


_FOUR_GPUS = (
    _make_gpu("0000:16:00.0", 0, "card1", "renderD128"),
    _make_gpu("0000:26:00.0", 0, "card2", "renderD129"),
    _make_gpu("0000:96:00.0", 1, "card3", "renderD130"),
    _make_gpu("0000:a6:00.0", 1, "card4", "renderD131"),
    _make_nic("0000:03:00.0", 0, "ib0", "mlx5_0"),
    _make_nic("0000:93:00.0", 1, "ib1", "mlx5_1"),
    SampleDevice(address="0000:53:00.0", node=0, names=("card0",), kind=DeviceKind.DISPLAY),
)

_DGX_A100 = (
    _make_a100("0000:07:00.0", 3), _make_a100("0000:0f:00.0", 3),
    _make_a100("0000:47:00.0", 1), _make_a100("0000:4e:00.0", 1),
    _make_a100("0000:87:00.0", 7), _make_a100("0000:90:00.0", 7),
    _make_a100("0000:b7:00.0", 5), _make_a100("0000:bd:00.0", 5),
    _make_connectx6("0000:0c:00.0", 3, "ibp12s0", "mlx5_0"),
    _make_connectx6("0000:12:00.0", 3, "ibp18s0", "mlx5_1"),
    _make_connectx6("0000:4b:00.0", 1, "ibp75s0", "mlx5_2"),
    _make_connectx6("0000:54:00.0", 1, "ibp84s0", "mlx5_3"),
    _make_connectx6("0000:8d:00.0", 7, "ibp141s0", "mlx5_6"),
    _make_connectx6("0000:94:00.0", 7, "ibp148s0", "mlx5_7"),
    _make_connectx6("0000:ba:00.0", 5, "ibp186s0", "mlx5_8"),
    _make_connectx6("0000:cc:00.0", 5, "ibp204s0", "mlx5_9"),
)  # fmt: skip

SAMPLES = (
    SampleMachine(
        name="two-sockets", summary="16 CPUs, 2 packages",
        model="a small server: 2 packages with 4 cores each, 2 hardware threads per core, 1 GiB per package",
        arch="x86_64", cores=(SampleCores(count=8, smt=2),),
        shared=((Level.PACKAGE, (4,)), (Level.NODE, (4,)), (Level.L3, (4,)), (Level.L2, (1,))),
        memory=SampleMemory(bytes=_GIB, distances=(20, 20)),
    ),
    SampleMachine(
        name="four-gpus", summary="32 CPUs, 2 packages, 4 GPUs, 2 NICs",
        model="a small server: 2 packages with 8 cores, 2 GPUs and a NIC each, 2 hardware threads per core",
        arch="x86_64", cores=(SampleCores(count=16, smt=2),),
        shared=((Level.PACKAGE, (8,)), (Level.NODE, (8,)), (Level.L3, (8,))),
        memory=SampleMemory(bytes=_GIB), devices=_FOUR_GPUS,
    ),
    SampleMachine(
        name="eight-nodes", summary="32 CPUs, 2 packages, 8 NUMA nodes, 4 GPUs",
        model="a small server: 2 packages with 4 NUMA nodes each, 4 cores per node;"
        " a GPU at each of the nodes 1, 2, 6 and 7",
        arch="x86_64", cores=(SampleCores(count=32),),
        shared=((Level.PACKAGE, (16,)), (Level.NODE, (4,)), (Level.L3, (4,))),
        memory=SampleMemory(bytes=_GIB),
        devices=tuple(_make_gpu(f"0000:{node}6:00.0", node) for node in (1, 2, 6, 7)),
    ),
    SampleMachine(
        name="epyc-2p", summary="384 CPUs, 2 x AMD EPYC 9654",
        model="2 x AMD EPYC 9654: 96 cores each, an L3 cache per 8 cores, 4 NUMA nodes per package (NPS4),"
        " 1.5 TiB; the second hardware thread of core N is CPU N+192",
        arch="x86_64", cores=(SampleCores(count=192, smt=2),),
        shared=((Level.PACKAGE, (96,)), (Level.NODE, (24,)), (Level.L3, (8,)), (Level.L2, (1,))),
        memory=SampleMemory(bytes=192 * _GIB, distances=(12, 32)),
    ),
    SampleMachine(
        name="xeon-max-2p", summary="224 CPUs, 2 x Intel Xeon Max 9480, HBM as own nodes",
        model="2 x Intel Xeon CPU Max 9480 in flat mode with SNC4: 56 cores each, 4 NUMA nodes per package"
        " with 14 cores and 128 GiB each, and a NUMA node with 16 GiB of HBM and no CPUs beside each of them",
        arch="x86_64", cores=(SampleCores(count=112, smt=2),),
        shared=((Level.PACKAGE, (56,)), (Level.NODE, (14,)), (Level.L3, (56,)), (Level.L2, (1,))),
        memory=SampleMemory(
            bytes=128 * _GIB, distances=(12, 21), far_bytes=16 * _GIB, far_distances=(13, 14, 23)
        ),
    ),
    SampleMachine(
        name="dgx-a100", summary="256 CPUs, 8 NUMA nodes, 8 GPUs, 8 NICs",
        model="NVIDIA DGX A100 without its storage network: 2 x AMD EPYC 7742 with 64 cores each, an"
        " L3 cache per 4 cores, 4 NUMA nodes per package, 8 A100 GPUs and 8 InfiniBand"
        " interfaces near 4 of the nodes",
        arch="x86_64", cores=(SampleCores(count=128, smt=2),),
        shared=((Level.PACKAGE, (64,)), (Level.NODE, (16,)), (Level.L3, (4,)), (Level.L2, (1,))),
        memory=SampleMemory(bytes=128 * _GIB, distances=(12, 32)), devices=_DGX_A100,
    ),
    SampleMachine(
        name="core-i9", summary="32 CPUs, hybrid: Intel Core i9-13900K",
        model="Intel Core i9-13900K, a hybrid desktop processor: 8 performance cores with 2 hardware threads"
        " each, 16 efficiency cores with one, an L2 cache per 4 efficiency cores, 64 GiB",
        arch="x86_64", numbering="adjacent",
        cores=(
            SampleCores(count=8, smt=2, kind="performance", megahertz=5800),
            SampleCores(count=16, kind="efficiency", megahertz=4300),
        ),
        shared=((Level.PACKAGE, (24,)), (Level.NODE, (24,)), (Level.L3, (24,)),
                (Level.L2, (*[1] * 8, *[4] * 4))),
        memory=SampleMemory(bytes=64 * _GIB),
    ),
    SampleMachine(
        name="grace-2p", summary="144 CPUs, Arm: NVIDIA Grace CPU Superchip",
        model="NVIDIA Grace CPU Superchip: 2 x 72 Arm Neoverse V2 cores with one hardware thread each, an L3"
        " cache and 240 GiB per 72 cores",
        arch="aarch64", cores=(SampleCores(count=144),),
        shared=((Level.PACKAGE, (72,)), (Level.NODE, (72,)), (Level.L3, (72,)), (Level.L2, (1,))),
        memory=SampleMemory(bytes=240 * _GIB, distances=(40, 40)),
    ),
    SampleMachine(
        name="power9-2p", summary="160 CPUs, IBM POWER9 with SMT4",
        model="IBM Power System AC922 without its GPUs: 2 x 20 POWER9 cores with 4 hardware threads each, L2"
        " and L3 caches per 2 cores, NUMA nodes 0 and 8 with 256 GiB each",
        arch="ppc64le", cores=(SampleCores(count=40, smt=4),), numbering="adjacent",
        shared=((Level.PACKAGE, (20,)), (Level.NODE, (20,)), (Level.L3, (2,)), (Level.L2, (2,))),
        memory=SampleMemory(bytes=256 * _GIB, numbers=(0, 8), distances=(40, 40)),
    ),
    SampleMachine(
        name="z15-partition", summary="96 CPUs, IBM z15 with books and drawers",
        model="a logical partition of an IBM z15: 2 drawers with 2 books each, 2 packages per book, 6 cores"
        " per package, 2 hardware threads per core, one NUMA node with 256 GiB; firmware assigns real"
        " partitions less evenly",
        arch="s390x", cores=(SampleCores(count=48, smt=2),), numbering="adjacent",
        shared=((Level.DRAWER, (24,)), (Level.BOOK, (12,)), (Level.PACKAGE, (6,)), (Level.NODE, (48,)),
                (Level.L3, (6,)), (Level.L2, (1,))),
        memory=SampleMemory(bytes=256 * _GIB),
    ),
)  # fmt: skip
"""All sample machines: three small ones, then models of real machines."""
