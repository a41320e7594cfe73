"""Cores, packages, dies, clusters, caches, kinds of cores and NUMA nodes from `sys/devices`.

    system/cpu/online, present                   which CPUs there are
    system/cpu/cpuN/topology/core_cpus, …        the CPUs in the core, package, … of CPU N
    system/cpu/cpuN/cache/indexM/level, type,    the CPUs that share a cache with CPU N,
               shared_cpu_map, size              and its size, "32768K"
    system/cpu/cpuN/cpu_capacity                 relative, 1024 for the strongest core (Arm, RISC-V)
    system/cpu/cpuN/cpufreq/cpuinfo_max_freq     in kHz
                    amd_pstate_prefcore_ranking  higher for cores that the kernel prefers; else
                    acpi_cppc/highest_perf       the same of the firmware
    system/cpu/cpuN/regs/identification/midr_el1 the numbers of implementer and part (Arm)
    cpu_core/cpus                                the CPUs of Intel's performance cores
    system/node/online                           the NUMA nodes that exist
    system/node/nodeN/cpumap, meminfo            the CPUs of node N; its memory ("Node 0 MemTotal: 4096 kB")
    system/node/nodeN/distance                   its distances to all nodes (ACPI SLIT, 10 is local)
    system/node/nodeN/accessK/initiators/nodeM   a node with CPUs that is closest to node N (ACPI HMAT)

1. Sets identify domains, not numbers: `core_id` and `physical_package_id` may repeat or be missing.
2. Only one CPU of each set is read, since it also gives the set of its siblings: a machine with n CPUs needs
   far fewer than n reads per file. A set keeps only CPUs that no earlier set has.
3. A recording without sibling sets: L1 caches give the cores, `physical_package_id` the packages. Missing
   facts add a remark.
"""

import re
from collections.abc import Iterable, Sequence

from ompbind.cpuset import EMPTY, CpuSet, named, parse_set, union
from ompbind.errors import MachineError
from ompbind.machine.core_kinds import CoreTraits
from ompbind.machine.model import (
    CoreKindName,
    Domain,
    Level,
    Machine,
    Node,
    Partition,
    check_size,
    render_gpu_remark,
)
from ompbind.machine.nodes import add_nearest_nodes
from ompbind.machine.read.root import (
    Root,
    keyed_lines,
    numbered,
    numbers_in,
    parse_meminfo,
    parse_parts,
    read_list,
    read_set,
    read_word,
)
from ompbind.text import whole_number

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
GPU_DIRECTORY = "proc/driver/nvidia/gpus"

_SIBLING_FILES = {
    Level.CORE: ("", "core_cpus", "thread_siblings"),
    Level.PACKAGE: ("physical_package_id", "package_cpus", "core_siblings"),
    Level.CLUSTER: ("", "cluster_cpus"),
    Level.DIE: ("die_id", "die_cpus"),
    Level.BOOK: ("book_id", "book_siblings"),
    Level.DRAWER: ("drawer_id", "drawer_siblings"),
}
"""Files in `cpuN/topology`: with the OS number of a level, and with its sibling set.

The sets are masks; files with the suffix `_list` have them as lists.
"""

_CACHE_LEVELS = {"1": Level.CORE, "2": Level.L2, "3": Level.L3}
"""The domain that shares a data cache of each level; L1 is used only if sibling sets of cores are missing."""


def read_online(root: Root, used: CpuSet) -> tuple[CpuSet, CpuSet, list[str]]:
    """Return the online CPUs, the offline CPUs, and remarks. Raises MachineError if no file has them.

    `used` are CPUs that the kernel is known to use. Where `cpu/online` lacks some, a container has replaced
    it, as lxcfs does. Without `cpu/online` and `cpu/present`, the cpuN directories and `proc/cpuinfo` count.
    """
    directories, online = numbered(root.names(CPU), "cpu"), read_list(root, f"{CPU}/online") or EMPTY
    remarks = []
    if not online:
        lines = keyed_lines(root.read("proc/cpuinfo"))
        online = numbers_in(value for key, value in lines if key == "processor") - directories
        switches = ((cpu, root.read(f"{CPU}/cpu{cpu}/online") or "1") for cpu in directories)
        online |= CpuSet(cpu for cpu, text in switches if text.strip() != "0")
        if root.read(f"{CPU}/online") is not None:
            remarks.append(f"{CPU}/online is malformed: the cpuN directories are used instead")
    if not online:
        raise MachineError(
            f"{root.name} names no CPU in {CPU}/online, as cpuN directories, or in proc/cpuinfo",
            hint="record sys/devices/system/cpu and proc/",
        )
    present = (read_list(root, f"{CPU}/present") or EMPTY) | directories
    if lacking := used - online:
        wrong = f"{CPU}/online ({online}) lacks {named('CPU', lacking)}"
        remarks.append(f"{wrong}, which the kernel uses: a container has replaced that file, as lxcfs does")
        online = present - (read_list(root, f"{CPU}/offline") or EMPTY) | used
    return online, present - online, remarks


