"""Read the NUMA nodes of the memory of running processes again and again, at a limited cost.

For each reading of /proc/PID/numa_maps the kernel visits every page of the process, which meanwhile cannot
map memory: some 40 ms for 1 GiB of small pages. So processes with more than `MOST_BYTES` are not read. The
CPU time that a reading took decides when the next one is due: all readings together take at most the share
`MOST_SHARE` of a CPU. A sample reads for `MOST_S`, the oldest readings first, so that many processes do not
delay it.
"""

import time
from collections.abc import Mapping

from ompbind.procfs.parsers import MemoryMap
from ompbind.procfs.reader import read_memory_map
from ompbind.record import Record

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
