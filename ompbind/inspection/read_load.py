"""Sample the load of processes, and judge it: `load` has the rule, for each group of processes.

Throttling is judged for each cgroup.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ompbind.cpuset import named
from ompbind.inspection.load import (
    MIN_SPAN_S,
    LoadSample,
    MaskUser,
    Streak,
    add_sample,
    count_busy,
    find_shared_cpus,
    judge_load,
)
from ompbind.inspection.rank_processes import Inspection, RankProcesses
from ompbind.inspection.verdict import OthersLoad, ThreadIssue, find_sharing, make_cpu_usage, measure_others
from ompbind.machine.read.linux_cgroup import Throttling, read_throttling
from ompbind.machine.read.root import DirectoryRoot
from ompbind.procfs.process_state import ProcessState
from ompbind.procfs.reader import read_cpu_times
from ompbind.text import Severity

CONFIRM_STEPS_S = (0.5, MIN_SPAN_S - 0.4)
"""Seconds to the second sample, which shows the load, and to a third one, which confirms oversubscription."""

_LEAST_WAIT = 0.1
"""Others matter to processes without a plan if these waited for a CPU for so much of the time."""

Streaks = Mapping[tuple[str | None, int | None, int], Streak]
"""The streak of each group, by run ID, rank and PID of the first process."""


def read_load(processes: Sequence[ProcessState], at_s: float) -> LoadSample:
    """Make a sample of processes that were just read."""
    throttling = read_throttling(DirectoryRoot("/"), str(processes[0].pid)) if processes else None
    return LoadSample(at_s=at_s, processes=tuple(processes), throttling=throttling)


def add_load(streaks: Streaks, inspection: Inspection) -> tuple[Streaks, Inspection]:
    """Add an inspection to the streaks of its groups; return it with the issues that follow."""
    now, cpu_times, root = time.monotonic(), read_cpu_times(), DirectoryRoot("/")
    found, groups, throttled = {}, list(inspection.groups), []
    issues = list(inspection.shared_issues)
    users = list[MaskUser]()
    by_cgroup: dict[str | None, Throttling | None] = {}  # equal cgroups are read once
    for cpus, positions in find_sharing([group.cpus for group in inspection.groups]):
        sharing = [inspection.groups[position] for position in positions]
        times = {process.pid: process.times_s for group in sharing for process in group.processes}
        usage = make_cpu_usage(now, cpu_times, times)
        before, delay_s = Streak(), 0.0
        for position, group in zip(positions, sharing, strict=True):
            pid = group.first.pid
            cgroup = root.read(f"proc/{pid}/cgroup")
            if cgroup not in by_cgroup:
                by_cgroup[cgroup] = read_throttling(root, str(pid))
            before = streaks.get((group.run_id, group.rank, pid), Streak())
            sample = LoadSample(
                at_s=now, processes=group.processes, throttling=by_cgroup[cgroup], usage=usage
            )
            if group.origin and not group.expected:
                earlier = before.last.processes if before.last else ()
                busy = count_busy(group.first, earlier, now - before.last.at_s if before.last else 0.0)
                users.append(MaskUser(process=group.first, cpus=group.cpus, origin=group.origin, busy=busy))
            delay_s += sample.delay_s - (before.last.delay_s if before.last else 0.0)
            if throttling := sample.throttled_since(before.last):
                throttled.append((group, throttling))
            streak = found[group.run_id, group.rank, pid] = add_sample(before, sample)
            groups[position] = group.replace(verdict=judge_load(group.verdict, streak))
        if before.last and before.last.usage:
            load = measure_others(before.last.usage, usage, cpus)
            if any(group.expected for group in sharing) or delay_s > _LEAST_WAIT * load.span_s:
                threads = sum(group.verdict.threads for group in sharing)
                issues += find_others(load, f", while {_name_groups(sharing)} ran", threads)
    issues += [*find_shared_cpus(users), *find_throttled(throttled)]
    issues.sort(key=lambda issue: list(Severity).index(issue.severity))
    return found, inspection.replace(groups=tuple(groups), shared_issues=tuple(issues))


def find_others(load: OthersLoad, meanwhile: str, threads: int) -> Iterator[ThreadIssue]:
    """Yield a warning if other processes used much of the CPUs of ranks with so many threads."""
    if load.is_much:
        text = f"{load.text} in {load.span_s:.{1 if load.span_s < 10 else 0}f} s{meanwhile}"
        yield ThreadIssue(code="others", severity=Severity.WARNING, threads=threads, text=text)


def find_throttled(measured: Iterable[tuple[RankProcesses, Throttling]]) -> Iterator[ThreadIssue]:
    """Yield a warning for each cgroup that was throttled.

    `measured` are groups of processes, each with the throttling of its cgroup between two samples.
    """
    by_cgroup: dict[str, list[tuple[RankProcesses, Throttling]]] = {}
    for group, throttling in measured:
        if throttling.throttled_periods:
            by_cgroup.setdefault(throttling.cgroup, []).append((group, throttling))
    for throttled in by_cgroup.values():
        groups = [group for group, _ in throttled]
        text = f"the CPU quota of the cgroup throttled {_name_groups(groups)} in {throttled[0][1]}"
        yield ThreadIssue(
            code="throttled",
            severity=Severity.WARNING,
            threads=sum(group.verdict.threads for group in groups),
            text=f"{text}: use fewer ranks or threads, or raise the quota",
        )


def _name_groups(groups: Sequence[RankProcesses]) -> str:
    """Name groups of processes: "ranks 0-1 of run a and 2 processes"."""
    ranks: dict[str | None, list[int]] = {}
    for group in groups:
        if group.rank is not None:
            ranks.setdefault(group.run_id, []).append(group.rank)
    names = [f"{named('rank', numbers)} of run {run_id}" for run_id, numbers in ranks.items()]
    others = [group.first for group in groups if group.rank is None]
    if len(others) == 1:
        names.append(f"process {others[0].pid} ({others[0].name})")
    elif others:
        names.append(f"{len(others)} processes")
    return " and ".join(names)


def is_suspicious(streaks: Streaks) -> bool:
    """Return whether a group had more runnable threads than CPUs in its last sample."""
    return any(streak.samples for streak in streaks.values())
