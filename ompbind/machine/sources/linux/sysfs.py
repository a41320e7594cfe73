"""The kernel's own account of the machine, `sys/devices/system/cpu`, as domains.

Sets are read, never numbers: `core_id` and its kin repeat and have holes, sibling sets do not. One
CPU speaks for its siblings, so that a machine of n CPUs takes far fewer than n times the files.
"""

from collections.abc import Collection, Iterable

from ompbind.cpuset import EMPTY, CpuSet, named, union
from ompbind.errors import MachineError
from ompbind.machine.model import Level, Partition
from ompbind.machine.sources.filesystem import (
    Root,
    keyed_lines,
    numbered,
    numbers_in,
    read_list,
    read_set,
    whole_number,
)

CPU = "sys/devices/system/cpu"

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

_CACHES = {"1": Level.CORE, "2": Level.L2, "3": Level.L3}
"""What a data cache of each level is shared by; the first level stands in for files that tell of cores."""


def read_online(root: Root) -> tuple[CpuSet, CpuSet, list[str]]:
    """Return the CPUs that are online, those that are present but offline, and remarks.

    Raises MachineError when no file tells which CPUs there are.
    """
    folders, told = numbered(root.names(CPU), "cpu"), read_list(root, f"{CPU}/online")
    online = told or _asked_one_by_one(root, folders)
    if not online:
        raise MachineError(
            f"cannot tell which CPUs {root.name} has: neither {CPU}/online nor cpuN folders nor "
            "processor lines of proc/cpuinfo name any",
            hint="a recording needs sys/devices/system/cpu and proc/",
        )
    present = read_list(root, f"{CPU}/present") or folders
    is_odd = not told and root.read(f"{CPU}/online") is not None
    remarks = [f"{CPU}/online makes no sense: the folders of CPUs tell which are online"] if is_odd else []
    return online, (present | folders) - online, remarks


def _asked_one_by_one(root: Root, folders: CpuSet) -> CpuSet:
    """Return the CPUs whose folder does not say that they are offline, and those that only cpuinfo has."""
    online = CpuSet(cpu for cpu in folders if (root.read(f"{CPU}/cpu{cpu}/online") or "1").strip() != "0")
    lines = keyed_lines(root.read("proc/cpuinfo"))
    return online | (numbers_in(value for key, value in lines if key == "processor") - folders)


def read_domains(
    root: Root, online: CpuSet, nodes: Collection[CpuSet]
) -> tuple[dict[Level, Partition], list[str]]:
    """Return the domains of every level that `cpuN/topology` and `cpuN/cache` tell of, and remarks.

    `nodes` are the CPUs of the NUMA nodes: they show where packages are told in halves.
    """
    remarks: list[str] = []
    cores = _split_modules(root, _read_siblings(root, online, Level.CORE))
    told = union(cpus for _, cpus in cores)
    sets = [cpus for _, cpus in cores] or [CpuSet((cpu,)) for cpu in online]
    caches = _read_caches(root, sets, (Level.L2, Level.L3) if cores else tuple(_CACHES.values()))
    if not cores:
        cores = caches[Level.CORE]
        by_what = "only their L1 caches tell which" if cores else "no file tells which"
        remarks.append(f"{by_what} CPUs share a core" + ("" if cores else ": each one counts as a core"))
    elif told != online:
        remarks.append(f"no file tells the cores of {named('CPU', online - told)}: each one counts as a core")
    parts: dict[Level, Partition] = {**caches, Level.CORE: cores}
    for level in _SIBLING_FILES:
        if level is not Level.CORE:
            parts[level] = _read_siblings(root, online, level, told)
    packages = parts[Level.PACKAGE] or _by_number(root, online)
    if _cut(parts[Level.CLUSTER], packages):
        remarks.append("packages that cut through clusters are told by their number instead")
        packages = _by_number(root, online)
    parts[Level.PACKAGE] = _join_halves(root, packages, nodes)
    if parts[Level.PACKAGE] != packages:
        remarks.append("packages that old kernels tell in halves are joined by their number")
    return parts, remarks


def _cut(inner: Partition, outer: Partition) -> bool:
    """Tell whether some outer domain ends inside of an inner one."""
    owner = {cpu: cpus for _, cpus in outer for cpu in cpus} if inner else {}
    return any(not cpus <= owner.get(cpus.first, cpus) for _, cpus in inner)


def _read_siblings(root: Root, online: CpuSet, level: Level, told: CpuSet = EMPTY) -> Partition:
    """Ask CPU after CPU for its siblings; one that does not tell may be in the set of a later one.

    A level that the first of the CPUs in `told`, those that have a core, cannot tell of is not there at all.
    """
    found: Partition = []
    rest, free = online, online
    while rest:
        speaker = CpuSet((rest.first,))
        folder = f"{CPU}/cpu{rest.first}/topology"
        files = [(f"{folder}/{name}", f"{folder}/{name}_list") for name in _SIBLING_FILES[level]]
        mine = read_set(root, files)
        if mine is not None:
            mine = (mine | speaker) & free
            found.append((_os_number(root, level, folder), mine))
            free = free - mine
        elif not found and rest.first in told:
            break
        rest = rest - (mine or EMPTY) - speaker
    return found


