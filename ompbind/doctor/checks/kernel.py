"""Checks of `ompbind doctor`: the kernel, its container or host, memory and frequencies."""

import platform
from collections.abc import Iterator

from ompbind import __version__
from ompbind.cpuset import CpuSet, count, named
from ompbind.doctor.facts import UNKNOWN, HostFacts, HostIssue, Permission, note, ok
from ompbind.planning.memory import measure_remote_memory, render_not_allowed

# Shares that make a note: of CPU time that the host gave to others, of free memory, of swapped-out memory.
STOLEN, SCARCE, SWAPPED = 0.01, 0.05, 0.01

_FEATURES = (
    ((5, 3), "exits of ranks are noticed by signals only (pidfd: 5.3)"),
    ((5, 15), "memory can be preferred from a single NUMA node only (several: 5.15)"),
    ((6, 2), "a change of the cpuset discards the affinity masks of processes (kept: 6.2)"),
)
"""Versions of the kernel, and what older kernels lack that matters to a binding."""


def check_memory_call(host: HostFacts) -> Iterator[HostIssue]:
    """Check that the kernel permits a process to choose the NUMA nodes of its memory."""
    permission, several = host.may_place_memory, len(_nodes_with_memory(host)) > 1
    if permission is Permission.UNKNOWN:
        yield ok("set_mempolicy")
    elif permission is Permission.GRANTED:
        yield ok("set_mempolicy", "is permitted")
    elif permission is Permission.ABSENT:
        yield ok("set_mempolicy", "this kernel has no NUMA policies")
    elif not several:
        yield ok("set_mempolicy", "is refused; harmless with one NUMA node")
    else:
        why = "memory cannot be bound to nodes; it is allocated where a thread touches it first"
        found, remedy = "is refused, by a seccomp filter", "allow set_mempolicy in the filter of the sandbox"
        if host.kernel.container:
            found = "is refused in this container"
            remedy = "docker and podman: --cap-add SYS_NICE; Kubernetes: capabilities: add: [SYS_NICE]"
        yield note("set_mempolicy", found, why, remedy)


def _nodes_with_memory(host: HostFacts) -> list[int]:
    nodes = host.machine.nodes if host.machine else ()
    return [node.number for node in nodes if node.memory_bytes != 0]


def check_allowed_memory(host: HostFacts) -> Iterator[HostIssue]:
    """Look for allowed CPUs on NUMA nodes whose memory is not allowed."""
    machine = host.machine
    if machine is None:
        return
    remote = CpuSet(measure_remote_memory(machine)) & machine.allowed
    if not remote:
        yield ok("allowed memory", "of the NUMA nodes of all allowed CPUs")
        return
    found = f"{render_not_allowed(machine, remote)}, but {named('CPU', remote)} there are allowed"
    why = "threads there use memory of other nodes, which is slower; plans use these CPUs last"
    inside = host.kernel.container
    where = "docker and podman: --cpuset-mems" if inside else "AllowedMemoryNodes= of the systemd unit"
    yield note("allowed memory", found, why, f"allow this memory too ({where}), or allow only other CPUs")


def check_balancing(host: HostFacts) -> Iterator[HostIssue]:
    """Check whether the kernel moves memory between NUMA nodes on its own."""
    setting, nodes = host.kernel.numa_balancing, _nodes_with_memory(host)
    if setting is None or len(nodes) < 2:
        yield ok("NUMA balancing", UNKNOWN if setting is None and len(nodes) > 1 else "off, or only one node")
    elif setting:
        why = "it causes page faults to find out which CPUs use a page; memory of bound ranks is local anyway"
        yield note("NUMA balancing", "on", why, "as root: sysctl kernel.numa_balancing=0")
    else:
        yield ok("NUMA balancing", "off")


def check_memory(host: HostFacts) -> Iterator[HostIssue]:
    """Look for NUMA nodes, or a machine, with little free memory."""
    memory = host.memory
    sizes = memory.nodes if len(memory.nodes) > 1 else tuple(filter(None, [memory.machine]))
    least = min((size.share_free for size in sizes), default=1.0)
    if not sizes:
        yield ok("memory")
    elif least >= SCARCE:
        free = f"{100 * least:.0f} % free"
        yield ok("memory", free if len(sizes) == 1 else f"at least {free} on every node")
    for size in sizes:
        if size.share_free < SCARCE:
            where, why = "", "ranks may be killed for lack of memory"
            if size.node is not None:
                where, why = f" of NUMA node {size.node}", "ranks then get memory of other nodes"
            found = f"only {100 * size.share_free:.0f} % of the memory{where} is free"
            remedy = "stop the programs that use it; see 'ompbind topo' and /proc/meminfo"
            yield note("memory", found, why, remedy)


