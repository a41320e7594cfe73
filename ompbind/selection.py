"""A mask on a machine: which CPUs each part names, in the order in which the text names them."""

from collections.abc import Iterator, Mapping, Sequence

from ompbind.cpuset import CpuSet, named
from ompbind.errors import MaskError
from ompbind.mask import Item, Mask, Selector, part_fault
from ompbind.record import Record
from ompbind.topology import Domain, Level, Machine, touched


class Selection(Record):
    """The CPUs of every part, in order, and the texts of what had to be dropped."""

    parts: tuple[tuple[int, ...], ...]
    dropped: tuple[str, ...] = ()


def select(mask: Mask, machine: Machine, *, allow_partial: bool = False) -> Selection:
    """Resolve a mask on a machine; CPUs that cannot be used are a MaskError, or dropped if partial."""
    parts: list[tuple[int, ...]] = []
    dropped: list[str] = []
    for items in mask.parts:
        cpus, faults = _resolve_part(mask, items, machine)
        if faults and not allow_partial:
            raise faults[0]
        dropped.extend(fault.message for fault in faults)
        if not cpus:
            raise part_fault(mask, items, "no CPU is left here", _allowed_hint(machine))
        parts.append(cpus)
    return Selection(parts=tuple(parts), dropped=tuple(dropped))


def machine_order(machine: Machine, cpus: CpuSet) -> Iterator[int]:
    """Yield `cpus` as one walks the machine: core after core, siblings next to each other."""
    for core in machine.at(Level.CORE):
        yield from core.cpus & cpus


def _resolve_part(
    mask: Mask, items: tuple[Item, ...], machine: Machine
) -> tuple[tuple[int, ...], list[MaskError]]:
    """Resolve one part; a part that only takes away begins with everything."""
    wanted = [item for item in items if not item.taken_away]
    faults: list[MaskError] = []
    order: dict[int, None] = {}
    for cpus in [_resolve(mask, item, machine, faults) for item in wanted] or [_everything(machine)]:
        order.update(dict.fromkeys(cpus))
    for item in items:
        if item.taken_away:
            for cpu in _resolve(mask, item, machine, []):
                order.pop(cpu, None)
            faults.extend(_absent(mask, item, machine))
    return tuple(order), faults


def _everything(machine: Machine) -> tuple[int, ...]:
    return tuple(machine_order(machine, machine.ordinary))


def _resolve(mask: Mask, item: Item, machine: Machine, faults: list[MaskError]) -> tuple[int, ...]:
    if item.cpus:
        wanted = CpuSet(item.cpus)
        if not wanted <= machine.allowed:
            faults.extend(_unusable(mask, item, wanted, machine))
        return tuple(cpu for cpu in item.cpus if cpu in machine.allowed)
    if not item.chain:
        return _everything(machine)
    insides = [machine.allowed]
    for selector in item.chain:
        steps = [_Step(mask=mask, item=item, selector=selector, inside=inside) for inside in insides]
        insides = [found for step in steps for found in _narrow(step, machine)]
    kept = [inside & machine.ordinary or inside for inside in insides]
    return tuple(cpu for inside in kept for cpu in machine_order(machine, inside))


def _absent(mask: Mask, item: Item, machine: Machine) -> Iterator[MaskError]:
    """Yield a fault for CPUs to take away that do not exist: that is a slip, unlike CPUs not allowed."""
    absent = CpuSet(item.cpus) - machine.online - machine.offline
    return (fault for fault in _unusable(mask, item, absent, machine) if absent)


def _unusable(mask: Mask, item: Item, wanted: CpuSet, machine: Machine) -> Iterator[MaskError]:
    """Yield a fault for each reason why wanted CPUs cannot be used: absent, offline, not allowed."""
    why = "not allowed here: outside the affinity mask or cgroup that ompbind was started in"
    for cpus, one, many in (
        (
            wanted - machine.online - machine.offline,
            "does not exist on this machine",
            "do not exist on this machine",
        ),
        (wanted & machine.offline, "is offline", "are offline"),
        ((wanted & machine.online) - machine.allowed, f"is {why}", f"are {why}"),
    ):
        if cpus:
            yield part_fault(mask, (item,), _about(cpus, one, many), _allowed_hint(machine))


def _about(cpus: CpuSet, one: str, many: str) -> str:
    return f"{named('CPU', cpus)} {one if len(cpus) == 1 else many}"


class _Step(Record):
    """One selector of a chain, at work inside the CPUs that the selectors before it have left."""

    mask: Mask
    item: Item
    selector: Selector
    inside: CpuSet


def _narrow(step: _Step, machine: Machine) -> list[CpuSet]:
    """Return the CPUs of each selected domain, those inside what is left."""
    selector = step.selector
    domains = touched(machine.at(selector.level), step.inside)
    if not domains:
        message = f"this machine tells no {selector.level} domains"
        raise part_fault(step.mask, (step.item,), message, _allowed_hint(machine))
    known = {number: domain for number, domain in _keyed(domains, selector) if number is not None}
    for number in selector.numbers:
        if number not in known:
            raise part_fault(step.mask, (step.item,), *_unknown(selector, number, known))
    return [known[number].cpus & step.inside for number in selector.numbers]


def _unknown(selector: Selector, number: int, known: Mapping[int, Domain]) -> tuple[str, str]:
    """Return the message and the hint for a domain that is not there."""
    kind, sign = ("number", "#") if selector.by_os_number else ("index", "")
    if not known:
        return (
            f"{selector.level} domains have no OS numbers here",
            f"leave the '#' out, as in {selector.level}:0",
        )
    hint = f"those that can be named are {selector.level}:{sign}{CpuSet(known)}"
    os_ids = CpuSet(one.os_id for one in known.values() if one.os_id is not None)
    if not selector.by_os_number and os_ids and os_ids != CpuSet(known):
        hint += f", by OS number {selector.level}:#{os_ids}"
    return f"there is no {selector.level} with {kind} {number} among the allowed CPUs there", hint


def _keyed(domains: Sequence[Domain], selector: Selector) -> Iterator[tuple[int | None, Domain]]:
    """Pair domains with the numbers by which the selector names them."""
    for index, domain in enumerate(domains):
        yield (domain.os_id if selector.by_os_number else index), domain


def _allowed_hint(machine: Machine) -> str:
    return f"allowed here: {machine.allowed}, as in --mask '{machine.allowed}'"
