"""What a plan consists of, as records.

A *placement* is what one rank gets: CPUs in order, places, threads, nodes, devices. A *plan* is all
placements, what is reserved, what stays idle, and a note on every choice that was made.
"""

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.machine.model import Machine
from ompbind.planning.occupancy import LiveRun
from ompbind.planning.request import MemoryMode, Request
from ompbind.record import Record

PREFERRED_MANY = 5
"""The kernel's mode that prefers several nodes; kernels before 5.15 know only the one for one node."""

_MODES = {
    MemoryMode.BIND: (2, "bind"),
    MemoryMode.INTERLEAVE: (3, "interleave"),
    MemoryMode.PREFERRED: (1, "prefer"),
}
"""The number of each kernel mode (MPOL_*), and its word in /proc/PID/numa_maps."""


class Note(Record):
    """One choice and its reason; `warning` marks what a user should hear of even when starting ranks."""

    code: str
    text: str
    warning: bool = False


class MemoryPolicy(Record):
    """Where the memory of a rank comes from: `nodes` by number, of which `first` has the most of its CPUs."""

    mode: MemoryMode
    nodes: tuple[int, ...]
    first: int

    @property
    def narrowed(self) -> "MemoryPolicy":
        """The policy for the first node alone."""
        return self.replace(nodes=(self.first,))

    @property
    def kernel_mode(self) -> int:
        """The number by which the kernel knows the mode."""
        return self._kernel[0]

    @property
    def kernel_text(self) -> str:
        """The policy as the kernel writes it in /proc/PID/numa_maps."""
        return f"{self._kernel[1]}:{CpuSet(self.nodes)}"

    @property
    def _kernel(self) -> tuple[int, str]:
        if self.mode is MemoryMode.PREFERRED and len(self.nodes) > 1:
            return PREFERRED_MANY, "prefer (many)"
        return _MODES[self.mode]

    def __str__(self) -> str:
        return f"{self.mode} {CpuSet(self.nodes)}"


class Placement(Record):
    """What one rank gets; `cpus` in thread order, no `places` where OpenMP is not to bind.

    `reserved` are the CPUs kept free for this rank's helpers, `nodes` the NUMA nodes of its CPUs, and
    `memory_nodes` those that its memory should come from: of its nodes the ones that have memory, and for
    each one that has none the nearest that do. `memory` is the policy that it starts with, None where it has
    the one that it inherits.
    """

    rank: int
    cpus: tuple[int, ...]
    places: tuple[CpuSet, ...] = ()
    threads: int = 1
    nodes: tuple[int, ...] = ()
    memory_nodes: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    reserved: CpuSet = EMPTY
    memory: MemoryPolicy | None = None

    @property
    def cpuset(self) -> CpuSet:
        """The CPUs without their order."""
        return CpuSet(self.cpus)


class Plan(Record):
    """All placements of one request on one machine; `idle` are allowed CPUs that nobody got.

    `occupied` are the other live runs that it was made among, `avoided` the CPUs of their cores where these
    are left to them.
    """

    machine: Machine
    request: Request
    placements: tuple[Placement, ...]
    reserved: CpuSet = EMPTY
    idle: CpuSet = EMPTY
    occupied: tuple[LiveRun, ...] = ()
    avoided: CpuSet = EMPTY
    notes: tuple[Note, ...] = ()

    @property
    def used(self) -> CpuSet:
        """The CPUs of all ranks; those that share one tuple of CPUs are looked at once."""
        distinct = {id(one.cpus): one for one in self.placements}
        return union(one.cpuset for one in distinct.values())

    def __str__(self) -> str:
        return " | ".join(f"{one.rank}: {one.cpuset}" for one in self.placements)
