"""Looking at processes again and again: what they are, how busy CPUs were, how often threads moved."""

import time
from collections.abc import Iterator

from ompbind.inspection.sampling import Sample
from ompbind.inspection.targets import Target, inspect
from ompbind.procfs.process_state import ProcessState
from ompbind.procfs.reader import TICKS, read_migrations


def take_sample(target: Target) -> Sample:
    """Look at a target now; what has ended is left out."""
    seen = inspect(target, memory=False)
    processes = (process for crew in seen.crews for process in crew.processes)
    migrations = tuple(moved for process in processes for moved in _read_migrations(process))
    return Sample(at_s=time.monotonic(), inspection=seen, cpus=read_cpu_times(), migrations=migrations)


def read_cpu_times() -> tuple[tuple[int, float, float], ...]:
    """Read how long each CPU was busy, and how long it was there, in seconds since the system started."""
    try:
        with open("/proc/stat", encoding="ascii", errors="replace") as file:
            lines = [line.split() for line in file if line.startswith("cpu") and line[3].isdigit()]
    except OSError:
        return ()
    return tuple(_sum_up(int(line[0][3:]), *map(int, line[1:9])) for line in lines)


def _sum_up(cpu: int, *ticks: int) -> tuple[int, float, float]:
    """Count only the first fields: what guests used is in others already."""
    idle = ticks[3] + ticks[4]  # idle, or waiting for a disk
    return cpu, (sum(ticks) - idle) / TICKS, sum(ticks) / TICKS


def _read_migrations(process: ProcessState) -> Iterator[tuple[int, int]]:
    """Read how often threads have moved, of those of which the kernel tells it."""
    for thread in process.threads:
        migrations = read_migrations(process.pid, thread.tid)
        if migrations is not None:
            yield thread.tid, migrations
