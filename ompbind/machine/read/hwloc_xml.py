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
from ompbind.machine.core_kinds import CoreTraits, add_kinds
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
    Level,
    Machine,
    Node,
    Partition,
    drop_repeated,
    render_gpu_remark,
)
from ompbind.machine.nodes import NumaMemory, make_nodes
from ompbind.text import clean_name, whole_number

_TYPES = {
    "Package": Level.PACKAGE,
    "Socket": Level.PACKAGE,
    "Die": Level.DIE,
    "L3Cache": Level.L3,
    "L2Cache": Level.L2,
    "Core": Level.CORE,
}
"""Levels by their type in hwloc; version 1 writes `Socket`, and `Cache` with a depth (`_read_parts`)."""

_GROUPS = {"Cluster": Level.CLUSTER, "Book": Level.BOOK, "Drawer": Level.DRAWER}  # by their subtype
_NUMBERED = (Level.PACKAGE, Level.DIE, Level.BOOK, Level.DRAWER)  # with OS numbers unique on the machine

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

_INSTRUCTION_CACHE = "2"  # hwloc_obj_cache_type_e
_MEANS_LATENCY = 4  # bit of hwloc_distances_kind_e


def parse_xml(data: bytes, source: str, *, devices: bool = False) -> Machine:
    """Make the machine from hwloc XML. Raises MachineError if it is invalid or names no CPU."""
    try:
        tree = _read_tree(data)
        machine = _make_machine(tree, source)
        found = _read_devices(tree, machine.online, machine) if devices else ()
        return machine.replace(devices=number_devices(found))
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


def parse_cpuset(text: str | None) -> CpuSet | None:
    """Parse a set like "0x00000003,,0xff"; None if it is absent or "0xf...f", which means all CPUs."""
    if text is None or text.startswith("0xf...f"):
        return None
    words = (word.strip().removeprefix("0x").rjust(8, "0") for word in text.split(","))
    return CpuSet.from_mask(",".join(words))


def _cpus(element: Element, name: str = "cpuset") -> CpuSet:
    """Return the CPUs, or the nodes, in an attribute; empty if it is absent or means all."""
    return parse_cpuset(element.get(name)) or EMPTY


def _number(text: str | None) -> int | None:
    return whole_number(text, 1 << 16)


def _make_machine(tree: Element, source: str) -> Machine:
    objects = list(tree.iter("object"))
    top = objects[0] if objects else tree
    known = union(_cpus(obj) for obj in objects if obj.get("type") == "PU")
    limit = _cpus(top, "online_cpuset") or _cpus(top)
    online = known & limit if limit else known
    if not online:
        raise MachineError(f"{source} names no CPU", hint="write the file with: lstopo machine.xml")
    allowed = parse_cpuset(top.get("allowed_cpuset"))
    usable = online if allowed is None else online & allowed
    if not usable:
        raise MachineError(f"{source} allows none of its online CPUs {online}")
    offline = ((_cpus(top, "complete_cpuset") or online) | known) - online
    nodes, node_remarks = _read_nodes(tree, objects, online)
    parts, sizes = _read_parts(objects)
    remarks = []
    if offline and "online_cpuset" not in top.attrib:
        remarks.append(f"{named('CPU', offline)}: offline or not allowed when the XML was written")
    if Level.CORE not in parts:
        remarks.append("core siblings are unknown: each CPU counts as a core")
    arches = (info.get("value") for info in tree.iter("info") if info.get("name") == "Architecture")
    machine = Machine(
        source=source,
        arch=next(filter(None, arches), "unknown"),
        online=online,
        offline=offline,
        allowed=usable,
        memory_allowed=parse_cpuset(top.get("allowed_nodeset", top.get("nodeset"))) or None,
        nodes=nodes,
        remarks=(*remarks, *node_remarks),
    ).with_domains(drop_repeated(parts, nodes))
    machine = machine.with_cache_sizes(sizes)
    return add_kinds(machine, list(_read_traits(tree, machine)))


def _read_parts(objects: Sequence[Element]) -> tuple[dict[Level, Partition], dict[tuple[Level, int], int]]:
    """Return the domains of each level, (OS number, CPUs) of its objects, and sizes by level and each CPU."""
    parts: dict[Level, Partition] = {}
    sizes: dict[tuple[Level, int], int] = {}
    for obj in objects:
        type_, cpus = obj.get("type", ""), _cpus(obj)
        if type_ == "Cache" and obj.get("cache_type") != _INSTRUCTION_CACHE:
            type_ = f"L{obj.get('depth', '')}Cache"
        level = _GROUPS.get(obj.get("subtype", "")) if type_ == "Group" else _TYPES.get(type_)
        if level is not None and cpus and obj.get("subtype") != "MemorySideCache":
            number = _number(obj.get("os_index")) if level in _NUMBERED else None
            parts.setdefault(level, []).append((number, cpus))
            if size := whole_number(obj.get("cache_size")):
                sizes.update(dict.fromkeys(((level, cpu) for cpu in cpus), size))
    return parts, sizes


