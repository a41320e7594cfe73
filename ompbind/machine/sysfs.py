"""The kernel's own account of the machine, `sys/devices/system`, as domains and nodes.

Sets are read, never numbers: `core_id` and its kin repeat and have holes, sibling sets do not. One
CPU speaks for its siblings, so that a machine of n CPUs takes far fewer than n times the files.
"""

from collections.abc import Callable, Iterable, Iterator

from ompbind.cpuset import CPU_LIMIT, EMPTY, CpuSet, union
from ompbind.errors import MachineError
from ompbind.machine.root import Root, keyed_lines, whole_number
from ompbind.topology import Level, Node, Partition

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"

_SIBLING_FILES = {
    Level.CORE: ("core_cpus", "thread_siblings"),
    Level.PACKAGE: ("package_cpus", "core_siblings"),
    Level.CLUSTER: ("cluster_cpus",),
    Level.DIE: ("die_cpus",),
    Level.BOOK: ("book_siblings",),
    Level.DRAWER: ("drawer_siblings",),
}
"""The files in `cpuN/topology` that hold a level's sibling set: each as a mask, or with `_list` as a list."""

_ID_FILES = {
    Level.PACKAGE: "physical_package_id",
    Level.DIE: "die_id",
    Level.BOOK: "book_id",
    Level.DRAWER: "drawer_id",
}


def read_online(root: Root) -> tuple[CpuSet, CpuSet]:
    """Return the CPUs that are online and those that are present but offline.

    Raises MachineError when no file tells which CPUs there are.
    """
    folders = CpuSet(_numbered(root.names(CPU), "cpu"))
    online = _read_list(root, f"{CPU}/online") or CpuSet(
        cpu for cpu in folders if (root.read(f"{CPU}/cpu{cpu}/online") or "1").strip() != "0"
    )
    online = online or CpuSet(_cpuinfo_numbers(root))
    if not online:
        raise MachineError(
            f"cannot tell which CPUs {root.name} has: no {CPU}/online, no cpuN folder, no proc/cpuinfo",
            hint="a recording needs sys/devices/system/cpu and proc/",
        )
    present = _read_list(root, f"{CPU}/present") or folders
    return online, (present | folders) - online


def read_partitions(root: Root, online: CpuSet) -> dict[Level, Partition]:
    """Return the domains of every level that `cpuN/topology` and `cpuN/cache` tell of."""
    cores = _read_siblings(root, online, Level.CORE)
    told = union(cpus for _, cpus in cores)
    parts: dict[Level, Partition] = {Level.CORE: cores}
    for level in _SIBLING_FILES:
        if level is not Level.CORE:
            parts[level] = _read_siblings(root, told, level)
    parts.update(_read_caches(root, sorted(cpus.first for cpus in _shape(cores)) or online))
    known = {_shape(parts[level]) for level in (Level.CORE, Level.L2)}
    if _shape(parts[Level.CLUSTER]) in known:
        parts[Level.CLUSTER] = []
    if _shape(parts[Level.DIE]) == _shape(cores) != _shape(parts[Level.PACKAGE]):
        parts[Level.DIE] = []  # kernels that know of no dies call each core one
    return parts


def read_nodes(root: Root, online: CpuSet) -> tuple[Node, ...]:
    """Return the NUMA nodes by number; a machine that tells of none is one node 0."""
    numbers = sorted(_numbered(root.names(NODE), "node"))
    if not numbers:
        return (Node(number=0, cpus=online, memory_bytes=_meminfo(root.read("proc/meminfo"))),)
    drafts = [_read_node(root, number, online) for number in numbers]
    return tuple(_with_nearest(node, drafts) for node in drafts)


def _read_siblings(root: Root, cpus: CpuSet, level: Level) -> list[tuple[int | None, CpuSet]]:
    """Ask CPU after CPU for its siblings; a level that the first cannot tell of is not there at all."""
    found: list[tuple[int | None, CpuSet]] = []
    rest = cpus
    while rest:
        folder = f"{CPU}/cpu{rest.first}/topology"
        mine = _read_set(
            root, [(f"{folder}/{name}", f"{folder}/{name}_list") for name in _SIBLING_FILES[level]]
        )
        if mine is None and not found and level is not Level.CORE:
            break
        speaker = CpuSet((rest.first,))
        if mine is not None:
            found.append((_os_number(root, level, folder), (mine | speaker) & rest))
        rest = rest - (mine or EMPTY) - speaker
    return found


def _os_number(root: Root, level: Level, folder: str) -> int | None:
    """Return the number that the OS gave a domain; -1, 65535 and the like mean that it gave none."""
    return whole_number(root.read(f"{folder}/{_ID_FILES[level]}"), 65535) if level in _ID_FILES else None


