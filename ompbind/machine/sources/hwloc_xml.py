"""hwloc XML, as `lstopo machine.xml` writes it, of versions 1, 2 and 3 → a machine.

Every object of a CPU tells its own set of CPUs, so objects are read as they come and their nesting is
not needed. Declarations of entities are refused, nothing outside of the text is ever fetched.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from xml.parsers import expat

from ompbind.cpuset import EMPTY, CpuSet, named, union
from ompbind.errors import MachineError
from ompbind.machine.core_kinds import CoreTraits, make_kinds
from ompbind.machine.memory_nodes import Memory, make_nodes
from ompbind.machine.model import (
    Domain,
    KindName,
    Level,
    Machine,
    Node,
    at_level,
    drop_repeated,
    find_oddities,
    gpu_remark,
    make_domains,
    node_partition,
)
from ompbind.machine.sources.filesystem import whole_number

Attributes = dict[str, str]

_TYPES = {
    "Package": Level.PACKAGE,
    "Socket": Level.PACKAGE,
    "Die": Level.DIE,
    "L3Cache": Level.L3,
    "L2Cache": Level.L2,
    "Core": Level.CORE,
}
"""What hwloc calls the levels; `Socket` is of version 1, as is `Cache` with a depth."""

_GROUPS = {"Cluster": Level.CLUSTER, "Book": Level.BOOK, "Drawer": Level.DRAWER}
"""Groups whose subtype says that the kernel told of them."""

_CORE_TYPES: dict[str, KindName] = {
    "IntelCore": "performance",
    "IntelAtom": "efficiency",
    "IntelLowPower": "efficiency",
    "AMDPerformance": "performance",
    "AMDEfficiency": "efficiency",
}

DEPTH_LIMIT = 256
"""Elements inside each other; hwloc has a dozen levels, and bridges of devices below."""

_INSTRUCTION_CACHE = "2"
_MEANS_LATENCY = 4


class _Reading:
    """What the text told so far, gathered while it is read."""

    def __init__(self) -> None:
        self.depth = 0
        self.root: Attributes = {}
        self.arch = "unknown"
        self.pus: list[CpuSet] = []
        self.parts: dict[Level, list[tuple[int | None, CpuSet]]] = {}
        self.memories: list[Memory] = []
        self.gpus: list[int] = []
        self.hidden: list[int] = []
        self.kinds: list[tuple[CpuSet, Attributes]] = []
        self.matrices: list[_Matrix] = []
        self.is_in_matrix = False
        self.text: list[str] | None = None


class _Matrix:
    """A matrix of distances between nodes while its numbers are read; `base` scales those of version 1."""

    def __init__(self, base: float = 1.0) -> None:
        self.base = base
        self.nodes: list[str] = []
        self.values: list[str] = []

    def pairs(self, numbers: Sequence[int]) -> Iterator[tuple[tuple[int, int], int]]:
        """Yield (from, to) and distance, between the nodes that the matrix names, or between `numbers`."""
        named_nodes = [whole_number(word, 1 << 16) for word in self.nodes] or list(numbers)
        if len(self.values) != len(named_nodes) ** 2:
            return
        for at, value in enumerate(self.values):
            start, end = named_nodes[at // len(named_nodes)], named_nodes[at % len(named_nodes)]
            far = _scaled(value, self.base)
            if start is not None and end is not None and far is not None:
                yield (start, end), far


def _scaled(value: str, base: float) -> int | None:
    try:
        return round(min(float(value) * base, 1e9))
    except ValueError:
        return None


def parse_xml(data: bytes, source: str) -> Machine:
    """Make the machine of an hwloc XML text; MachineError when it is not one."""
    reading = _Reading()
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda name, attributes: _start(reading, name, attributes)
    parser.EndElementHandler = lambda name: _end(reading, name)
    parser.CharacterDataHandler = lambda text: reading.text.append(text) if reading.text is not None else None
    parser.EntityDeclHandler = _refuse_entities
    try:
        parser.Parse(data, True)
        return _make_machine(reading, source)
    except (expat.ExpatError, UnicodeError, LookupError) as error:
        raise MachineError(f"{source} is no XML that can be read: {error}") from error
    except ValueError as error:
        raise MachineError(f"{source} is no hwloc XML: {error}") from error


def _refuse_entities(*_: object) -> None:
    raise ValueError("it declares entities, which hwloc never does")


def _start(reading: _Reading, name: str, attributes: Attributes) -> None:
    if reading.depth == 0 and name != "topology":
        raise ValueError(f"its first element is <{name[:40]}>, not <topology>")
    reading.depth += 1
    if reading.depth > DEPTH_LIMIT:
        raise ValueError(f"its elements are nested more than {DEPTH_LIMIT} deep")
    handler = _STARTS.get(name)
    if handler is not None:
        handler(reading, attributes)


def _object(reading: _Reading, attributes: Attributes) -> None:
    if not reading.root:
        reading.root = attributes
    cpus = _cpuset(attributes.get("cpuset"))
    type_ = attributes.get("type", "")
    if type_ == "Cache" and attributes.get("cache_type") != _INSTRUCTION_CACHE:
        type_ = f"L{attributes.get('depth', '')}Cache"
    level = _TYPES.get(type_) or (_GROUPS.get(attributes.get("subtype", "")) if type_ == "Group" else None)
    number = whole_number(attributes.get("os_index"), 1 << 16)
    if type_ == "PU" and cpus:
        reading.pus.append(cpus)
    elif type_ == "NUMANode" and number is not None:
        _numa_node(reading, number, attributes)
    elif level is not None and cpus and attributes.get("subtype") != "MemorySideCache":
        known = number if level not in (Level.L2, Level.L3, Level.CORE, Level.CLUSTER) else None
        reading.parts.setdefault(level, []).append((known, cpus))


def _numa_node(reading: _Reading, number: int, attributes: Attributes) -> None:
    if attributes.get("subtype") == "GPUMemory":
        reading.gpus.append(number)
        return
    locality = _cpuset(attributes.get("cpuset")) or EMPTY
    if not locality and _cpuset(attributes.get("complete_cpuset")):
        reading.hidden.append(number)
        return
    reading.memories.append(
        Memory(
            number=number,
            locality=locality,
            memory_bytes=whole_number(attributes.get("local_memory")),
            is_special=attributes.get("subtype", "DRAM") != "DRAM",
        )
    )


def _info(reading: _Reading, attributes: Attributes) -> None:
    name, value = attributes.get("name", ""), attributes.get("value", "")
    if name == "Architecture" and value and reading.arch == "unknown":
        reading.arch = value
    elif reading.kinds:
        reading.kinds[-1][1].setdefault(name, value)


def _cpukind(reading: _Reading, attributes: Attributes) -> None:
    reading.kinds.append((_cpuset(attributes.get("cpuset")) or EMPTY, dict(attributes)))


def _distances_1(reading: _Reading, attributes: Attributes) -> None:
    base = _scaled(attributes.get("latency_base", "1"), 1000)
    _begin_matrix(reading, _Matrix((base or 1000) / 1000))


def _begin_matrix(reading: _Reading, matrix: _Matrix) -> None:
    reading.matrices.append(matrix)
    reading.is_in_matrix = True


def _latency(reading: _Reading, attributes: Attributes) -> None:
    if reading.is_in_matrix:
        reading.matrices[-1].values.append(attributes.get("value", ""))


def _distances_2(reading: _Reading, attributes: Attributes) -> None:
    kind = whole_number(attributes.get("kind"), 1 << 16) or 0
    if attributes.get("type") == "NUMANode" and attributes.get("indexing") == "os" and kind & _MEANS_LATENCY:
        _begin_matrix(reading, _Matrix())


def _numbers(reading: _Reading, _: Attributes) -> None:
    reading.text = []


_STARTS: Mapping[str, Callable[[_Reading, Attributes], None]] = {
    "object": _object,
    "info": _info,
    "cpukind": _cpukind,
    "distances": _distances_1,
    "latency": _latency,
    "distances2": _distances_2,
    "indexes": _numbers,
    "u64values": _numbers,
}
"""What is done at the beginning of an element; all other elements tell nothing of CPUs."""


def _end(reading: _Reading, name: str) -> None:
    reading.depth -= 1
    if name in ("distances", "distances2"):
        reading.is_in_matrix = False
    elif reading.text is not None and name in ("indexes", "u64values"):
        words, reading.text = "".join(reading.text).split(), None
        if reading.is_in_matrix:
            matrix = reading.matrices[-1]
            (matrix.nodes if name == "indexes" else matrix.values).extend(words)


def _cpuset(text: str | None) -> CpuSet | None:
    """Read hwloc's "0x00000003,,0xff"; None for an absent one and for "0xf...f", which means all."""
    if text is None or text.startswith("0xf...f"):
        return None
    words = (word.strip().removeprefix("0x").rjust(8, "0") for word in text.split(","))
    return CpuSet.from_mask(",".join(words))


