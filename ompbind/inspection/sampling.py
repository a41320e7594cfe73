"""Two looks at the same processes, one after the other: how busy CPUs and threads were in between.

A *share* is CPU time by wall time: 1.0 is one CPU that was busy all the time. A thread *moves* when it
goes on on another CPU.
"""

from collections.abc import Iterator

from ompbind.inspection.rank_processes import Crew, Inspection
from ompbind.inspection.verdict import Finding
from ompbind.procfs.process_state import ThreadState
from ompbind.record import Record


class Look(Record):
    """What was seen at one moment, in seconds of a clock that only goes on.

    `cpus` are (CPU, seconds that it was busy, seconds in all) since the system started; `moves` are how
    often each thread has moved since it started, by its number, where the kernel counts that.
    """

    at_s: float
    inspection: Inspection
    cpus: tuple[tuple[int, float, float], ...] = ()
    moves: tuple[tuple[int, int], ...] = ()


class CpuUse(Record):
    """How busy one CPU was, by whatever processes."""

    cpu: int
    share: float


class CrewUse(Record):
    """How busy all threads of a crew were together, and how often they moved in a second."""

    crew: Crew
    share: float
    moves_per_s: float


class ThreadUse(Record):
    """The same for one thread."""

    crew: Crew
    thread: ThreadState
    share: float
    moves_per_s: float


class Glance(Record):
    """What happened between two looks: CPUs and crews in their order, threads with the busiest first.

    `together` is what was found on several crews at the last one.
    """

    span_s: float
    cpus: tuple[CpuUse, ...]
    crews: tuple[CrewUse, ...]
    threads: tuple[ThreadUse, ...]
    together: tuple[Finding, ...] = ()


def compare_looks(before: Look, after: Look) -> Glance:
    """Tell what happened between two looks; of new threads only what they did since they began."""
    span_s = max(after.at_s - before.at_s, 1e-3)
    threads = tuple(_use_threads(before, after, span_s))
    return Glance(
        span_s=span_s,
        cpus=tuple(_use_cpus(before, after)),
        crews=tuple(_sum_crew(crew, threads) for crew in after.inspection.crews),
        threads=tuple(sorted(threads, key=lambda one: (-one.share, -one.moves_per_s, one.thread.tid))),
        together=after.inspection.together,
    )


def _use_cpus(before: Look, after: Look) -> Iterator[CpuUse]:
    earlier = {cpu: (busy_s, all_s) for cpu, busy_s, all_s in before.cpus}
    for cpu, busy_s, all_s in after.cpus:
        old_busy_s, old_all_s = earlier.get(cpu, (busy_s, all_s))
        span_s = all_s - old_all_s
        share = (busy_s - old_busy_s) / span_s if span_s > 0 else 0.0
        yield CpuUse(cpu=cpu, share=min(max(share, 0.0), 1.0))


def _use_threads(before: Look, after: Look, span_s: float) -> Iterator[ThreadUse]:
    earlier = {thread.tid: thread for _, thread in _threads(before)}
    then, now = dict(before.moves), dict(after.moves)
    for crew, thread in _threads(after):
        tid, old = thread.tid, earlier.get(thread.tid)
        used_s = (thread.busy_s or 0.0) - (old.busy_s or 0.0 if old else 0.0)
        # Where the kernel does not count moves, it can only be told whether a thread did.
        moves = now[tid] - then.get(tid, 0) if tid in now else int(old is not None and old.cpu != thread.cpu)
        share, moves_per_s = max(used_s, 0.0) / span_s, max(moves, 0) / span_s
        yield ThreadUse(crew=crew, thread=thread, share=share, moves_per_s=moves_per_s)


def _threads(look: Look) -> Iterator[tuple[Crew, ThreadState]]:
    for crew in look.inspection.crews:
        for process in crew.processes:
            for thread in process.threads:
                yield crew, thread


def _sum_crew(crew: Crew, threads: tuple[ThreadUse, ...]) -> CrewUse:
    own = [one for one in threads if one.crew is crew]
    share, moves_per_s = sum(one.share for one in own), sum(one.moves_per_s for one in own)
    return CrewUse(crew=crew, share=share, moves_per_s=moves_per_s)
