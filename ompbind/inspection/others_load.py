"""Measure how much CPU time other processes use on the CPUs of ranks.

    time of all processes on these CPUs (/proc/stat)  -  time of the ranks' processes  =  time of others

/proc/stat says how long a CPU was in processes, not in which. /proc/PID/stat says how long a process ran, not
on which CPU. So ranks that share CPUs are measured together. The time of a process that has exited is in the
stat file of the process that waited for it. Interrupts and stolen time are nobody's.
"""

import os
import time
from collections.abc import Mapping, Sequence

from ompbind.cpuset import EMPTY, CpuSet, named
from ompbind.procfs.parsers import CpuTimes
from ompbind.procfs.reader import TICKS_PER_S
from ompbind.record import Record

_LEAST_SHARE = 0.1
_LEAST_CPUS = 0.5
"""How much others use at least to be mentioned: a share of the CPUs, or of many CPUs the time of so many."""


class CpuUsage(Record):
    """CPU time so far, in seconds.

    `cpus` is the time in processes by CPU. `processes` is (its own time, that of its reaped children) of each
    process of the ranks, by PID. `at_s` is in seconds of a monotonic clock.
    """

    at_s: float
    cpus: Mapping[int, float]
    processes: Mapping[int, tuple[float, float]]

    def used_since(self, before: "CpuUsage", cpus: CpuSet) -> float:
        """Return how long some CPUs were in processes since an earlier reading."""
        return sum(self.cpus[cpu] - before.cpus[cpu] for cpu in cpus)


class OthersLoad(Record):
    """CPU time that other processes used on some CPUs: `used_s` in `span_s` seconds.

    The kernel counts in clock ticks, so in a short time `used_s` may be below 0.
    """

    cpus: CpuSet = EMPTY
    span_s: float = 0.0
    used_s: float = 0.0

    @property
    def share(self) -> float:
        """The part of the CPUs that others used, at most 1."""
        return min(1.0, self.used_s / (self.span_s * len(self.cpus))) if self.span_s and self.cpus else 0.0

    @property
    def is_much(self) -> bool:
        """Whether others used so much that ranks may be slower."""
        return self.share >= min(_LEAST_SHARE, _LEAST_CPUS / max(1, len(self.cpus)))

    @property
    def text(self) -> str:
        """The load as a sentence: "other processes used 61 % of CPUs 0-1"."""
        if self.share >= _LEAST_SHARE:
            return f"other processes used {100 * self.share:.0f} % of {named('CPU', self.cpus)}"
        number = self.share * len(self.cpus)
        return f"other processes used the time of {number:.1f} CPUs on {named('CPU', self.cpus)}"

    def __add__(self, other: "OthersLoad") -> "OthersLoad":
        """Return the load of both spans; the CPUs are equal, or one of both is empty."""
        return OthersLoad(
            cpus=self.cpus | other.cpus,
            span_s=self.span_s + other.span_s,
            used_s=self.used_s + other.used_s,
        )


def make_cpu_usage(
    at_s: float, times: Mapping[int | None, CpuTimes], processes: Mapping[int, tuple[float, float]]
) -> CpuUsage:
    """Make a reading of the times of CPUs, and of processes, that were just read."""
    cpus = {cpu: each.processes / TICKS_PER_S for cpu, each in times.items() if cpu is not None}
    return CpuUsage(at_s=at_s, cpus=cpus, processes=processes)


def read_own_usage(times: Mapping[int | None, CpuTimes]) -> CpuUsage:
    """Read the time of this process and of all that it started; the times of CPUs were just read."""
    own = os.times()
    processes = {os.getpid(): (own.user + own.system, own.children_user + own.children_system)}
    return make_cpu_usage(time.monotonic(), times, processes)


def measure_others(before: CpuUsage, after: CpuUsage, cpus: CpuSet) -> OthersLoad:
    """Return what other processes used of some CPUs; nothing if it is unknown.

    A process that has started in between counts from its start. A process that has exited is in the time of
    another process, if that waited for it: then its time until `before` is there too, and is subtracted.
    """
    if not all(cpu in before.cpus and cpu in after.cpus for cpu in cpus):
        return OthersLoad()
    reaped_s = own_s = 0.0
    for pid, (now_s, now_reaped_s) in after.processes.items():
        old_s, old_reaped_s = before.processes.get(pid, (0.0, 0.0))
        own_s += now_s - old_s
        reaped_s += now_reaped_s - old_reaped_s
    exited_s = sum(sum(times) for pid, times in before.processes.items() if pid not in after.processes)
    own_s += max(0.0, reaped_s - exited_s)
    used_s = after.used_since(before, cpus) - own_s
    return OthersLoad(cpus=cpus, span_s=after.at_s - before.at_s, used_s=used_s)


def find_sharing(cpus: Sequence[CpuSet]) -> list[tuple[CpuSet, tuple[int, ...]]]:
    """Group sets of CPUs that overlap: return the union of each group, and the positions of its sets."""
    groups: list[tuple[CpuSet, tuple[int, ...]]] = []
    for position, whole in enumerate(cpus):
        members: tuple[int, ...] = (position,)
        for group in [group for group in groups if group[0] & whole]:
            groups.remove(group)
            whole, members = whole | group[0], (*group[1], *members)
        groups.append((whole, tuple(sorted(members))))
    return groups
