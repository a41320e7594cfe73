"""Looking at processes again and again: what they are, how busy CPUs were, how often threads moved."""

import os
import time
from collections.abc import Iterator

from ompbind.inspection.rank_processes import Crew, Inspection
from ompbind.inspection.sampling import Look
from ompbind.inspection.targets import Target, inspect
from ompbind.procfs.reader import read_migrations

_TICKS = os.sysconf("SC_CLK_TCK")
_IDLE = (3, 4)
"""The fields of a CPU in /proc/stat in which it was idle, or waited for a disk."""

_FIELDS = 8
"""The fields that count: what guests used is in others already."""


def take_look(target: Target) -> Look:
    """Look at a target now; what has ended is left out."""
    seen = inspect(target, memory=False)
    return Look(at_s=time.monotonic(), inspection=seen, cpus=read_cpu_times(), moves=tuple(_read_moves(seen)))


def read_cpu_times() -> tuple[tuple[int, float, float], ...]:
    """Read how long each CPU was busy, and how long it was there, in seconds since the system started."""
    try:
        with open("/proc/stat", encoding="ascii", errors="replace") as file:
            lines = [line.split() for line in file if line.startswith("cpu") and line[3].isdigit()]
    except OSError:
        return ()
    return tuple(_sum_up(int(line[0][3:]), [int(word) for word in line[1 : 1 + _FIELDS]]) for line in lines)


def _sum_up(cpu: int, ticks: list[int]) -> tuple[int, float, float]:
    idle = sum(ticks[field] for field in _IDLE)
    return cpu, (sum(ticks) - idle) / _TICKS, sum(ticks) / _TICKS


def _read_moves(seen: Inspection) -> Iterator[tuple[int, int]]:
    for crew in seen.crews:
        yield from _read_crew_moves(crew)


def _read_crew_moves(crew: Crew) -> Iterator[tuple[int, int]]:
    """Read how often threads have moved, of those of which the kernel tells it."""
    for process in crew.processes:
        for thread in process.threads:
            moves = read_migrations(process.pid, thread.tid)
            if moves is not None:
                yield thread.tid, moves
