"""Read the memory of a running process: its mapped files, its NUMA nodes and its memory policy."""

from __future__ import annotations

from collections.abc import Callable

from ompbind.procfs.process_files import parse_maps
from ompbind.procfs.reader import find_directory, read_if_allowed

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from ompbind.procfs.numa_maps import MemoryMap


def read_mapped_files(pid: int | str, keep: Callable[[str], bool]) -> tuple[str, ...]:
    """Read /proc/PID/maps: the mapped files that `keep` accepts; none if this user may not read it."""
    return parse_maps(read_if_allowed(pid, "maps") or b"", keep)


def read_memory_map(pid: int) -> MemoryMap | None:
    """Read /proc/PID/numa_maps of a process, or of a thread by its TID.

    The kernel walks all pages, which takes a moment for large processes. None if the process does not exist,
    if it belongs to another user, or if the kernel has no NUMA support.
    """
    # late: compiling its patterns takes longer than the rest
    from ompbind.procfs.numa_maps import parse_numa_maps

    data = read_if_allowed(pid, "numa_maps")
    return None if data is None else parse_numa_maps(data.decode("utf-8", "replace"))


def read_memory_policy(pid: int) -> str | None:
    """Return the memory policy of a process, from the first line of /proc/PID/numa_maps.

    That line is about the program's code, which has no policy of its own. The kernel walks only as many pages
    as it reports: all of them can take seconds.
    """
    from ompbind.procfs.numa_maps import parse_numa_maps  # late, as above

    try:
        with open(f"{find_directory(pid)}/numa_maps", "rb", buffering=0) as file:
            line = file.read(160).partition(b"\n")[0]  # the policy is among these bytes
    except OSError:
        return None
    return next(
        (mapping.policy for mapping in parse_numa_maps(line.decode("utf-8", "replace")).mappings), None
    )