def check_swap(host: HostFacts) -> Iterator[HostIssue]:
    """Check whether memory has been swapped out."""
    total, used, memory = host.memory.swap_total, host.memory.swap_used, host.memory.machine
    if total is None or used is None or memory is None:
        yield ok("swap")
    elif used > SWAPPED * memory.total:
        found = f"{used >> 20} of {total >> 20} MiB are in use"
        why = "swapped-out memory of a rank is read from disk when it is accessed"
        remedy = "stop programs that need so much memory; as root: swapoff -a && swapon -a"
        yield note("swap", found, why, remedy)
    else:
        yield ok("swap", f"{used >> 20} of {total >> 20} MiB in use" if total else "none")


def check_huge_pages(host: HostFacts) -> Iterator[HostIssue]:
    """Check whether programs can get transparent huge pages."""
    if host.kernel.huge_pages == "never":
        why = "programs with large arrays get small pages, even if they request huge pages"
        path = "/sys/kernel/mm/transparent_hugepage/enabled"
        yield note("huge pages", "transparent huge pages are off", why, f"as root: echo madvise > {path}")
    elif host.kernel.huge_pages:
        extra = f", defrag {host.kernel.defrag}" if host.kernel.defrag else ""
        yield ok("huge pages", f"transparent huge pages: {host.kernel.huge_pages}{extra}")
    else:
        yield ok("huge pages")


def check_frequencies(host: HostFacts) -> Iterator[HostIssue]:
    """Check whether frequencies are kept low, or differ between CPUs."""
    frequency = host.frequency
    if not frequency.governors:
        yield ok("frequency", "not reported (common in virtual machines)")
        return
    words = {word for word, _ in frequency.governors}
    own = frequency.driver.startswith(("intel_pstate", "amd-pstate", "amd_pstate"))
    slow = [word for word, _ in frequency.preferences if own and word in ("power", "balance_power")]
    governors = ", ".join(f"{word} on {named('CPU', cpus)}" for word, cpus in frequency.governors)
    remedy = "as root: cpupower frequency-set -g performance"
    if len(words) > 1:
        why = "equal ranks then take different times"
        yield note("frequency", f"governors differ: {governors}", why, remedy)
    elif words == {"powersave"} and not own:
        yield note("frequency", f"governor {governors}", "it keeps CPUs at their lowest frequency", remedy)
    elif slow:
        why = "frequencies rise late, and parallel regions wait for the slowest CPU"
        remedy = "as root: cpupower set --epp performance"
        yield note("frequency", f"energy preference {slow[0]}", why, remedy)
    elif words <= {"performance", "powersave"}:
        driver = f" ({frequency.driver})" if frequency.driver else ""
        yield ok("frequency", f"governor {governors}{driver}")
    else:
        why = "the frequency follows the load: measurements depend on what ran before"
        yield note("frequency", f"governor {governors}", why, remedy)


def check_stolen(host: HostFacts) -> Iterator[HostIssue]:
    """Check whether the host of a virtual machine gives its CPUs to other guests."""
    stolen = host.kernel.stolen
    if stolen is None:
        yield ok("steal time")
    elif stolen >= STOLEN:
        found = f"the host gave {100 * stolen:.1f} % of CPU time since boot to others"
        why = "a thread without its CPU stops, and all threads wait for it at the end of a parallel region"
        yield note("steal time", found, why, "request dedicated (pinned) CPUs, or fewer CPUs")
    else:
        yield ok("steal time", f"{100 * stolen:.1f} % of CPU time since boot")


def check_kernel(host: HostFacts) -> Iterator[HostIssue]:
    """Look for features that an old kernel lacks."""
    version = host.kernel.version
    if version is None:
        yield ok("kernel", host.kernel.release or UNKNOWN)
        return
    lacks = [text for since, text in _FEATURES if version < since]
    if lacks:
        yield note("kernel", host.kernel.release, "; ".join(lacks), "use a newer kernel, if this matters")
    else:
        yield ok("kernel", host.kernel.release)


def check_versions(host: HostFacts) -> Iterator[HostIssue]:
    """Report the versions of ompbind and of its Python, for reports of faults."""
    yield ok("versions", f"ompbind {__version__}, Python {platform.python_version()}")


def check_container(host: HostFacts) -> Iterator[HostIssue]:
    """Report whether this is a container, whose limits are set from outside."""
    if host.kernel.container:
        nodes = count(len(_nodes_with_memory(host)) or 1, "NUMA node")
        yield ok("container", f"{host.kernel.container}, with {nodes}")
