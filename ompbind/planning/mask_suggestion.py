"""Suggest a mask that works: the closest one with which the same request can be planned.

The idea: correct the mask step by step (`_correct`), smallest change first, and try to plan after each step;
the first text that can be planned is the suggestion. So this module needs no rule about which masks are
refused. Parts are texts here, because valid items must stay as the user wrote them. An example with 3 ranks
on 8 cores of one CPU each:

    0-3|1,5|99   → usable CPUs only     0-3|1,5|
                 → no CPU twice         0-3|5|
                 → _fill_up             0-3|5|4
"""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import and_

from ompbind.cpuset import EMPTY, CpuSet, range_text, render_sequence, union
from ompbind.errors import OmpbindError
from ompbind.machine.model import Level, Machine, find_overlapping, index_by_cpu
from ompbind.masks.mask import Item, Mask, Selector, item_text
from ompbind.masks.parse import parse_mask
from ompbind.planning.mask_resolution import find_selectable, resolve_item, resolve_mask
from ompbind.planning.other_runs import AvailableCpus, LiveRun
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.record import Record


class _Context(Record):
    """The request, its mask and the CPUs."""

    available: AvailableCpus
    request: Request
    mask: Mask

    @property
    def machine(self) -> Machine:
        """The machine on which the mask must work."""
        return self.available.machine

    @property
    def cpus_of_kind(self) -> CpuSet:
        """The CPUs of the requested kind of core."""
        return self.machine.cpus_of_kind(self.request.core_kind)


_PartTexts = Sequence[str]
"""The text of every part, "" if nothing is left of it."""


def suggest_mask(machine: Machine, request: Request, occupied: Sequence[LiveRun] = ()) -> str:
    """Return the mask text closest to that of a request with which it can be planned; "" if there is none."""
    mask = request.mask
    if mask is None or mask.word is not None:
        return ""
    available = AvailableCpus(machine=machine, runs=tuple(occupied))
    tried = {""}
    for parts in _correct(_Context(available=available, request=request, mask=mask)):
        text = "" if "" in parts else "|".join(parts)
        if text in tried:
            continue
        tried.add(text)
        try:
            make_plan(machine, request.replace(mask=parse_mask(text)), occupied)
        except OmpbindError:
            continue
        return text
    return ""


def _correct(context: _Context) -> Iterator[_PartTexts]:
    """Yield the parts of corrected masks; each correction is applied to the result of the previous."""
    machine, request = context.machine, context.request
    parts: _PartTexts = [
        ",".join(filter(None, (_usable_item(context, item) for item in part))) for part in context.mask.parts
    ]
    yield parts
    # without exclusions, where these leave no CPU
    parts = [part if _resolve(context, part) else _included_text(part) for part in parts]
    yield parts
    smt, exhausted = request.smt, list[Callable[[CpuSet], CpuSet]]()
    if not request.share:  # every CPU only in the first part that names it
        exhausted.append(lambda used: used)
    if isinstance(smt, int):  # the CPUs of each core that are named first, as many as --smt allows
        exhausted.append(lambda used: _find_cores(machine, used, smt))
    if request.reserve:  # every core only in the first part that names it
        exhausted.append(lambda used: _find_cores(machine, used, 1))
    for find_unwanted in exhausted:
        kept: list[str] = []
        used = EMPTY
        for part in parts:
            kept.append(_remove(context, part, find_unwanted(used)))
            used |= CpuSet(_resolve(context, kept[-1]))
        parts = kept
        yield parts
    parts = _fill_up(context, parts)
    yield parts
    # one part, which the strategy then divides
    kept = [part for part in parts if part]
    if any("^" in part for part in kept):
        kept = list(
            render_sequence(tuple(dict.fromkeys(cpu for part in kept for cpu in _resolve(context, part))))
        )
    yield [",".join(kept)]
    yield from (["all"], ["auto"], [str(machine.allowed & context.cpus_of_kind)])


def _source_text(mask: Mask, item: Item) -> str:
    return mask.text[item.span[0] : item.span[1]]


def _usable_item(context: _Context, item: Item) -> str:
    """Return the text of an item without CPUs and domains that cannot be used on this machine."""
    cpus, errors = resolve_item(context.mask, item, context.available)
    if not errors:
        return _source_text(context.mask, item)
    if item.chain:
        return _usable_chain(context, item)
    if item.excluded:
        existing = context.machine.online | context.machine.offline
        cpus = tuple(cpu for cpu in item.cpus if cpu in existing)
    return item_text(item.replace(cpus=cpus)) if cpus else ""


def _usable_chain(context: _Context, item: Item) -> str:
    """Return the text of a chain with only domains that can be selected; "" if no selector is left."""
    chain: list[Selector] = []
    outer_sets = [context.machine.allowed]
    for original in item.chain:
        selector = _usable_selector(context, original, outer_sets)
        if item.excluded and not (selector and CpuSet(selector.numbers) <= CpuSet(original.numbers)):
            return ""
        if selector is None:
            continue
        chain.append(selector)
        selectable = [(find_selectable(context.machine, selector, outer), outer) for outer in outer_sets]
        outer_sets = [
            domains[number].cpus & outer for domains, outer in selectable for number in selector.numbers
        ]
    return item_text(item.replace(chain=tuple(chain))) if chain else ""


