"""What else happens on the machine during a run: throttling, stolen time, other processes.

Read before and after each run, so the readers are quick.
"""

import os
from functools import cache
from hashlib import sha256

from ompbind.bench.records import Conditions, Hardware
from ompbind.cpuset import CpuSet
from ompbind.inspection.verdict import CpuUsage, measure_others, read_own_usage
from ompbind.machine.model import Machine
from ompbind.machine.read.linux_cgroup import Throttling, read_limits, read_throttling
from ompbind.machine.read.root import DirectoryRoot, Root, keyed_lines
from ompbind.planning.other_runs import RunIdentity, find_other_runs
from ompbind.procfs.parsers import parse_cpu_times
from ompbind.procfs.reader import TICKS_PER_S
from ompbind.record import Record
from ompbind.registry.registry import find_claims_directory, make_run_identity, read_live_runs


class SystemRoot(DirectoryRoot):
    """This machine; the cgroups of this process and their mount points are read once.

    Reading all mount points takes longer than everything else here.
    """

    def __init__(self) -> None:
        super().__init__("/")
        self._kept: dict[str, str | None] = {}

    def read(self, path: str) -> str | None:
        """Return the text of a file, None if it is absent or unreadable."""
        if not path.startswith("proc/self/"):
            return super().read(path)
        if path not in self._kept:
            text = super().read(path)
            if text and path.endswith("mountinfo"):
                text = "\n".join(line for line in text.splitlines() if " - cgroup" in line)
            self._kept[path] = text
        return self._kept[path]


class SystemCounts(Record):
    """Counts of the kernel since boot, or since a cgroup was created; None for what it does not count.

    `stolen_s` is in seconds of all CPUs. `other_runs` are the live runs now. `usage` is the CPU time of all
    CPUs and of this process.
    """

    throttling: Throttling | None
    stolen_s: float | None
    other_runs: int
    usage: CpuUsage


@cache
def find_system() -> SystemRoot:
    """Return the root of this machine."""
    return SystemRoot()


@cache
def has_quota() -> bool:
    """Return whether the cgroup of this process has a CPU quota: without one nothing is throttled."""
    return read_limits(find_system()).quota is not None


def read_counts(root: Root, run_id: str) -> SystemCounts:
    """Read the counts before or after a run; `run_id` is the name of this session's own runs."""
    times = parse_cpu_times(root.read("proc/stat") or "")
    together = times.get(None)
    return SystemCounts(
        throttling=read_throttling(root) if has_quota() else None,
        stolen_s=together.stolen / TICKS_PER_S if together else None,
        other_runs=_count_other_runs(make_run_identity(run_id)),
        usage=read_own_usage(times),
    )


def _count_other_runs(identity: RunIdentity) -> int:
    """Return how many live runs could contend with the ranks of this session; 0 if they cannot be read."""
    own = (identity.pid, identity.pid_space)
    try:
        runs = read_live_runs(find_claims_directory(os.environ))
    except OSError:
        return 0
    return sum((run.pid, run.pid_space) != own for run in find_other_runs(runs, identity))


def make_conditions(before: SystemCounts, after: SystemCounts, cpus: CpuSet) -> Conditions:
    """Return what happened between two readings around a run on some CPUs."""
    others = measure_others(before.usage, after.usage, cpus)
    throttling = after.throttling.since(before.throttling) if after.throttling and before.throttling else None
    return Conditions(
        throttled_s=throttling.throttled_s if throttling else None,
        throttled_periods=throttling.throttled_periods if throttling else None,
        stolen_s=_subtract(after.stolen_s, before.stolen_s),
        others_share=round(others.share, 4) if others.cpus else None,
        other_runs=max(before.other_runs, after.other_runs),
    )


def _subtract(after: float | None, before: float | None) -> float | None:
    """Return the difference of two counts, at least 0; None if one is unknown."""
    return None if after is None or before is None else max(0.0, after - before)


_NAMES = ("model name", "cpu model", "cpu", "Processor", "Hardware", "processor 0", "CPU part")
"""Keys of /proc/cpuinfo with the name of the processor, the best first: each architecture has another."""


def read_hardware(machine: Machine) -> Hardware:
    """Return the name of this machine and its processor, and what its session may use."""
    return Hardware(
        hostname=os.uname().nodename,
        processor=read_processor(DirectoryRoot("/"), machine.arch),
        allowed=str(machine.allowed),
        quota=machine.quota,
        digest=make_topology_digest(machine),
    )


def read_processor(root: Root, arch: str) -> str:
    """Return the name of the processor; the architecture where the kernel does not say more."""
    lines: dict[str, str] = {}
    for key, value in keyed_lines(root.read("proc/cpuinfo")):
        lines.setdefault(key, value)
    name = next((lines[key] for key in _NAMES if lines.get(key)), "")
    if name.startswith("0x"):  # ARM: numbers of the designer and of the core
        name = f"{lines.get('CPU implementer', '')} {name}".strip()
    return " ".join(name.split()) if name and not name.isdigit() else arch


def make_topology_digest(machine: Machine) -> str:
    """Return a digest of the CPUs, cores, caches, NUMA nodes and kinds of cores.

    The size of memory is no part: the kernel reports another size after some updates.
    """
    facts = (
        machine.arch,
        str(machine.online),
        [(domain.level.value, domain.index, str(domain.cpus)) for domain in machine.domains],
        [(node.number, str(node.cpus), node.distances) for node in machine.nodes],
        [(kind.name, str(kind.cpus)) for kind in machine.kinds],
    )
    return sha256(repr(facts).encode()).hexdigest()
