"""The settings in the variables of a framework, each as values for fields of a request.

A *foreign setting* is what one variable requests, or what the framework does if the variable is not set.
"""

import re
from collections.abc import Mapping

from ompbind.compat.frameworks import (
    Environment,
    Framework,
    FrameworkInput,
    Selection,
    choose_strategy,
    count_own_workers,
    find_selection,
)
from ompbind.cpuset import EMPTY, CpuSet, count, named
from ompbind.errors import MaskError
from ompbind.machine.model import Level, Machine
from ompbind.masks.mask import Item, Mask, Selector
from ompbind.masks.parse import parse_mask
from ompbind.planning.request import DEFAULT_STRATEGY
from ompbind.record import Record


class ForeignSetting(Record):
    """What one variable requests: `meaning` in words, `request_fields` as values for fields of `Request`.

    `value` is "" if the variable is not set. Each option in `overridden_by` overrides the setting, and an
    option with the name of a field overrides that field. Some settings have no effect if ranks are not bound
    (`requires_binding`), or if a mask selects the CPUs (`requires_no_mask`). `objection` says why another
    variable overrides the setting, `warning` which part of the value cannot be used.
    """

    name: str
    value: str
    meaning: str
    request_fields: Mapping[str, object]
    overridden_by: tuple[str, ...] = ()
    requires_binding: bool = False
    requires_no_mask: bool = False
    objection: str = ""
    warning: str = ""


def make_foreign_settings(names: Framework, source: FrameworkInput) -> tuple[ForeignSetting, ...]:
    """Return the settings in the variables of a framework; an empty variable counts as not set.

    Raises MaskError, with the variable and the position, for a value that is not valid.
    """
    env = source.env
    settings = [bind := _make_bind_setting(names, source)]
    if bind.request_fields.get("strategy") == "nodes":
        settings.append(_make_order_setting(names, source.machine))
    if is_sliced := _has_slices(names, env):
        settings.append(_make_slices_setting(names, source))
    if env.get(names.reserve, "").strip():
        setting = _make_service_setting(names.reserve, env[names.reserve])
        has_lists = source.for_workers and not _is_automatic(names, env)
        reason = f"{names.bind} has CPU lists, and {names.title} then reserves no CPUs"
        settings.append(setting.replace(objection=reason) if has_lists else setting)
    elif names.reserve and _is_automatic(names, env):
        settings.append(_make_default_service(names, source))
    if env.get(names.nodes, "").strip():
        setting = _make_nodes_setting(names.nodes, source)
        settings.append(setting.replace(objection=f"{names.slices} is set") if is_sliced else setting)
    if env.get(names.memory, "").strip():
        settings.append(_make_memory_setting(names.memory, env[names.memory]))
    return tuple(settings)


def _make_bind_setting(names: Framework, source: FrameworkInput) -> ForeignSetting:
    """Return which CPUs ranks get: selected by the framework, lists, or no binding."""
    text = source.env.get(names.bind, "")
    word = text.strip()
    if _is_automatic(names, source.env):
        selection = find_selection(names, source.machine)
        strategy = choose_strategy(selection, source.machine)
        fields = {"strategy": strategy, **(selection.request_fields if selection else {})}
        if count_own_workers(names, source) > 1:  # each of them is to have a domain
            fields["strategy"] = DEFAULT_STRATEGY
        if _has_slices(names, source.env):
            del fields["strategy"]  # see _make_slices_setting
        return ForeignSetting(
            name=names.bind,
            value=word,
            meaning=f"the CPUs that {names.title} selects",
            request_fields=fields,
            overridden_by=("mask",),
        )
    unbound = word == names.unbound
    replacing = ("mask", "strategy", "cores")
    return ForeignSetting(
        name=names.bind,
        value=word,
        meaning="no binding (-m none)" if unbound else "the CPUs of ranks (-m)",
        request_fields={"mask": parse_mask(word) if unbound else _parse_lists(names, text)},
        overridden_by=(*replacing, "smt", "sibling", "bind") if unbound else replacing,
    )


