"""Read the settings and the state of a system below a root: kernel, CPU frequencies, memory and swap."""

import errno
import os
from collections.abc import Callable, Iterable, Iterator

from ompbind.cpuset import CpuSet
from ompbind.doctor.facts import FrequencyFacts, KernelFacts, MemoryFacts, Permission
from ompbind.machine.sources.linux.cpus import CPU
from ompbind.machine.sources.linux.numa import MemorySize, read_memory_sizes
from ompbind.machine.sources.root import Root, numbered, numbers_in, parse_meminfo, whole_number
from ompbind.procfs.parsers import parse_cpu_times

_FREQUENCIES = f"{CPU}/cpufreq"
_HUGE_PAGES = "sys/kernel/mm/transparent_hugepage"

# Parts of cgroup paths, and files that exist only in containers, each with the container software.
_CONTAINERS = (("kubepods", "Kubernetes"), ("docker", "Docker"), ("libpod", "podman"), ("lxc", "LXC"))
_VIRTUAL_MAKERS = ("QEMU", "Xen", "VMware, Inc.", "Parallels Software International Inc.")
"""Makers in DMI tables who build no hardware: other architectures than x86 have no flag."""

_FILES = (("run/.containerenv", "podman"), (".dockerenv", "Docker"))


def read_kernel(root: Root) -> KernelFacts:
    """Read the release of the kernel and the settings that matter to ranks."""
    times = parse_cpu_times(root.read("proc/stat") or "").get(None)
    return KernelFacts(
        release=_word(root, "proc/sys/kernel/osrelease"),
        container=_read_container(root),
        hypervisor=_read_hypervisor(root),
        smt=_word(root, f"{CPU}/smt/control"),
        numa_balancing=whole_number(root.read("proc/sys/kernel/numa_balancing")),
        huge_pages=_selected(root.read(f"{_HUGE_PAGES}/enabled")),
        defrag=_selected(root.read(f"{_HUGE_PAGES}/defrag")),
        stolen=times.stolen / times.total if times and times.total else None,
    )


def _word(root: Root, path: str) -> str:
    return (root.read(path) or "").strip()


def _selected(text: str | None) -> str:
    """Return the word in brackets, such as "never" of "always [never]"; "" if there is none."""
    _, found, rest = (text or "").partition("[")
    return rest.partition("]")[0] if found else ""


def _read_container(root: Root) -> str:
    groups = root.read("proc/self/cgroup") or ""
    by_group = (kind for part, kind in _CONTAINERS if part in groups)
    by_file = (kind for path, kind in _FILES if root.read(path) is not None)
    return next((kind for kinds in (by_group, by_file) for kind in kinds), "")


def _read_hypervisor(root: Root) -> str:
    """Read the maker of a virtual machine; "" on hardware. x86 CPUs have a flag, Xen and others a file."""
    flags = next(
        (line for line in (root.read("proc/cpuinfo") or "").splitlines() if line.startswith("flags")), ""
    )
    maker = _word(root, "sys/class/dmi/id/sys_vendor")
    is_virtual = "hypervisor" in flags.split() or maker in _VIRTUAL_MAKERS
    return (maker or "a hypervisor") if is_virtual else _word(root, "sys/hypervisor/type")


def read_frequency(root: Root, online: CpuSet) -> FrequencyFacts:
    """Read how the frequencies of online CPUs are selected."""
    policies = list(_find_policies(root, online))
    drivers = (_word(root, f"{path}/scaling_driver") for path, _ in policies)
    return FrequencyFacts(
        driver=next(filter(None, drivers), ""),
        governors=_grouped((_word(root, f"{path}/scaling_governor"), cpus) for path, cpus in policies),
        preferences=_grouped(
            (_word(root, f"{path}/energy_performance_preference"), cpus) for path, cpus in policies
        ),
    )


def _find_policies(root: Root, online: CpuSet) -> Iterator[tuple[str, CpuSet]]:
    """Yield the directory of each cpufreq policy with its online CPUs; old kernels have a policy per CPU."""
    policies = numbered(root.names(_FREQUENCIES), "policy")
    for policy in policies:
        path = f"{_FREQUENCIES}/policy{policy}"
        words = (root.read(f"{path}/affected_cpus") or "").split()
        cpus = numbers_in(words) or CpuSet((policy,))
        if cpus & online:
            yield path, cpus & online
    if not policies:
        for cpu in online:
            if root.names(f"{CPU}/cpu{cpu}/cpufreq"):
                yield f"{CPU}/cpu{cpu}/cpufreq", CpuSet((cpu,))


def _grouped(pairs: Iterable[tuple[str, CpuSet]]) -> tuple[tuple[str, CpuSet], ...]:
    """Join the CPUs of equal words; empty words are left out."""
    groups: dict[str, CpuSet] = {}
    for word, cpus in pairs:
        if word:
            groups[word] = groups.get(word, CpuSet()) | cpus
    return tuple(groups.items())


def read_memory(root: Root) -> MemoryFacts:
    """Read how much memory of the machine and of each NUMA node is free, and how much is swapped out."""
    sizes = parse_meminfo(root.read("proc/meminfo"))
    total, free = sizes.get("MemTotal"), sizes.get("MemAvailable", sizes.get("MemFree"))
    swap, unused = sizes.get("SwapTotal"), sizes.get("SwapFree")
    return MemoryFacts(
        machine=None if total is None or free is None else MemorySize(total=total, free=free),
        nodes=tuple(read_memory_sizes(root)),
        swap_total=swap,
        swap_used=None if swap is None or unused is None else max(0, swap - unused),
    )


_NOT_TRIED = 255
_REFUSALS = (errno.EPERM, errno.EACCES)


def rebind() -> int:
    """Bind the process to the CPUs of its affinity mask; return 0."""
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    return 0


def try_call(call: Callable[[], int]) -> Permission:
    """Make a call in a child process, whose exit code is the errno; a sandbox may also kill the child."""
    try:
        child = os.fork()
    except OSError:
        return Permission.UNKNOWN
    if child == 0:
        code = _NOT_TRIED
        try:
            code = call()
        except OSError as error:
            code = error.errno or _NOT_TRIED
        finally:  # any other exception: there is no such call, or its number is unknown on this system
            os._exit(min(code, _NOT_TRIED))
    return interpret_status(os.waitpid(child, 0)[1])


def interpret_status(status: int) -> Permission:
    """Return the permission that the wait status of the child shows."""
    if os.WIFSIGNALED(status):
        return Permission.REFUSED
    code = os.WEXITSTATUS(status)
    if code == errno.ENOSYS:
        return Permission.ABSENT
    if code in _REFUSALS:
        return Permission.REFUSED
    return Permission.GRANTED if code == 0 else Permission.UNKNOWN
