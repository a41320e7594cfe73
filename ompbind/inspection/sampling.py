"""Two looks at the same processes, one after the other: how busy CPUs and threads were in between.

A *share* is CPU time by wall time: 1.0 is one CPU that was busy all the time. A thread *moves* when it
goes on on another CPU.
"""

from collections.abc import Iterator

from ompbind.inspection.rank_processes import Inspection, RankProcesses
from ompbind.inspection.verdict import ThreadIssue
from ompbind.procfs.process_state import ThreadState
from ompbind.record import Record


class Sample(Record):
    """What was seen at one moment, in seconds of a clock that only goes on.

    `cpus` are (CPU, seconds that it was busy, seconds in all) since the system started; `migrations` are how
    often each thread has moved since it started, by its number, where the kernel counts that.
    """

    at_s: float
    inspection: Inspection
    cpus: tuple[tuple[int, float, float], ...] = ()
    migrations: tuple[tuple[int, int], ...] = ()


class CpuUse(Record):
    """How busy one CPU was, by whatever processes."""

    cpu: int
    share: float


class RankUse(Record):
    """How busy all threads of a crew were together, and how often they moved in a second."""

    crew: RankProcesses
    share: float
    migrations_per_s: float


class ThreadUse(Record):
    """The same for one thread."""

    crew: RankProcesses
    thread: ThreadState
    share: float
    migrations_per_s: float


class SampleDelta(Record):
    """What happened between two looks: CPUs and crews in their order, threads with the busiest first.

    `together` is what was found on several crews at the last one.
    """

    span_s: float
    cpus: tuple[CpuUse, ...]
    crews: tuple[RankUse, ...]
    threads: tuple[ThreadUse, ...]
    together: tuple[ThreadIssue, ...] = ()


def compare_samples(before: Sample, after: Sample) -> SampleDelta:
    """Tell what happened between two looks; of new threads only what they did since they began."""
    span_s = max(after.at_s - before.at_s, 1e-3)
    threads = tuple(_use_threads(before, after, span_s))
    return SampleDelta(
        span_s=span_s,
        cpus=tuple(_use_cpus(before, after)),
        crews=tuple(_sum_crew(crew, threads) for crew in after.inspection.crews),
        threads=tuple(sorted(threads, key=lambda one: (-one.share, -one.migrations_per_s, one.thread.tid))),
        together=after.inspection.together,
    )


def _use_cpus(before: Sample, after: Sample) -> Iterator[CpuUse]:
    earlier = {cpu: (busy_s, all_s) for cpu, busy_s, all_s in before.cpus}
    for cpu, busy_s, all_s in after.cpus:
        old_busy_s, old_all_s = earlier.get(cpu, (busy_s, all_s))
        span_s = all_s - old_all_s
        share = (busy_s - old_busy_s) / span_s if span_s > 0 else 0.0
        yield CpuUse(cpu=cpu, share=min(max(share, 0.0), 1.0))


def _use_threads(before: Sample, after: Sample, span_s: float) -> Iterator[ThreadUse]:
    earlier = {thread.tid: thread for _, thread in _threads(before)}
    then, now = dict(before.migrations), dict(after.migrations)
    for crew, thread in _threads(after):
        tid, old = thread.tid, earlier.get(thread.tid)
        used_s = (thread.busy_s or 0.0) - (old.busy_s or 0.0 if old else 0.0)
        # Where the kernel does not count moves, it can only be told whether a thread did.
        migrations = (
            now[tid] - then.get(tid, 0) if tid in now else int(old is not None and old.cpu != thread.cpu)
        )
        share, migrations_per_s = max(used_s, 0.0) / span_s, max(migrations, 0) / span_s
        yield ThreadUse(crew=crew, thread=thread, share=share, migrations_per_s=migrations_per_s)


def _threads(look: Sample) -> Iterator[tuple[RankProcesses, ThreadState]]:
    for crew in look.inspection.crews:
        for process in crew.processes:
            for thread in process.threads:
                yield crew, thread


def _sum_crew(crew: RankProcesses, threads: tuple[ThreadUse, ...]) -> RankUse:
    own = [one for one in threads if one.crew is crew]
    share, migrations_per_s = sum(one.share for one in own), sum(one.migrations_per_s for one in own)
    return RankUse(crew=crew, share=share, migrations_per_s=migrations_per_s)
