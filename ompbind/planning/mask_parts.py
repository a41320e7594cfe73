"""The CPUs that each part of a requested mask gives to ranks, after the request has narrowed them."""

from __future__ import annotations

from ompbind.cpuset import CpuSet, count, named, union
from ompbind.errors import PlanError
from ompbind.machine.model import Level, Machine
from ompbind.masks.mask import Mask, part_error
from ompbind.planning.mask_resolution import Parts, resolve_mask
from ompbind.planning.occupancy import AvailableCpus
from ompbind.planning.plan import Note
from ompbind.planning.request import Request, Smt

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Iterator


def find_parts(
    mask: Mask, available: AvailableCpus, request: Request, near: CpuSet
) -> tuple[Parts, tuple[Note, ...]]:
    """Return the CPUs of each part that are `near` and of the requested kind of core, with notes on the mask.

    Raises MaskError if the mask does not fit the machine or the request.
    """
    machine = available.machine
    selected, dropped = resolve_mask(mask, available, allow_partial=request.allow_partial)
    cpus_of_kind = machine.cpus_of_kind(request.core_kind)
    parts = tuple(tuple(cpu for cpu in part if cpu in cpus_of_kind) for part in selected)
    for items, part in zip(mask.parts, parts, strict=True):
        if not part:
            message = f"this part of the mask names no {request.core_kind} core"
            raise part_error(mask, items, message, _core_kinds_hint(machine))
    parts = _narrow_parts(mask, parts, near, request)
    _check_parts(mask, request)
    cpus = CpuSet(cpu for part in parts for cpu in part)
    partial = (
        Note(code="mask-partial", text=f"dropped from the mask: {text}", warning=True) for text in dropped
    )
    return parts, (*partial, *_explain_threads(machine, request.smt, mask, cpus))


def no_core_error(available: AvailableCpus, request: Request) -> PlanError:
    """Return the error about a request without a mask for which no CPU is left."""
    kind = "" if request.core_kind == "all" else f"{request.core_kind} "
    state = "free" if available.avoided else "allowed"
    where = f" near {', '.join(request.near)}" if request.near else ""
    return PlanError(f"no {kind}core{where} is {state}", hint=_core_kinds_hint(available.machine))


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


def _core_kinds_hint(machine: Machine) -> str:
    kinds = ", ".join(f"{kind.name}: {named('CPU', kind.cpus)}" for kind in machine.kinds)
    return (
        f"the core kinds of this machine are {kinds}"
        if kinds
        else "all cores of this machine are of one kind"
    )
