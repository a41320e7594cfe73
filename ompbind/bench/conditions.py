"""What else happens on the machine during a run: stolen time, other processes, other runs.

Read before and after each run, so the readers are quick. The supervisor of the run counts throttling.
"""

import os
from hashlib import sha256

from ompbind.bench.records import Conditions, Hardware
from ompbind.cpuset import CpuSet
from ompbind.inspection.verdict import CpuUsage, measure_others, read_own_usage
from ompbind.machine.model import Machine
from ompbind.machine.read.root import DirectoryRoot, Root, keyed_lines
from ompbind.planning.other_runs import find_other_runs
from ompbind.procfs.parsers import parse_cpu_times
from ompbind.procfs.reader import TICKS_PER_S
from ompbind.record import Record
from ompbind.registry.registry import find_claims_directory, make_own_run, read_live_runs
from ompbind.text import whole_number


class SystemCounts(Record):
    """Counts of the kernel since boot; `stolen_s` is in seconds of all CPUs, None if it is not counted.

    `other_runs` are the live runs now that could contend with the ranks of this session, 0 if they cannot be
    read. `usage` is the CPU time of all CPUs and of this process.
    """

    stolen_s: float | None
    other_runs: int
    usage: CpuUsage


def read_counts(root: Root, run_id: str) -> SystemCounts:
    """Read the counts before or after a run; `run_id` is the name of this session's own runs."""
    times = parse_cpu_times(root.read("proc/stat") or "")
    together = times.get(None)
    own = make_own_run(run_id)
    try:
        others = find_other_runs(read_live_runs(find_claims_directory(os.environ)), own)
    except OSError:
        others = ()
    return SystemCounts(
        stolen_s=together.stolen / TICKS_PER_S if together else None,
        other_runs=sum((run.pid, run.pid_space) != (own.pid, own.pid_space) for run in others),
        usage=read_own_usage(times),
    )


def make_conditions(before: SystemCounts, after: SystemCounts, cpus: CpuSet) -> Conditions:
    """Return what happened between two readings around a run on some CPUs, without throttling."""
    others = measure_others(before.usage, after.usage, cpus)
    stolen_s = None
    if before.stolen_s is not None and after.stolen_s is not None:
        stolen_s = max(0.0, after.stolen_s - before.stolen_s)
    return Conditions(
        stolen_s=stolen_s,
        others_share=round(others.share, 4) if others.cpus else None,
        other_runs=max(before.other_runs, after.other_runs),
    )


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
    return " ".join(name.split()) if name and whole_number(name) is None else arch


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
