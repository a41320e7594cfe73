"""Sample a target: its processes, the CPU time of each CPU, the migrations of each thread, and memory."""

import time
from collections.abc import Iterator, Sequence
from itertools import chain

from ompbind.inspection.compare_samples import Sample
from ompbind.inspection.memory_readings import MemoryReadings, read_memory
from ompbind.inspection.rank_processes import Inspection, RankProcesses
from ompbind.inspection.read_load import Streaks, add_load, list_throttlings
from ompbind.inspection.targets import KnownProcesses, Target, has_several_nodes, inspect, read_visible_runs
from ompbind.machine.sources.linux.numa import read_memory_sizes
from ompbind.machine.sources.root import DirectoryRoot
from ompbind.planning.other_runs import LiveRun
from ompbind.procfs.process_state import ProcessState
from ompbind.procfs.reader import TICKS_PER_S, read_migrations
from ompbind.record import Record
from ompbind.text import clean_name

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
    sample = Sample(
        at_s=time.monotonic(),
        inspection=inspection.replace(
            groups=tuple(_add_memory(group, memory) for group in inspection.groups)
        ),
        cpus=read_cpu_times(),
        migrations=tuple(chain.from_iterable(map(_read_migrations, processes.values()))),
        throttlings=list_throttlings(streaks),
        absent_ranks=tuple(find_absent_ranks(live, inspection)),
        live_runs=len(live),
        nodes=tuple(read_memory_sizes(DirectoryRoot("/"))),
    )
    samples = history.samples + 1
    return SampleHistory(samples=samples, streaks=streaks, memory=memory, known=processes), sample


def _read_migrations(process: ProcessState) -> Iterator[tuple[int, int]]:
    return read_migrations(process.pid, (thread.tid for thread in process.threads))


def _add_memory(group: RankProcesses, readings: MemoryReadings) -> RankProcesses:
    known = ((process.pid, readings.get(process.pid)) for process in group.processes)
    return group.replace(
        memory=tuple((pid, reading.memory) for pid, reading in known if reading and reading.memory)
    )


def find_absent_ranks(runs: Sequence[LiveRun], inspection: Inspection) -> Iterator[tuple[str, int]]:
    """Yield (run ID, rank) of the ranks of runs that have no process: not yet, or no longer.

    Runs with processes whose rank is unknown are left out.
    """
    found = {(clean_name(group.run_id or ""), group.rank) for group in inspection.groups}
    for run in runs:
        if (run.run_id, None) not in found:
            yield from ((run.run_id, rank) for rank, _ in run.ranks if (run.run_id, rank) not in found)


def read_cpu_times() -> tuple[tuple[int, float, float], ...]:
    """Read (CPU, busy seconds, all seconds) of each online CPU since boot, from /proc/stat."""
    try:
        with open("/proc/stat", encoding="ascii", errors="replace") as file:
            lines = [line.split() for line in file if line.startswith("cpu") and line[3].isdigit()]
    except OSError:
        return ()
    return tuple(_sum_up(int(line[0][3:]), *map(int, line[1:9])) for line in lines)


def _sum_up(cpu: int, *ticks: int) -> tuple[int, float, float]:
    """Sum up the fields user … steal; the fields for guests after them are included in user and nice."""
    idle = ticks[3] + ticks[4]  # idle and iowait
    return cpu, (sum(ticks) - idle) / TICKS_PER_S, sum(ticks) / TICKS_PER_S