def read_isolated(root: Root, present: CpuSet) -> tuple[CpuSet, CpuSet]:
    """Return the isolated CPUs and those of nohz_full; without their files, as the kernel was started.

    The command line has `isolcpus=[domain,][nohz,]…LIST`, where "N" is the last CPU. Without a flag, the CPUs
    are isolated; `rcu_nocbs` alone keeps no process off.
    """
    isolated, nohz_full = (read_list(root, f"{CPU}/{name}") for name in ("isolated", "nohz_full"))
    is_unknown = isolated is None and nohz_full is None
    line = (root.read("proc/cmdline") or "").partition(" -- ")[0] if is_unknown else ""
    booted = {"domain": EMPTY, "nohz": EMPTY}
    for name, _, value in (word.partition("=") for word in line.split()):
        flags = re.findall("domain|nohz|managed_irq", value) or ["domain"]
        text = re.sub("[a-z_]+,", "", value).replace("N", str(max(present, default=0)))
        cpus = present if text == "all" else parse_set(text, CpuSet.from_list) or EMPTY
        for kind in {"isolcpus": flags, "nohz_full": ["nohz"]}.get(name, ()):
            booted[kind] = booted.get(kind, EMPTY) | cpus
    return isolated or booted["domain"], nohz_full or booted["nohz"]


def read_domains(root: Root, online: CpuSet) -> tuple[dict[Level, Partition], list[str]]:
    """Return the domains of all levels in `cpuN/topology` and `cpuN/cache`, and remarks."""
    remarks: list[str] = []
    cores = _read_siblings(root, online, Level.CORE)
    with_core = union(cpus for _, cpus in cores)
    sets = [cpus for _, cpus in cores] or [CpuSet((cpu,)) for cpu in online]
    caches = _read_caches(root, sets, (Level.L2, Level.L3) if cores else tuple(_CACHE_LEVELS.values()))
    if not cores:
        cores = caches[Level.CORE]
        fallback = "shared L1 caches are used instead" if cores else "each CPU counts as a core"
        remarks.append(f"core siblings are unknown: {fallback}")
    elif with_core != online:
        unknown = named("CPU", online - with_core)
        remarks.append(f"core siblings of {unknown} are unknown: assumed to have none")
    parts: dict[Level, Partition] = {**caches, Level.CORE: cores}
    for level in (level for level in _SIBLING_FILES if level is not Level.CORE):
        parts[level] = _read_siblings(root, online, level, with_core)
    clusters = parts[Level.CLUSTER]
    owner = {cpu: cpus for _, cpus in parts[Level.PACKAGE] for cpu in cpus} if clusters else {}
    if any(not cpus <= owner.get(cpus.first, cpus) for _, cpus in clusters):
        remarks.append("packages partially overlap clusters: physical_package_id is used instead")
        parts[Level.PACKAGE] = []
    parts[Level.PACKAGE] = parts[Level.PACKAGE] or _group_by_package_id(root, online)
    return parts, remarks


def _read_siblings(root: Root, online: CpuSet, level: Level, with_core: CpuSet = EMPTY) -> Partition:
    """Return the sibling sets of a level, in the order of their first CPU that has one.

    A CPU without a file may be in the set of a later CPU. But if the first CPU of `with_core`, the CPUs with
    a core, has no file of this level, then the machine has no such level, and no other CPU is read.
    """
    found: Partition = []
    rest, free = online, online
    while rest:
        cpu = CpuSet((rest.first,))
        directory = f"{CPU}/cpu{rest.first}/topology"
        number_file, *names = _SIBLING_FILES[level]
        siblings = read_set(root, [(f"{directory}/{name}", f"{directory}/{name}_list") for name in names])
        if siblings is not None:
            siblings = (siblings | cpu) & free
            # kernels write -1, 65535 or more for a domain without an OS number
            text = read_word(root, f"{directory}/{number_file}") if number_file else ""
            found.append((whole_number(text, 65535), siblings))
            free = free - siblings
        elif not found and rest.first in with_core:
            break
        rest = rest - (siblings or EMPTY) - cpu
    return found


