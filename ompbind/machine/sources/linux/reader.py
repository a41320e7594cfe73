"""A Linux machine under a root, this one or a recorded one → a `Machine`."""

import os
import sys

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.errors import MachineError
from ompbind.machine.model import (
    Level,
    Machine,
    at_level,
    check_size,
    drop_repeated,
    find_oddities,
    make_domains,
    node_partition,
)
from ompbind.machine.sources.filesystem import FolderRoot, Root, keyed_lines, read_list
from ompbind.machine.sources.linux.cgroup import Limits, read_limits
from ompbind.machine.sources.linux.core_kinds import read_kinds
from ompbind.machine.sources.linux.numa import read_nodes
from ompbind.machine.sources.linux.sysfs import CPU, OnlineReading, read_domains, read_online
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
    cpus = _online(root, affinity)
    online = cpus.online
    check_size(cpus=len(online))
    nodes = read_nodes(root, online)
    reading = read_domains(root, online, [node.cpus for node in nodes.nodes])
    parts = drop_repeated({**reading.partitions, Level.NODE: node_partition(nodes.nodes)})
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
    domains = make_domains(online, parts)
    return Machine(
        source=root.name,
        arch=arch,
        online=online,
        offline=cpus.offline,
        allowed=allowed,
        domains=domains,
        nodes=nodes.nodes,
        kinds=read_kinds(root, at_level(domains, Level.CORE)),
        isolated=isolated,
        nohz_full=nohz_full,
        quota=limits.quota,
        memory_allowed=_memory_allowed(root, limits, is_live=affinity is not None),
        remarks=(*cpus.remarks, *reading.remarks, *nodes.remarks, *find_oddities(domains, allowed)),
    )


APART = ("isolated", "nohz_full")
"""The files that tell which CPUs the kernel keeps other work off."""


def widen(affinity: CpuSet, usable: CpuSet, isolated: CpuSet) -> CpuSet:
    """Add isolated CPUs to an affinity mask that nobody narrowed.

    The kernel starts every process without them, and lets any process bind to them. A mask that leaves
    out other usable CPUs too was narrowed on purpose, and stays as it is.
    """
    others = usable - isolated
    return affinity | isolated if others and others <= affinity else affinity


def _memory_allowed(root: Root, limits: Limits, *, is_live: bool) -> CpuSet | None:
    """Return the nodes whose memory may be used, as the kernel tells a live process, or else its cpuset."""
    if is_live:
        told = status_value(root.read("proc/self/status") or "", "Mems_allowed_list")
        if told is not None:
            return CpuSet.from_list(told)
    return limits.mems


def _online(root: Root, affinity: CpuSet | None) -> OnlineReading:
    """Read what is online; a live machine without sysfs has at least the CPUs of the affinity mask."""
    try:
        return read_online(root)
    except MachineError:
        if affinity is None:
            raise
        return OnlineReading(online=affinity)


def _recorded_arch(root: Root) -> str:
    """Return the architecture that a recording names, "unknown" when it names none."""
    for path in ("arch", "proc/hwloc-nofile-info"):
        for key, value in keyed_lines(root.read(path)):
            if key in ("Architecture", "arch") and value:
                return value
    return "unknown"
