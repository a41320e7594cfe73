"""Cores, packages, dies, clusters and caches from `sys/devices/system/cpu`.

    cpu/online, cpu/present                             which CPUs there are
    cpu/cpuN/topology/core_cpus, package_cpus, …        the CPUs in the core, package, … of CPU N
    cpu/cpuN/cache/indexM/level, type, shared_cpu_map   the CPUs that share a cache with CPU N
    cpu/cpuN/cache/indexM/size                          its size, "32768K"

1. Sets identify domains, not numbers: `core_id` and `physical_package_id` may repeat or be missing.
2. Only one CPU of each set is read, since it also gives the set of its siblings: a machine with n CPUs needs
   far fewer than n reads per file. A set keeps only CPUs that no earlier set has.
3. A recording without sibling sets: L1 caches give the cores, `physical_package_id` the packages. Missing
   facts add a remark.
"""

from collections.abc import Iterable, Sequence

from ompbind.cpuset import EMPTY, CpuSet, named, union
from ompbind.errors import MachineError
from ompbind.machine.core_kinds import CoreTraits, are_alike, make_kinds
from ompbind.machine.model import PARTIALLY_OVERLAP, CoreKind, Domain, Level, Machine, Partition
from ompbind.machine.read.root import (
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
"""Files in `cpuN/topology` with the sibling set of a level, as a mask; with the suffix `_list`, as a list."""

_OS_NUMBER_FILES = {
    Level.PACKAGE: "physical_package_id",
    Level.DIE: "die_id",
    Level.BOOK: "book_id",
    Level.DRAWER: "drawer_id",
}

_CACHE_LEVELS = {"1": Level.CORE, "2": Level.L2, "3": Level.L3}
"""The domain that shares a data cache of each level; L1 is used only if sibling sets of cores are missing."""


def read_online(root: Root) -> tuple[CpuSet, CpuSet, list[str]]:
    """Return the online CPUs, the offline CPUs, and remarks.

    Read from `cpu/online` and `cpu/present`, or else from the cpuN directories and `proc/cpuinfo`. Raises
    MachineError if all of these are missing.
    """
    directories, listed = numbered(root.names(CPU), "cpu"), read_list(root, f"{CPU}/online")
    online = listed or CpuSet(
        cpu for cpu in directories if (root.read(f"{CPU}/cpu{cpu}/online") or "1").strip() != "0"
    )
    if not listed:  # CPUs that only proc/cpuinfo lists are online too
        lines = keyed_lines(root.read("proc/cpuinfo"))
        online |= numbers_in(value for key, value in lines if key == "processor") - directories
    if not online:
        raise MachineError(
            f"{root.name} names no CPU in {CPU}/online, as cpuN directories, or in proc/cpuinfo",
            hint="record sys/devices/system/cpu and proc/",
        )
    present = read_list(root, f"{CPU}/present") or directories
    is_malformed = not listed and root.read(f"{CPU}/online") is not None
    remarks = [f"{CPU}/online is malformed: the cpuN directories are used instead"] if is_malformed else []
    return online, (present | directories) - online, remarks


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
    for level in _SIBLING_FILES:
        if level is not Level.CORE:
            parts[level] = _read_siblings(root, online, level, with_core)
    packages = parts[Level.PACKAGE] or _group_by_package_id(root, online)
    clusters = parts[Level.CLUSTER]
    owner = {cpu: cpus for _, cpus in packages for cpu in cpus} if clusters else {}
    if any(not cpus <= owner.get(cpus.first, cpus) for _, cpus in clusters):
        remarks.append(f"packages {PARTIALLY_OVERLAP} clusters: physical_package_id is used instead")
        packages = _group_by_package_id(root, online)
    parts[Level.PACKAGE] = packages
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
        files = [(f"{directory}/{name}", f"{directory}/{name}_list") for name in _SIBLING_FILES[level]]
        siblings = read_set(root, files)
        if siblings is not None:
            siblings = (siblings | cpu) & free
            number = None  # kernels write -1, 65535 or more for a domain without an OS number
            if level in _OS_NUMBER_FILES:
                number = whole_number(root.read(f"{directory}/{_OS_NUMBER_FILES[level]}"), 65535)
            found.append((number, siblings))
            free = free - siblings
        elif not found and rest.first in with_core:
            break
        rest = rest - (siblings or EMPTY) - cpu
    return found


def _group_by_package_id(root: Root, online: CpuSet) -> Partition:
    """Group CPUs by `physical_package_id`; none if a CPU has no such number.

    CPUs with the number 65535 are in one package without an OS number.
    """
    groups: dict[int, list[int]] = {}
    for cpu in online:
        number = whole_number(root.read(f"{CPU}/cpu{cpu}/topology/physical_package_id"))
        if number is None:
            return []
        groups.setdefault(number, []).append(cpu)
    return [(number if number < 65535 else None, CpuSet(cpus)) for number, cpus in groups.items()]


def _read_caches(root: Root, cores: Iterable[CpuSet], levels: tuple[Level, ...]) -> dict[Level, Partition]:
    """Return the CPUs that share each data cache of some levels, reading one CPU of each core.

    A cache with an empty set of CPUs is private to its core.
    """
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
            cpus = read_set(root, [(f"{directory}/shared_cpu_map", f"{directory}/shared_cpu_list")])
            if cpus is not None:
                cpus = cpus | CpuSet((cpu,)) if cpus else core
                found[level].append((None, cpus - covered[level]))
                covered[level] |= cpus
    return found


def _read_cache_layout(root: Root, cpu: int, previous: dict[Level, int]) -> dict[Level, int]:
    """Return the number M of the directory indexM of each cache level.

    `previous` is the layout of the CPU before; it is returned if it also fits this CPU.
    """
    directory = f"{CPU}/cpu{cpu}/cache"
    if previous and all(_read_level(root, directory, index) is level for level, index in previous.items()):
        beyond = root.read(f"{directory}/index{max(previous.values()) + 1}/level")
        if beyond is None:
            return previous
    layout: dict[Level, int] = {}
    for index in range(10):
        level = _read_level(root, directory, index)
        if level and (root.read(f"{directory}/index{index}/type") or "").strip() != "Instruction":
            layout.setdefault(level, index)
    return layout


def read_cache_sizes(root: Root, domains: Iterable[Domain]) -> dict[tuple[Level, int], int]:
    """Read the sizes of the caches among some domains: bytes by level and first CPU, if they are known."""
    sizes: dict[tuple[Level, int], int] = {}
    layout: dict[Level, int] = {}
    for cache in (domain for domain in domains if domain.level in (Level.L2, Level.L3)):
        cpu = cache.cpus.first
        layout = _read_cache_layout(root, cpu, layout)
        text = root.read(f"{CPU}/cpu{cpu}/cache/index{layout.get(cache.level)}/size") or ""
        kib = whole_number(text.strip().removesuffix("K"), 1 << 40)
        if kib:
            sizes[cache.level, cpu] = kib << 10
    return sizes


def _read_level(root: Root, directory: str, index: int) -> Level | None:
    return _CACHE_LEVELS.get((root.read(f"{directory}/index{index}/level") or "").strip())


# Facts about kinds of cores: type, capacity and highest frequency.
#
#     sys/devices/cpu_core/cpus            the CPUs of Intel's performance cores
#     cpu/cpuN/cpu_capacity                relative, 1024 for the strongest core (Arm, RISC-V)
#     cpu/cpuN/cpufreq/cpuinfo_max_freq    in kHz
#
# `machine.core_kinds` makes the kinds from these facts.


_PERFORMANCE_CPUS = "sys/devices/cpu_core/cpus"
"""The file with the CPUs of performance cores; all other cores are efficiency cores."""


def read_kinds(root: Root, machine: Machine) -> tuple[CoreKind, ...]:
    """Read the kinds of cores, strongest first; none if all cores are equal or nothing is known."""
    cores = machine.at(Level.CORE)
    strong = read_list(root, _PERFORMANCE_CPUS) or EMPTY
    capacities = _read_numbers(root, cores, "cpu_capacity")
    frequencies = _read_numbers(root, cores, "cpufreq/cpuinfo_max_freq")
    if not strong and len(set(capacities)) == 1 and len(set(frequencies)) == 1 and are_alike(machine):
        return ()  # all cores are equal, or nothing is known
    return make_kinds(
        machine,
        [
            CoreTraits(
                cpus=core.cpus,
                type=("performance" if core.cpus <= strong else "efficiency") if strong else None,
                capacity=capacity,
                frequency=frequency,
            )
            for core, capacity, frequency in zip(cores, capacities, frequencies, strict=True)
        ],
    )


def _read_numbers(root: Root, cores: Sequence[Domain], name: str) -> list[int | None]:
    """Read a number of the first CPU of each core; all None if the first core has none, to save reads."""
    numbers: list[int | None] = []
    for core in cores:
        numbers.append(whole_number(root.read(f"{CPU}/cpu{core.cpus.first}/{name}")))
        if numbers[0] is None:
            return [None] * len(cores)
    return numbers
