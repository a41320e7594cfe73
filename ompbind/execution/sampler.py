"""Sample all threads of all ranks for the whole run: often at the start, rarely later.

*Start*: the masks of threads still change while programs load their libraries. A sample counts, for each
rank, how many threads have which mask. That is cheap. The rest of /proc (names, libraries, variables) is read
only for ranks whose counts have changed since the last sample.

    samples at 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 12.7, 25.5, 51.1, 60 s after the last start of a rank
    example: a change at 0.7 s, none at 1.5 s, none at 3.1 s: no change for 2.4 s, so the masks are stable

The start is complete when the masks are stable, or after 60 s. While a rank has fewer threads than planned,
10 s without a change are needed: libraries start their threads when they have work.

*Later*: the rest of /proc is also read for ranks that have used CPU time since it was read, to find what
changes no mask: programs that are executed, libraries, load. The step doubles up to 30 s; it is never less
than 1,000 times the CPU time of the last sample, so that ompbind uses less than 0.1 % of a CPU. When there is
an issue that more samples have to confirm, or threads begin to wait for each other, the step is half a
second, and doubles again; in the first minute such samples may use more CPU time.

*Between samples* of the first minute, the threads of known processes are counted each half second. A change
leads to a sample at once: so threads that start late, and live for a short time, are seen.
"""

import time
from collections.abc import Mapping

from ompbind.cpuset import CpuSet, union
from ompbind.inspection.findings import Findings
from ompbind.inspection.load import Streak
from ompbind.inspection.rank_samples import (
    RankSamples,
    SharedLoad,
    add_others,
    count_masks,
    find_rank_processes,
    is_running,
    read_usage,
)
from ompbind.inspection.verdict import VerificationResult, find_sharing
from ompbind.machine.read.linux_cgroup import read_limits, read_limits_of
from ompbind.machine.read.root import DirectoryRoot
from ompbind.procfs.parsers import Stat
from ompbind.procfs.reader import read_cpu_times, read_processes

FIRST_S = 0.1
"""Seconds from the start of the last rank to the first sample; each step is twice as long as the last."""

STABLE_S, FEW_STABLE_S = 2.0, 10.0
"""Seconds without a change after which threads are stable; while a rank has fewer threads than planned."""

LONGEST_S = 60.0  # seconds after which the start is complete even if threads are not stable

LONGEST_STEP_S = 30.0  # that doubling leads to
SHORT_STEP_S = 0.5
"""The step when an issue is to be confirmed, and between two counts of threads in the first minute."""

STEP_PER_CPU_TIME, SHORT_STEP_PER_CPU_TIME = 1000, 20
"""A step takes at least this many times the CPU time of the last sample; in the first minute, while an issue
is to be confirmed, and for a count after a sample, the second number."""

COUNT_STEP_PER_CPU_TIME = 2000
"""A count takes place after at least so many times the CPU time of the last count."""


