"""A Linux machine under a root, this one or a recorded one → a `Machine`."""

import os
import sys

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.errors import MachineError
from ompbind.machine.model import Level, Machine, check_size, drop_repeated
from ompbind.machine.sources.filesystem import FolderRoot, Root, keyed_lines, read_list
from ompbind.machine.sources.linux.cgroup import read_limits
from ompbind.machine.sources.linux.core_kinds import read_kinds
from ompbind.machine.sources.linux.numa import read_nodes
from ompbind.machine.sources.linux.sysfs import CPU, read_domains, read_online
from ompbind.machine.sources.other_systems import read_counts
from ompbind.procfs.process import status_value

LIVE = "live"
"""The topology source that stands for the machine that ompbind runs on."""


def read_live() -> Machine:
    """Read this machine, and what this process may use of it."""
    if not sys.platform.startswith("linux"):
        return read_counts()
    affinity = CpuSet(os.sched_getaffinity(0))
    return _read(FolderRoot("/", name=LIVE), affinity, os.uname().machine)


def read_recorded(root: Root) -> Machine:
    """Read a recording; what its process was allowed is what its cgroup files tell."""
    return _read(root, None, _recorded_arch(root))


def _read(root: Root, affinity: CpuSet | None, arch: str) -> Machine:
    online, offline, odd_cpus = _read_cpus(root, affinity)
    check_size(cpus=len(online))
    nodes, odd_nodes = read_nodes(root, online)
    parts, odd_domains = read_domains(root, online, [node.cpus for node in nodes])
    limits = read_limits(root)
    isolated, nohz_full = ((read_list(root, f"{CPU}/{name}") or EMPTY) & online for name in APART)
    allowed = online if limits.cpuset is None else online & limits.cpuset
    if affinity is not None:
        allowed &= widen(affinity, allowed, isolated)
    if not allowed:
        raise MachineError(
            f"no CPU of {root.name} is allowed: online {online}, "
            f"cgroup cpuset {limits.cpuset or 'none'}, affinity {affinity or 'none'}",
            hint="none of the CPUs that are online is in the cpuset and the affinity mask of this process",
        )
    machine = Machine(
        source=root.name,
        arch=arch,
        online=online,
        offline=offline,
        allowed=allowed,
        nodes=nodes,
        isolated=isolated,
        nohz_full=nohz_full,
        quota=limits.quota,
        memory_allowed=(_read_mems_allowed(root) if affinity is not None else None) or limits.mems,
        remarks=(*odd_cpus, *odd_domains, *odd_nodes),
    ).with_domains(drop_repeated(parts, nodes))
    return machine.replace(kinds=read_kinds(root, machine.at(Level.CORE)))


APART = ("isolated", "nohz_full")
"""The files that tell which CPUs the kernel keeps other work off."""


def widen(affinity: CpuSet, usable: CpuSet, isolated: CpuSet) -> CpuSet:
    """Add isolated CPUs to an affinity mask that nobody narrowed.

    The kernel starts every process without them, and lets any process bind to them. A mask that leaves
    out other usable CPUs too was narrowed on purpose, and stays as it is.
    """
    others = usable - isolated
    return affinity | isolated if others and others <= affinity else affinity


def _read_mems_allowed(root: Root) -> CpuSet | None:
    told = status_value(root.read("proc/self/status") or "", "Mems_allowed_list")
    return None if told is None else CpuSet.from_list(told)


def _read_cpus(root: Root, affinity: CpuSet | None) -> tuple[CpuSet, CpuSet, list[str]]:
    """Read what is online; a live machine without sysfs has at least the CPUs of the affinity mask."""
    try:
        return read_online(root)
    except MachineError:
        if affinity is None:
            raise
        return affinity, EMPTY, []


def _recorded_arch(root: Root) -> str:
    """Return the architecture that a recording names, "unknown" when it names none."""
    files = ("arch", "proc/hwloc-nofile-info")
    lines = (line for path in files for line in keyed_lines(root.read(path)))
    return next((value for key, value in lines if key in ("Architecture", "arch") and value), "unknown")
