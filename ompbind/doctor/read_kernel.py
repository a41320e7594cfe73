"""What a machine is set to, below a root: kernel, frequencies, memory and swap."""

from collections.abc import Iterable, Iterator

from ompbind.cpuset import CpuSet
from ompbind.doctor.facts import FrequencyFacts, KernelFacts, MemoryFacts, MemorySize
from ompbind.machine.sources.filesystem import Root, numbered, numbers_in, parse_sizes, whole_number
from ompbind.machine.sources.linux import numa
from ompbind.machine.sources.linux.sysfs import CPU

_FREQUENCIES = f"{CPU}/cpufreq"
_HUGE_PAGES = "sys/kernel/mm/transparent_hugepage"
_STAT_FIELDS = 8  # numbers of proc/stat that add up to all CPU time, the last of which was stolen

# What paths of control groups have in them, and files that are there alone, in which kind of container.
_CONTAINERS = (("kubepods", "Kubernetes"), ("docker", "Docker"), ("libpod", "podman"), ("lxc", "LXC"))
_FILES = (("run/.containerenv", "podman"), (".dockerenv", "Docker"))


def read_kernel(root: Root) -> KernelFacts:
    """Read the version of the kernel and those of its settings that matter to ranks."""
    return KernelFacts(
        release=_word(root, "proc/sys/kernel/osrelease"),
        container=_read_container(root),
        smt=_word(root, f"{CPU}/smt/control"),
        numa_balancing=whole_number(root.read("proc/sys/kernel/numa_balancing")),
        huge_pages=_chosen(root.read(f"{_HUGE_PAGES}/enabled")),
        defrag=_chosen(root.read(f"{_HUGE_PAGES}/defrag")),
        stolen=_read_stolen(root),
    )


def _word(root: Root, path: str) -> str:
    return (root.read(path) or "").strip()


def _chosen(text: str | None) -> str:
    """Return the word in brackets, "" where there is none."""
    _, found, rest = (text or "").partition("[")
    return rest.partition("]")[0] if found else ""


def _read_container(root: Root) -> str:
    groups = root.read("proc/self/cgroup") or ""
    by_group = (kind for sign, kind in _CONTAINERS if sign in groups)
    by_file = (kind for path, kind in _FILES if root.read(path) is not None)
    return next((kind for kinds in (by_group, by_file) for kind in kinds), "")


def _read_stolen(root: Root) -> float | None:
    """Read the share of CPU time since boot that the host of a virtual machine gave to others."""
    words = (root.read("proc/stat") or "").partition("\n")[0].split()
    numbers = [whole_number(word) for word in words[1 : 1 + _STAT_FIELDS]]
    times = [number for number in numbers if number is not None]
    if words[:1] != ["cpu"] or len(times) < _STAT_FIELDS or not sum(times):
        return None
    return times[-1] / sum(times)


def read_power(root: Root, online: CpuSet) -> FrequencyFacts:
    """Read how the frequencies of online CPUs are chosen."""
    folders = list(_frequency_folders(root, online))
    drivers = (_word(root, f"{folder}/scaling_driver") for folder, _ in folders)
    return FrequencyFacts(
        driver=next(filter(None, drivers), ""),
        governors=_grouped((_word(root, f"{folder}/scaling_governor"), cpus) for folder, cpus in folders),
        preferences=_grouped(
            (_word(root, f"{folder}/energy_performance_preference"), cpus) for folder, cpus in folders
        ),
    )


def _frequency_folders(root: Root, online: CpuSet) -> Iterator[tuple[str, CpuSet]]:
    """Yield the folders that tell of frequencies, each with its CPUs; old kernels have one in each CPU's."""
    policies = numbered(root.names(_FREQUENCIES), "policy")
    for policy in policies:
        folder = f"{_FREQUENCIES}/policy{policy}"
        words = (root.read(f"{folder}/affected_cpus") or "").split()
        cpus = numbers_in(words) or CpuSet((policy,))
        if cpus & online:
            yield folder, cpus & online
    if not policies:
        for cpu in online:
            if root.names(f"{CPU}/cpu{cpu}/cpufreq"):
                yield f"{CPU}/cpu{cpu}/cpufreq", CpuSet((cpu,))


def _grouped(pairs: Iterable[tuple[str, CpuSet]]) -> tuple[tuple[str, CpuSet], ...]:
    """Join the CPUs of equal words, without those that tell none."""
    found: dict[str, CpuSet] = {}
    for word, cpus in pairs:
        if word:
            found[word] = found.get(word, CpuSet()) | cpus
    return tuple(found.items())


def read_memory(root: Root) -> MemoryFacts:
    """Read how much memory is free, of the machine and of each node, and how much is swapped out."""
    told = parse_sizes(root.read("proc/meminfo"))
    total, free = told.get("MemTotal"), told.get("MemAvailable", told.get("MemFree"))
    swap, unused = told.get("SwapTotal"), told.get("SwapFree")
    return MemoryFacts(
        machine=None if total is None or free is None else MemorySize(total=total, free=free),
        nodes=tuple(_read_nodes(root)),
        swap_total=swap,
        swap_used=None if swap is None or unused is None else max(0, swap - unused),
    )


def _read_nodes(root: Root) -> Iterator[MemorySize]:
    """Yield the memory of nodes that have some; what files have cached can be had at once."""
    for node in numbered(root.names(numa.FOLDER), "node"):
        told = parse_sizes(root.read(f"{numa.FOLDER}/node{node}/meminfo"))
        total, free = told.get("MemTotal"), told.get("MemFree")
        if total and free is not None:
            caches = ("Active(file)", "Inactive(file)", "SReclaimable")
            yield MemorySize(node=node, total=total, free=free + sum(told.get(name, 0) for name in caches))