def _group_by_package_id(root: Root, online: CpuSet) -> Partition:
    """Group CPUs by `physical_package_id`, where 65535 is no OS number; none if a CPU has no such number."""
    groups: dict[int, list[int]] = {}
    for cpu in online:
        number = whole_number(read_word(root, f"{CPU}/cpu{cpu}/topology/physical_package_id"))
        if number is None:
            return []
        groups.setdefault(number, []).append(cpu)
    return [(number if number < 65535 else None, CpuSet(cpus)) for number, cpus in groups.items()]


def _read_caches(root: Root, cores: Iterable[CpuSet], levels: tuple[Level, ...]) -> dict[Level, Partition]:
    """Return the CPUs that share each data cache of some levels, reading one CPU of each core."""
    found: dict[Level, Partition] = {level: [] for level in levels}
    covered = dict.fromkeys(found, EMPTY)
    layout: dict[Level, int] = {}  # the number M of the directory indexM for each level
    for core in sorted(cores, key=lambda core: core.first):
        cpu = core.first
        wanted = [level for level in found if cpu not in covered[level]]
        if wanted:
            layout = _read_cache_layout(root, cpu, layout)
        for level in wanted:
            if level not in layout:
                continue
            directory = f"{CPU}/cpu{cpu}/cache/index{layout[level]}"
            shared = read_set(root, [(f"{directory}/shared_cpu_map", f"{directory}/shared_cpu_list")])
            if shared is not None:
                cpus = shared | CpuSet((cpu,)) if shared else core  # an empty set: private to its core
                found[level].append((None, cpus - covered[level]))
                covered[level] |= cpus
    return found


def _read_cache_layout(root: Root, cpu: int, previous: dict[Level, int]) -> dict[Level, int]:
    """Return the number M of the directory indexM of each cache level; often `previous` fits."""
    directory = f"{CPU}/cpu{cpu}/cache"

    def read_level(index: int) -> Level | None:
        return _CACHE_LEVELS.get(read_word(root, f"{directory}/index{index}/level"))

    fits = previous and all(read_level(index) is level for level, index in previous.items())
    if fits and root.read(f"{directory}/index{max(previous.values()) + 1}/level") is None:
        return previous
    layout: dict[Level, int] = {}
    for index in range(10):
        level = read_level(index)
        if level and read_word(root, f"{directory}/index{index}/type") != "Instruction":
            layout.setdefault(level, index)
    return layout


def read_cache_sizes(root: Root, domains: Iterable[Domain]) -> dict[tuple[Level, int], int]:
    """Read the sizes of the caches among some domains: bytes by level and first CPU, if they are known."""
    sizes: dict[tuple[Level, int], int] = {}
    layout: dict[Level, int] = {}
    for cache in (domain for domain in domains if domain.level in (Level.L2, Level.L3)):
        cpu = cache.cpus.first
        layout = _read_cache_layout(root, cpu, layout)
        text = read_word(root, f"{CPU}/cpu{cpu}/cache/index{layout.get(cache.level)}/size")
        kib = whole_number(text.removesuffix("K"), 1 << 40)
        if kib:
            sizes[cache.level, cpu] = kib << 10
    return sizes


def read_traits(root: Root, machine: Machine) -> list[CoreTraits]:
    """Read the facts that distinguish cores."""
    cores = machine.table.cores
    strong = read_list(root, "sys/devices/cpu_core/cpus") or EMPTY  # all other cores are efficiency cores
    types: list[CoreKindName] = ["performance" if cpus <= strong else "efficiency" for cpus in cores]
    names = ["cpu_capacity", "cpufreq/cpuinfo_max_freq"]
    if len(machine.at(Level.L3)) > 1:  # else a preferred core is no reason to leave others idle
        names += ["cpufreq/amd_pstate_prefcore_ranking", "acpi_cppc/highest_perf"]
    columns = [_read_numbers(root, cores, name) for name in names]
    parts = _read_parts(root, cores) if machine.arch.startswith(("aarch64", "arm")) else {}
    return [
        CoreTraits(
            cpus=cpus, type=types[row] if strong else None, capacity=columns[0][row],
            frequency=columns[1][row], preference=next((c[row] for c in columns[2:] if c[row]), None),
            part=parts.get(str(cpus.first), ""),
        )
        for row, cpus in enumerate(cores)
    ]  # fmt: skip


