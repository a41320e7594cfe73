"""Checks of `ompbind doctor`: memory, frequencies and what else the kernel and its host do."""

from collections.abc import Iterator

from ompbind.cpuset import count, named
from ompbind.doctor.facts import HostFacts, Permission
from ompbind.doctor.issue import UNKNOWN, HostIssue, note, ok

# What is worth telling: more CPU time given to others by the host, less free memory, or more swapped out.
STOLEN, SCARCE, SWAPPED = 0.01, 0.05, 0.01

_FEATURES = (
    ((5, 3), "the ends of ranks are heard of by signals alone (pidfd is of 5.3)"),
    ((5, 15), "memory cannot be preferred from several nodes (of 5.15)"),
    ((6, 2), "when the cpuset changes, processes lose their affinity masks for good (until 6.2)"),
)
"""What kernels before a version lack, which matters to a binding."""


def check_memory_call(here: HostFacts) -> Iterator[HostIssue]:
    """Tell whether the kernel lets a process choose the NUMA nodes of its memory."""
    permission, several = here.may_place_memory, len(_nodes_with_memory(here)) > 1
    if permission is Permission.UNKNOWN:
        yield ok("set_mempolicy")
    elif permission is Permission.GRANTED:
        yield ok("set_mempolicy", "is permitted")
    elif permission is Permission.ABSENT:
        yield ok("set_mempolicy", "this kernel has no NUMA policies")
    elif not several:
        yield ok("set_mempolicy", "is refused, which does no harm with one NUMA node")
    else:
        why = "memory cannot be bound to nodes; it still comes from where a thread first touches it"
        remedy = "docker and podman: --cap-add SYS_NICE; Kubernetes: capabilities: add: [SYS_NICE]"
        found = "is refused" + (" in this container" if here.kernel.container else ", by a seccomp filter")
        yield note("set_mempolicy", found, why, remedy)


def _nodes_with_memory(here: HostFacts) -> list[int]:
    nodes = here.machine.nodes if here.machine else ()
    return [node.number for node in nodes if node.memory_bytes != 0]


def check_balancing(here: HostFacts) -> Iterator[HostIssue]:
    """Look whether the kernel moves memory between NUMA nodes on its own."""
    setting, nodes = here.kernel.numa_balancing, _nodes_with_memory(here)
    if setting is None or len(nodes) < 2:
        yield ok("NUMA balancing", UNKNOWN if setting is None and len(nodes) > 1 else "off, or only one node")
    elif setting:
        why = "it costs page faults, to learn who uses which memory; that of bound ranks is near them already"
        yield note("NUMA balancing", "on", why, "as root: sysctl kernel.numa_balancing=0")
    else:
        yield ok("NUMA balancing", "off")


def check_memory(here: HostFacts) -> Iterator[HostIssue]:
    """Look for nodes, or a machine, without free memory."""
    rooms = here.memory.nodes if len(here.memory.nodes) > 1 else tuple(filter(None, [here.memory.machine]))
    least = min((room.share_free for room in rooms), default=1.0)
    if not rooms:
        yield ok("memory")
    elif least >= SCARCE:
        told = f"{100 * least:.0f} % free"
        yield ok("memory", told if len(rooms) == 1 else f"{told}, or more, on every node")
    for room in rooms:
        if room.share_free < SCARCE:
            where, why = "", "ranks may be killed"
            if room.node is not None:
                where, why = f" of NUMA node {room.node}", "memory of ranks then comes from other nodes"
            found = f"only {100 * room.share_free:.0f} % of the memory{where} is free"
            yield note("memory", found, why, "end what uses it; 'ompbind topo' and /proc/meminfo tell more")


