"""The ordered CPUs that a request may use: CPUs of its mask, or else all free CPUs; and their cores."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from ompbind.cpuset import EMPTY, CpuSet, count, named, union
from ompbind.machine.devices import Device
from ompbind.machine.model import Domain, Level, Machine, find_overlapping
from ompbind.masks.mask import Mask, MaskWord, part_error
from ompbind.planning.allocation_errors import no_core_error, render_core_kinds
from ompbind.planning.mask_notes import explain_threads
from ompbind.planning.mask_resolution import Parts, resolve_mask
from ompbind.planning.occupancy import AvailableCpus, sort_by_core
from ompbind.planning.plan import Note
from ompbind.planning.request import Request
from ompbind.record import Record

SMT8_AUTO_LIMIT = 4
"""Hardware threads per core that `--smt auto` uses on cores with eight or more (POWER); on others it is 1."""


class CpuPool(Record):
    """The ordered CPUs that a request may use.

    `position` is the index of each CPU in `cpus`. `explicit` is True if a mask names the CPUs.
    `parts` are the CPUs of each part, if the mask has several parts: one for each rank. `devices` are the
    devices of each rank, empty if ranks get none.
    """

    available: AvailableCpus
    request: Request
    cpus: tuple[int, ...]
    position: Mapping[int, int]
    explicit: bool = False
    parts: tuple[tuple[int, ...], ...] = ()
    devices: tuple[tuple[Device, ...], ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def machine(self) -> Machine:
        """The machine to which the CPUs belong."""
        return self.available.machine

    def cores(self, cpus: CpuSet) -> tuple[Domain, ...]:
        """Return the cores with some of these CPUs, in the machine's order or that of the requested nodes."""
        found = find_overlapping(self.machine.at(Level.CORE), cpus)
        if self.explicit or self.request.nodes is None:
            return found
        return tuple(sorted(found, key=lambda core: min(self.position[cpu] for cpu in core.cpus & cpus)))


def make_cpu_pool(available: AvailableCpus, request: Request) -> CpuPool:
    """Return the CPUs that a request may use: the CPUs of its mask, or else all free CPUs.

    Raises MaskError if the mask does not fit the machine, PlanError if no CPU is left.
    """
    near = _find_near_cpus(available, request)
    if request.mask is None or request.mask.word is MaskWord.AUTO:
        cpus = tuple(cpu for cpu in _default_cpus(available, request) if cpu in near)
        if not cpus:
            raise no_core_error(available, request)
        return CpuPool(available=available, request=request, cpus=cpus, position=_make_positions(cpus))
    parts, partial = find_parts(request.mask, available, request, near)
    cpus = tuple(cpu for part in parts for cpu in part)
    return CpuPool(
        available=available,
        request=request,
        cpus=cpus,
        position=_make_positions(cpus),
        explicit=True,
        parts=parts if len(parts) > 1 else (),
        notes=(*partial, *explain_threads(available.machine, request.smt, request.mask, CpuSet(cpus))),
    )


def _default_cpus(available: AvailableCpus, request: Request) -> Iterator[int]:
    """Yield the CPUs to use if no mask names any: all default CPUs, or all CPUs of the requested nodes."""
    cpus_of_kind = available.machine.cpus_of_kind(request.core_kind)
    if request.nodes is None:
        yield from sort_by_core(available.machine, available.default_cpus & cpus_of_kind)
    else:
        (on_nodes,), _ = resolve_mask(request.nodes, available)
        yield from (cpu for cpu in on_nodes if cpu in cpus_of_kind)


def _find_near_cpus(available: AvailableCpus, request: Request) -> CpuSet:
    """Return the CPUs near the devices that the request names; all online CPUs if it names none."""
    if not request.near:
        return available.machine.online
    from ompbind.planning.devices.locality import find_near_cpus  # noqa: PLC0415 - door: devices

    return find_near_cpus(available, request.near)


def _make_positions(cpus: Sequence[int]) -> dict[int, int]:
    return {cpu: index for index, cpu in enumerate(cpus)}


def find_usable_cpus(pool: CpuPool) -> tuple[CpuSet, ...]:
    """Return the usable CPUs of each core of the pool: at most as many as SMT allows, in machine order."""
    in_pool, limit = CpuSet(pool.cpus), _find_smt_limit(pool)
    return tuple(limit_cpus(core.cpus & in_pool, limit, pool.request.sibling) for core in pool.cores(in_pool))


