"""hwloc XML, as `lstopo machine.xml` writes it, of versions 1, 2 and 3 → a machine.

    <object type="Package" os_index="0" cpuset="0x0000000f"> … </object>

Every object has the set of its CPUs, so the objects are read as a flat list, and their nesting is ignored:
1. PU objects and the sets of the first object give the online and the allowed CPUs.
2. Packages, caches, cores and groups become the domains of their level.
3. NUMANode objects become nodes (`memory_nodes`), with the first matrix of latencies as distances.
4. `cpukind` elements give the kinds of cores.

Untrusted files are safe: declarations of entities are refused, depth and sizes are limited, and nothing is
fetched. The parser gets the file as a whole: with pieces it would read a long comment again for each piece.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from xml.etree.ElementTree import Element, ParseError, fromstring

from ompbind.cpuset import EMPTY, CpuSet, named, union
from ompbind.errors import MachineError
from ompbind.machine.core_kinds import CoreTraits, make_kinds
from ompbind.machine.devices import (
    AMD,
    Device,
    DeviceKind,
    find_kind,
    find_ordinal,
    is_address,
    is_hexadecimal,
    number_devices,
)
from ompbind.machine.model import (
    CoreKindName,
    Domain,
    Level,
    Machine,
    Node,
    Partition,
    drop_repeated,
    render_gpu_remark,
)
from ompbind.machine.nodes import NumaMemory, make_nodes
from ompbind.machine.read.root import whole_number
from ompbind.record import Record
from ompbind.text import clean_name

DistanceEntries = Iterator[tuple[tuple[int, int], int]]

_TYPES = {
    "Package": Level.PACKAGE,
    "Socket": Level.PACKAGE,
    "Die": Level.DIE,
    "L3Cache": Level.L3,
    "L2Cache": Level.L2,
    "Core": Level.CORE,
}
"""Levels by their type in hwloc; version 1 writes `Socket`, and `Cache` with a depth (`_find_level`)."""

_GROUPS = {"Cluster": Level.CLUSTER, "Book": Level.BOOK, "Drawer": Level.DRAWER}
"""Levels of objects of type Group, by their subtype."""

_CORE_TYPES: dict[str, CoreKindName] = {
    "IntelCore": "performance",
    "IntelAtom": "efficiency",
    "IntelLowPower": "efficiency",
    "AMDPerformance": "performance",
    "AMDEfficiency": "efficiency",
}

_DEPTH_LIMIT = 256  # nested elements; hwloc has a dozen levels, and PCI bridges below
_ELEMENT_LIMIT = 1 << 19  # elements of a file; that of 4,096 CPUs has a tenth
_TAG_LIMIT = 1 << 16  # bytes of a tag, or of text between two tags; sets of 4,096 CPUs take 6 KiB

_NEWEST_VERSION = 3  # of the format; version 1 does not write it

_INSTRUCTION_CACHE = "2"  # hwloc_obj_cache_type_e
_MEANS_LATENCY = 4  # bit of hwloc_distances_kind_e


def parse_xml(data: bytes, source: str, *, devices: bool = False) -> Machine:
    """Make the machine from hwloc XML. Raises MachineError if it is invalid or names no CPU."""
    try:
        tree = _read_tree(data)
        machine = _make_machine(tree, source)
        return machine.replace(devices=parse_devices(tree, machine)) if devices else machine
    except (ParseError, UnicodeError, LookupError) as error:
        raise MachineError(f"{source} is not valid XML: {error}") from error
    except ValueError as error:
        raise MachineError(f"{source} is not hwloc XML: {error}") from error


def _read_tree(data: bytes) -> Element:
    """Parse XML within limits. Raises ValueError, or an error of the parser."""
    if b"<!ENTITY" in data:
        raise ValueError("it declares entities")
    if b"\0" in data:  # UTF-16 may hide a declaration
        raise ValueError("it is not in UTF-8; convert UTF-16 with: iconv -f UTF-16 -t UTF-8")
    tags, ends = data.count(b"<"), data.count(b"</")
    if max(tags - ends, ends) > _ELEMENT_LIMIT:
        raise ValueError(f"it has more than {_ELEMENT_LIMIT} elements")
    if max(map(len, data.split(b"<"))) > _TAG_LIMIT:
        raise ValueError(f"a tag, with its attributes, or a text is longer than {_TAG_LIMIT >> 10} KiB")
    root = fromstring(data)
    if root.tag != "topology":
        raise ValueError(f"its root element is <{root.tag[:40]}>, not <topology>")
    level = [root]
    for _ in range(_DEPTH_LIMIT):
        level = [child for element in level for child in element]
    if level:
        raise ValueError(f"its elements are nested more than {_DEPTH_LIMIT} levels deep")
    return root


def _number(element: Element) -> int | None:
    return whole_number(element.get("os_index"), 1 << 16)


def _make_machine(tree: Element, source: str) -> Machine:
    objects = list(tree.iter("object"))
    top = objects[0] if objects else tree
    known = union(parse_cpuset(obj.get("cpuset")) or EMPTY for obj in objects if obj.get("type") == "PU")
    limit = parse_cpuset(top.get("online_cpuset")) or parse_cpuset(top.get("cpuset"))
    online = known & limit if limit else known
    if not online:
        raise MachineError(f"{source} names no CPU", hint="write the file with: lstopo machine.xml")
    complete = parse_cpuset(top.get("complete_cpuset")) or online
    allowed = parse_cpuset(top.get("allowed_cpuset"))
    memories, gpus, hidden_nodes = _read_memories(objects)
    unusable = _find_unusable_nodes(objects)
    nodes = _make_nodes(tree, memories, unusable, online)
    parts, sizes = _read_parts(objects)
    usable = online if allowed is None else online & allowed
    if not usable:
        raise MachineError(f"{source} allows none of its online CPUs {online}")
    hidden = (complete | known) - online
    arches = (info.get("value") for info in tree.iter("info") if info.get("name") == "Architecture")
    machine = Machine(
        source=source,
        arch=next(filter(None, arches), "unknown"),
        online=online,
        offline=hidden,
        allowed=usable,
        memory_allowed=parse_cpuset(top.get("allowed_nodeset", top.get("nodeset"))) or None,
        nodes=nodes,
        remarks=(
            *_make_remarks(tree, hidden, hidden_nodes, gpus, has_cores=Level.CORE in parts),
            *([f"{named('NUMA node', unusable)}: memory unknown or not allowed"] if unusable else ()),
        ),
    ).with_domains(drop_repeated(parts, nodes))
    machine = machine.with_cache_sizes(sizes)
    return machine.replace(kinds=make_kinds(machine, list(_read_traits(tree, machine.at(Level.CORE)))))


def _read_parts(
    objects: Sequence[Element],
) -> tuple[dict[Level, Partition], dict[tuple[Level, int], int]]:
    """Return the domains of each level: (OS number, CPUs) of its objects; and sizes by level and each CPU.

    Caches, cores and clusters get no OS number: it is not unique on the machine.
    """
    parts: dict[Level, Partition] = {}
    sizes: dict[tuple[Level, int], int] = {}
    for obj in objects:
        type_, cpus = obj.get("type", ""), parse_cpuset(obj.get("cpuset"))
        if type_ == "Cache" and obj.get("cache_type") != _INSTRUCTION_CACHE:
            type_ = f"L{obj.get('depth', '')}Cache"
        level = _GROUPS.get(obj.get("subtype", "")) if type_ == "Group" else _TYPES.get(type_)
        if level is not None and cpus and obj.get("subtype") != "MemorySideCache":
            has_number = level not in (Level.L2, Level.L3, Level.CORE, Level.CLUSTER)
            parts.setdefault(level, []).append((_number(obj) if has_number else None, cpus))
            if size := whole_number(obj.get("cache_size")):
                sizes.update(dict.fromkeys(((level, cpu) for cpu in cpus), size))
    return parts, sizes


def _read_memories(objects: Sequence[Element]) -> tuple[list[NumaMemory], list[int], list[int]]:
    """Return the memories, and the numbers of nodes of GPUs, and of nodes whose CPUs are not in the XML."""
    kept, gpus, hidden = list[NumaMemory](), list[int](), list[int]()
    cpus_of_groups = _map_to_groups(objects)
    for obj in objects:
        number = _number(obj)
        if obj.get("type") != "NUMANode" or number is None:
            continue
        locality = parse_cpuset(obj.get("cpuset")) or EMPTY
        if obj.get("subtype") == "GPUMemory":
            gpus.append(number)
        elif not locality and parse_cpuset(obj.get("complete_cpuset")):
            hidden.append(number)
        else:
            memory = NumaMemory(
                number=number,
                locality=locality or cpus_of_groups.get(obj, EMPTY),
                memory_bytes=whole_number(obj.get("local_memory")),
                is_special=not locality or obj.get("subtype", "DRAM") != "DRAM",
            )
            kept.append(memory)
    return kept, gpus, hidden


def _find_unusable_nodes(objects: Sequence[Element]) -> dict[int, CpuSet]:
    """Return the CPUs of NUMA nodes whose memory hwloc could not use: it writes no object for these nodes.

    The objects around their CPUs still have the number of the node in `complete_nodeset`.
    """
    numbers = (_number(obj) for obj in objects if obj.get("type") == "NUMANode")
    known = CpuSet(number for number in numbers if number is not None)
    found: dict[int, CpuSet] = {}
    for obj in objects:
        nodes = parse_cpuset(obj.get("complete_nodeset")) or EMPTY
        cpus = parse_cpuset(obj.get("cpuset"))
        if cpus and len(nodes) == 1 and nodes.isdisjoint(known) and parse_cpuset(obj.get("nodeset")) == EMPTY:
            found.setdefault(nodes.first, cpus)
    return found


def _map_to_groups(objects: Sequence[Element]) -> dict[Element, CpuSet]:
    """Return the CPUs of the innermost group around each object.

    In version 1 a node without CPUs has an empty set. It is in the same group as the node that it is near to.
    """
    groups = ((obj, parse_cpuset(obj.get("cpuset"))) for obj in objects if obj.get("type") == "Group")
    return {inner: cpus for group, cpus in groups if cpus for inner in group.iter("object")}


def _make_nodes(
    tree: Element, memories: Sequence[NumaMemory], unusable: Mapping[int, CpuSet], online: CpuSet
) -> tuple[Node, ...]:
    """Return the nodes of these memories, and of unusable nodes, whose memory is unknown."""
    if not (memories or unusable):
        size = next((obj.get("local_memory") for obj in tree.iter("object")), None)
        return (Node(number=0, cpus=online, memory_bytes=whole_number(size)),)
    numbers = sorted([*unusable, *(memory.number for memory in memories)])
    matrices = (dict(pairs) for pairs in _read_distances(tree, numbers))
    distances = next((matrix for matrix in matrices if matrix), {})
    if any(memory.memory_bytes for memory in memories):  # if any node has a size, no size means no memory
        memories = [memory.replace(memory_bytes=memory.memory_bytes or 0) for memory in memories]
    without = (NumaMemory(number=number, locality=cpus) for number, cpus in unusable.items())
    return make_nodes([*memories, *without], online, distances)


def _read_distances(tree: Element, numbers: Sequence[int]) -> Iterator[DistanceEntries]:
    """Yield each matrix of latencies between nodes: `distances` of version 1, later `distances2`."""
    for matrix in tree.iter("distances"):
        base = _scaled(matrix.get("latency_base", "1"), 1000) or 1000
        yield _pairs(numbers, [cell.get("value", "") for cell in matrix.iter("latency")], base / 1000)
    for matrix in tree.iter("distances2"):
        kind = whole_number(matrix.get("kind"), 1 << 16) or 0
        if matrix.get("type") == "NUMANode" and matrix.get("indexing") == "os" and kind & _MEANS_LATENCY:
            named_nodes = [whole_number(word, 1 << 16) for word in _words(matrix, "indexes")]
            yield _pairs(named_nodes or numbers, _words(matrix, "u64values"), 1)


def _words(matrix: Element, tag: str) -> list[str]:
    return [word for element in matrix.iter(tag) for word in (element.text or "").split()]


def _pairs(numbers: Sequence[int | None], values: Sequence[str], base: float) -> DistanceEntries:
    """Yield ((from, to), distance) of a matrix; nothing if it lacks values for some pairs of nodes."""
    if len(values) == len(numbers) ** 2:
        for (start, end), value in zip(product(numbers, repeat=2), values, strict=True):
            distance = _scaled(value, base)
            if start is not None and end is not None and distance is not None:
                yield (start, end), distance


def _scaled(value: str, base: float) -> int | None:
    try:
        return round(min(float(value) * base, 1e9))
    except ValueError:
        return None


def _read_traits(tree: Element, cores: Sequence[Domain]) -> Iterator[CoreTraits]:
    kinds = [(parse_cpuset(kind.get("cpuset")) or EMPTY, kind) for kind in tree.iter("cpukind")]
    for core in cores:
        found = next((list(kind.iter("info")) for cpus, kind in kinds if core.cpus <= cpus), [])
        infos = {info.get("name", ""): info.get("value", "") for info in reversed(found)}  # the first counts
        yield CoreTraits(
            cpus=core.cpus,
            type=_CORE_TYPES.get(infos.get("CoreType", "")),
            capacity=whole_number(infos.get("LinuxCapacity")),
            frequency=whole_number(infos.get("FrequencyMaxMHz")),
        )


def _make_remarks(
    tree: Element, hidden: CpuSet, hidden_nodes: list[int], gpus: list[int], *, has_cores: bool
) -> Iterator[str]:
    version = tree.get("version", "")
    if (whole_number(version.partition(".")[0]) or 0) > _NEWEST_VERSION:  # words may mean other things
        yield f"the XML has version {clean_name(version)}: only versions 1 to {_NEWEST_VERSION} are known"
    top = next(tree.iter("object"), tree)
    if hidden and "online_cpuset" not in top.attrib:
        yield f"{named('CPU', hidden)}: offline or not allowed when the XML was written"
    if hidden_nodes:
        yield f"{named('NUMA node', hidden_nodes)} excluded: no CPUs in the XML"
    if not has_cores:
        yield "core siblings are unknown: each CPU counts as a core"
    if gpus:
        yield render_gpu_remark(gpus)


# GPUs, network interfaces and accelerators in hwloc XML, of versions 1, 2 and 3.
#
#     <object type="Package" cpuset="0x0000ffff">
#       <object type="Bridge">
#         <object type="PCIDev" pci_busid="0000:06:00.0" pci_type="0302 [10de:2335] [10de:18be] a1">
#           <object type="OSDev" name="cuda0"/>
#           <object type="OSDev" name="nvml0"><info name="NVIDIAUUID" value="GPU-…"/></object>
#
# A PCI function is near the CPUs of the innermost object around it that has CPUs. Its OS devices are its
# names. Several OS devices of one management library or of CUDA are the partitions of a GPU.


_PARTITION_NAMES = ("cuda", "rsmi")
"""Beginnings of the names of OS devices that exist once for each partition of a GPU."""

_RDMA_TYPES = ("3", "32", "48")
"""Types of OS devices of RDMA: 3 in versions 1 and 2; a bit in version 3, also with that of networks."""


class _Function(Record):
    """A PCI function in XML: its object, the CPUs of the object around it, and its OS devices."""

    element: Element
    near: CpuSet
    names: tuple[Element, ...]


def parse_devices(tree: Element, machine: Machine) -> tuple[Device, ...]:
    """Return the devices in hwloc XML in device order, from the tree and the machine made from it.

    Raises ValueError for a PCI address or a set of CPUs that is not valid.
    """
    functions = _find_functions(tree, machine.online, machine.online)
    return number_devices(device for found in functions for device in _make_devices(found, machine))


def _find_functions(outer: Element, near: CpuSet, online: CpuSet) -> Iterator[_Function]:
    """Yield the PCI functions inside an object that is near some CPUs."""
    for inner in outer.iterfind("object"):
        if inner.get("type") == "PCIDev":
            yield _Function(element=inner, near=near, names=tuple(_find_names(inner)))
        around = parse_cpuset(inner.get("cpuset")) or EMPTY
        yield from _find_functions(inner, around & online or near, online)


def _find_names(function: Element) -> Iterator[Element]:
    """Yield the OS devices of a PCI function, but not of functions below it."""
    for inner in function.iterfind("object"):
        if inner.get("type") == "OSDev" and inner.get("name"):
            yield inner
        if inner.get("type") != "PCIDev":
            yield from _find_names(inner)


def _make_devices(function: _Function, machine: Machine) -> Iterator[Device]:
    """Yield the device of a PCI function, or its partitions; nothing for functions of other kinds."""
    pci_type = function.element.get("pci_type", "")  # as "0302 [10de:2335] [10de:18be] a1"
    pci_class = _hex(pci_type[:4])
    vendor, product = map(_hex, pci_type.partition("[")[2].partition("]")[0].partition(":")[::2])
    kind = find_kind(pci_class, vendor, map(_name, function.names))
    if kind is None:
        return
    address = function.element.get("pci_busid", "").lower()
    if not is_address(address):
        raise ValueError(f"the PCI address {clean_name(address)!r} is not valid")
    cpus, node = _locate(function.near, machine)
    parts = _partition(function.names) if kind is DeviceKind.GPU else [function.names]
    for number, part in enumerate(parts):
        yield Device(
            kind=kind,
            index=0,
            address=address,
            partition=number if len(parts) > 1 else None,
            pci_class=pci_class,
            vendor=vendor,
            product=product,
            cpus=cpus,
            node=node,
            names=tuple(map(_name, part)),
            rdma_names=tuple(_name(found) for found in part if found.get("osdev_type") in _RDMA_TYPES),
            uuid=_find_uuid(part, vendor),
            ordinal=find_ordinal(map(_name, part)) if kind is DeviceKind.GPU else None,
        )


def _name(os_device: Element) -> str:
    return clean_name(os_device.get("name", ""))


def _hex(text: str) -> str:
    number = text.lower()
    return number if len(number) == 4 and is_hexadecimal(number) else ""


def _locate(near: CpuSet, machine: Machine) -> tuple[CpuSet, int | None]:
    """Return the CPUs and the NUMA node that a device is near.

    hwloc puts a device whose place is unknown beside all CPUs. On a machine of several nodes the place of
    such a device is not known; none of the nodes is a better guess than another.
    """
    nodes = [node for node in machine.nodes if node.cpus]
    if len(nodes) > 1 and near >= union(node.cpus for node in nodes):
        return EMPTY, None
    return near, next((node.number for node in nodes if near <= node.cpus), None)


def _partition(names: Sequence[Element]) -> list[list[Element]]:
    """Divide the OS devices of a GPU among its partitions; other names belong to each partition."""
    for stem in _PARTITION_NAMES:
        own = [found for found in names if _name(found).startswith(stem)]
        if len(own) > 1:
            common = [found for found in names if found not in own]
            return [[found, *common] for found in own]
    return [list(names)]


def _find_uuid(names: Sequence[Element], vendor: str) -> str:
    """Return the UUID that variables of the vendor accept; "" if it is unknown or was made anonymous.

    ROCr accepts GPU- and 16 digits, hwloc leaves out leading zeros. ZE_AFFINITY_MASK accepts no UUID.
    """
    infos = {info.get("name"): info.get("value", "") for found in names for info in found.iterfind("info")}
    text = clean_name(infos.get("NVIDIAUUID") or "")
    if vendor == AMD and (unique := infos.get("AMDUUID")):
        text = f"GPU-{clean_name(unique).rjust(16, '0')}"
    return text if text.removeprefix("GPU-").strip("0-") else ""


def parse_cpuset(text: str | None) -> CpuSet | None:
    """Parse a set like "0x00000003,,0xff"; None if it is absent or "0xf...f", which means all CPUs."""
    if text is None or text.startswith("0xf...f"):
        return None
    words = (word.strip().removeprefix("0x").rjust(8, "0") for word in text.split(","))
    return CpuSet.from_mask(",".join(words))
