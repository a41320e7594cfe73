"""Sample processes, and compare two samples: CPU use, waiting, migrations and throttling in between.

A *share* is CPU time divided by wall time: 1.0 is one CPU that was busy all the time. A *delay share* is the
time in which threads were runnable and waited for a CPU, divided by wall time. The kernel counts a wait only
when it ends, which may be long after its start. So the time before the first of two samples is left out, and
a thread that did nothing but wait between two samples has waited all the time. A *migration* is counted when
a thread resumes on another CPU.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from ompbind.inspection.rank_processes import Inspection, RankProcesses
from ompbind.inspection.read_load import Streaks, add_load, list_throttlings
from ompbind.inspection.targets import KnownProcesses, Target, has_several_nodes, inspect, read_visible_runs
from ompbind.inspection.verdict import ThreadIssue
from ompbind.machine.sources.linux.cgroup import Throttling
from ompbind.machine.sources.linux.numa import MemorySize, read_memory_sizes
from ompbind.machine.sources.root import DirectoryRoot
from ompbind.planning.other_runs import LiveRun
from ompbind.procfs.parsers import CpuTimes, MemoryMap
from ompbind.procfs.process_state import ThreadState
from ompbind.procfs.reader import read_cpu_times, read_memory_map, read_migrations
from ompbind.record import Record
from ompbind.text import clean_name


class Sample(Record):
    """One sample; `at_s` is in seconds of a monotonic clock.

    `cpus` are the times of each CPU. `migrations` are (TID, migrations since its
    start) of threads, as far as the kernel reports them. `throttlings` has one record for each cgroup whose
    CPU quota counts. `absent_ranks` are (run ID, rank) without a process, of `live_runs` runs of the target.
    `nodes` are the NUMA nodes of the machine.
    """

    at_s: float
    inspection: Inspection
    cpus: Mapping[int | None, CpuTimes] = {}
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
    by_group: dict[int, list[ThreadUse]] = {id(group): [] for group in after.inspection.groups}
    for use in threads:
        by_group[id(use.group)].append(use)
    cpus = []
    for cpu, times in after.cpus.items():
        if cpu is not None:
            then = before.cpus.get(cpu, times)
            share = (times.busy - then.busy) / max(1, times.total - then.total)
            cpus.append(CpuUse(cpu=cpu, share=min(max(share, 0.0), 1.0)))
    old = {throttling.cgroup: throttling for throttling in before.throttlings}
    return SampleDelta(
        span_s=span_s,
        cpus=tuple(cpus),
        groups=tuple(_sum_threads(group, by_group[id(group)]) for group in after.inspection.groups),
        threads=tuple(sorted(threads, key=lambda use: (-use.share, -use.migrations_per_s, use.thread.tid))),
        shared_issues=after.inspection.shared_issues,
        throttlings=tuple(now.since(old[now.cgroup]) for now in after.throttlings if now.cgroup in old),
        absent_ranks=after.absent_ranks,
        nodes=after.nodes,
    )


def _compare_threads(before: Sample, after: Sample, span_s: float) -> Iterator[ThreadUse]:
    earlier = {thread.tid: thread for _, thread in _list_threads(before)}
    old_counts, counts = dict(before.migrations), dict(after.migrations)
    for group, thread in _list_threads(after):
        tid, old = thread.tid, earlier.get(thread.tid)
        if tid in counts:
            migrations = counts[tid] - old_counts.get(tid, 0)
        else:  # the kernel does not count them: at least one if the last CPU has changed
            migrations = int(old is not None and old.cpu != thread.cpu)
        busy_s = _increase(old.busy_s if old else 0.0, thread.busy_s or 0.0)
        delay_s = thread.delay_s
        if delay_s is not None:
            delay_s = _increase(old.delay_s if old else 0.0, delay_s)
            waits_on = old is not None and old.state == thread.state == "R" and not busy_s and not delay_s
            delay_s = span_s if waits_on else min(delay_s, max(0.0, span_s - busy_s))
        yield ThreadUse(
            group=group,
            thread=thread,
            share=busy_s / span_s,
            migrations_per_s=max(migrations, 0) / span_s,
            delay_share=None if delay_s is None else delay_s / span_s,
        )


def _increase(before: float | None, after: float) -> float:
    return max(0.0, after - (before or 0.0))


def _list_threads(sample: Sample) -> Iterator[tuple[RankProcesses, ThreadState]]:
    for group in sample.inspection.groups:
        for process in group.processes:
            for thread in process.threads:
                yield group, thread


def _sum_threads(group: RankProcesses, threads: Sequence[ThreadUse]) -> RankUse:
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


# Read the NUMA nodes of the memory of running processes again and again, at a limited cost.
#
# For each reading of /proc/PID/numa_maps the kernel visits every page of the process, which meanwhile
# cannot map memory: some 40 ms for 1 GiB of small pages. So processes with more than `MOST_BYTES` are not
# read. The CPU time that a reading took decides when the next one is due: all readings together take at
# most the share `MOST_SHARE` of a CPU. A sample reads for `MOST_S`, the oldest readings first, so that many
# processes do not delay it.


MOST_SHARE = 0.002
"""CPU time of all readings at most, divided by wall time."""

MOST_BYTES = 8 << 30
"""Resident memory of the largest process that is read."""

MOST_S = 0.05
"""CPU time in a sample, in seconds, after which no further process is read."""


class MemoryReading(Record):
    """The memory of a process, None if it is not readable, and the CPU time that the reading took.

    `at_s` is in seconds of a monotonic clock.
    """

    at_s: float
    cost_s: float
    memory: MemoryMap | None


MemoryReadings = Mapping[int, MemoryReading]
"""The last reading of each process, by PID."""


def find_due(readings: MemoryReadings, sizes: Mapping[int, int], now_s: float) -> list[int]:
    """Return the PIDs of the processes to read now: first those without a reading, then the oldest.

    `sizes` is the resident memory of all processes, in bytes by PID.
    """
    due = {}
    for pid, size in sizes.items():
        reading = readings.get(pid)
        if size > MOST_BYTES:
            continue
        if reading is None:
            due[pid] = float("-inf")
        elif now_s - reading.at_s >= reading.cost_s * len(sizes) / MOST_SHARE:
            due[pid] = reading.at_s
    return sorted(due, key=lambda pid: due[pid])


def read_memory(readings: MemoryReadings, sizes: Mapping[int, int]) -> MemoryReadings:
    """Read the memory of the processes that are due; return the last reading of each process in `sizes`.

    `sizes` is the resident memory of all processes, in bytes by PID; larger processes are left out.
    """
    found = {pid: readings[pid] for pid, size in sizes.items() if pid in readings and size <= MOST_BYTES}
    began_s = before_s = time.thread_time()
    for pid in find_due(found, sizes, time.monotonic()):
        memory, after_s = read_memory_map(pid), time.thread_time()
        found[pid] = MemoryReading(at_s=time.monotonic(), cost_s=after_s - before_s, memory=memory)
        before_s = after_s
        if after_s - began_s >= MOST_S:
            break
    return found


def sum_costs(readings: MemoryReadings, since_s: float) -> float:
    """Return the CPU time of the readings since a time, in seconds."""
    return sum(reading.cost_s for reading in readings.values() if reading.at_s >= since_s)


_COMPLETE_EVERY = 10
"""One of so many samples reads libraries and environments again, and searches detached processes of a run."""


class SampleHistory(Record):
    """What earlier samples found: the streak of each group, the last reading and last state of each process.

    `samples` is the number of earlier samples.
    """

    samples: int = 0
    streaks: Streaks = {}  # noqa: RUF012 - a record: nothing changes it
    memory: MemoryReadings = {}  # noqa: RUF012
    known: KnownProcesses = {}  # noqa: RUF012


def take_sample(target: Target, history: SampleHistory) -> tuple[SampleHistory, Sample]:
    """Sample a target now; processes that have exited are left out, later runs with its names are included.

    Returns what the next sample needs, and the sample, with the issues that follow from all samples.
    """
    names = {run.run_id for run in target.runs}
    live = [run for run in read_visible_runs() if run.run_id in names]
    known = history.known if history.samples % _COMPLETE_EVERY else {}
    streaks, inspection = add_load(history.streaks, inspect(target, memory=False, known=known))
    processes = {process.pid: process for group in inspection.groups for process in group.processes}
    sizes = {pid: process.resident_bytes or 0 for pid, process in processes.items()}
    memory = read_memory(history.memory, sizes) if has_several_nodes() else {}
    groups = []
    for group in inspection.groups:
        known_memory = ((process.pid, memory.get(process.pid)) for process in group.processes)
        read = ((pid, reading.memory) for pid, reading in known_memory if reading and reading.memory)
        groups.append(group.replace(memory=tuple(read)))
    migrations = (
        read_migrations(process.pid, (thread.tid for thread in process.threads))
        for process in processes.values()
    )
    sample = Sample(
        at_s=time.monotonic(),
        inspection=inspection.replace(groups=tuple(groups)),
        cpus=read_cpu_times(),
        migrations=tuple(chain.from_iterable(migrations)),
        throttlings=list_throttlings(streaks),
        absent_ranks=tuple(find_absent_ranks(live, inspection)),
        live_runs=len(live),
        nodes=tuple(read_memory_sizes(DirectoryRoot("/"))),
    )
    samples = history.samples + 1
    return SampleHistory(samples=samples, streaks=streaks, memory=memory, known=processes), sample


def find_absent_ranks(runs: Sequence[LiveRun], inspection: Inspection) -> Iterator[tuple[str, int]]:
    """Yield (run ID, rank) of the ranks of runs that have no process: not yet, or no longer.

    Runs with processes whose rank is unknown are left out.
    """
    found = {(clean_name(group.run_id or ""), group.rank) for group in inspection.groups}
    for run in runs:
        if (run.run_id, None) not in found:
            yield from ((run.run_id, rank) for rank, _ in run.ranks if (run.run_id, rank) not in found)
