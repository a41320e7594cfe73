"""Sample a target: its processes, the CPU time of each CPU, and the migrations of each thread."""

import time
from collections.abc import Iterator

from ompbind.inspection.compare_samples import Sample
from ompbind.inspection.targets import Target, inspect
from ompbind.procfs.process_state import ProcessState
from ompbind.procfs.reader import TICKS_PER_S, read_migrations


def take_sample(target: Target) -> Sample:
    """Sample a target now; processes that have exited are left out."""
    inspection = inspect(target, memory=False)
    processes = (process for group in inspection.groups for process in group.processes)
    migrations = tuple(pair for process in processes for pair in _read_migrations(process))
    return Sample(at_s=time.monotonic(), inspection=inspection, cpus=read_cpu_times(), migrations=migrations)


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


def _read_migrations(process: ProcessState) -> Iterator[tuple[int, int]]:
    """Yield (TID, migrations since its start) of the threads for which the kernel reports them."""
    for thread in process.threads:
        migrations = read_migrations(process.pid, thread.tid)
        if migrations is not None:
            yield thread.tid, migrations