def _read_nodes(
    tree: Element, objects: Sequence[Element], online: CpuSet
) -> tuple[tuple[Node, ...], list[str]]:
    """Return the NUMA nodes, and remarks; a machine without memories is one node 0.

    In version 1 a node without CPUs has an empty set. It is in the same group as the node that it is near to.
    """
    memories, gpus, hidden = list[NumaMemory](), list[int](), list[int]()
    groups = ((obj, _cpus(obj)) for obj in objects if obj.get("type") == "Group")
    around = {inner: cpus for group, cpus in groups if cpus for inner in group.iter("object")}  # innermost
    numbered = ((_number(obj.get("os_index")), obj) for obj in objects if obj.get("type") == "NUMANode")
    found = [(number, obj) for number, obj in numbered if number is not None]
    for number, obj in found:
        locality = _cpus(obj)
        if obj.get("subtype") == "GPUMemory":
            gpus.append(number)
        elif not locality and _cpus(obj, "complete_cpuset"):
            hidden.append(number)
        else:
            memory = NumaMemory(
                number=number,
                locality=locality or around.get(obj, EMPTY),
                memory_bytes=whole_number(obj.get("local_memory")),
                is_special=not locality or obj.get("subtype", "DRAM") != "DRAM",
            )
            memories.append(memory)
    if any(memory.memory_bytes for memory in memories):  # if any node has a size, no size means no memory
        memories = [memory.replace(memory_bytes=memory.memory_bytes or 0) for memory in memories]
    unusable = _find_unusable_nodes(objects, CpuSet(number for number, _ in found))
    memories += (NumaMemory(number=number, locality=cpus) for number, cpus in unusable.items())
    remarks = []
    if hidden:
        remarks.append(f"{named('NUMA node', hidden)} excluded: no CPUs in the XML")
    if gpus:
        remarks.append(render_gpu_remark(gpus))
    if unusable:
        remarks.append(f"{named('NUMA node', unusable)}: memory unknown or not allowed")
    if not memories:
        size = next((obj.get("local_memory") for obj in objects), None)
        return (Node(number=0, cpus=online, memory_bytes=whole_number(size)),), remarks
    numbers = sorted(memory.number for memory in memories)
    return make_nodes(memories, online, _read_distances(tree, numbers)), remarks


def _find_unusable_nodes(objects: Sequence[Element], known: CpuSet) -> dict[int, CpuSet]:
    """Return the CPUs of NUMA nodes whose memory hwloc could not use: it writes no object for these nodes.

    The objects around their CPUs still have the number of the node in `complete_nodeset`.
    """
    found: dict[int, CpuSet] = {}
    for obj in objects:
        nodes, cpus = _cpus(obj, "complete_nodeset"), _cpus(obj)
        if cpus and len(nodes) == 1 and nodes.isdisjoint(known) and parse_cpuset(obj.get("nodeset")) == EMPTY:
            found.setdefault(nodes.first, cpus)
    return found


def _read_distances(tree: Element, numbers: Sequence[int]) -> Mapping[tuple[int, int], int]:
    """Return the first matrix of latencies between nodes: `distances` of version 1, later `distances2`."""

    def words(matrix: Element, tag: str) -> list[str]:
        return [word for element in matrix.iter(tag) for word in (element.text or "").split()]

    for matrix in (*tree.iter("distances"), *tree.iter("distances2")):
        rows: Sequence[int | None] = numbers
        values = [cell.get("value", "") for cell in matrix.iter("latency")]
        base = _parse_float(matrix.get("latency_base")) or 1
        if matrix.tag == "distances2":
            is_latency = (_number(matrix.get("kind")) or 0) & _MEANS_LATENCY
            if not is_latency or (matrix.get("type"), matrix.get("indexing")) != ("NUMANode", "os"):
                continue
            values = words(matrix, "u64values")
            rows = [_number(word) for word in words(matrix, "indexes")] or numbers
        if len(values) == len(rows) ** 2:
            distances = {
                (start, end): round(min(distance * base, 1e9))
                for (start, end), value in zip(product(rows, repeat=2), values, strict=True)
                if start is not None and end is not None and (distance := _parse_float(value)) is not None
            }
            if distances:
                return distances
    return {}


