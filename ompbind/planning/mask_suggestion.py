"""Suggest a mask that works: the closest one with which the same request can be planned.

The idea: correct the mask step by step (`_correct`), smallest change first, and try to plan after each step;
the first text that can be planned is the suggestion. So this module needs no rule about which masks are
refused. Parts are texts here, because valid items must stay as the user wrote them. An example with 3 ranks
on 8 cores of one CPU each:

    0-3|1,5|99   → usable CPUs only         0-3|1,5|
                 → no CPU twice             0-3|5|
                 → _fill_up                 0-3|5|4
                 → one part for all ranks   0-3,5,4
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import and_

from ompbind.cpuset import EMPTY, CpuSet, range_text, render_sequence, union
from ompbind.errors import OmpbindError
from ompbind.machine.model import Level, Machine
from ompbind.masks.mask import Item, Mask, Selector, item_text
from ompbind.masks.parse import parse_mask
from ompbind.planning.mask_resolution import find_selectable, resolve_item, resolve_mask
from ompbind.planning.other_runs import AvailableCpus, LiveRun, make_available
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.record import Record


class _Context(Record):
    """The request, its mask and the CPUs."""

    available: AvailableCpus
    request: Request
    mask: Mask

    @property
    def kind(self) -> CpuSet:
        """The CPUs of the requested kind of core."""
        return self.available.machine.cpus_of_kind(self.request.core_kind)

    def resolve(self, part: str) -> tuple[int, ...]:
        """Return the usable CPUs of the requested core kind that a part names; none if it is not valid."""
        try:
            (cpus,), _ = resolve_mask(parse_mask(part), self.available, allow_partial=True)
        except OmpbindError:
            return ()
        return tuple(cpu for cpu in cpus if cpu in self.kind)


def suggest_mask(machine: Machine, request: Request, occupied: Sequence[LiveRun] = ()) -> str:
    """Return the mask text closest to that of a request with which it can be planned; "" if there is none."""
    if request.mask is None or request.mask.word is not None:
        return ""
    try:
        available = make_available(machine, request, occupied)
    except OmpbindError:  # no core is free
        return ""
    for parts in _correct(_Context(available=available, request=request, mask=request.mask)):
        if all(parts):
            text = "|".join(parts)
            try:
                make_plan(machine, request.replace(mask=parse_mask(text)), occupied)
            except OmpbindError:
                continue
            return text
    return ""


def _correct(context: _Context) -> Iterator[list[str]]:
    """Yield the parts of corrected masks, "" for a part without usable CPUs."""
    parts = list[str]()
    for may_overlap in (True, False):
        parts, used = [], EMPTY
        for items in context.mask.parts:
            parts.append(_usable_part(context, items, used))
            used = EMPTY if may_overlap else used | CpuSet(context.resolve(parts[-1]))
        yield parts
    parts = _fill_up(context, parts)
    yield parts
    # one part, which the strategy then divides
    text = ",".join(filter(None, parts))
    if "^" in text:
        cpus = dict.fromkeys(cpu for part in parts for cpu in context.resolve(part))
        text = ",".join(render_sequence(tuple(cpus)))
    yield from ([text], ["all"], ["auto"], [str(context.available.free & context.kind)])


def _usable_part(context: _Context, items: Sequence[Item], used: CpuSet) -> str:
    """Return the text of a part without what cannot be used; `used` are the CPUs of the parts before it.

    CPUs are removed from items that name them by number; other items stay, followed by an exclusion.
    """
    request, cores = context.request, context.available.machine.at(Level.CORE)
    limit = 1 if request.reserve else request.smt
    unwanted = EMPTY if request.share else used
    if isinstance(limit, int):
        full = [core for core in cores if not core.cpus.isdisjoint(used)]
        unwanted |= union(core.cpus for core in full if len(core.cpus & used) >= limit)
    kept: list[tuple[bool, str]] = []
    for original in items:
        item, text = original, context.mask.text[slice(*original.span)]
        cpus, errors = resolve_item(context.mask, item, context.available)
        if errors and item.chain:
            item = item.replace(chain=_selectable_chain(context, item))
            cpus = resolve_item(context.mask, item, context.available)[0] if item.chain else ()
            text = item_text(item)
        if not item.excluded:
            cpus = tuple(cpu for cpu in cpus if cpu not in unwanted)
        if item.cpus and (errors or not item.excluded) and len(cpus) < len(item.cpus):
            text = item_text(item.replace(cpus=cpus))
        if cpus or (item.excluded and not errors):
            kept.append((item.excluded, text))
    text = ",".join(text for _, text in kept)
    included = ",".join(text for is_excluded, text in kept if not is_excluded)
    begins_with_all = all(item.excluded for item in items)
    if not (included or begins_with_all) or not context.resolve(text):
        text = included
    if rest := unwanted & CpuSet(context.resolve(text)):
        text += f",{item_text(Item(excluded=True, cpus=tuple(rest)))}"
    return text if context.resolve(text) else ""


def _selectable_chain(context: _Context, item: Item) -> tuple[Selector, ...]:
    """Return the selectors of an item with only domains that can be selected; none if there are none.

    A selector without any gets other domains, preferably ones that the mask does not name yet; an exclusion
    never does.
    """
    machine, chain = context.available.machine, list[Selector]()
    outer_sets = [machine.allowed]
    named = [other for part in context.mask.parts for item in part for other in item.chain]
    for original in item.chain:
        for selector in (original, original.replace(by_os_number=False)):
            domains = [find_selectable(machine, selector, outer) for outer in outer_sets]
            selectable = reduce(and_, map(CpuSet, domains))
            if selectable:
                break
        numbers = selectable & CpuSet(original.numbers)
        if item.excluded and not numbers:
            return ()
        others = union(CpuSet(other.numbers) for other in named if other.level is selector.level)
        if numbers := numbers or selectable - others or selectable:
            kept = tuple(numbers) if CpuSet.from_list(range_text([*numbers])) == numbers else (numbers.first,)
            chain.append(selector.replace(numbers=kept))
            pairs = zip(domains, outer_sets, strict=True)
            outer_sets = [found[number].cpus & outer for found, outer in pairs for number in kept]
    return tuple(chain)


def _fill_up(context: _Context, parts: list[str]) -> list[str]:
    """Add free CPUs to parts with too few, and parts for ranks without one, up to the requested size.

    CPUs of unused cores come first, at most as many of each as --smt allows. If the request leaves the number
    of ranks open, parts that still have no CPU are dropped.
    """
    request, cores = context.request, context.available.machine.at(Level.CORE)
    ranks, limit = request.ranks or len(parts), request.smt if isinstance(request.smt, int) else None
    if len(parts) not in range(2 if ranks > 1 else 1, ranks + 1):
        return parts
    filled = [*parts, *[""] * (ranks - len(parts))]
    lists = [list(context.resolve(part)) for part in filled]
    usable = context.available.default_cpus & context.kind
    used, most, core_of = (
        union(map(CpuSet, lists)),
        max(map(len, lists)),
        context.available.machine.table.core_of,
    )
    sizes = [sum(len(item.cpus) for item in part if not item.excluded) for part in context.mask.parts]
    for rank, cpus in enumerate(lists):
        on_cores = {core_of[cpu] for cpu in cpus}
        size = (sizes[rank] if rank < len(sizes) else 0) or most
        if len(on_cores) > request.other_cores or not size:
            continue
        unused = [core.cpus & usable for core in cores if core.cpus.isdisjoint(used)]
        free = CpuSet(cpu for core in unused for cpu in tuple(core)[:limit])
        others = EMPTY if request.other_cores or limit else usable - used - free
        for cpu in (*free, *others):
            if len(cpus) >= size and len(on_cores) > request.other_cores:
                break
            cpus.append(cpu)
            on_cores.add(core_of[cpu])
        used |= CpuSet(cpus)
        filled[rank] = ",".join(render_sequence(cpus))
    return filled if request.ranks else list(filter(None, filled))