def check_swap(here: HostFacts) -> Iterator[HostIssue]:
    """Look whether memory has been swapped out."""
    total, used, memory = here.memory.swap_total, here.memory.swap_used, here.memory.machine
    if total is None or used is None or memory is None:
        yield ok("swap")
    elif used > SWAPPED * memory.total:
        found = f"{used >> 20} of {total >> 20} MiB are in use"
        why = "memory of a rank that was swapped out is read from a disk when it is touched"
        yield note("swap", found, why, "end what needs so much memory; as root: swapoff -a && swapon -a")
    else:
        yield ok("swap", f"{used >> 20} of {total >> 20} MiB in use" if total else "none")


def check_huge_pages(here: HostFacts) -> Iterator[HostIssue]:
    """Look whether programs can have transparent huge pages."""
    if here.kernel.huge_pages == "never":
        why = "programs with large arrays get small pages, although they ask for large ones"
        path = "/sys/kernel/mm/transparent_hugepage/enabled"
        yield note("huge pages", "transparent ones are off", why, f"as root: echo madvise > {path}")
    elif here.kernel.huge_pages:
        extra = f", defrag {here.kernel.defrag}" if here.kernel.defrag else ""
        yield ok("huge pages", f"transparent ones: {here.kernel.huge_pages}{extra}")
    else:
        yield ok("huge pages")


def check_frequencies(here: HostFacts) -> Iterator[HostIssue]:
    """Look whether frequencies are held down, or differ between CPUs."""
    power = here.power
    if not power.governors:
        yield ok("frequency", "this machine does not tell of it, as most virtual ones")
        return
    words = {word for word, _ in power.governors}
    own = power.driver.startswith(("intel_pstate", "amd-pstate", "amd_pstate"))
    slow = [word for word, _ in power.preferences if own and word in ("power", "balance_power")]
    told = ", ".join(f"{word} on {named('CPU', cpus)}" for word, cpus in power.governors)
    remedy = "as root: cpupower frequency-set -g performance"
    if len(words) > 1:
        yield note("frequency", f"governors differ: {told}", "equal ranks then take different times", remedy)
    elif words == {"powersave"} and not own:
        yield note("frequency", f"governor {told}", "it holds CPUs at their lowest frequency", remedy)
    elif slow:
        why = "frequencies rise late, and parallel regions wait for the slowest CPU"
        remedy = "as root: cpupower set --epp performance"
        yield note("frequency", f"energy preference {slow[0]}", why, remedy)
    elif words <= {"performance", "powersave"}:
        yield ok("frequency", f"governor {told}" + (f" ({power.driver})" if power.driver else ""))
    else:
        why = "the frequency follows the load: what is measured depends on what ran before"
        yield note("frequency", f"governor {told}", why, remedy)


def check_stolen(here: HostFacts) -> Iterator[HostIssue]:
    """Look whether the host of a virtual machine gives its CPUs to others."""
    stolen = here.kernel.stolen
    if stolen is None:
        yield ok("stolen time")
    elif stolen >= STOLEN:
        found = f"{100 * stolen:.1f} % of CPU time since boot went to others on the host"
        why = "a CPU that is away stops its thread, and all that wait for it at the end of a parallel region"
        yield note("stolen time", found, why, "ask for CPUs of its own (dedicated, pinned), or fewer of them")
    else:
        yield ok("stolen time", f"{100 * stolen:.1f} % since boot")


def check_kernel(here: HostFacts) -> Iterator[HostIssue]:
    """Look for what an old kernel lacks."""
    version = here.kernel.version
    if version is None:
        yield ok("kernel", here.kernel.release or UNKNOWN)
        return
    lacks = [what for since, what in _FEATURES if version < since]
    if lacks:
        yield note("kernel", here.kernel.release, "; ".join(lacks), "a newer kernel, where that matters")
    else:
        yield ok("kernel", here.kernel.release)


def check_container(here: HostFacts) -> Iterator[HostIssue]:
    """Tell whether this is a container, whose limits are set from outside."""
    if here.kernel.container:
        nodes = count(len(_nodes_with_memory(here)) or 1, "NUMA node")
        yield ok("container", f"{here.kernel.container}, with {nodes}")