def _usable_selector(context: _Context, selector: Selector, outer_sets: Sequence[CpuSet]) -> Selector | None:
    """Return a selector with only numbers that select a domain in every outer set; None if no number does.

    If none of its own numbers does, it gets other numbers, preferably ones that the mask does not name yet.
    """
    selectable = reduce(
        and_, (CpuSet(find_selectable(context.machine, selector, outer)) for outer in outer_sets)
    )
    if not selectable:
        by_index = selector.replace(by_os_number=False)
        return _usable_selector(context, by_index, outer_sets) if selector.by_os_number else None
    key = selector.level, selector.by_os_number
    named = CpuSet(
        number
        for part in context.mask.parts
        for item in part
        for other in item.chain
        if (other.level, other.by_os_number) == key
        for number in other.numbers
    )
    numbers = selectable & CpuSet(selector.numbers) or selectable - named or selectable
    kept = tuple(numbers)
    is_one_range = CpuSet.from_list(range_text(kept)) == numbers
    return selector.replace(numbers=kept if is_one_range else kept[:1])


def _included_text(part: str) -> str:
    """Return the text of a part without its exclusions."""
    if not part:
        return ""
    mask = parse_mask(part)
    return ",".join(_source_text(mask, item) for item in mask.parts[0] if not item.excluded)


def _remove(context: _Context, part: str, unwanted: CpuSet) -> str:
    """Return a part without some CPUs; "" if nothing is left.

    CPUs are removed from items that name them by number; other items stay, followed by an exclusion.
    """
    if not part or unwanted.isdisjoint(CpuSet(_resolve(context, part))):
        return part
    mask = parse_mask(part)
    texts, to_exclude = [], EMPTY
    for item in mask.parts[0]:
        named = CpuSet(resolve_item(mask, item, context.available)[0])
        if item.excluded or named.isdisjoint(unwanted):
            texts.append(_source_text(mask, item))
        elif item.cpus:
            kept = tuple(cpu for cpu in item.cpus if cpu not in unwanted)
            texts.append(item_text(item.replace(cpus=kept)) if kept else "")
        else:
            texts.append("" if named <= unwanted else _source_text(mask, item))
            to_exclude |= named & unwanted if texts[-1] else EMPTY
    if all(item.excluded for item in mask.parts[0]):
        to_exclude = unwanted & context.machine.default_cpus
    elif all(not text or item.excluded for text, item in zip(texts, mask.parts[0], strict=True)):
        return ""
    if to_exclude:
        texts.append(item_text(Item(excluded=True, cpus=tuple(to_exclude))))
    remaining = ",".join(filter(None, texts))
    return remaining if _resolve(context, remaining) else ""


def _fill_up(context: _Context, parts: _PartTexts) -> _PartTexts:
    """Add free CPUs to parts with too few, and parts for ranks without one, up to the requested size.

    If the request leaves the number of ranks open, parts that still have no CPU are dropped.
    """
    ranks = context.request.ranks or len(parts)
    if len(parts) not in range(2 if ranks > 1 else 1, ranks + 1):
        return parts
    core_of = index_by_cpu(context.machine.at(Level.CORE))
    lists = [list(_resolve(context, part)) for part in parts] + [[] for _ in range(ranks - len(parts))]
    filled = [*parts, *("" for _ in lists[len(parts) :])]
    requested = [sum(len(item.cpus) for item in part if not item.excluded) for part in context.mask.parts]
    requested += [0] * len(lists)
    used, most = union(map(CpuSet, lists)), max(map(len, lists))
    others = context.request.other_cores
    for rank, cpus in enumerate(lists):
        cores = {core_of[cpu] for cpu in cpus}
        size = requested[rank] or most
        if len(cores) > others or not size:
            continue
        for cpu in _find_free(context, used):
            if len(cpus) >= size and len(cores) > others:
                break
            cpus.append(cpu)
            cores.add(core_of[cpu])
        used |= CpuSet(cpus)
        filled[rank] = ",".join(render_sequence(cpus))
    return filled if context.request.ranks else [part for part in filled if part]


def _find_free(context: _Context, used: CpuSet) -> list[int]:
    """Return the CPUs of unused cores, at most as many of each as --smt allows, then other unused CPUs."""
    limit = context.request.smt if isinstance(context.request.smt, int) else None
    usable = context.machine.default_cpus & context.cpus_of_kind
    cores = [core.cpus & usable for core in context.machine.at(Level.CORE) if core.cpus.isdisjoint(used)]
    on_unused_cores = CpuSet(cpu for core in cores for cpu in tuple(core)[:limit])
    others = () if context.request.other_cores or limit else usable - used - on_unused_cores
    return [*on_unused_cores, *others]


def _resolve(context: _Context, part: str) -> tuple[int, ...]:
    """Return the usable CPUs of the requested core kind that a part names; none if it is not valid."""
    if not part:
        return ()
    try:
        (cpus,), _ = resolve_mask(parse_mask(part), context.available, allow_partial=True)
    except OmpbindError:
        return ()
    return tuple(cpu for cpu in cpus if cpu in context.cpus_of_kind)


def _find_cores(machine: Machine, cpus: CpuSet, minimum: int) -> CpuSet:
    """Return all CPUs of the cores that have at least `minimum` of the given CPUs."""
    cores = find_overlapping(machine.at(Level.CORE), cpus)
    return union(core.cpus for core in cores if len(core.cpus & cpus) >= minimum)
