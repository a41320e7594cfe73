"""Sample the load of processes, and judge it group by group: `oversubscription` has the rule."""

import time
from collections.abc import Mapping, Sequence

from ompbind.inspection.oversubscription import MIN_SPAN_S, LoadSample, Streak, add_sample, judge_load
from ompbind.inspection.rank_processes import Inspection, RankProcesses
from ompbind.machine.sources.filesystem import DirectoryRoot
from ompbind.machine.sources.linux.cgroup import read_throttled_s
from ompbind.procfs.process_state import ProcessState

CONFIRM_STEPS_S = (0.5, MIN_SPAN_S - 0.4)
"""Seconds between samples that confirm oversubscription; the short first step ends most false suspicions."""

Streaks = Mapping[tuple[str | None, int | None, int], Streak]
"""The streak of each group, by run ID, rank and PID of the first process."""


def read_load(processes: Sequence[ProcessState], at_s: float) -> LoadSample:
    """Make a sample of processes that were just read."""
    throttled_s = read_throttled_s(DirectoryRoot("/"), processes[0].pid) if processes else 0.0
    return LoadSample(at_s=at_s, processes=tuple(processes), throttled_s=throttled_s)


def add_load(streaks: Streaks, inspection: Inspection) -> tuple[Streaks, Inspection]:
    """Add an inspection to the streaks of its groups; return it with the issues that follow."""
    now = time.monotonic()
    found = {
        _make_key(group): add_sample(streaks.get(_make_key(group), Streak()), read_load(group.processes, now))
        for group in inspection.groups
    }
    groups = (
        group.replace(verdict=judge_load(group.verdict, found[_make_key(group)]))
        for group in inspection.groups
    )
    return found, inspection.replace(groups=tuple(groups))


def is_suspicious(streaks: Streaks) -> bool:
    """Return whether a group had more runnable threads than CPUs in its last sample."""
    return any(streak.samples for streak in streaks.values())


def _make_key(group: RankProcesses) -> tuple[str | None, int | None, int]:
    return group.run_id, group.rank, group.first.pid
