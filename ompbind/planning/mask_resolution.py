"""A mask on a machine: which CPUs each part names, in the order in which the text names them."""

from collections.abc import Iterator

from ompbind.cpuset import EMPTY, CpuSet, named, union
from ompbind.errors import MaskError
from ompbind.machine.model import Domain, Level, Machine, touched
from ompbind.masks.grammar import Item, Selector
from ompbind.masks.mask import Mask, part_fault
from ompbind.planning.occupancy import AvailableCpus, in_use

Parts = tuple[tuple[int, ...], ...]


def select(
    mask: Mask, available: AvailableCpus, *, allow_partial: bool = False
) -> tuple[Parts, tuple[str, ...]]:
    """Return the CPUs of every part of a mask, in order, and texts on what had to be dropped.

    CPUs that cannot be used are a MaskError, or dropped if partial.
    """
    parts: list[tuple[int, ...]] = []
    dropped: list[str] = []
    for items in mask.parts:
        cpus, faults = _resolve_part(mask, items, available)
        if faults and not allow_partial:
            raise faults[0]
        dropped.extend(fault.message for fault in faults)
        if not cpus:
            raise part_fault(mask, items, "no CPU is left here", _allowed_hint(available))
        parts.append(cpus)
    return tuple(parts), tuple(dict.fromkeys(dropped))


def machine_order(machine: Machine, cpus: CpuSet) -> Iterator[int]:
    """Yield `cpus` as one walks the machine: core after core, siblings next to each other."""
    for core in machine.at(Level.CORE):
        if not core.cpus.isdisjoint(cpus):  # most are, and the set of what is common costs more
            yield from core.cpus & cpus


Resolved = tuple[tuple[int, ...], list[MaskError]]
"""CPUs in the order in which they are named, and what cannot be used."""


def resolve(mask: Mask, item: Item, available: AvailableCpus) -> Resolved:
    """Return the CPUs that one item of a mask names, without what cannot be used.

    CPUs to take away may well be offline or not allowed; only what is not there at all is a slip.
    """
    if item.cpus:
        free = available.free
        usable = tuple(cpu for cpu in item.cpus if cpu in free)
        wanted = EMPTY if len(usable) == len(item.cpus) else CpuSet(item.cpus)
        if item.taken_away:
            wanted = wanted - available.machine.online - available.machine.offline
        return usable, list(_unusable(mask, item, wanted, available))
    if item.chain:
        return _resolve_chain(mask, item, available)
    return _everything(available), []


def _resolve_part(mask: Mask, items: tuple[Item, ...], available: AvailableCpus) -> Resolved:
    """Resolve one part; a part that only takes away begins with everything."""
    faults: list[MaskError] = []
    order: dict[int, None] = {}
    gone: set[int] = set()
    for item in items:
        cpus, found = resolve(mask, item, available)
        faults.extend(found)
        if item.taken_away:
            gone.update(cpus)
        else:
            order.update(dict.fromkeys(cpus))
    if all(item.taken_away for item in items):
        order = dict.fromkeys(_everything(available))
    return tuple(cpu for cpu in order if cpu not in gone), faults


def _everything(available: AvailableCpus) -> tuple[int, ...]:
    return tuple(machine_order(available.machine, available.ordinary))


def _unusable(mask: Mask, item: Item, wanted: CpuSet, available: AvailableCpus) -> Iterator[MaskError]:
    """Yield a fault for each reason why wanted CPUs cannot be used: absent, offline, not allowed."""
    machine = available.machine
    why = "not allowed here: outside the affinity mask or cgroup that ompbind was started in"
    for cpus, verbs, fault in (
        (wanted - machine.online - machine.offline, ("does", "do"), "not exist on this machine"),
        (wanted & machine.offline, ("is", "are"), "offline"),
        ((wanted & machine.online) - machine.allowed, ("is", "are"), why),
    ):
        if cpus:
            message = f"{named('CPU', cpus)} {verbs[len(cpus) > 1]} {fault}"
            yield part_fault(mask, (item,), message, _allowed_hint(available))
    avoided = wanted & machine.allowed & available.avoided
    if avoided:
        yield part_fault(mask, (item,), in_use(available, avoided), _allowed_hint(available))


