"""The records of a plan.

A *placement* is what one rank gets: CPUs in order, places, threads, NUMA nodes, devices. A *plan* is all
placements, the reserved and idle CPUs, and notes on the choices that the request left open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from importlib import import_module

from ompbind.cpuset import EMPTY, CpuSet, join_words, named, union
from ompbind.machine.devices import Device
from ompbind.machine.model import Machine
from ompbind.openmp.binding import Binding
from ompbind.planning.other_runs import LiveRun
from ompbind.planning.request import MemoryMode, Request
from ompbind.record import Record

PREFERRED_MANY = 5
"""MPOL_PREFERRED_MANY: prefers several nodes; kernels before 5.15 have only MPOL_PREFERRED, for one node."""

_MODES = {
    MemoryMode.BIND: (2, "bind"),
    MemoryMode.INTERLEAVE: (3, "interleave"),
    MemoryMode.PREFERRED: (1, "prefer"),
    MemoryMode.WEIGHTED: (6, "weighted interleave"),  # Linux 6.9
}
"""The number of each kernel mode (MPOL_*), and its name in /proc/PID/numa_maps."""


class Note(Record):
    """Something that the user may not expect; a `warning` is also printed when ranks are started."""

    code: str
    text: str
    warning: bool = False


class MemoryPolicy(Record):
    """The NUMA memory policy of a rank: `nodes` by OS number; `main_node` has most of the rank's CPUs."""

    mode: MemoryMode
    nodes: tuple[int, ...]
    main_node: int

    @property
    def main_node_only(self) -> MemoryPolicy:
        """The same policy for `main_node` only."""
        return self.replace(nodes=(self.main_node,))

    @property
    def kernel_mode(self) -> int:
        """The kernel's number of the mode (MPOL_*)."""
        is_several = self.mode is MemoryMode.PREFERRED and len(self.nodes) > 1
        return PREFERRED_MANY if is_several else _MODES[self.mode][0]

    @property
    def kernel_text(self) -> str:
        """The policy as the kernel writes it in /proc/PID/numa_maps."""
        name = "prefer (many)" if self.kernel_mode == PREFERRED_MANY else _MODES[self.mode][1]
        return f"{name}:{CpuSet(self.nodes)}"

    def __str__(self) -> str:
        return f"{self.mode} {CpuSet(self.nodes)}"


