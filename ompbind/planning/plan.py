"""What a plan consists of, as records.

A *placement* is what one rank gets: CPUs in order, places, threads, nodes, devices. A *plan* is all
placements, what is reserved, what stays idle, and a note on every choice that was made.
"""

from typing import TYPE_CHECKING

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.machine.model import Machine
from ompbind.planning.occupancy import LiveRun
from ompbind.planning.request import Request
from ompbind.record import Record

if TYPE_CHECKING:  # few ranks have one
    from ompbind.planning.memory_abi import MemoryPolicy


class Note(Record):
    """One choice and its reason; `warning` marks what a user should hear of even when starting ranks."""

    code: str
    text: str
    warning: bool = False


class Placement(Record):
    """What one rank gets; `cpus` in thread order, no `places` where OpenMP is not to bind.

    `reserved` are the CPUs kept free for this rank's helpers, `nodes` the NUMA nodes of its CPUs, and
    `memory_nodes` those that its memory should come from: of its nodes the ones that have memory, and for
    each one that has none the nearest that do. `memory` is the policy that it starts with, None where it has
    the one that it inherits.
    """

    rank: int
    cpus: tuple[int, ...]
    places: tuple[CpuSet, ...]
    threads: int
    nodes: tuple[int, ...] = ()
    memory_nodes: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    reserved: CpuSet = EMPTY
    memory: "MemoryPolicy | None" = None

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