class AffinitySampler:
    """The samples of a run, by rank; times are seconds of a monotonic clock.

    `began_at` is when all ranks had started, `start_at` is the last start of a rank, a restart included.
    `sample_at` is the time of the next sample, `due_at` that of the next sample or count; None when no sample
    is needed. `complete` is set when the start is complete; `stable` is whether threads were stable then.
    `findings` are the issues so far, `verified` is the result so far, None before there is any; `stopped` is
    whether that has stopped the run. `ended` are attempts that are to be judged: a rank whose samples are of
    its attempt before, and whether the start was complete then.
    """

    def __init__(self, planned: Mapping[int, tuple[CpuSet, int]], run_id: str) -> None:
        """Take the planned CPUs and the planned number of threads of each rank."""
        self.ranks = {rank: RankSamples(cpus, threads) for rank, (cpus, threads) in planned.items()}
        self.began_at = time.monotonic()  # a run may be stopped before all ranks have started
        self.start_at = self.stable_since = self.seen_s = 0.0
        self.step_s = FIRST_S
        self.samples = self.most_threads = 0
        self.sample_at: float | None = None
        self.due_at: float | None = None
        self.stable = self.complete = False
        self.findings = Findings()
        self.verified: VerificationResult | None = None
        self.stopped = False
        self.ended: list[tuple[int, bool]] = []
        self._run_id = run_id
        order = list(self.ranks)
        sharing = find_sharing([seen.cpus for seen in self.ranks.values()])
        self._sharing = [(cpus, [order[position] for position in found]) for cpus, found in sharing]
        quota, cpus = read_limits(DirectoryRoot("/")).quota, union(cpus for cpus, _ in sharing)
        is_limited = quota is not None and quota < len(cpus)
        together = [order] if is_limited else [ranks for _, ranks in self._sharing]
        self._shared_loads = [SharedLoad([self.ranks[i] for i in each]) for each in together if len(each) > 1]
        self._ticks: dict[int, int] = {}  # CPU time by PID in the last sample
        self._live: Mapping[int, int] = {}  # in the last sample
        self._sample_cpu_s = 0.0
        self._unconfirmed = False

    def begin(self, now: float) -> None:
        """Schedule the first sample, after all ranks have started."""
        self.began_at = now
        self.begin_again(now)

    def begin_again(self, now: float, rank: int | None = None) -> None:
        """Verify from the start, after a rank was restarted: its last attempt is in `ended`."""
        if rank is not None:
            self.ended.append((rank, self.complete))
        self.start_at = self.stable_since = now
        self.stable = self.complete = False
        self.step_s = FIRST_S
        self.sample_at = self.due_at = now + FIRST_S

    def is_sample_due(self, now: float) -> bool:
        """Return whether it is time for a sample; if not, count threads: a change makes it time."""
        if self.sample_at is None or now >= self.sample_at:
            return self.sample_at is not None
        began_s = time.process_time()
        counts = [(seen.masks, found) for seen in self.ranks.values() if (found := count_masks(seen.pids))]
        self.most_threads = max(self.most_threads, sum(found.total() for _, found in counts))
        self._schedule_count(now, time.process_time() - began_s)
        return any(before != found for before, found in counts)

    def _schedule_count(self, now: float, cpu_s: float) -> None:
        """Schedule a count before the next sample, in the first minute; the last count took `cpu_s`."""
        self.due_at = self.sample_at
        after_sample_s = SHORT_STEP_PER_CPU_TIME * self._sample_cpu_s
        step_s = max(SHORT_STEP_S, COUNT_STEP_PER_CPU_TIME * cpu_s, after_sample_s)
        if self.sample_at and now < self.start_at + LONGEST_S:
            self.due_at = min(self.sample_at, now + step_s)

    def sample(self, live: Mapping[int, int], now: float) -> None:
        """Sample the threads of all processes of ranks; `live` has the rank of each running child, by PID.

        `schedule_next` must follow.
        """
        self.seen_s = now - self.began_at
        self.samples += 1
        only_rank = min(self.ranks) if len(self.ranks) == 1 else None
        processes = read_processes()
        pids_by_rank = find_rank_processes(processes, live, self._run_id, only_rank) if processes else {}
        changed = {rank for rank, seen in self.ranks.items() if seen.count(pids_by_rank.get(rank, set()))}
        listed = {rank: seen for rank, seen in self.ranks.items() if seen.is_listed}
        self.most_threads = max(self.most_threads, sum(seen.masks.total() for seen in listed.values()))
        self._add_others(processes, live, now)
        if changed:
            self.stable_since = now
        if not self.complete:
            few = any(seen.masks.total() < seen.threads for seen in listed.values())
            self.stable = now - self.stable_since >= (FEW_STABLE_S if few else STABLE_S)
            self.complete = self.stable or now >= self.start_at + LONGEST_S
        ticks = {pid: stat.busy_ticks for pid, stat in processes.items()}
        for seen in self.ranks.values() if self.complete else ():
            seen.was_complete = True
            seen.count_busy(self._ticks, ticks)
        self._ticks = ticks
        if self.complete:
            changed |= {
                rank for rank, seen in listed.items() if seen.find_activity(processes) != seen.activity
            }
        doubtful = {pid: rank for pid, rank in live.items() if rank in changed or self.ranks[rank].escaped}
        limits = read_limits_of(DirectoryRoot("/"), doubtful)
        for pid, rank in live.items():
            seen = self.ranks[rank]
            seen.hidden = rank not in listed and (seen.hidden or is_running(pid))
            if pid in doubtful:
                seen.activity = seen.find_activity(processes)
                if seen.read(pid, limits[pid], self.seen_s) and self.complete:
                    seen.add_load(now)
            elif rank in listed and seen.processes:
                seen.seen_s, seen.streak = self.seen_s, Streak()  # without CPU time no thread is busy
        for shared in self._shared_loads if self.complete else ():
            shared.add(now)

    def _add_others(self, processes: Mapping[int, Stat], live: Mapping[int, int], now: float) -> None:
        cpu_times = read_cpu_times()
        for cpus, ranks in self._sharing:
            firsts = [{pid for pid in pairs if pairs[pid] in ranks} for pairs in (self._live, live)]
            usage = read_usage([self.ranks[rank] for rank in ranks], cpu_times, processes, now)
            add_others([self.ranks[rank] for rank in ranks], cpus, usage, is_same=firsts[0] == firsts[1])
        self._live = dict(live)

    def schedule_next(self, now: float, cpu_s: float, *, unconfirmed: bool = False) -> None:
        """Schedule the next sample after one that took `cpu_s` seconds of CPU time."""
        begins_again = unconfirmed and not self._unconfirmed
        self.step_s = SHORT_STEP_S if begins_again else min(2 * self.step_s, LONGEST_STEP_S)
        self._sample_cpu_s, self._unconfirmed = cpu_s, unconfirmed
        longest_at = self.start_at + LONGEST_S
        if self.complete:
            is_urgent = unconfirmed and now < longest_at
            per_cpu_time = SHORT_STEP_PER_CPU_TIME if is_urgent else STEP_PER_CPU_TIME
            self.sample_at = now + max(self.step_s, per_cpu_time * cpu_s)
        else:
            self.sample_at = min(now + self.step_s, longest_at)
        self._schedule_count(now, 0.0)