def _os_number(root: Root, level: Level, folder: str) -> int | None:
    """Return the number that the OS gave a domain; -1, 65535 and the like mean that it gave none."""
    return whole_number(root.read(f"{folder}/{_ID_FILES[level]}"), 65535) if level in _ID_FILES else None


def _join_halves(root: Root, told: Partition, nodes: Collection[CpuSet]) -> Partition:
    """Join packages that are told in halves.

    With cluster-on-die, old kernels gave each half of a Haswell package sibling sets of its own. Such halves
    are two, a NUMA node each, with one number and no `core_id` in common; elsewhere numbers just repeat.
    """
    groups: dict[int, list[CpuSet]] = {}
    for number, cpus in told:
        if number is not None:
            groups.setdefault(number, []).append(cpus)
    halved = {number: sets for number, sets in groups.items() if len(sets) > 1}
    if not all(_are_halves(root, sets, nodes) for sets in halved.values()):
        return told
    kept = [(number, cpus) for number, cpus in told if number not in halved]
    return [*kept, *((number, union(sets)) for number, sets in halved.items())]


def _are_halves(root: Root, sets: list[CpuSet], nodes: Collection[CpuSet]) -> bool:
    if len(sets) != 2 or any(cpus not in nodes for cpus in sets):
        return False
    one, other = (_core_ids(root, cpus) for cpus in sets)
    return bool(one and other) and one.isdisjoint(other)


def _by_number(root: Root, online: CpuSet) -> Partition:
    """Group CPUs by `physical_package_id`, 65535 included: it is the same unknown package for all."""
    groups: dict[int, list[int]] = {}
    for cpu in online:
        number = whole_number(root.read(f"{CPU}/cpu{cpu}/topology/physical_package_id"))
        if number is None:
            return []
        groups.setdefault(number, []).append(cpu)
    return [(number if number < 65535 else None, CpuSet(cpus)) for number, cpus in groups.items()]


def _split_modules(root: Root, told: Partition) -> Partition:
    """Take sibling sets apart in which CPUs have numbers of different cores: modules of AMD's family 15h.

    Two cores share front end, floating-point unit and L2 cache there, and are still two to hwloc, their
    L1 caches and their maker. The first set speaks for all; other processors say that they are others.
    """
    first = next((cpus for _, cpus in told if len(cpus) > 1), EMPTY)
    if len(_core_ids(root, first)) < 2 or not _may_be_modules(root):
        return told
    return [(None, CpuSet((cpu,))) for _, cpus in told for cpu in cpus]


def _may_be_modules(root: Root) -> bool:
    """Tell whether proc/cpuinfo names AMD's family 15h, or no family at all."""
    lines = dict(keyed_lines(root.read("proc/cpuinfo")))
    maker, family = lines.get("vendor_id", "AuthenticAMD"), lines.get("cpu family", "21")
    return (maker, family) == ("AuthenticAMD", "21")


def _core_ids(root: Root, cpus: CpuSet) -> set[str]:
    texts = (root.read(f"{CPU}/cpu{cpu}/topology/core_id") for cpu in cpus)
    return {text.strip() for text in texts if text is not None}


def _read_caches(root: Root, cores: Iterable[CpuSet], levels: tuple[Level, ...]) -> dict[Level, Partition]:
    """Return who shares each data cache of some levels, asking one CPU of every core.

    A cache that is told to be of nobody is private to its core.
    """
    found: dict[Level, Partition] = {level: [] for level in levels}
    covered = dict.fromkeys(found, EMPTY)
    layout: dict[Level, int] = {}
    for core in sorted(cores, key=lambda one: one.first):
        cpu = core.first
        wanted = [level for level in found if cpu not in covered[level]]
        if wanted:
            layout = _cache_layout(root, cpu, layout)
        for level in wanted:
            cpus = _read_cache(root, cpu, layout.get(level))
            if cpus is not None:
                cpus = cpus or core
                found[level].append((None, cpus - covered[level]))
                covered[level] |= cpus
    return found


def _read_cache(root: Root, cpu: int, index: int | None) -> CpuSet | None:
    if index is None:
        return None
    folder = f"{CPU}/cpu{cpu}/cache/index{index}"
    cpus = read_set(root, [(f"{folder}/shared_cpu_map", f"{folder}/shared_cpu_list")])
    return cpus | CpuSet((cpu,)) if cpus else cpus


def _cache_layout(root: Root, cpu: int, guess: dict[Level, int]) -> dict[Level, int]:
    """Find which index folder holds the cache of each level, trying the layout of the CPU before first."""
    folder = f"{CPU}/cpu{cpu}/cache"
    if guess and all(_cache_level(root, folder, index) is level for level, index in guess.items()):
        beyond = root.read(f"{folder}/index{max(guess.values()) + 1}/level")
        if beyond is None:
            return guess
    layout: dict[Level, int] = {}
    for index in range(10):
        level = _cache_level(root, folder, index)
        if level and (root.read(f"{folder}/index{index}/type") or "").strip() != "Instruction":
            layout.setdefault(level, index)
    return layout


def _cache_level(root: Root, folder: str, index: int) -> Level | None:
    return _CACHES.get((root.read(f"{folder}/index{index}/level") or "").strip())