def _parse_float(text: str | None) -> float | None:
    try:
        return min(max(0, float(text or "")), 1e9)  # in this order, 0 stands for "nan"
    except ValueError:
        return None


def _read_traits(tree: Element, machine: Machine) -> Iterator[CoreTraits]:
    kinds = [(_cpus(kind), kind) for kind in tree.iter("cpukind")]
    for core in machine.table.cores:
        found = next((list(kind.iter("info")) for cpus, kind in kinds if core <= cpus), [])
        infos = {info.get("name", ""): info.get("value", "") for info in reversed(found)}  # the first counts
        yield CoreTraits(
            cpus=core,
            type=_CORE_TYPES.get(infos.get("CoreType", "")),
            capacity=whole_number(infos.get("LinuxCapacity")),
            frequency=whole_number(infos.get("FrequencyMaxMHz")),
        )


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


_PARTITION_NAMES = ("cuda", "rsmi")  # of OS devices that exist once for each partition of a GPU
_RDMA_TYPES = ("3", "32", "48")  # 3 in versions 1 and 2; a bit in version 3, also with that of networks


def _read_devices(outer: Element, near: CpuSet, machine: Machine) -> Iterator[Device]:
    """Yield the devices inside an object that is near some CPUs; raises ValueError for an invalid one."""
    for inner in outer.iterfind("object"):
        if inner.get("type") == "PCIDev":
            yield from _make_devices(inner, near, machine)
        yield from _read_devices(inner, _cpus(inner) & machine.online or near, machine)


def _make_devices(function: Element, near: CpuSet, machine: Machine) -> Iterator[Device]:
    """Yield the device of a PCI function, or its partitions; nothing for functions of other kinds.

    hwloc puts a device whose place is unknown beside all CPUs: of several nodes, none is a better guess.
    """
    pci_type = function.get("pci_type", "").lower()  # as "0302 [10de:2335] [10de:18be] a1"
    ids = (pci_type[:4], *pci_type.partition("[")[2].partition("]")[0].partition(":")[::2])
    pci_class, vendor, product = (text if len(text) == 4 and is_hexadecimal(text) else "" for text in ids)
    os_devices = list(_find_os_devices(function))
    kind = find_kind(pci_class, vendor, (name for name, _ in os_devices))
    if kind is None:
        return
    address = function.get("pci_busid", "").lower()
    if not is_address(address):
        raise ValueError(f"the PCI address {clean_name(address)!r} is not valid")
    nodes = [node for node in machine.nodes if node.cpus]
    if len(nodes) > 1 and near >= union(node.cpus for node in nodes):
        near = EMPTY
    parts = [os_devices]
    for stem in _PARTITION_NAMES if kind is DeviceKind.GPU else ():
        own = [found for found in os_devices if found[0].startswith(stem)]
        if len(own) > 1:  # other names belong to each partition
            parts = [[found, *(other for other in os_devices if other not in own)] for found in own]
            break
    for number, part in enumerate(parts):
        names = tuple(name for name, _ in part)
        yield Device(
            kind=kind,
            index=0,
            address=address,
            partition=number if len(parts) > 1 else None,
            pci_class=pci_class,
            vendor=vendor,
            product=product,
            cpus=near,
            node=next((node.number for node in nodes if near and near <= node.cpus), None),
            names=names,
            rdma_names=tuple(name for name, found in part if found.get("osdev_type") in _RDMA_TYPES),
            uuid=_find_uuid([found for _, found in part], vendor),
            ordinal=find_ordinal(names) if kind is DeviceKind.GPU else None,
        )


def _find_os_devices(function: Element) -> Iterator[tuple[str, Element]]:
    """Yield (name, element) of the OS devices of a PCI function, but not of functions below it."""
    for inner in function.iterfind("object"):
        if inner.get("type") == "OSDev" and inner.get("name"):
            yield clean_name(inner.get("name", "")), inner
        if inner.get("type") != "PCIDev":
            yield from _find_os_devices(inner)


def _find_uuid(os_devices: Sequence[Element], vendor: str) -> str:
    """Return the UUID that variables of the vendor accept; "" if it is unknown or was made anonymous.

    ROCr accepts GPU- and 16 digits, hwloc leaves out leading zeros. ZE_AFFINITY_MASK accepts no UUID.
    """
    infos = {
        info.get("name"): info.get("value", "") for found in os_devices for info in found.iterfind("info")
    }
    text = clean_name(infos.get("NVIDIAUUID") or "")
    if vendor == AMD and (unique := infos.get("AMDUUID")):
        text = f"GPU-{clean_name(unique).rjust(16, '0')}"
    return text if text.removeprefix("GPU-").strip("0-") else ""
