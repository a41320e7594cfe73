"""Resolve a mask on a machine: the CPUs of each part, in the order in which the text names them.

Each item is resolved alone, to CPUs in order and errors about the CPUs that cannot be used. A chain of
selectors starts with all allowed CPUs and restricts them from left to right. A part is the union of its
items in order, then its exclusions are removed. With cores {0,8} {1,9} {2,10} in NUMA node 0:

    node:0.core:0-1   →  0 8 1 9     (index 0-1 counts only cores that have allowed CPUs in node 0)
    ,^9               →  9 excluded
    part              →  0 8 1

Errors are collected, so that --allow-partial can report every dropped CPU.
"""

from collections.abc import Callable, Iterable, Iterator

from ompbind.cpuset import EMPTY, CpuSet, named, union
from ompbind.errors import MaskError
from ompbind.machine.model import Domain, Level, Machine
from ompbind.masks.mask import SELECTABLE, Item, Mask, Selector, part_error
from ompbind.record import Record

Parts = tuple[tuple[int, ...], ...]

Explain = Callable[[CpuSet], Iterable[tuple[str, str]]]
"""Returns for allowed CPUs that are not free the messages why, each with what is added to the hint."""


class UsableCpus(Record):
    """The CPUs of a machine that masks may name: `free` are the allowed CPUs that nothing else has."""

    machine: Machine
    free: CpuSet
    explain: Explain = lambda cpus: ()

    @property
    def default(self) -> CpuSet:
        """The CPUs that are used if no mask names any: free and not excluded by default."""
        return self.free - self.machine.excluded_by_default

    @property
    def in_order(self) -> tuple[int, ...]:
        """These CPUs, core by core in topology order."""
        return tuple(self.machine.table.sort(self.default))

    @property
    def state(self) -> str:
        """What messages call these CPUs: free or allowed."""
        return "allowed" if self.free == self.machine.allowed else "free"

    @property
    def hint(self) -> str:
        """The hint of errors that lists these CPUs."""
        return f"{self.state} CPUs: {self.free or 'none'}"


def resolve_mask(
    mask: Mask, usable: UsableCpus, *, allow_partial: bool = False
) -> tuple[Parts, tuple[str, ...]]:
    """Return the CPUs of every part of a mask, in order, and one text for each thing that was dropped.

    Raises MaskError for CPUs that cannot be used; with `allow_partial` only if a part has no other CPUs.
    """
    parts: list[tuple[int, ...]] = []
    dropped: list[str] = []
    for items in mask.parts:
        cpus, errors = _resolve_part(mask, items, usable)
        if errors and not allow_partial:
            raise errors[0]
        dropped.extend(error.message for error in errors)
        if not cpus:
            raise part_error(mask, items, "no CPU is left in this part of the mask", usable.hint)
        parts.append(cpus)
    return tuple(parts), tuple(dict.fromkeys(dropped))


Resolved = tuple[tuple[int, ...], list[MaskError]]
"""CPUs in the order in which they are named, and errors about CPUs that cannot be used."""


def _resolve_part(mask: Mask, items: tuple[Item, ...], usable: UsableCpus) -> Resolved:
    """Resolve one part; a part with only exclusions starts with all CPUs.

    An exclusion may name CPUs that are offline or not allowed; only CPUs that do not exist are an error.
    """
    errors: list[MaskError] = []
    included = dict.fromkeys(usable.in_order if all(item.excluded for item in items) else ())
    excluded: set[int] = set()
    for item in items:
        if item.cpus:
            cpus = tuple(cpu for cpu in item.cpus if cpu in usable.free)
            to_check = EMPTY if len(cpus) == len(item.cpus) else CpuSet(item.cpus)
            if item.excluded:
                to_check = to_check - usable.machine.online - usable.machine.offline
            errors.extend(_find_unusable(mask, item, to_check, usable))
        elif item.chain:
            cpus, item_errors = _resolve_chain(mask, item, usable)
            errors.extend(item_errors)
        else:
            cpus = usable.in_order
        if item.excluded:
            excluded.update(cpus)
        else:
            included.update(dict.fromkeys(cpus))
    return tuple(cpu for cpu in included if cpu not in excluded), errors


