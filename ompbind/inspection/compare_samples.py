"""Compare two samples of the same processes: CPU use and migrations in between.

A *share* is CPU time divided by wall time: 1.0 is one CPU that was busy all the time. A *migration* is
counted when a thread resumes on another CPU.
"""

from collections.abc import Iterator

from ompbind.inspection.rank_processes import Inspection, RankProcesses
from ompbind.inspection.verdict import ThreadIssue
from ompbind.procfs.process_state import ThreadState
from ompbind.record import Record


class Sample(Record):
    """One sample; `at_s` is in seconds of a monotonic clock.

    `cpus` are (CPU, busy seconds, all seconds) since boot. `migrations` are (TID, migrations since its
    start) of threads, as far as the kernel reports them.
    """

    at_s: float
    inspection: Inspection
    cpus: tuple[tuple[int, float, float], ...] = ()
    migrations: tuple[tuple[int, int], ...] = ()


class CpuUse(Record):
    """The share of time that a CPU was busy, with any processes."""

    cpu: int
    share: float


class RankUse(Record):
    """The share and the migrations per second of all threads of a group together."""

    group: RankProcesses
    share: float
    migrations_per_s: float


class ThreadUse(Record):
    """The share and the migrations per second of one thread."""

    group: RankProcesses
    thread: ThreadState
    share: float
    migrations_per_s: float


class SampleDelta(Record):
    """The difference of two samples: CPUs and groups in order, threads with the busiest first.

    `shared_issues` are from the second sample.
    """

    span_s: float
    cpus: tuple[CpuUse, ...]
    groups: tuple[RankUse, ...]
    threads: tuple[ThreadUse, ...]
    shared_issues: tuple[ThreadIssue, ...] = ()


def compare_samples(before: Sample, after: Sample) -> SampleDelta:
    """Return the difference of two samples; a thread that has started in between counts from its start."""
    span_s = max(after.at_s - before.at_s, 1e-3)
    threads = tuple(_compare_threads(before, after, span_s))
    return SampleDelta(
        span_s=span_s,
        cpus=tuple(_compare_cpus(before, after)),
        groups=tuple(_sum_group(group, threads) for group in after.inspection.groups),
        threads=tuple(sorted(threads, key=lambda use: (-use.share, -use.migrations_per_s, use.thread.tid))),
        shared_issues=after.inspection.shared_issues,
    )


def _compare_cpus(before: Sample, after: Sample) -> Iterator[CpuUse]:
    earlier = {cpu: (busy_s, all_s) for cpu, busy_s, all_s in before.cpus}
    for cpu, busy_s, all_s in after.cpus:
        old_busy_s, old_all_s = earlier.get(cpu, (busy_s, all_s))
        span_s = all_s - old_all_s
        share = (busy_s - old_busy_s) / span_s if span_s > 0 else 0.0
        yield CpuUse(cpu=cpu, share=min(max(share, 0.0), 1.0))


def _compare_threads(before: Sample, after: Sample, span_s: float) -> Iterator[ThreadUse]:
    earlier = {thread.tid: thread for _, thread in _list_threads(before)}
    old_counts, counts = dict(before.migrations), dict(after.migrations)
    for group, thread in _list_threads(after):
        tid, old = thread.tid, earlier.get(thread.tid)
        used_s = (thread.busy_s or 0.0) - (old.busy_s or 0.0 if old else 0.0)
        if tid in counts:
            migrations = counts[tid] - old_counts.get(tid, 0)
        else:  # the kernel does not count them: at least one if the last CPU has changed
            migrations = int(old is not None and old.cpu != thread.cpu)
        share, migrations_per_s = max(used_s, 0.0) / span_s, max(migrations, 0) / span_s
        yield ThreadUse(group=group, thread=thread, share=share, migrations_per_s=migrations_per_s)


def _list_threads(sample: Sample) -> Iterator[tuple[RankProcesses, ThreadState]]:
    for group in sample.inspection.groups:
        for process in group.processes:
            for thread in process.threads:
                yield group, thread


def _sum_group(group: RankProcesses, threads: tuple[ThreadUse, ...]) -> RankUse:
    own = [use for use in threads if use.group is group]
    share, migrations_per_s = sum(use.share for use in own), sum(use.migrations_per_s for use in own)
    return RankUse(group=group, share=share, migrations_per_s=migrations_per_s)
