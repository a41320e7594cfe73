"""hwloc XML, as `lstopo machine.xml` writes it, of versions 1, 2 and 3 → a machine.

Every object of a CPU tells its own set of CPUs, so objects are read as they come and their nesting is
not needed. Declarations of entities are refused, nothing outside of the text is ever fetched.
"""

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from itertools import product
from xml.etree.ElementTree import Element, ParseError, iterparse

from ompbind.cpuset import EMPTY, CpuSet, named, union
from ompbind.errors import MachineError
from ompbind.machine.core_kinds import CoreTraits, make_kinds
from ompbind.machine.memory_nodes import NumaMemory, make_nodes
from ompbind.machine.model import Domain, KindName, Level, Machine, Node, Partition, drop_repeated, gpu_remark
from ompbind.machine.sources.filesystem import whole_number

Distances = Iterator[tuple[tuple[int, int], int]]

_TYPES = {
    "Package": Level.PACKAGE,
    "Socket": Level.PACKAGE,
    "Die": Level.DIE,
    "L3Cache": Level.L3,
    "L2Cache": Level.L2,
    "Core": Level.CORE,
}
"""What hwloc calls the levels; `Socket` is of version 1, as is `Cache` with a depth."""

_GROUPS = {"Cluster": Level.CLUSTER, "Book": Level.BOOK, "Drawer": Level.DRAWER}  # by their subtype

_CORE_TYPES: dict[str, KindName] = {
    "IntelCore": "performance",
    "IntelAtom": "efficiency",
    "IntelLowPower": "efficiency",
    "AMDPerformance": "performance",
    "AMDEfficiency": "efficiency",
}

_DEPTH_LIMIT = 256  # of elements inside each other; hwloc has a dozen levels, and bridges of devices below
_ELEMENT_LIMIT = 1 << 19  # of a text; that of 4,096 CPUs has a tenth of it

_INSTRUCTION_CACHE = "2"
_MEANS_LATENCY = 4


def parse_xml(data: bytes, source: str) -> Machine:
    """Make the machine of an hwloc XML text; MachineError when it is not one."""
    try:
        return _make_machine(_read_tree(data), source)
    except (ParseError, UnicodeError, LookupError) as error:
        raise MachineError(f"{source} is no XML that can be read: {error}") from error
    except ValueError as error:
        raise MachineError(f"{source} is no hwloc XML: {error}") from error


def _read_tree(data: bytes) -> Element:
    if b"<!ENTITY" in data:
        raise ValueError("it declares entities, which hwloc never does")
    if b"\0" in data:  # UTF-16 may hide a declaration
        raise ValueError("it has the character NUL")
    root: Element | None = None
    depth = 0
    for count, (event, element) in enumerate(iterparse(BytesIO(data), ("start", "end"))):
        root = element if root is None else root
        if root.tag != "topology":
            raise ValueError(f"its first element is <{root.tag[:40]}>, not <topology>")
        depth += 1 if event == "start" else -1
        if depth > _DEPTH_LIMIT:
            raise ValueError(f"its elements are nested more than {_DEPTH_LIMIT} deep")
        if count >= 2 * _ELEMENT_LIMIT:
            raise ValueError(f"it has more than {_ELEMENT_LIMIT} elements")
    assert root is not None  # a text without any is refused above
    return root


def _cpuset(text: str | None) -> CpuSet | None:
    """Read hwloc's "0x00000003,,0xff"; None for an absent one and for "0xf...f", which means all."""
    if text is None or text.startswith("0xf...f"):
        return None
    words = (word.strip().removeprefix("0x").rjust(8, "0") for word in text.split(","))
    return CpuSet.from_mask(",".join(words))


def _number(element: Element) -> int | None:
    return whole_number(element.get("os_index"), 1 << 16)


def _make_machine(tree: Element, source: str) -> Machine:
    objects = list(tree.iter("object"))
    top = objects[0] if objects else tree
    known = union(_cpuset(one.get("cpuset")) or EMPTY for one in objects if one.get("type") == "PU")
    inside = _cpuset(top.get("online_cpuset")) or _cpuset(top.get("cpuset"))
    online = known & inside if inside else known
    if not online:
        raise MachineError(
            f"{source} names no CPU",
            hint="an XML of `lstopo machine.xml` has objects of type PU with a cpuset each",
        )
    complete = _cpuset(top.get("complete_cpuset")) or online
    allowed = _cpuset(top.get("allowed_cpuset"))
    memories, gpus, hidden_nodes = _read_memories(objects)
    nodes, parts = _make_nodes(tree, memories, online), _read_parts(objects)
    usable = online if allowed is None else online & allowed
    if not usable:
        raise MachineError(f"{source} allows no CPU of those that are online, {online}")
    hidden = (complete | known) - online
    arches = (info.get("value") for info in tree.iter("info") if info.get("name") == "Architecture")
    machine = Machine(
        source=source,
        arch=next(filter(None, arches), "unknown"),
        online=online,
        offline=hidden,
        allowed=usable,
        nodes=nodes,
        remarks=tuple(_remarks(top, hidden, hidden_nodes, gpus, has_cores=Level.CORE in parts)),
    ).with_domains(drop_repeated(parts, nodes))
    return machine.replace(kinds=make_kinds(list(_read_traits(tree, machine.at(Level.CORE)))))


