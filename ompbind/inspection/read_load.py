"""Sample the load of processes, and judge it: `oversubscription` has the rule, for each group of processes.

Throttling is judged for each cgroup.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ompbind.cpuset import named
from ompbind.inspection.oversubscription import MIN_SPAN_S, LoadSample, Streak, add_sample, judge_load
from ompbind.inspection.rank_processes import Inspection, RankProcesses
from ompbind.inspection.verdict import ThreadIssue
from ompbind.machine.sources.linux.cgroup import Throttling, read_throttling
from ompbind.machine.sources.root import DirectoryRoot
from ompbind.procfs.process_state import ProcessState
from ompbind.text import Severity

CONFIRM_STEPS_S = (0.5, MIN_SPAN_S - 0.4)
"""Seconds between samples that confirm oversubscription; the short first step ends most false suspicions."""

Streaks = Mapping[tuple[str | None, int | None, int], Streak]
"""The streak of each group, by run ID, rank and PID of the first process."""


def read_load(processes: Sequence[ProcessState], at_s: float) -> LoadSample:
    """Make a sample of processes that were just read."""
    throttling = read_throttling(DirectoryRoot("/"), str(processes[0].pid)) if processes else None
    return LoadSample(at_s=at_s, processes=tuple(processes), throttling=throttling)


def add_load(streaks: Streaks, inspection: Inspection) -> tuple[Streaks, Inspection]:
    """Add an inspection to the streaks of its groups; return it with the issues that follow."""
    now, root = time.monotonic(), DirectoryRoot("/")
    found, groups, throttled = {}, [], []
    by_cgroup: dict[str | None, Throttling | None] = {}  # equal cgroups are read once
    for group in inspection.groups:
        pid = group.first.pid
        cgroup = root.read(f"proc/{pid}/cgroup")
        if cgroup not in by_cgroup:
            by_cgroup[cgroup] = read_throttling(root, str(pid))
        before = streaks.get((group.run_id, group.rank, pid), Streak())
        sample = LoadSample(at_s=now, processes=group.processes, throttling=by_cgroup[cgroup])
        if throttling := sample.throttled_since(before.last):
            throttled.append((group, throttling))
        streak = found[group.run_id, group.rank, pid] = add_sample(before, sample)
        groups.append(group.replace(verdict=judge_load(group.verdict, streak)))
    issues = (*inspection.shared_issues, *find_throttled(throttled))
    return found, inspection.replace(groups=tuple(groups), shared_issues=issues)


def list_throttlings(streaks: Streaks) -> tuple[Throttling, ...]:
    """Return how each cgroup was throttled until the last sample of its groups, each cgroup once."""
    samples = (streak.last for streak in streaks.values())
    found = (sample.throttling for sample in samples if sample and sample.throttling)
    return tuple({throttling.cgroup: throttling for throttling in found}.values())


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


def was_throttled(streaks: Streaks) -> bool:
    """Return whether the cgroup of a group was throttled at any time before its last sample."""
    samples = (streak.last for streak in streaks.values())
    return any(sample and sample.throttling and sample.throttling.throttled_periods for sample in samples)