def _find_unusable(mask: Mask, item: Item, cpus: CpuSet, usable: UsableCpus) -> Iterator[MaskError]:
    machine = usable.machine
    limited = cpus & machine.online - machine.allowed
    causes = "; ".join(text for excluded, text in machine.restrictions if excluded & limited)
    for unusable, verbs, reason in (
        (cpus - machine.online - machine.offline, ("does", "do"), "not exist on this machine"),
        (cpus & machine.offline, ("is", "are"), "offline"),
        (limited, ("is", "are"), f"not allowed: {causes or 'by an affinity mask or a batch system'}"),
    ):
        if unusable:
            message = f"{named('CPU', unusable)} {verbs[len(unusable) > 1]} {reason}"
            hint = usable.hint
            if mask.text == str(unusable.first) and CpuSet.from_mask(mask.text) <= usable.free:
                hint += f"; a hex mask is written -m 0x{mask.text}"
            yield part_error(mask, (item,), message, hint)
    for message, advice in usable.explain(cpus & machine.allowed - usable.free):
        yield part_error(mask, (item,), message, usable.hint + advice)


def _resolve_chain(mask: Mask, item: Item, usable: UsableCpus) -> Resolved:
    """Resolve a chain of selectors; each selects within the domains of the selector before it."""
    machine = usable.machine
    errors: list[MaskError] = []
    outer_sets = [machine.allowed]
    for selector in item.chain:
        selected: list[CpuSet] = []
        for outer in outer_sets:
            domains = _find_selectable(machine, selector, outer)
            absent = CpuSet(number for number in selector.numbers if number not in domains)
            if item.excluded:
                absent = absent - _existing_os_numbers(machine, selector)
            if absent:
                message, hint = _explain_absent(usable, selector, absent, outer)
                errors.append(MaskError(message, text=mask.text, span=selector.span, hint=hint))
            selected.extend(domains[number].cpus & outer for number in selector.numbers if number in domains)
        outer_sets = selected
    # CPUs excluded by default are used only if a domain has no others, siblings before isolated CPUs
    excluded, siblings = machine.excluded_by_default, machine.isolated_siblings
    wanted = [cpus - excluded or cpus & siblings or cpus for cpus in outer_sets]
    selected_cpus = union(wanted)
    if not item.excluded and selected_cpus.isdisjoint(usable.free):  # otherwise the free ones are used
        errors.extend(_find_unusable(mask, item, selected_cpus, usable))
    return tuple(cpu for cpus in wanted for cpu in machine.table.sort(cpus & usable.free)), errors


def _find_selectable(machine: Machine, selector: Selector, outer: CpuSet) -> dict[int, Domain]:
    """Return the domains of a selector's level that overlap `outer`, by index or OS number as in the mask."""
    domains = enumerate(machine.at(selector.level, outer))
    numbered = ((domain.os_id if selector.by_os_number else index, domain) for index, domain in domains)
    return {number: domain for number, domain in numbered if number is not None}


def _existing_os_numbers(machine: Machine, selector: Selector) -> CpuSet:
    """Return the OS numbers of a level, with or without allowed CPUs; none for a selector by index."""
    if not selector.by_os_number:
        return EMPTY
    numbers = CpuSet(domain.os_id for domain in machine.at(selector.level) if domain.os_id is not None)
    nodes = machine.nodes if selector.level is Level.NODE else ()
    return numbers | CpuSet(node.number for node in nodes)


def _explain_absent(usable: UsableCpus, selector: Selector, absent: CpuSet, outer: CpuSet) -> tuple[str, str]:
    machine, level = usable.machine, selector.level
    selectable = _find_selectable(machine, selector, outer)
    is_first = outer == machine.allowed
    prefix = "#" if selector.by_os_number else ""
    where = "" if is_first else " of the selector before it"
    if not machine.at(level, outer):
        known = ", ".join(f"{known}:" for known in SELECTABLE if machine.at(known))
        what = f"no {level} among the allowed CPUs{where}" if machine.at(level) else f"no {level} domains"
        return f"this machine has {what}", f"use one of the selectors {known}"
    if not selectable and prefix:
        return f"{level} domains have no OS numbers on this machine", "leave out the '#'"
    hint = f"valid: {prefix}{CpuSet(selectable)}"
    os_numbers = CpuSet(_find_selectable(machine, selector.replace(by_os_number=True), outer))
    if not prefix and os_numbers and os_numbers != CpuSet(selectable):
        hint += f" (by OS number: #{os_numbers})"
    if level is Level.NODE and absent <= CpuSet(node.number for node in machine.nodes if not node.cpus):
        return f"{named(level.label, absent)} {'has' if len(absent) == 1 else 'have'} no CPU", hint
    if absent <= _existing_os_numbers(machine, selector) and is_first:
        return f"no CPU of {named(level.label, absent)} is allowed", hint
    kind = "OS number" if prefix else "index"
    return f"there is no {level} with {kind} {absent} among the allowed CPUs{where}", hint