def _make_machine(reading: _Reading, source: str) -> Machine:
    inside = _cpuset(reading.root.get("online_cpuset")) or _cpuset(reading.root.get("cpuset"))
    online = union(reading.pus) & inside if inside else union(reading.pus)
    if not online:
        raise MachineError(
            f"{source} names no CPU",
            hint="an XML of `lstopo machine.xml` has objects of type PU with a cpuset each",
        )
    complete = _cpuset(reading.root.get("complete_cpuset")) or online
    allowed = _cpuset(reading.root.get("allowed_cpuset"))
    nodes = _make_nodes(reading, online)
    parts = drop_repeated({**reading.parts, Level.NODE: node_partition(nodes)})
    domains = make_domains(online, parts)
    usable = online if allowed is None else online & allowed
    if not usable:
        raise MachineError(f"{source} allows no CPU of those that are online, {online}")
    hidden = (complete | union(reading.pus)) - online
    return Machine(
        source=source,
        arch=reading.arch,
        online=online,
        offline=hidden,
        allowed=usable,
        domains=domains,
        nodes=nodes,
        kinds=make_kinds(list(_traits(reading, at_level(domains, Level.CORE)))),
        remarks=(*_remarks(reading, hidden), *find_oddities(domains, usable)),
    )


def _make_nodes(reading: _Reading, online: CpuSet) -> tuple[Node, ...]:
    if not reading.memories:
        return (Node(number=0, cpus=online, memory_bytes=whole_number(reading.root.get("local_memory"))),)
    numbers = sorted(memory.number for memory in reading.memories)
    told = (dict(matrix.pairs(numbers)) for matrix in reading.matrices)
    distances = next((pairs for pairs in told if pairs), {})
    if any(memory.memory_bytes for memory in reading.memories):  # where sizes are told, none means none
        sized = [memory.replace(memory_bytes=memory.memory_bytes or 0) for memory in reading.memories]
        return make_nodes(sized, online, distances)
    return make_nodes(reading.memories, online, distances)


def _traits(reading: _Reading, cores: Sequence[Domain]) -> Iterator[CoreTraits]:
    for core in cores:
        infos = next((infos for cpus, infos in reading.kinds if core.cpus <= cpus), {})
        yield CoreTraits(
            cpus=core.cpus,
            type=_CORE_TYPES.get(infos.get("CoreType", "")),
            capacity=whole_number(infos.get("LinuxCapacity")),
            frequency=whole_number(infos.get("FrequencyMaxMHz")),
        )


def _remarks(reading: _Reading, hidden: CpuSet) -> Iterator[str]:
    if hidden and "online_cpuset" not in reading.root:
        why = "offline or not allowed where the XML was written: it does not tell which"
        yield f"{named('CPU', hidden)} {why}"
    if reading.hidden:
        yield f"{named('NUMA node', reading.hidden)} left out: the XML has none of the CPUs there"
    if Level.CORE not in reading.parts:
        yield "no object tells which CPUs share a core: each one counts as a core"
    if reading.gpus:
        yield gpu_remark(reading.gpus)