def _read_parts(root: Root, cores: Sequence[CpuSet]) -> dict[str, str]:
    """Read the implementer and part of Arm cores, "0x41 0xd05", by the first CPU of the core."""
    parts = dict[str, str]()
    for cpu in (str(cpus.first) for cpus in cores):
        text = read_word(root, f"{CPU}/cpu{cpu}/regs/identification/midr_el1")
        if not (found := re.fullmatch(r"0x(?:0{8})?([0-9a-f]{2})..([0-9a-f]{3}).", text)):
            return parse_parts(root.read("proc/cpuinfo"))
        parts[cpu] = f"0x{found[1]} 0x{found[2]}"
    return parts


def _read_numbers(root: Root, cores: Sequence[CpuSet], name: str) -> list[int | None]:
    """Read a number of the first CPU of each core; all None if the first core has none, to save reads."""
    numbers: list[int | None] = []
    for cpus in cores:
        numbers.append(whole_number(read_word(root, f"{CPU}/cpu{cpus.first}/{name}")))
        if numbers[0] is None:
            return [None] * len(cores)
    return numbers


def read_nodes(root: Root, online: CpuSet) -> tuple[tuple[Node, ...], list[str]]:
    """Return the NUMA nodes by number, and remarks; a machine without NUMA files is one node 0.

    A CPU that several nodes list belongs to the first of them. Nodes that are memory of GPUs are excluded.
    """
    directories = numbered(root.names(NODE), "node")
    found = directories & (read_list(root, f"{NODE}/online") or directories) or directories
    check_size(nodes=len(found))
    texts = (root.read(f"{GPU_DIRECTORY}/{name}/numa_status") for name in root.names(GPU_DIRECTORY))
    lines = (line for text in texts for line in keyed_lines(text))
    gpus = numbers_in(value for key, value in lines if key == "Node") & found
    if not found - gpus:
        size = parse_meminfo(root.read("proc/meminfo")).get("MemTotal")
        return (Node(number=0, cpus=online, memory_bytes=size),), []
    nodes = [_read_node(root, number, online) for number in found - gpus]
    if not any(node.memory_bytes for node in nodes):  # recordings without sizes have zeros in all nodes
        nodes = [node.replace(memory_bytes=None) for node in nodes]
    if not any(node.cpus for node in nodes):  # the CPUs of nodes are unknown
        nodes[0] = nodes[0].replace(cpus=online)
    assigned, overlapping = EMPTY, []
    for index, node in enumerate(nodes):
        if not node.cpus.isdisjoint(assigned):
            overlapping.append(node.number)
        distances = node.distances
        if gpus and len(distances) == len(found):
            distances = tuple(distances[i] for i, number in enumerate(found) if number not in gpus)
        nodes[index] = node.replace(cpus=node.cpus - assigned, distances=distances)
        assigned |= node.cpus
    remarks = []
    if overlapping:
        who = f"{named('NUMA node', overlapping)} {'lists' if len(overlapping) == 1 else 'list'}"
        remarks.append(f"{who} CPUs of other nodes: each CPU belongs to the first node that lists it")
    if gpus:
        remarks.append(render_gpu_remark(gpus))
    initiators = {node.number: _read_initiators(root, node.number) for node in nodes if not node.cpus}
    return add_nearest_nodes(nodes, initiators), remarks


def _read_node(root: Root, number: int, online: CpuSet) -> Node:
    directory = f"{NODE}/node{number}"
    cpus = read_set(root, [(f"{directory}/cpumap", f"{directory}/cpulist")])
    if cpus is None:
        cpus = numbered(root.names(directory), "cpu")
    distances = [whole_number(word) for word in (root.read(f"{directory}/distance") or "").split()]
    return Node(
        number=number,
        cpus=cpus & online,
        memory_bytes=parse_meminfo(root.read(f"{directory}/meminfo")).get("MemTotal"),
        distances=tuple(distance for distance in distances if distance is not None),
    )


def _read_initiators(root: Root, number: int) -> CpuSet:
    # only CPUs count in access1, but also devices in access0
    directories = (f"{NODE}/node{number}/access{kind}/initiators" for kind in (1, 0))
    nodes = (numbered(root.names(directory), "node") for directory in directories)
    return next(filter(None, nodes), EMPTY)
