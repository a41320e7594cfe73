"""Which mask would work where one does not: the closest one with which the same request can be planned.

A mask is mended step by step (`_CURES`), least change first, and the first one that a plan can be made
with is the advice; nothing here knows the rules that a mask is refused by.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_

from ompbind.cpuset import EMPTY, CpuSet, range_text, sequence_texts, union
from ompbind.errors import OmpbindError
from ompbind.machine.model import Level, Machine, index_by_cpu, touched
from ompbind.masks.grammar import Item, Selector
from ompbind.masks.mask import Mask, item_text, parse_mask
from ompbind.planning.mask_resolution import nameable, resolve, select
from ompbind.planning.occupancy import AvailableCpus, LiveRun
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.record import Record


class _Case(Record):
    """What the mask has to work with; `asked` is how many CPUs each of its parts named, at least."""

    available: AvailableCpus
    request: Request
    mask: Mask
    asked: tuple[int, ...]

    @property
    def machine(self) -> Machine:
        """The machine that the mask is for."""
        return self.available.machine

    @property
    def wanted(self) -> CpuSet:
        """The CPUs of the kind of core that is asked for."""
        return self.machine.of_kind(self.request.core_kind)


_Parts = Sequence[str]
"""The text of every part, "" where nothing is left of it."""


def suggest_mask(machine: Machine, request: Request, occupied: Sequence[LiveRun] = ()) -> str:
    """Return the closest mask text to that of a request with which it can be planned; "" if none can."""
    mask = request.mask
    if mask is None or mask.word is not None:
        return ""
    asked = (sum(len(item.cpus) for item in part if not item.taken_away) for part in mask.parts)
    available = AvailableCpus(machine=machine, runs=tuple(occupied))
    case = _Case(available=available, request=request, mask=mask, asked=tuple(asked))
    parts: _Parts = [",".join(_written(mask, item) for item in part) for part in mask.parts]
    tried = {""}
    for cure in _CURES:
        parts = cure(case, parts)
        text = "" if "" in parts else "|".join(parts)
        if text not in tried and _works(case, text):
            return text
        tried.add(text)
    return ""


def _works(case: _Case, text: str) -> bool:
    try:
        make_plan(case.machine, case.request.replace(mask=parse_mask(text)), case.available.runs)
    except OmpbindError:
        return False
    return True


def _written(mask: Mask, item: Item) -> str:
    return mask.text[item.span[0] : item.span[1]]


def _keep_usable(case: _Case, parts: _Parts) -> _Parts:
    """Leave out of every item what this machine cannot use."""
    return [",".join(filter(None, (_usable(case, item) for item in part))) for part in case.mask.parts]


def _usable(case: _Case, item: Item) -> str:
    cpus, faults = resolve(case.mask, item, case.available)
    if not faults:
        return _written(case.mask, item)
    if item.chain:
        return _usable_chain(case, item)
    there = case.machine.online | case.machine.offline
    kept = tuple(cpu for cpu in item.cpus if cpu in there) if item.taken_away else cpus
    return item_text(item.replace(cpus=kept)) if kept else ""


def _usable_chain(case: _Case, item: Item) -> str:
    """Return a chain with those domains that are there, "" if that makes none."""
    chain: list[Selector] = []
    insides = [case.machine.allowed]
    for asked in item.chain:
        usable = _usable_selector(case, asked, insides)
        if item.taken_away and not (usable and CpuSet(usable[0].numbers) <= CpuSet(asked.numbers)):
            return ""
        for selector in usable:
            chain.append(selector)
            each = [(nameable(case.machine, selector, inside), inside) for inside in insides]
            insides = [known[one].cpus & inside for known, inside in each for one in selector.numbers]
    return item_text(item.replace(chain=tuple(chain))) if chain else ""


def _usable_selector(case: _Case, selector: Selector, insides: Sequence[CpuSet]) -> list[Selector]:
    """Return a selector of those of its domains that are there, else of others, best of those not named yet.

    There is none where the machine has no such domains everywhere.
    """
    known = reduce(and_, (CpuSet(nameable(case.machine, selector, inside)) for inside in insides))
    if not known:
        by_index = selector.replace(by_os_number=False)
        return _usable_selector(case, by_index, insides) if selector.by_os_number else []
    kind = selector.level, selector.by_os_number
    chains = (one for part in case.mask.parts for item in part for one in item.chain)
    alike = (one for one in chains if (one.level, one.by_os_number) == kind)
    others = CpuSet(number for one in alike for number in one.numbers)
    numbers = known & CpuSet(selector.numbers) or known - others or known
    kept = tuple(numbers)
    is_even = CpuSet.from_list(range_text(kept)) == numbers
    return [selector.replace(numbers=kept if is_even else kept[:1])]


def _keep_named(case: _Case, parts: _Parts) -> _Parts:
    """Take nothing away from parts of which nothing would be left."""
    return [part if _cpus(case, part) else _named(part) for part in parts]


def _named(part: str) -> str:
    mask = parse_mask(part) if part else None
    items = mask.parts[0] if mask else ()
    return ",".join(_written(mask, item) for item in items if mask and not item.taken_away)


def _keep_first_names(case: _Case, parts: _Parts) -> _Parts:
    """Leave every CPU to the first part that names it, unless parts may share CPUs."""
    return parts if case.request.share else _without_earlier(case, parts, lambda used: used)


def _keep_threads(case: _Case, parts: _Parts) -> _Parts:
    """Leave so many CPUs of a core, the first ones that are named, as --smt allows."""
    limit = case.request.smt
    if not isinstance(limit, int):
        return parts
    return _without_earlier(case, parts, lambda used: _whole(case, used, limit))


def _keep_cores(case: _Case, parts: _Parts) -> _Parts:
    """Leave every core to the first part that names it, where whole cores are to be reserved."""
    return _without_earlier(case, parts, lambda used: _whole(case, used)) if case.request.reserve else parts


def _without_earlier(case: _Case, parts: _Parts, spent: Callable[[CpuSet], CpuSet]) -> _Parts:
    """Take from every part what is spent by the parts before it."""
    kept: list[str] = []
    used = EMPTY
    for part in parts:
        kept.append(_without(case, part, spent(used)))
        used |= CpuSet(_cpus(case, kept[-1]))
    return kept


def _without(case: _Case, part: str, gone: CpuSet) -> str:
    """Return a part without some CPUs; "" if nothing is left."""
    if not part or gone.isdisjoint(CpuSet(_cpus(case, part))):
        return part
    mask = parse_mask(part)
    texts, excluded = [], EMPTY
    for item in mask.parts[0]:
        named = CpuSet(resolve(mask, item, case.available)[0])
        if item.taken_away or named.isdisjoint(gone):
            texts.append(_written(mask, item))
        elif item.cpus:
            kept = tuple(cpu for cpu in item.cpus if cpu not in gone)
            texts.append(item_text(item.replace(cpus=kept)) if kept else "")
        else:
            texts.append("" if named <= gone else _written(mask, item))
            excluded |= named & gone if texts[-1] else EMPTY
    if all(item.taken_away for item in mask.parts[0]):
        excluded = gone & case.machine.ordinary
    elif all(not text or item.taken_away for text, item in zip(texts, mask.parts[0], strict=True)):
        return ""
    if excluded:
        texts.append(item_text(Item(taken_away=True, cpus=tuple(excluded))))
    made = ",".join(filter(None, texts))
    return made if _cpus(case, made) else ""


def _fill(case: _Case, parts: _Parts) -> _Parts:
    """Give ranks without a part, and parts of which too little is left, free CPUs: as many as they asked for.

    Where any number of ranks will do, parts without a CPU are left out then.
    """
    ranks = case.request.ranks or len(parts)
    if len(parts) not in range(2 if ranks > 1 else 1, ranks + 1):
        return parts
    core_of = index_by_cpu(case.machine.at(Level.CORE))
    lists = [list(_cpus(case, part)) for part in parts] + [[] for _ in range(ranks - len(parts))]
    filled, asked = [*parts, *("" for _ in lists[len(parts) :])], [*case.asked, *(0 for _ in lists)]
    used, most = union(map(CpuSet, lists)), max(map(len, lists))
    for rank, cpus in enumerate(lists):
        cores = {core_of[cpu] for cpu in cpus}
        size = asked[rank] or most
        if len(cores) > case.request.reserve or not size:
            continue
        for cpu in _free(case, used):
            if len(cpus) >= size and len(cores) > case.request.reserve:
                break
            cpus.append(cpu)
            cores.add(core_of[cpu])
        used |= CpuSet(cpus)
        filled[rank] = ",".join(sequence_texts(cpus))
    return filled if case.request.ranks else [part for part in filled if part]


def _free(case: _Case, used: CpuSet) -> list[int]:
    """Return the CPUs of cores that are not used, then other free ones; at most so many as --smt allows."""
    limit = case.request.smt if isinstance(case.request.smt, int) else None
    usable = case.machine.ordinary & case.wanted
    cores = [core.cpus & usable for core in case.machine.at(Level.CORE) if core.cpus.isdisjoint(used)]
    fresh = CpuSet(cpu for core in cores for cpu in tuple(core)[:limit])
    return [*fresh, *(() if case.request.reserve or limit else usable - used - fresh)]


def _join(case: _Case, parts: _Parts) -> _Parts:
    """Make one part of all, for the strategy to divide."""
    kept = [part for part in parts if part]
    if not any("^" in part for part in kept):
        return [",".join(kept)]
    return [",".join(sequence_texts(tuple(dict.fromkeys(cpu for part in kept for cpu in _cpus(case, part)))))]


def _cpus(case: _Case, part: str) -> tuple[int, ...]:
    """Return the CPUs that a part names here, as far as they can be used."""
    if not part:
        return ()
    try:
        (cpus,), _ = select(parse_mask(part), case.available, allow_partial=True)
    except OmpbindError:
        return ()
    return tuple(cpu for cpu in cpus if cpu in case.wanted)


def _whole(case: _Case, cpus: CpuSet, least: int = 1) -> CpuSet:
    """Return the CPUs of all cores of which there are so many among some CPUs."""
    cores = touched(case.machine.at(Level.CORE), cpus)
    return union(core.cpus for core in cores if len(core.cpus & cpus) >= least)


_CURES = (
    _keep_usable,
    _keep_named,
    _keep_first_names,
    _keep_threads,
    _keep_cores,
    _fill,
    _join,
    lambda case, parts: ["all"],
    lambda case, parts: ["auto"],
    lambda case, parts: [str(case.machine.allowed & case.wanted)],
)
"""What is done to a mask, one after the other, until it works."""