class Placement(Record):
    """What one `rank` gets; `cpus` are in thread order, `places` are empty if OpenMP should not bind threads.

    `places_text` are the places as the value of OMP_PLACES. `processes` divide the `threads` of the rank. No
    OpenMP worker runs on its `service_cpus`. `reserved` are the CPUs of cores that --reserve takes from this
    rank: no rank may use them. `nodes` are the NUMA nodes of `cpus`. `memory_nodes` are the nodes with
    allowed memory (cpuset.mems) among them, with each node without memory replaced by the nearest nodes that
    have memory; if none is allowed, the nearest allowed nodes. `memory` is the policy that the rank starts
    with, None if it inherits one, `devices` are its devices. `waits_passively`: see PASSIVE.
    """

    rank: int
    cpus: tuple[int, ...]
    places: tuple[CpuSet, ...] = ()
    places_text: str = ""
    threads: int = 1
    processes: int = 1
    nodes: tuple[int, ...] = ()
    memory_nodes: tuple[int, ...] = ()
    devices: tuple[Device, ...] = ()
    reserved: CpuSet = EMPTY
    service_cpus: CpuSet = EMPTY
    memory: MemoryPolicy | None = None
    waits_passively: bool = False

    @property
    def compute(self) -> CpuSet:
        """The CPUs that compute, without their order."""
        return CpuSet(self.cpus)

    @property
    def process_threads(self) -> int:
        """The threads of each process of the rank."""
        return max(1, self.threads // self.processes)

    @property
    def cpuset(self) -> CpuSet:
        """The affinity mask of the rank: all its CPUs, with the service CPUs."""
        return self.compute | self.service_cpus if self.service_cpus else self.compute


def name_ranks(placements: Iterable[Placement], local_ranks: Sequence[int] = ()) -> str:
    """Return the numbers of some ranks, or their `local_ranks`, for a message, "" if there are none."""
    ranks = CpuSet(local_ranks[each.rank] if local_ranks else each.rank for each in placements)
    return named("rank", ranks) if ranks else ""


def find_unbalanced(machine: Machine, placements: Iterable[Placement]) -> list[Placement]:
    """Return the placements with several CPUs, some of them isolated: the kernel moves no threads there."""
    several = (placement for placement in placements if machine.isolated and len(placement.cpuset) > 1)
    return [placement for placement in several if not placement.cpuset.isdisjoint(machine.isolated)]


def find_first_cpu(machine: Machine, placement: Placement) -> int | None:
    """Return the CPU on which a rank must start because the kernel does not move it, None for any CPU."""
    return placement.cpus[0] if find_unbalanced(machine, (placement,)) else None


class Plan(Record):
    """All placements of one `request` on one `machine`; `idle` are CPUs neither used nor `reserved`.

    `occupied` are the other live runs, and `avoided` the CPUs of their cores, if the request avoids them.
    `binding` is how the threads of all ranks are bound. Of a run with groups, `groups` are the plans of the
    groups, whose ranks are counted from 0 in each group; `placements` are the ranks of all groups, counted
    through, and `request` is that of the first group. `notes` say what the user may not expect.
    """

    machine: Machine
    request: Request
    placements: tuple[Placement, ...]
    reserved: CpuSet = EMPTY
    idle: CpuSet = EMPTY
    occupied: tuple[LiveRun, ...] = ()
    avoided: CpuSet = EMPTY
    notes: tuple[Note, ...] = ()
    groups: tuple[Plan, ...] = ()
    binding: Binding = Binding()

    def join(self, groups: Iterable[Plan]) -> Plan:
        """Return the plan of a run with these groups: its ranks are counted through all groups."""
        groups = tuple(groups)
        ranks = (placement for group in groups for placement in group.placements)
        numbered = tuple(placement.replace(rank=rank) for rank, placement in enumerate(ranks))
        return self.replace(groups=groups, placements=numbered)

    @property
    def parts(self) -> tuple[Plan, ...]:
        """The plans that each have one request: of the groups, or of the run itself."""
        return self.groups or (self,)

    @property
    def numbered_parts(self) -> Iterator[tuple[int, Plan]]:
        """The number of the first rank of each part, and the part."""
        first = 0
        for part in self.parts:
            yield first, part
            first += len(part.placements)

    def find_part(self, rank: int) -> tuple[int, Plan]:
        """Return the part with a rank of the run, after the number of the first rank of this part."""
        return next(pair for pair in self.numbered_parts if rank < pair[0] + len(pair[1].placements))

    @property
    def rank_requests(self) -> tuple[Request, ...]:
        """The request of each rank: that of its group."""
        return tuple(part.request for part in self.parts for _ in part.placements)

    @property
    def labels(self) -> tuple[str, ...]:
        """The group of each rank and its number there, as "load 2"; () without groups."""
        return tuple(f"{part.request.group} {own.rank}" for part in self.groups for own in part.placements)

    @property
    def all_notes(self) -> tuple[Note, ...]:
        """The notes of the groups, each once with the names of the groups that have it, and of the run."""
        found: dict[Note, list[str]] = {}
        for part in self.groups:
            for note in part.notes:
                found.setdefault(note, []).append(part.request.group)
        who = {
            note: f"group{'s' if len(names) > 1 else ''} {join_words(names)}" for note, names in found.items()
        }
        return (*(note.replace(text=f"{who[note]}: {note.text}") for note in found), *self.notes)

    @cached_property
    def used(self) -> CpuSet:
        """The CPUs of all ranks, with the service CPUs."""
        return union(placement.cpuset for placement in self._distinct)

    @cached_property
    def compute(self) -> CpuSet:
        """The CPUs of all ranks that compute."""
        return union(placement.compute for placement in self._distinct)

    @property
    def _distinct(self) -> Iterable[Placement]:
        """Placements with all CPUs of the plan: fast if thousands of ranks share one tuple of CPUs."""
        return {id(placement.cpus): placement for placement in self.placements}.values()

    def to_json(self) -> str:
        """Return what `ompbind plan --format json` prints, for ranks that inherit no variables."""
        # by name, as Python programs import ompbind: variables and JSON belong to higher rooms
        text: str = import_module("ompbind.report.plan_json").render_plan_json(self)
        return text

    @property
    def has_places(self) -> bool:
        """Whether OpenMP threads are bound to places."""
        return any(placement.places for placement in self.placements)

    @property
    def has_devices(self) -> bool:
        """Whether ranks get devices."""
        return any(placement.devices for placement in self.placements)

    def __str__(self) -> str:
        return " | ".join(f"{placement.rank}: {placement.cpuset}" for placement in self.placements)
