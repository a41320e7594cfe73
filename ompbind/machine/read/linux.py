"""The files of a Linux machine below a root, this machine or a recording → a `Machine`."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress

from ompbind.cpuset import EMPTY, CpuSet, named, parse_set
from ompbind.errors import REFUSED_HINT, MachineError
from ompbind.machine.core_kinds import add_kinds, list_contradictions
from ompbind.machine.model import Level, Machine, Node, Partition, check_size, drop_repeated
from ompbind.machine.read import linux_topology
from ompbind.machine.read.linux_cgroup import CgroupLimits, read_limits
from ompbind.machine.read.linux_tasks import read_task_limit
from ompbind.machine.read.root import DirectoryRoot, Root, keyed_lines, read_list
from ompbind.procfs.parsers import status_value

LIVE = "live"  # the topology source of the machine that ompbind runs on


def read_live(*, devices: bool = False) -> Machine:
    """Read this machine, and what this process may use of it. Raises MachineError."""
    if not sys.platform.startswith("linux"):
        cores = None  # unknown without psutil, as in the zipapp
        with suppress(ImportError):
            import psutil  # noqa: PLC0415 - door: loads psutil

            cores = psutil.cpu_count(logical=False)
        return make_counted_machine(os.cpu_count() or 1, cores, os.uname().sysname)
    try:
        affinity = CpuSet(os.sched_getaffinity(0))
    except OSError as error:
        message = f"cannot read the allowed CPUs: sched_getaffinity: {error.strerror}"
        raise MachineError(message, hint=REFUSED_HINT) from error
    root = DirectoryRoot("/", name=LIVE)
    machine = read_root(root, affinity, os.uname().machine)
    return add_devices(machine, root, device_files="/dev") if devices else machine


def add_devices(machine: Machine, root: Root, device_files: str | None = None) -> Machine:
    """Return the machine with its devices and sizes of caches; `device_files` is their directory, if any."""
    from ompbind.machine.read.linux_devices import read_devices  # noqa: PLC0415 - door: devices

    machine = machine.with_cache_sizes(linux_topology.read_cache_sizes(root, machine.domains))
    return machine.replace(devices=read_devices(root, machine, device_files=device_files))


def read_root(root: Root, affinity: CpuSet | None, arch: str) -> Machine:
    """Read the machine below a root; `affinity` is None for a recording. Raises MachineError."""
    try:
        online, offline, cpu_remarks = linux_topology.read_online(root, affinity or EMPTY)
    except MachineError:
        if affinity is None:
            raise
        online, offline, cpu_remarks = affinity, EMPTY, []  # without sysfs, the affinity mask is online
    check_size(cpus=len(online))
    nodes, node_remarks = linux_topology.read_nodes(root, online)
    parts, domain_remarks = linux_topology.read_domains(root, online)
    limits = read_limits(root)
    isolated, nohz_full = (cpus & online for cpus in linux_topology.read_isolated(root, online | offline))
    allowed = online if limits.cpuset is None else online & limits.cpuset
    memory_allowed = limits.mems
    if affinity is not None:
        allowed &= add_isolated(affinity, allowed, isolated)
        listed = status_value(root.read("proc/self/status") or "", "Mems_allowed_list")
        memory_allowed = CpuSet.from_list(listed or "") or limits.mems
    if not allowed:
        raise MachineError(
            f"no CPU of {root.name} is allowed: online {online}, "
            f"cgroup cpuset {limits.cpuset or 'none'}, affinity mask {affinity or 'none'}",
            hint="allow this process an online CPU: in its cgroup's cpuset and in its affinity mask",
        )
    machine = Machine(
        source=root.name,
        arch=arch,
        online=online,
        offline=offline,
        allowed=allowed,
        nodes=nodes,
        isolated=isolated | allowed if limits.isolated else isolated,
        nohz_full=nohz_full,
        quota=limits.quota,
        task_limit=read_task_limit(root),
        memory_allowed=memory_allowed,
        remarks=(*cpu_remarks, *domain_remarks, *node_remarks),
    ).with_domains(drop_repeated(parts, nodes))
    caches = machine.at(Level.L3)
    if len(caches) > 1:  # of different size, they distinguish cores
        machine = machine.with_cache_sizes(linux_topology.read_cache_sizes(root, caches))
    traits = linux_topology.read_traits(root, machine)
    machine = add_kinds(machine, traits)
    if traits[0].frequency is None and not machine.kinds:  # hypervisors show no frequencies
        first = dict(keyed_lines((root.read("proc/cpuinfo") or "").partition("\n\n")[0]))
        if "hypervisor" in first.get("flags", "").split():
            remarks = list_contradictions(machine, first.get("model name", ""))
            machine = machine.replace(remarks=(*machine.remarks, *remarks))
    return machine.replace(restrictions=tuple(_list_restrictions(root, limits, machine)))


def _list_restrictions(root: Root, limits: CgroupLimits, machine: Machine) -> Iterator[tuple[CpuSet, str]]:
    """Yield why CPUs are not allowed: the cpuset; the affinity mask, and the masks of parent and PID 1."""
    in_cpuset = machine.online & (limits.cpuset or machine.online)
    if excluded := machine.online - in_cpuset:
        yield excluded, f"the cpuset cgroup {limits.directory} excludes {named('CPU', excluded)}"
    if not (excluded := in_cpuset - machine.allowed):
        return
    hidden = "" if limits.cpuset else ", or a cpuset that is not visible here,"
    text = f"the affinity mask of this process{hidden} excludes {named('CPU', excluded)}"
    key, own = "Cpus_allowed_list", root.read("proc/self/status") or ""
    parent = status_value(own, "PPid")
    for pid in dict.fromkeys((parent, "1")):
        status = root.read(f"proc/{pid}/status") or ""
        if (mask := status_value(status, key)) and pid != status_value(own, "Pid"):
            who = f"its parent (PID {pid}, {status_value(status, 'Name')})" if pid == parent else "PID 1"
            has = "all CPUs" if machine.online <= CpuSet.from_list(mask) else f"the mask {mask}"
            text += f"; {who} has {'the same mask' if mask == status_value(own, key) else has}"
    yield excluded, text


def add_isolated(affinity: CpuSet, usable: CpuSet, isolated: CpuSet) -> CpuSet:
    """Return an affinity mask with the isolated CPUs added, if it is the kernel's default mask.

    The kernel starts every process without the isolated CPUs, but any process may bind to them. A mask that
    lacks other usable CPUs, too, was set on purpose and is returned unchanged.
    """
    others = usable - isolated
    return affinity | isolated if others and others <= affinity else affinity


def read_recorded(root: Root, *, devices: bool = False) -> Machine:
    """Read a recording; its cgroup files decide which CPUs are allowed. Raises MachineError.

    The mask of the process that made it counts only where a container has replaced the list of online CPUs.
    """
    files = ("arch", "proc/hwloc-nofile-info")
    lines = (line for path in files for line in keyed_lines(root.read(path)))
    arch = next((value for key, value in lines if key in ("Architecture", "arch") and value), "unknown")
    mask = parse_set(status_value(root.read("proc/self/status") or "", "Cpus_allowed_list"), CpuSet.from_list)
    online = read_list(root, f"{linux_topology.CPU}/online")
    is_replaced = mask and online and mask.isdisjoint(online)  # else unused: it may have offline CPUs
    machine = read_root(root, mask if is_replaced else None, arch)
    return add_devices(machine, root) if devices else machine


def make_counted_machine(cpus: int, cores: int | None, system: str) -> Machine:
    """Make a machine of a system other than Linux, which cannot bind; without `cores`, each CPU is a core."""
    online = CpuSet(range(cpus))
    width = cpus // cores if cores and cpus % cores == 0 else 1
    counts = "numbers of CPUs and cores are" if cores else "number of CPUs is"
    siblings: Partition = [(None, CpuSet(range(start, start + width))) for start in range(0, cpus, width)]
    return Machine(
        source="live",
        arch=os.uname().machine,
        online=online,
        allowed=online,
        nodes=(Node(number=0, cpus=online),),
        bindable=False,
        remarks=(f"{system} does not report the topology: only the {counts} used",),
    ).with_domains({Level.CORE: siblings})
