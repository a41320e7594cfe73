"""A mask on a machine: which CPUs each part names, in the order in which the text names them."""

from collections.abc import Iterator

from ompbind.cpuset import CpuSet, named, union
from ompbind.errors import MaskError
from ompbind.mask import Item, Mask, Selector
from ompbind.record import Record
from ompbind.topology import Domain, Level, Machine


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
            raise _fault(mask, items, "no CPU is left here", _allowed_hint(machine))
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
    named = [item for item in items if not item.taken_away]
    faults: list[MaskError] = []
    order: dict[int, None] = {}
    for cpus in [_resolve(mask, item, machine, faults) for item in named] or [_everything(machine)]:
        order.update(dict.fromkeys(cpus))
    for item in items:
        if item.taken_away:
            for cpu in _resolve(mask, item, machine, []):
                order.pop(cpu, None)
    return tuple(order), faults


def _everything(machine: Machine) -> tuple[int, ...]:
    return tuple(machine_order(machine, machine.allowed))


def _resolve(mask: Mask, item: Item, machine: Machine, faults: list[MaskError]) -> tuple[int, ...]:
    if item.cpus:
        wanted = CpuSet(item.cpus)
        if not wanted <= machine.allowed:
            faults.extend(_unusable(mask, item, wanted, machine))
        return tuple(cpu for cpu in item.cpus if cpu in machine.allowed)
    if not item.chain:
        return _everything(machine)
    cpus = machine.allowed
    for selector in item.chain:
        cpus = _narrow(mask, item, selector, (machine, cpus))
    return tuple(machine_order(machine, cpus))


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
            yield _fault(mask, (item,), _about(cpus, one, many), _allowed_hint(machine))


def _about(cpus: CpuSet, one: str, many: str) -> str:
    return f"{named('CPU', cpus)} {one if len(cpus) == 1 else many}"


def _narrow(mask: Mask, item: Item, selector: Selector, scope: tuple[Machine, CpuSet]) -> CpuSet:
    """Return the CPUs of the selected domains inside the scope's CPUs."""
    machine, inside = scope
    domains = [domain for domain in machine.at(selector.level) if domain.cpus & inside]
    if not domains:
        raise _fault(mask, (item,), f"this machine tells no {selector.level} domains", _allowed_hint(machine))
    known = dict(_keyed(domains, selector))
    for number in selector.numbers:
        if number not in known:
            kind, sign = ("number", "#") if selector.by_os_number else ("index", "")
            message = f"there is no {selector.level} with {kind} {number} among the allowed CPUs there"
            hint = f"those that can be named are {selector.level}:{sign}{CpuSet(known)}"
            raise _fault(mask, (item,), message, hint)
    return union(known[number].cpus for number in selector.numbers) & inside


def _keyed(domains: list[Domain], selector: Selector) -> Iterator[tuple[int, Domain]]:
    for index, domain in enumerate(domains):
        if not selector.by_os_number:
            yield index, domain
        elif domain.os_id is not None:
            yield domain.os_id, domain


def _allowed_hint(machine: Machine) -> str:
    return f"allowed here: {machine.allowed}, as in --mask '{machine.allowed}'"


def _fault(mask: Mask, items: tuple[Item, ...], message: str, hint: str) -> MaskError:
    span = (items[0].span[0], items[-1].span[1])
    return MaskError(message, text=mask.text, span=span, hint=hint)
