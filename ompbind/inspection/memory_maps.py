"""Reading where the memory of a running process may come from, and where it lies."""

from ompbind.procfs.numa_maps import MemorySight, parse_numa_maps


def read_memory(pid: int) -> MemorySight | None:
    """Return what the kernel says of the memory of a process, or of a thread by its number.

    The kernel looks at every page for it: that takes a moment for large processes. None when the process is
    gone, belongs to somebody else, or the kernel knows no NUMA nodes.
    """
    try:
        with open(f"/proc/{pid}/numa_maps", "rb") as file:
            return parse_numa_maps(file.read().decode("utf-8", "replace"))
    except OSError:
        return None