def _busy(mask: Mask, item: Item, wanted: CpuSet, available: AvailableCpus) -> Iterator[MaskError]:
    """Yield a fault for domains of which nothing is free; else they stand for what is."""
    return (fault for fault in _unusable(mask, item, wanted, available) if wanted <= available.avoided)


def _resolve_chain(mask: Mask, item: Item, available: AvailableCpus) -> Resolved:
    """Resolve selectors, each one inside what those before it have left."""
    machine = available.machine
    faults: list[MaskError] = []
    insides = [machine.allowed]
    for selector in item.chain:
        narrowed: list[CpuSet] = []
        for inside in insides:
            known = nameable(machine, selector, inside)
            absent = CpuSet(number for number in selector.numbers if number not in known)
            if item.taken_away:
                absent = absent - _existing(machine, selector)
            if absent:
                message, hint = _unknown(available, selector, absent, inside)
                faults.append(MaskError(message, text=mask.text, span=selector.span, hint=hint))
            narrowed.extend(known[number].cpus & inside for number in selector.numbers if number in known)
        insides = narrowed
    kept = [inside - machine.excluded_by_default or inside for inside in insides]
    if not item.taken_away:
        faults.extend(_busy(mask, item, union(kept), available))
    return tuple(cpu for inside in kept for cpu in machine_order(machine, inside & available.free)), faults


def nameable(machine: Machine, selector: Selector, inside: CpuSet) -> dict[int, Domain]:
    """Return the domains that a selector of this level can name inside some CPUs, by its kind of number."""
    domains = touched(machine.at(selector.level), inside)
    keyed = ((one.os_id if selector.by_os_number else index, one) for index, one in enumerate(domains))
    return {number: domain for number, domain in keyed if number is not None}


def _existing(machine: Machine, selector: Selector) -> CpuSet:
    """Return the OS numbers of a level, with or without allowed CPUs; none for a selector by index."""
    if not selector.by_os_number:
        return EMPTY
    numbers = CpuSet(one.os_id for one in machine.at(selector.level) if one.os_id is not None)
    nodes = machine.nodes if selector.level is Level.NODE else ()
    return numbers | CpuSet(node.number for node in nodes)


def _unknown(available: AvailableCpus, selector: Selector, absent: CpuSet, inside: CpuSet) -> tuple[str, str]:
    """Return the message and the hint for domains that cannot be named inside some CPUs."""
    machine, level = available.machine, selector.level
    known = nameable(machine, selector, inside)
    sign = "#" if selector.by_os_number else ""
    if not touched(machine.at(level), inside):
        where = "among the CPUs there" if machine.at(level) else "domains"
        return f"this machine has no {level} {where}", _allowed_hint(available)
    if not known and sign:
        return f"{level} domains have no OS numbers here", f"leave the '#' out, as in {level}:0"
    hint = f"those that can be named are {level}:{sign}{CpuSet(known)}"
    numbered = CpuSet(nameable(machine, selector.replace(by_os_number=True), inside))
    if not sign and numbered and numbered != CpuSet(known):
        hint += f", by OS number {level}:#{numbered}"
    if level is Level.NODE and absent <= CpuSet(node.number for node in machine.nodes if not node.cpus):
        return f"{named(level.label, absent)} {'has' if len(absent) == 1 else 'have'} no CPU", hint
    if absent <= _existing(machine, selector) and inside == machine.allowed:
        return f"no CPU of {named(level.label, absent)} is allowed here", hint
    kind = "number" if sign else "index"
    return f"there is no {level} with {kind} {absent} among the allowed CPUs there", hint


def _allowed_hint(available: AvailableCpus) -> str:
    word = "free" if available.avoided else "allowed"
    return f"{word} here: {available.free}"