def _make_order_setting(names: Framework, machine: Machine) -> ForeignSetting:
    """Return the order of NUMA nodes: by OS number, for vLLM those whose memory is not allowed last."""
    last = EMPTY
    if names.nodes and machine.memory_allowed is not None:
        last = CpuSet(node.number for node in machine.nodes) - machine.memory_allowed
    return ForeignSetting(
        name=names.bind,
        value="",
        meaning="",
        request_fields=_number_nodes(machine, names.bind, last),
        overridden_by=("strategy",),
        requires_no_mask=True,
    )


def _is_automatic(names: Framework, env: Environment) -> bool:
    return env.get(names.bind, "").strip() in ("", names.automatic)


def _has_slices(names: Framework, env: Environment) -> bool:
    return env.get(names.slices, "").strip() not in ("", "0")


def _make_slices_setting(names: Framework, source: FrameworkInput) -> ForeignSetting:
    """Return equal shares of the machine, in the order of the OS numbers of NUMA nodes."""
    return ForeignSetting(
        name=names.slices,
        value=source.env[names.slices].strip(),
        meaning="equal shares of the machine, whole cores each",
        request_fields={"strategy": "compact", **_number_nodes(source.machine, names.slices)},
        overridden_by=("strategy", "cores"),
        requires_no_mask=True,
    )


def _number_nodes(machine: Machine, name: str, last: CpuSet = EMPTY) -> dict[str, Mask]:
    """Return the field of a request for all NUMA nodes by their OS numbers; none if there are no nodes."""
    usable = (node.number for node in machine.nodes if not node.cpus.isdisjoint(machine.allowed))
    numbers = sorted(usable, key=lambda number: (number in last, number))
    return {"nodes": _select_nodes(",".join(map(str, numbers)), name)} if numbers else {}


def _parse_lists(names: Framework, text: str) -> Mask:
    words = " or ".join(repr(word) for word in (names.automatic, names.unbound) if word)
    hint = f"{names.title} accepts {words}, or one list per rank, as in '0-31|32-63'"
    mask = _parse(names.bind, text, hint)
    if mask.word is not None:
        raise _make_error(names.bind, text, f"{names.title} does not accept {text.strip()!r}", hint)
    return mask


_SERVICE_OPTIONS = ("service_total", "service_cores", "reserve", "reserve_total")


def _make_service_setting(name: str, text: str) -> ForeignSetting:
    """Return the number of CPUs of all ranks for threads that do not compute."""
    number = text.strip()
    if not (number.isascii() and number.isdigit() and len(number) <= 5):
        hint = "give the number of CPUs to reserve for all ranks together, as in '1'"
        raise _make_error(name, text, f"{number!r} is not a number of CPUs", hint)
    return ForeignSetting(
        name=name,
        value=number,
        meaning="service CPUs of all ranks together",
        request_fields={"service_total": int(number)},
        overridden_by=_SERVICE_OPTIONS,
        requires_binding=True,
    )


def _make_default_service(names: Framework, source: FrameworkInput) -> ForeignSetting:
    """Return the CPUs that a framework reserves by default; ranks with too few CPUs have fewer."""
    selection = find_selection(names, source.machine) or Selection(request_fields={})
    words = (re.split("[=.]", word)[0].replace("_", "-") for word in source.command)
    connector = bool(names.connector) and names.connector in words
    workers = count_own_workers(names, source)
    total, each = selection.service_total, (selection.service_each + connector) * workers
    texts = [f"{count(each, 'service CPU')} per rank"] if each else []
    texts += [f"{count(total, 'service CPU')} of all ranks together"] if total else []
    return ForeignSetting(
        name=names.reserve,
        value="",
        meaning=" and ".join(texts) + (f", with {names.connector}" if connector else ""),
        request_fields={"service_total": total, "service_each": each, "service_optional": True},
        overridden_by=(*_SERVICE_OPTIONS, "cores", "threads"),
        requires_binding=True,
        requires_no_mask=True,
    )


