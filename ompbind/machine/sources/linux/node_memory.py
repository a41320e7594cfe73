"""How much memory of each NUMA node is free, from `sys/devices/system/node/nodeN/meminfo`.

A module of its own: a start of ranks reads the nodes, and not how much of them is free.
"""

from collections.abc import Iterator

from ompbind.machine.sources.linux.numa import NODE_DIRECTORY
from ompbind.machine.sources.root import Root, numbered, parse_meminfo
from ompbind.record import Record


class MemorySize(Record):
    """The memory of the machine, or of one NUMA node, in bytes; `free` includes reclaimable caches."""

    total: int
    free: int
    node: int | None = None

    @property
    def share_free(self) -> float:
        """The free share, 0 to 1."""
        return self.free / self.total if self.total else 1.0


def read_memory_sizes(root: Root) -> Iterator[MemorySize]:
    """Yield the size of every NUMA node with memory; file caches count as free."""
    for node in numbered(root.names(NODE_DIRECTORY), "node"):
        sizes = parse_meminfo(root.read(f"{NODE_DIRECTORY}/node{node}/meminfo"))
        total, free = sizes.get("MemTotal"), sizes.get("MemFree")
        if total and free is not None:
            caches = ("Active(file)", "Inactive(file)", "SReclaimable")
            yield MemorySize(node=node, total=total, free=free + sum(sizes.get(name, 0) for name in caches))