def _read_set(root: Root, files: Iterable[tuple[str, str]]) -> CpuSet | None:
    """Read the first set that (mask, list) pairs of files hold, masks first: old kernels cut lists."""
    for mask, list_ in files:
        for path, parse in ((mask, CpuSet.from_mask), (list_, CpuSet.from_list)):
            cpus = _parsed(root.read(path), parse)
            if cpus is not None:
                return cpus
    return None


def _parsed(text: str | None, parse: Callable[[str], CpuSet]) -> CpuSet | None:
    try:
        return None if text is None else parse(text)
    except ValueError:
        return None


def _read_list(root: Root, path: str) -> CpuSet | None:
    return _parsed(root.read(path), CpuSet.from_list)


def _read_caches(root: Root, speakers: Iterable[int]) -> dict[Level, Partition]:
    """Return who shares each L2 and L3 cache, asking one CPU of every core."""
    found: dict[Level, list[tuple[int | None, CpuSet]]] = {Level.L2: [], Level.L3: []}
    covered = {Level.L2: EMPTY, Level.L3: EMPTY}
    layout: dict[Level, int] = {}
    for cpu in speakers:
        wanted = [level for level in found if cpu not in covered[level]]
        if wanted:
            layout = _cache_layout(root, cpu, layout)
        for level in wanted:
            cpus = _read_cache(root, cpu, layout.get(level))
            if cpus is not None:
                found[level].append((None, cpus - covered[level]))
                covered[level] |= cpus
    return dict(found)


def _read_cache(root: Root, cpu: int, index: int | None) -> CpuSet | None:
    if index is None:
        return None
    folder = f"{CPU}/cpu{cpu}/cache/index{index}"
    cpus = _read_set(root, [(f"{folder}/shared_cpu_map", f"{folder}/shared_cpu_list")])
    return None if cpus is None else cpus | CpuSet((cpu,))


def _cache_layout(root: Root, cpu: int, guess: dict[Level, int]) -> dict[Level, int]:
    """Find which index folder holds the L2 and which the L3, trying the layout of the CPU before first."""
    folder = f"{CPU}/cpu{cpu}/cache"
    if guess and all(_cache_level(root, folder, index) is level for level, index in guess.items()):
        beyond = f"{folder}/index{max(guess.values()) + 1}/level"
        if root.read(beyond) is None:
            return guess
    layout: dict[Level, int] = {}
    for index in range(10):
        level = _cache_level(root, folder, index)
        if level and (root.read(f"{folder}/index{index}/type") or "").strip() != "Instruction":
            layout.setdefault(level, index)
    return layout


def _cache_level(root: Root, folder: str, index: int) -> Level | None:
    text = (root.read(f"{folder}/index{index}/level") or "").strip()
    return {"2": Level.L2, "3": Level.L3}.get(text)


def _shape(parts: Partition) -> frozenset[CpuSet]:
    return frozenset(cpus for _, cpus in parts)


def _read_node(root: Root, number: int, online: CpuSet) -> Node:
    folder = f"{NODE}/node{number}"
    cpus = _read_set(root, [(f"{folder}/cpumap", f"{folder}/cpulist")]) or EMPTY
    distances = [whole_number(word) for word in (root.read(f"{folder}/distance") or "").split()]
    return Node(
        number=number,
        cpus=cpus & online,
        memory_bytes=_meminfo(root.read(f"{folder}/meminfo")),
        distances=tuple(distance for distance in distances if distance is not None),
    )


def _meminfo(text: str | None) -> int | None:
    """Return the total memory that a meminfo file tells, in bytes."""
    for line in (text or "").splitlines():
        _, found, after = line.partition("MemTotal:")
        size = whole_number(after.removesuffix("kB")) if found else None
        if size is not None:
            return size * 1024
    return None


def _with_nearest(node: Node, nodes: list[Node]) -> Node:
    """Add the closest nodes that have what this node lacks, by the distances that it tells."""
    if not node.cpus:
        helpers = [other for other in nodes if other.cpus]
    elif node.memory_bytes == 0:
        helpers = [other for other in nodes if other.memory_bytes]
    else:
        return node
    known = dict(zip((other.number for other in nodes), node.distances, strict=False))
    away = {other.number: known[other.number] for other in helpers if other.number in known}
    nearest = tuple(number for number, far in away.items() if far == min(away.values()))
    return node.replace(nearest=nearest)


def _numbered(names: Iterable[str], stem: str) -> Iterator[int]:
    """Yield N of every name that is `stem` followed by a number."""
    for name in names:
        number = whole_number(name[len(stem) :], CPU_LIMIT) if name.startswith(stem) else None
        if number is not None:
            yield number


def _cpuinfo_numbers(root: Root) -> Iterator[int]:
    for key, value in keyed_lines(root.read("proc/cpuinfo")):
        number = whole_number(value, CPU_LIMIT) if key == "processor" else None
        if number is not None:
            yield number
