"""Looks at the threads of ranks after their start, ever more seldom, until these have settled.

A *glimpse* is cheap: how many threads of a rank, in all of its processes, may run on which CPUs. What /proc
tells besides is read only where a glimpse is another one than before. The numbers of threads do not matter:
a program may end threads and start others all the time.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from ompbind.cpuset import CpuSet
from ompbind.errors import LaunchError
from ompbind.inspection.expectation import is_relevant
from ompbind.inspection.processes import is_library
from ompbind.inspection.verdict import Verified
from ompbind.planning.rank_variables import find_rank
from ompbind.procfs.process import Stat, find_descendants
from ompbind.procfs.process_state import ProcessState, read_process
from ompbind.procfs.reader import (
    is_proc_ours,
    list_threads,
    read_mask,
    read_memory_policy,
    read_processes,
    read_variables,
)
from ompbind.record import Record

FIRST_S = 0.1
"""Seconds from the start of the last rank to the first look; from then on each wait is twice as long."""

STABLE_S = 2.0
"""Seconds over which looks have to see the same for threads to have settled."""

FEW_STABLE_S = 10.0
"""The same as long as a rank has fewer threads than planned: libraries start theirs when they have work."""

LONGEST_S = 60.0
"""Seconds after which nobody waits any longer for threads to settle."""

MaskCounts = Mapping[CpuSet, int]
"""How many threads may run on which CPUs."""


class RankSnapshot(Record):
    """All processes of a rank, the memory policy of the first, and seconds since the start of the last rank.

    The policy is as the kernel writes it, None where it knows no NUMA nodes or does not tell.
    """

    seen_s: float
    processes: tuple[ProcessState, ...]
    memory: str | None


class Sampler:
    """What was seen of the threads of a run; times are seconds of a monotonic clock.

    `due_at` is when to look again, None when there is no need to: the run ends, or threads have `settled`,
    and were `stable` unless time was up. `snapshots` are the last ones of all ranks that were seen. `escaped`
    are the ranks of which, in two looks one after the other, threads had the same mask with CPUs that are
    not the rank's. `hidden` are the ranks that ran when they were looked at, and could not be seen.
    `verified` is what the looks mean, None before there are enough; `error` is why the run ends for it.
    """

    def __init__(self, planned: Mapping[int, tuple[CpuSet, int]], run_id: str) -> None:
        """Take the CPUs and the number of threads that each rank is to have."""
        self.began_at = 0.0
        self.wait_s = FIRST_S
        self.seen_s = 0.0
        self.due_at: float | None = None
        self.stable_since = 0.0
        self.stable = False
        self.settled = False
        self.snapshots: dict[int, RankSnapshot] = {}
        self.escaped: frozenset[int] = frozenset()
        self.hidden: frozenset[int] = frozenset()
        self.verified: Verified | None = None
        self.error: LaunchError | None = None
        self._told: frozenset[tuple[int, str]] = frozenset()
        self._planned = planned
        self._run_id = run_id
        self._mask_counts: dict[int, MaskCounts] = {}
        self._escaped_masks: frozenset[tuple[int, CpuSet]] = frozenset()

    def begin(self, now: float) -> None:
        """All ranks have started."""
        self.began_at = self.stable_since = now
        self.due_at = now + FIRST_S

    def is_due(self, now: float) -> bool:
        """Tell whether it is time to look."""
        return self.due_at is not None and now >= self.due_at

    def stop(self) -> None:
        """Look no more: the run ends."""
        self.due_at = None

    def is_news(self, verified: Verified) -> bool:
        """Tell whether something has to be said: nothing where all that is wrong was said before."""
        if verified.problems and verified.problems <= self._told:
            return False
        self._told |= verified.problems
        return True

    def look(self, live: Mapping[int, int], now: float) -> None:
        """Look at all that ranks run; `live` are these, by pid."""
        self.seen_s = now - self.began_at
        sole = min(self._planned) if len(self._planned) == 1 else None
        families = find_rank_processes(read_processes(), live, self._run_id, sole) if is_proc_ours() else {}
        mask_counts = {rank: found for rank, pids in families.items() if (found := count_masks(pids))}
        changed = [rank for rank, found in mask_counts.items() if found != self._mask_counts.get(rank)]
        self._mask_counts.update(mask_counts)
        if changed:
            self.stable_since = now
        self.hidden |= {rank for pid, rank in live.items() if rank not in mask_counts and _runs(pid)}
        self._note_escaped(mask_counts)
        self._set_next(mask_counts, now)
        news = self._mask_counts.keys() if self.settled else {*changed, *self.escaped}
        for pid, rank in live.items():
            if rank in news:
                self._read(rank, pid, families.get(rank, ()))

    def _note_escaped(self, mask_counts: Mapping[int, MaskCounts]) -> None:
        seen = ((rank, mask) for rank, found in mask_counts.items() for mask in found)
        masks = frozenset((rank, mask) for rank, mask in seen if not mask <= self._planned[rank][0])
        self.escaped = frozenset(rank for rank, _ in masks & self._escaped_masks)
        self._escaped_masks = masks

    def _set_next(self, mask_counts: Mapping[int, MaskCounts], now: float) -> None:
        """Find out whether threads have settled, and when to look again if not."""
        few = any(sum(found.values()) < self._planned[rank][1] for rank, found in mask_counts.items())
        self.stable = now - self.stable_since >= (FEW_STABLE_S if few else STABLE_S)
        longest = self.began_at + LONGEST_S
        self.settled = self.stable or now >= longest
        self.wait_s *= 2
        self.due_at = None if self.settled else min(now + self.wait_s, longest)

    def _read(self, rank: int, first: int, pids: Iterable[int]) -> None:
        read = (read_process(pid, is_library, is_relevant) for pid in sorted(pids))
        found = tuple(process for process in read if process)
        if found:  # the last picture of one that has ended by now stays
            memory = read_memory_policy(first)
            self.snapshots[rank] = RankSnapshot(seen_s=self.seen_s, processes=found, memory=memory)


def _runs(child: int) -> bool:
    """Tell whether a child of this process has not ended; nothing is taken from whoever waits for it."""
    try:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False


def find_rank_processes(
    processes: Mapping[int, Stat], live: Mapping[int, int], run_id: str, sole: int | None = None
) -> dict[int, set[int]]:
    """Return the processes of every rank: its own, what descends from it, and what this process adopted.

    `sole` is the rank of a run that has no other: it is whose everything is. The first process of a rank
    stays its own when its initial thread has ended, which looks as if all of it had.
    """
    me, families = os.getpid(), {rank: {pid} for pid, rank in live.items()}
    for pid, process in processes.items():
        if process.parent == me and pid not in live:
            rank = find_rank(read_variables(pid) or {}, run_id)
            rank = live.get(process.group, sole) if rank is None else rank
            if rank in families:
                families[rank].add(pid)
    there = processes.keys() | {pid for pid in live if pid not in processes and _runs(pid)}
    return {rank: find_descendants(processes, pids) & there for rank, pids in families.items()}


def count_masks(pids: Collection[int]) -> MaskCounts:
    """Return how many threads of some processes may run on which CPUs; nothing of what has ended."""
    return Counter(mask for pid in pids for tid in list_threads(pid) if (mask := read_mask(tid)))
