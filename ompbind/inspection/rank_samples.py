"""What samples show of the ranks of a run: their processes with the masks of threads, and their load."""

import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from ompbind.commands.rank_variables import find_rank
from ompbind.cpuset import CpuSet
from ompbind.inspection.diagnosis import ExpectedBinding, advise_waiting, is_library, is_relevant
from ompbind.inspection.judge import CpusetChange, judge, judge_memory_policy
from ompbind.inspection.load import Streak, add_sample, find_others, find_runnable, make_load_issue, read_load
from ompbind.inspection.verdict import (
    CpuUsage,
    OthersLoad,
    RankVerification,
    ThreadIssue,
    Unseen,
    make_cpu_usage,
    measure_others,
)
from ompbind.machine.read.linux_cgroup import CgroupLimits
from ompbind.procfs.parsers import CpuTimes, Stat, find_descendants
from ompbind.procfs.process_state import ProcessState, read_process
from ompbind.procfs.reader import find_times_s, list_threads, read_affinity, read_environ, read_memory_policy
from ompbind.text import Severity

MaskCounts = Counter[CpuSet]  # the number of threads by their affinity mask

Activity = frozenset[tuple[int, int, tuple[int, ...]]]
"""Of each process of a rank: its PID, its CPU time, and the addresses of its command line, new at execve."""

BUSY_TICKS, BUSY_SHARE = 3, 0.25
"""A process is busy if it uses this CPU time between two samples, and this part of that of the busiest."""

BUSY_SPAN_S = 0.5
"""Threads that are runnable on average for this time are a pool; within milliseconds, they may only start."""


class RankSamples:
    """What the samples of one rank have shown.

    `cpus` and `threads` are planned, `attempt` counts its starts; `was_complete`: this start was complete.
    `pids` are its processes in the last sample, `masks` counts their threads. Of its last snapshot,
    `processes` are all processes, () before the first, `seen_s` is its time in seconds after the start of the
    last rank, `memory` the memory policy of the first process as the kernel writes it, None if unknown, and
    `change` how its cpuset has changed since the first. `streak` is its load since the start was complete,
    `longest` the longest one; `shared` and `longest_shared` are the same of all ranks that share CPUs or a
    quota with it. `escaped`: threads are allowed on CPUs outside the rank's, with the same mask in two
    samples in a row. `hidden`: it was running but not visible in /proc. `others` is what other processes used
    of its CPUs so far, `recent_others` between the last two samples. `most_busy` is the largest number of its
    processes that were busy between two samples, `most_runnable` that of runnable threads of one, on average.
    """

    def __init__(self, cpus: CpuSet, threads: int) -> None:
        self.cpus = cpus
        self.threads = threads
        self.pids: set[int] = set()
        self.is_listed = self.escaped = self.hidden = False
        self.outside: frozenset[CpuSet] = frozenset()  # masks in the last sample
        self.others = self.recent_others = OthersLoad()
        self.usage: CpuUsage | None = None  # also of the ranks that share its CPUs
        self.most_busy = self.attempt = 0
        self.most_runnable = 0.0
        self.begin()

    def begin(self) -> None:
        """Forget the last attempt of the rank."""
        self.attempt += 1
        self.was_complete = False
        self.masks = MaskCounts()
        self.processes: tuple[ProcessState, ...] = ()
        self.seen_s = 0.0
        self.memory: str | None = None
        self.change = CpusetChange()
        self.streak = self.longest = self.shared = self.longest_shared = Streak()
        self.activity: Activity | None = None  # when the snapshot was read

    def count(self, pids: set[int]) -> bool:
        """Count the threads of its processes by mask; returns whether the counts have changed."""
        masks, self.pids = count_masks(pids), pids
        outside = frozenset(mask for mask in masks if not mask <= self.cpus)
        self.escaped, self.outside = bool(outside & self.outside), outside
        self.is_listed = bool(masks)
        changed = self.is_listed and masks != self.masks
        self.masks = masks or self.masks
        return changed

    def find_activity(self, processes: Mapping[int, Stat]) -> Activity:
        """Return what the processes of the rank have done so far."""
        found = ((pid, processes[pid]) for pid in self.pids if pid in processes)
        return frozenset((pid, stat.busy_ticks, stat.arguments) for pid, stat in found)

    def read(self, first_pid: int, limits: CgroupLimits, seen_s: float) -> bool:
        """Read its processes, the first one first; if that has exited, change nothing and return False."""
        ordered = sorted(self.pids, key=lambda pid: (pid != first_pid, pid))
        states = (read_process(pid, is_library, is_relevant) for pid in ordered)
        processes = tuple(state for state in states if state)
        if not (processes and processes[0].pid == first_pid):
            return False
        before = self.change.before or (limits if limits.cpuset else None)
        self.change = CpusetChange(now=limits, before=before)
        if seen_s - self.seen_s >= BUSY_SPAN_S:
            runnable = find_runnable((self.seen_s, self.processes), (seen_s, processes))
            self.most_runnable = max(self.most_runnable, runnable)
        self.processes, self.seen_s, self.memory = processes, seen_s, read_memory_policy(first_pid)
        return True

    def add_load(self, at_s: float) -> None:
        """Add the load of the processes that were just read."""
        self.streak = add_sample(self.streak, read_load(self.processes, at_s, self.change.now.quota))
        self.longest = max(self.longest, self.streak, key=lambda streak: streak.span_s)

    def count_busy(self, before: Mapping[int, int], ticks: Mapping[int, int]) -> None:
        """Count its busy processes; both are the CPU time of processes by PID, in clock ticks."""
        used = [ticks[pid] - before[pid] for pid in self.pids if pid in ticks and pid in before]
        busy = sum(each >= max(BUSY_TICKS, BUSY_SHARE * max(used)) for each in used)
        self.most_busy = max(busy, self.most_busy)

    def find_load(self, *, is_bound: bool = True, run_s: float | None = None) -> Iterator[ThreadIssue]:
        """Yield the issue of its load, or of the load of all ranks that share its CPUs.

        Of a rank that is not bound it is a warning. `run_s` is given at the end of a run of so many seconds:
        then a load that was shorter than the proof takes counts.
        """
        streaks = (self.streak, self.shared) if run_s is None else (self.longest, self.longest_shared)
        own, shared = (each.is_proof if run_s is None else each.is_most_of(run_s) for each in streaks)
        if own or shared:
            yield make_load_issue(streaks[0] if own else streaks[1], is_own=own and is_bound)

    def verify(
        self, rank: int, expected: ExpectedBinding, *, complete: bool, is_started: bool
    ) -> RankVerification:
        """Compare the last snapshot with the plan; `complete` is whether the start of the run is complete."""
        unseen = Unseen.HIDDEN if self.hidden else None if is_started else Unseen.NOT_STARTED
        if not self.processes:
            return RankVerification(rank=rank, attempt=self.attempt, unseen=unseen)
        verdict = judge(self.processes, expected, self.change)
        verdict = judge_memory_policy(verdict, self.memory, expected)
        verdict = verdict.add(*self.find_load(is_bound=not expected.is_unbound))
        if complete:
            advice = advise_waiting(self.processes) if self.recent_others.is_much else ""
            verdict = verdict.add(*find_others(self.recent_others, advice, verdict.threads))
        if self.threads < (busy := round(self.most_runnable)) and self.threads < len(expected.compute):
            text = f"more threads of one process were busy than planned ({self.threads}): if a thread pool"
            text += " follows the affinity mask, select fewer CPUs with -c"
            verdict = verdict.add(ThreadIssue(code="pool", severity=Severity.NOTE, threads=busy, text=text))
        return RankVerification(
            rank=rank,
            attempt=self.attempt,
            verdict=verdict,
            seen_s=self.seen_s,
            memory=self.memory,
            unseen=unseen,
            others=self.others,
            busy_processes=self.most_busy,
        )