def _read_parts(objects: Sequence[Element]) -> dict[Level, Partition]:
    """Return the CPUs of every object that is a level; those that the OS numbers with their number."""
    parts: dict[Level, Partition] = {}
    for one in objects:
        level, cpus = _level(one), _cpuset(one.get("cpuset"))
        if level is not None and cpus and one.get("subtype") != "MemorySideCache":
            known = None if level in (Level.L2, Level.L3, Level.CORE, Level.CLUSTER) else _number(one)
            parts.setdefault(level, []).append((known, cpus))
    return parts


def _level(one: Element) -> Level | None:
    type_ = one.get("type", "")
    if type_ == "Cache" and one.get("cache_type") != _INSTRUCTION_CACHE:
        type_ = f"L{one.get('depth', '')}Cache"
    return _GROUPS.get(one.get("subtype", "")) if type_ == "Group" else _TYPES.get(type_)


def _read_memories(objects: Sequence[Element]) -> tuple[list[NumaMemory], list[int], list[int]]:
    """Return the memories, and the numbers of nodes that are of GPUs, and that have CPUs elsewhere only."""
    kept, gpus, hidden = list[NumaMemory](), list[int](), list[int]()
    for one in objects:
        number = _number(one)
        if one.get("type") != "NUMANode" or number is None:
            continue
        locality = _cpuset(one.get("cpuset")) or EMPTY
        if one.get("subtype") == "GPUMemory":
            gpus.append(number)
        elif not locality and _cpuset(one.get("complete_cpuset")):
            hidden.append(number)
        else:
            size, special = whole_number(one.get("local_memory")), one.get("subtype", "DRAM") != "DRAM"
            kept.append(NumaMemory(number=number, locality=locality, memory_bytes=size, is_special=special))
    return kept, gpus, hidden


def _make_nodes(tree: Element, memories: Sequence[NumaMemory], online: CpuSet) -> tuple[Node, ...]:
    if not memories:
        size = next((one.get("local_memory") for one in tree.iter("object")), None)
        return (Node(number=0, cpus=online, memory_bytes=whole_number(size)),)
    numbers = sorted(memory.number for memory in memories)
    told = (dict(pairs) for pairs in _read_distances(tree, numbers))
    distances = next((pairs for pairs in told if pairs), {})
    if any(memory.memory_bytes for memory in memories):  # where sizes are told, none means none
        memories = [memory.replace(memory_bytes=memory.memory_bytes or 0) for memory in memories]
    return make_nodes(memories, online, distances)


def _read_distances(tree: Element, numbers: Sequence[int]) -> Iterator[Distances]:
    """Yield the latencies between nodes of each matrix that has some, of version 1 and of later ones."""
    for matrix in tree.iter("distances"):
        base = _scaled(matrix.get("latency_base", "1"), 1000) or 1000
        yield _pairs(numbers, [one.get("value", "") for one in matrix.iter("latency")], base / 1000)
    for matrix in tree.iter("distances2"):
        kind = whole_number(matrix.get("kind"), 1 << 16) or 0
        if matrix.get("type") == "NUMANode" and matrix.get("indexing") == "os" and kind & _MEANS_LATENCY:
            named_nodes = [whole_number(word, 1 << 16) for word in _words(matrix, "indexes")]
            yield _pairs(named_nodes or numbers, _words(matrix, "u64values"), 1)


def _words(matrix: Element, tag: str) -> list[str]:
    return [word for one in matrix.iter(tag) for word in (one.text or "").split()]


def _pairs(numbers: Sequence[int | None], values: Sequence[str], base: float) -> Distances:
    """Yield (from, to) and distance of a matrix; none where it has not one for each pair of nodes."""
    if len(values) == len(numbers) ** 2:
        for (start, end), value in zip(product(numbers, repeat=2), values, strict=True):
            far = _scaled(value, base)
            if start is not None and end is not None and far is not None:
                yield (start, end), far


def _scaled(value: str, base: float) -> int | None:
    try:
        return round(min(float(value) * base, 1e9))
    except ValueError:
        return None


def _read_traits(tree: Element, cores: Sequence[Domain]) -> Iterator[CoreTraits]:
    kinds = [(_cpuset(one.get("cpuset")) or EMPTY, _infos(one)) for one in tree.iter("cpukind")]
    for core in cores:
        infos = next((infos for cpus, infos in kinds if core.cpus <= cpus), {})
        yield CoreTraits(
            cpus=core.cpus,
            type=_CORE_TYPES.get(infos.get("CoreType", "")),
            capacity=whole_number(infos.get("LinuxCapacity")),
            frequency=whole_number(infos.get("FrequencyMaxMHz")),
        )


def _infos(kind: Element) -> Mapping[str, str]:
    """Return what is told of a kind of cores; the first of equal names counts."""
    return {one.get("name", ""): one.get("value", "") for one in reversed(list(kind.iter("info")))}


def _remarks(
    top: Element, hidden: CpuSet, hidden_nodes: list[int], gpus: list[int], *, has_cores: bool
) -> Iterator[str]:
    if hidden and "online_cpuset" not in top.attrib:
        why = "offline or not allowed where the XML was written: it does not tell which"
        yield f"{named('CPU', hidden)} {why}"
    if hidden_nodes:
        yield f"{named('NUMA node', hidden_nodes)} left out: the XML has none of the CPUs there"
    if not has_cores:
        yield "no object tells which CPUs share a core: each one counts as a core"
    if gpus:
        yield gpu_remark(gpus)
