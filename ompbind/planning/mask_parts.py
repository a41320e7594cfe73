"""The CPUs that each part of a requested mask gives to ranks, after the request has narrowed them."""

from ompbind.cpuset import CpuSet, count, named
from ompbind.masks.mask import Mask, part_error
from ompbind.planning.allocation_errors import render_core_kinds
from ompbind.planning.mask_resolution import Parts, resolve_mask
from ompbind.planning.occupancy import AvailableCpus
from ompbind.planning.plan import Note
from ompbind.planning.request import Request


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