def _find_smt_limit(pool: CpuPool) -> int:
    """Return how many CPUs of each core may be used."""
    if isinstance(pool.request.smt, int):
        return pool.request.smt
    threads = _count_threads(pool.machine)
    if pool.request.smt == "all" or pool.explicit:
        return threads
    return SMT8_AUTO_LIMIT if threads >= 8 else 1


def _count_threads(machine: Machine) -> int:
    """Return the hardware threads of the largest core, on POWER with offline ones.

    POWER numbers the hardware threads of a core one after the other, so the smallest distance between the
    first CPUs of two cores shows how many there are.
    """
    cores = machine.at(Level.CORE)
    online = max(len(core.cpus) for core in cores)
    if not (machine.offline and machine.arch.startswith("ppc")):
        return online
    firsts = sorted(core.cpus.first for core in cores)
    return min((second - first for first, second in pairwise(firsts)), default=online)


def limit_cpus(cpus: CpuSet, limit: int, sibling: str) -> CpuSet:
    """Return the first or last `limit` CPUs of one core."""
    if len(cpus) <= limit:
        return cpus
    numbers = tuple(cpus)
    return CpuSet(numbers[:limit] if sibling == "first" else numbers[-limit:])


def sort_by_position(pool: CpuPool, cpus: CpuSet) -> tuple[int, ...]:
    """Return CPUs in the order of the pool."""
    return tuple(sorted(cpus, key=pool.position.__getitem__))


def find_siblings(available: AvailableCpus, core_cpus: Sequence[CpuSet]) -> CpuSet:
    """Return all free CPUs of the cores to which the given CPUs belong."""
    if not core_cpus:
        return EMPTY
    cores = find_overlapping(available.machine.at(Level.CORE), union(core_cpus))
    return union(core.cpus for core in cores) & available.free


def find_parts(
    mask: Mask, available: AvailableCpus, request: Request, near: CpuSet
) -> tuple[Parts, tuple[Note, ...]]:
    """Return the CPUs of each part that are `near` and of the requested kind, and notes on dropped CPUs.

    Raises MaskError if the mask does not fit the machine or the request.
    """
    machine = available.machine
    selected, dropped = resolve_mask(mask, available, allow_partial=request.allow_partial)
    cpus_of_kind = machine.cpus_of_kind(request.core_kind)
    parts = tuple(tuple(cpu for cpu in part if cpu in cpus_of_kind) for part in selected)
    for items, part in zip(mask.parts, parts, strict=True):
        if not part:
            message = f"this part of the mask names no {request.core_kind} core"
            raise part_error(mask, items, message, render_core_kinds(machine))
    parts = _narrow_parts(mask, parts, near, request)
    _check_parts(mask, request)
    return parts, tuple(
        Note(code="mask-partial", text=f"dropped from the mask: {text}", warning=True) for text in dropped
    )


def _narrow_parts(mask: Mask, parts: Parts, near: CpuSet, request: Request) -> Parts:
    """Return the CPUs near the devices that the request names; raises MaskError for a part without any."""
    narrowed = tuple(tuple(cpu for cpu in part if cpu in near) for part in parts)
    for items, part in zip(mask.parts, narrowed, strict=True):
        if not part:
            message = f"this part of the mask names no CPU near {', '.join(request.near)}"
            raise part_error(mask, items, message, f"{named('CPU', near)} are near, or omit --near")
    return narrowed


def _check_parts(mask: Mask, request: Request) -> None:
    """Raise MaskError if the mask has several parts, but not one for each rank."""
    parts, ranks = len(mask.parts), request.ranks
    if parts == 1 or ranks in (None, parts):
        return
    surplus = [item for part in mask.parts[ranks:] for item in part]
    items = tuple(surplus or (item for part in mask.parts for item in part))
    message = f"the mask has {parts} parts for {count(ranks or 0, 'rank')}"
    number = count(ranks or 0, "part")
    hint = f"use -n {parts}, write {number}, or write a mask without '|' to divide it among the ranks"
    if ranks == 1 and request.compat and request.compat.workers:
        hint = request.compat.workers
    raise part_error(mask, items, message, hint)
