"""Compare two samples of the same processes: CPU use, waiting, migrations and throttling in between.

A *share* is CPU time divided by wall time: 1.0 is one CPU that was busy all the time. A *delay share* is the
time in which threads were runnable and waited for a CPU, divided by wall time. A *migration* is counted when
a thread resumes on another CPU.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from ompbind.inspection.rank_processes import Inspection, RankProcesses
from ompbind.inspection.verdict import ThreadIssue
from ompbind.machine.sources.linux.cgroup import Throttling
from ompbind.machine.sources.linux.numa import MemorySize
from ompbind.procfs.process_state import ThreadState
from ompbind.record import Record


class Sample(Record):
    """One sample; `at_s` is in seconds of a monotonic clock.

    `cpus` are (CPU, busy seconds, all seconds) since boot. `migrations` are (TID, migrations since its
    start) of threads, as far as the kernel reports them. `throttlings` has one record for each cgroup whose
    CPU quota counts. `absent_ranks` are (run ID, rank) without a process, of `live_runs` runs of the target.
    `nodes` are the NUMA nodes of the machine.
    """

    at_s: float
    inspection: Inspection
    cpus: tuple[tuple[int, float, float], ...] = ()
    migrations: tuple[tuple[int, int], ...] = ()
    throttlings: tuple[Throttling, ...] = ()
    absent_ranks: tuple[tuple[str, int], ...] = ()
    live_runs: int = 0
    nodes: tuple[MemorySize, ...] = ()


class CpuUse(Record):
    """The share of time that a CPU was busy, with any processes."""

    cpu: int
    share: float


class RankUse(Record):
    """The shares and the migrations per second of all threads of a group together, and its memory.

    `delay_share` is None if the kernel does not count it. `resident_bytes` counts pages that processes of the
    group share once for each process. `nodes` are (NUMA node, bytes) of memory without a file, as far as it
    was read.
    """

    group: RankProcesses
    share: float
    migrations_per_s: float
    delay_share: float | None = None
    resident_bytes: int = 0
    nodes: tuple[tuple[int, int], ...] = ()


class ThreadUse(Record):
    """The shares and the migrations per second of one thread; `delay_share` is None if it is not counted."""

    group: RankProcesses
    thread: ThreadState
    share: float
    migrations_per_s: float
    delay_share: float | None = None


class SampleDelta(Record):
    """The difference of two samples: CPUs and groups in order, threads with the busiest first.

    `throttlings` are what was counted in between. `shared_issues`, `absent_ranks` and `nodes` are from the
    second sample.
    """

    span_s: float
    cpus: tuple[CpuUse, ...]
    groups: tuple[RankUse, ...]
    threads: tuple[ThreadUse, ...]
    shared_issues: tuple[ThreadIssue, ...] = ()
    throttlings: tuple[Throttling, ...] = ()
    absent_ranks: tuple[tuple[str, int], ...] = ()
    nodes: tuple[MemorySize, ...] = ()


def compare_samples(before: Sample, after: Sample) -> SampleDelta:
    """Return the difference of two samples; a thread that has started in between counts from its start."""
    span_s = max(after.at_s - before.at_s, 1e-3)
    threads = tuple(_compare_threads(before, after, span_s))
    return SampleDelta(
        span_s=span_s,
        cpus=tuple(_compare_cpus(before, after)),
        groups=tuple(_sum_groups(after.inspection.groups, threads)),
        threads=tuple(sorted(threads, key=lambda use: (-use.share, -use.migrations_per_s, use.thread.tid))),
        shared_issues=after.inspection.shared_issues,
        throttlings=tuple(_compare_throttlings(before, after)),
        absent_ranks=after.absent_ranks,
        nodes=after.nodes,
    )


def _compare_cpus(before: Sample, after: Sample) -> Iterator[CpuUse]:
    earlier = {cpu: (busy_s, all_s) for cpu, busy_s, all_s in before.cpus}
    for cpu, busy_s, all_s in after.cpus:
        old_busy_s, old_all_s = earlier.get(cpu, (busy_s, all_s))
        span_s = all_s - old_all_s
        share = (busy_s - old_busy_s) / span_s if span_s > 0 else 0.0
        yield CpuUse(cpu=cpu, share=min(max(share, 0.0), 1.0))


def _compare_throttlings(before: Sample, after: Sample) -> Iterator[Throttling]:
    earlier = {throttling.cgroup: throttling for throttling in before.throttlings}
    for throttling in after.throttlings:
        if throttling.cgroup in earlier:
            yield throttling.since(earlier[throttling.cgroup])


def _compare_threads(before: Sample, after: Sample, span_s: float) -> Iterator[ThreadUse]:
    earlier = {thread.tid: thread for _, thread in _list_threads(before)}
    old_counts, counts = dict(before.migrations), dict(after.migrations)
    for group, thread in _list_threads(after):
        tid, old = thread.tid, earlier.get(thread.tid)
        if tid in counts:
            migrations = counts[tid] - old_counts.get(tid, 0)
        else:  # the kernel does not count them: at least one if the last CPU has changed
            migrations = int(old is not None and old.cpu != thread.cpu)
        delay_s = thread.delay_s
        yield ThreadUse(
            group=group,
            thread=thread,
            share=_increase(old.busy_s if old else 0.0, thread.busy_s or 0.0) / span_s,
            migrations_per_s=max(migrations, 0) / span_s,
            delay_share=None if delay_s is None else _increase(old.delay_s if old else 0.0, delay_s) / span_s,
        )


def _increase(before: float | None, after: float) -> float:
    return max(0.0, after - (before or 0.0))


def _list_threads(sample: Sample) -> Iterator[tuple[RankProcesses, ThreadState]]:
    for group in sample.inspection.groups:
        for process in group.processes:
            for thread in process.threads:
                yield group, thread


def _sum_groups(groups: Sequence[RankProcesses], threads: Sequence[ThreadUse]) -> Iterator[RankUse]:
    by_group: dict[int, list[ThreadUse]] = {}
    for use in threads:
        by_group.setdefault(id(use.group), []).append(use)
    for group in groups:
        yield _sum_group(group, by_group.get(id(group), []))


def _sum_group(group: RankProcesses, threads: Sequence[ThreadUse]) -> RankUse:
    delays = [use.delay_share for use in threads if use.delay_share is not None]
    nodes = Counter[int]()
    for _, memory in group.memory:
        nodes.update(dict(memory.anonymous_nodes))
    return RankUse(
        group=group,
        share=sum(use.share for use in threads),
        migrations_per_s=sum(use.migrations_per_s for use in threads),
        delay_share=sum(delays) if len(delays) == len(threads) else None,
        resident_bytes=sum(process.resident_bytes or 0 for process in group.processes),
        nodes=tuple(sorted(nodes.items())),
    )
