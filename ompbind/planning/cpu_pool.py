"""The ordered CPUs that a request may use: the CPUs of its mask, or else all free CPUs."""

from __future__ import annotations

from ompbind.cpuset import CpuSet, count, named, union
from ompbind.errors import PlanError
from ompbind.machine.model import Domain, Level, Machine, find_overlapping
from ompbind.masks.mask import Mask, MaskWord, part_error
from ompbind.planning.occupancy import AvailableCpus, sort_by_core
from ompbind.planning.plan import Note
from ompbind.planning.request import Request, Smt
from ompbind.record import Record

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ompbind.machine.devices import Device


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
    machine = available.machine
    near = _find_near_cpus(available, request)
    if request.mask is None or request.mask.word is MaskWord.AUTO:
        cpus = tuple(cpu for cpu in _default_cpus(available, request) if cpu in near)
        if not cpus:
            kind = "" if request.core_kind == "all" else f"{request.core_kind} "
            state = "free" if available.avoided else "allowed"
            where = f" near {', '.join(request.near)}" if request.near else ""
            raise PlanError(f"no {kind}core{where} is {state}", hint=_core_kinds_hint(machine))
        return CpuPool(available=available, request=request, cpus=cpus, position=_make_positions(cpus))
    mask = request.mask
    from ompbind.planning.mask_resolution import resolve_mask  # late: many plans have no mask

    selected, dropped = resolve_mask(mask, available, allow_partial=request.allow_partial)
    cpus_of_kind = machine.cpus_of_kind(request.core_kind)
    parts = tuple(tuple(cpu for cpu in part if cpu in cpus_of_kind) for part in selected)
    for items, part in zip(mask.parts, parts, strict=True):
        if not part:
            message = f"this part of the mask names no {request.core_kind} core"
            raise part_error(mask, items, message, _core_kinds_hint(machine))
    parts = _narrow_parts(mask, parts, near, request)
    _check_parts(mask, request)
    cpus = tuple(cpu for part in parts for cpu in part)
    partial = (
        Note(code="mask-partial", text=f"dropped from the mask: {text}", warning=True) for text in dropped
    )
    return CpuPool(
        available=available,
        request=request,
        cpus=cpus,
        position=_make_positions(cpus),
        explicit=True,
        parts=parts if len(parts) > 1 else (),
        notes=(*partial, *_explain_threads(machine, request.smt, mask, CpuSet(cpus))),
    )


def _explain_threads(machine: Machine, limit: Smt, mask: Mask, named_cpus: CpuSet) -> Iterator[Note]:
    """Explain that --smt uses fewer CPUs than the mask names, or that domains mean all hardware threads."""
    by_core = [core.cpus & named_cpus for core in machine.at(Level.CORE)]
    names_domain = any(item.chain and not item.excluded for part in mask.parts for item in part)
    if limit == "auto" and names_domain and (most := max(map(len, by_core))) > 1:
        text = f"domains in the mask mean all their hardware threads: up to {most} per core are used"
        yield Note(code="smt", text=f"{text} (--smt 1 uses one)")
    if isinstance(limit, int) and (pruned := union(cpus for cpus in by_core if len(cpus) > limit)):
        uses = f"--smt {limit} uses only {count(limit, 'CPU')} of each core"
        text = f"the mask names {named('CPU', pruned)}; {uses}"
        yield Note(code="smt", text=text)


def _default_cpus(available: AvailableCpus, request: Request) -> Iterator[int]:
    """Yield the CPUs to use if no mask names any: all default CPUs, or all CPUs of the requested nodes."""
    cpus_of_kind = available.machine.cpus_of_kind(request.core_kind)
    if request.nodes is None:
        yield from sort_by_core(available.machine, available.default_cpus & cpus_of_kind)
    else:
        from ompbind.planning.mask_resolution import resolve_mask  # late, as above

        (on_nodes,), _ = resolve_mask(request.nodes, available)
        yield from (cpu for cpu in on_nodes if cpu in cpus_of_kind)


def _find_near_cpus(available: AvailableCpus, request: Request) -> CpuSet:
    """Return the CPUs near the devices that the request names; all online CPUs if it names none."""
    if not request.near:
        return available.machine.online
    from ompbind.planning.devices.near import find_near_cpus  # late: few requests name devices

    return find_near_cpus(available, request.near)


def _narrow_parts(
    mask: Mask, parts: tuple[tuple[int, ...], ...], near: CpuSet, request: Request
) -> tuple[tuple[int, ...], ...]:
    """Return the CPUs near the devices that the request names; raises MaskError for a part without any."""
    narrowed = tuple(tuple(cpu for cpu in part if cpu in near) for part in parts)
    for items, part in zip(mask.parts, narrowed, strict=True):
        if not part:
            message = f"this part of the mask names no CPU near {', '.join(request.near)}"
            raise part_error(mask, items, message, f"{named('CPU', near)} are near, or omit --near")
    return narrowed


def _core_kinds_hint(machine: Machine) -> str:
    kinds = ", ".join(f"{kind.name}: {named('CPU', kind.cpus)}" for kind in machine.kinds)
    return (
        f"the core kinds of this machine are {kinds}"
        if kinds
        else "all cores of this machine are of one kind"
    )


def _make_positions(cpus: Sequence[int]) -> dict[int, int]:
    return {cpu: index for index, cpu in enumerate(cpus)}


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