class SharedLoad:
    """The load of ranks that share CPUs or a CPU quota, since the start was complete."""

    def __init__(self, ranks: Sequence[RankSamples]) -> None:
        self.ranks = ranks
        self._streak = Streak()

    def add(self, at_s: float) -> None:
        """Add the load of ranks whose processes were just read, or had no CPU time since they were read."""
        listed = [seen for seen in self.ranks if seen.is_listed and seen.processes]
        processes = [process for seen in listed for process in seen.processes]
        quota = listed[0].change.now.quota if listed else None
        self._streak = add_sample(self._streak, read_load(processes, at_s, quota))
        competitors = self._streak.competitors
        pids = {process.pid for process, _ in competitors.threads} if competitors else set()
        for seen in self.ranks:
            seen.shared = Streak() if pids.isdisjoint(seen.pids) else self._streak
            seen.longest_shared = max(seen.longest_shared, seen.shared, key=lambda streak: streak.span_s)


def count_masks(pids: Collection[int]) -> MaskCounts:
    """Count the threads of some processes by their affinity mask; threads that have exited are skipped."""
    return Counter(mask for pid in pids for tid in list_threads(pid) if (mask := read_affinity(tid)))


def read_usage(
    ranks: Sequence[RankSamples],
    cpu_times: Mapping[int | None, CpuTimes],
    processes: Mapping[int, Stat],
    at_s: float,
) -> CpuUsage:
    """Return the CPU time so far of CPUs, of the processes of ranks, and of this process, their parent."""
    own_pid, pids = os.getpid(), (pid for seen in ranks for pid in seen.pids if pid in processes)
    times = {pid: find_times_s(processes[pid]) for pid in pids}
    if own_pid in processes:  # its children are the ranks
        times[own_pid] = (find_times_s(processes[own_pid])[0], 0.0)
    return make_cpu_usage(at_s, cpu_times, times)


def add_others(ranks: Sequence[RankSamples], cpus: CpuSet, usage: CpuUsage, *, is_same: bool) -> None:
    """Add what others used of the CPUs of ranks since the last sample, if the ranks are the same ones."""
    before, ranks[0].usage = ranks[0].usage, usage
    load = measure_others(before, usage, cpus) if before and is_same else OthersLoad()
    for seen in ranks:
        seen.recent_others, seen.others = load, seen.others + load


def is_running(child: int) -> bool:
    """Return whether a child of this process has not exited; its exit status stays for the reaper."""
    try:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False
    except OSError:  # refused, as by a container filter
        return True


def find_rank_processes(
    processes: Mapping[int, Stat], live: Mapping[int, int], run_id: str, only_rank: int | None = None
) -> dict[int, set[int]]:
    """Return the PIDs of every rank: its first process, its descendants, and its orphans.

    The rank of an orphan is in its environment, or is the rank of its process group. `only_rank` is the rank
    of a run with a single rank, which gets all other orphans. The first process of a rank is included even if
    its initial thread has exited; /proc then shows it as a zombie.
    """
    own_pid, pids_by_rank = os.getpid(), {rank: {pid} for pid, rank in live.items()}
    for pid, process in processes.items():
        if process.parent == own_pid and pid not in live:
            rank = find_rank(read_environ(pid) or {}, run_id)
            rank = live.get(process.group, only_rank) if rank is None else rank
            if rank in pids_by_rank:
                pids_by_rank[rank].add(pid)
    existing = processes.keys() | {pid for pid in live if pid not in processes and is_running(pid)}
    return {rank: find_descendants(processes, pids) & existing for rank, pids in pids_by_rank.items()}