def _make_memory_setting(name: str, text: str) -> ForeignSetting:
    """Return the memory that each rank will allocate; with 0 GiB the framework selects the size."""
    number = text.strip()
    if not (number.isascii() and number.isdigit() and len(number) <= 9):
        message = f"{number!r} is not a number of GiB"
        raise _make_error(name, text, message, "give the GiB of each rank, as in '40'")
    return ForeignSetting(
        name=name,
        value=number,
        meaning=f"{number} GiB of memory for each rank"
        if int(number)
        else "memory of a size that the server selects",
        request_fields={"memory_bytes": int(number) << 30},
    )


def _make_nodes_setting(name: str, source: FrameworkInput) -> ForeignSetting:
    """Return the NUMA nodes of ranks, by their OS numbers, in the order of ranks.

    Nodes that do not exist, or whose memory is not allowed, are dropped if others remain.
    """
    text, machine = source.env[name], source.machine
    nodes = _select_nodes(text, name)
    existing = usable = CpuSet(node.number for node in machine.nodes)
    if machine.memory_allowed is not None:
        usable &= machine.memory_allowed
    (items,) = nodes.parts
    numbers = CpuSet(number for item in items for selector in item.chain for number in selector.numbers)
    if not numbers.isdisjoint(usable):
        kept = []
        for item in items:
            (selector,) = item.chain
            if own := tuple(number for number in selector.numbers if number in usable):
                kept.append(item.replace(chain=(selector.replace(numbers=own),)))
        nodes = nodes.replace(parts=(tuple(kept),))
    return ForeignSetting(
        name=name,
        value=text.strip(),
        meaning="the NUMA nodes to use, in this order",
        request_fields={"nodes": nodes},
        requires_binding=True,
        requires_no_mask=True,
        warning=_explain_nodes(name, numbers, existing, usable),
    )


def _explain_nodes(name: str, numbers: CpuSet, existing: CpuSet, usable: CpuSet) -> str:
    """Return the warning about NUMA nodes that do not exist, or whose memory is not allowed; "" if none."""
    if numbers <= existing - usable:
        return f"{name} has only NUMA nodes whose memory is not allowed: ranks use memory of other nodes"
    texts = []
    if absent := numbers - existing:
        texts.append(f"there is no {named('NUMA node', absent)}")
    if forbidden := numbers & existing - usable:
        texts.append(f"{named('NUMA node', forbidden)} not used, because its memory is not allowed")
    return f"{name}: {'; '.join(texts)}" if texts else ""


def _select_nodes(text: str, name: str) -> Mask:
    """Return the mask of the NUMA nodes with the OS numbers in a text, in their order."""
    hint = "give the numbers of NUMA nodes in the order of ranks, as in '1,0' or '0-3'"
    invalid = re.search(r"[^0-9, \t-]", text)
    if invalid:
        message = f"{invalid[0]!r} is not allowed in a list of NUMA nodes"
        raise MaskError(f"{name}: {message}", text=text, span=invalid.span(), hint=hint)
    (items,) = _parse(name, text, hint).parts
    used: set[int] = set()
    selected = []
    for item in items:
        if repeated := used.intersection(item.cpus):
            message = f"{name}: NUMA node {min(repeated)} is named twice"
            raise MaskError(message, text=text, span=item.span, hint="name each node once")
        used.update(item.cpus)
        selector = Selector(level=Level.NODE, numbers=item.cpus, by_os_number=True, span=item.span)
        selected.append(Item(span=item.span, chain=(selector,)))
    return Mask(text=text, parts=(tuple(selected),))


def _parse(name: str, text: str, hint: str) -> Mask:
    """Parse the lists of a variable; unlike in masks, spaces are allowed around every number."""
    items = re.split(r"([,|])", text)
    # spaces around a dash move to the end of their item, so that positions stay right
    squeezed = "".join(re.sub(r"[ \t]*-[ \t]*", "-", item).ljust(len(item)) for item in items)
    try:
        return parse_mask(squeezed).replace(text=text)
    except MaskError as error:
        raise MaskError(f"{name}: {error.message}", text=text, span=error.span, hint=hint) from None


def _make_error(name: str, text: str, message: str, hint: str) -> MaskError:
    """Return the error about a whole value."""
    start = len(text) - len(text.lstrip())
    return MaskError(f"{name}: {message}", text=text, span=(start, len(text.rstrip())), hint=hint)
