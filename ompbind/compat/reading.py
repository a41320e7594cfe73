"""Read the CPU variables of a framework as planning options, and replace them in the environment of ranks.

A *foreign setting* is what one variable requests, or what the framework does if the variable is not set, as
values for fields of a request. An option of ompbind overrides the setting of a framework for the same thing.

In a rank, the framework would read its variables and bind threads again: so some variables are removed, and
the variable that binds gets a value with which the framework keeps the CPUs of the rank.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from ompbind.compat import frameworks
from ompbind.compat.frameworks import FRAMEWORKS, Framework, FrameworkInput, Selection
from ompbind.cpuset import EMPTY, CpuSet, count, named
from ompbind.errors import MaskError
from ompbind.machine.model import Level
from ompbind.masks.mask import Item, Mask, MaskWord, Selector, parse_mask
from ompbind.openmp.binding import Bind
from ompbind.openmp.runtimes import KMP_READERS
from ompbind.planning.request import DEFAULT_STRATEGY, RANK_LIMIT, Compat, Request
from ompbind.programs.libraries import DetectionMethod
from ompbind.text import whole_number


class ForeignSetting(NamedTuple):
    """What one variable requests: `meaning` in words, `request_fields` as values for fields of `Request`.

    `value` is "" if the variable is not set. Each option in `overridden_by` overrides the setting. Some have
    no effect if ranks are not bound (`requires_binding`), or if a mask selects the CPUs (`requires_no_mask`).
    `objection` says why another variable overrides the setting, `warning` what of the value cannot be used.
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


_OPTIONS: Mapping[str, str] = {"strategy": "-s", "smt": "--smt", "sibling": "--sibling"}
"""The options for fields of a request that a note shows."""

_SERVICE_OPTIONS = ("service_cores", "reserve", "reserve_total")


def fill_request(
    request: Request, framework: str, source: FrameworkInput, given: Collection[str] = ()
) -> Request:
    """Return the request with the settings of a framework, except where an option is `given`."""
    names = FRAMEWORKS[framework]
    if source.for_workers:
        replicas = frameworks.count_workers(names.replace(worker_options=()), source.command)
        request = request.replace(replicas=replicas)
    read: list[str] = []
    others: list[str] = []
    warnings: list[str] = []
    for setting in make_foreign_settings(names, source):
        reason = _find_objection(setting, request, given)
        fields = {name: value for name, value in setting.request_fields.items() if name not in given}
        request = request if reason else request.replace(**fields)
        shown = [f"{_OPTIONS[name]} {value}" for name, value in fields.items() if value and name in _OPTIONS]
        meaning = setting.meaning + (f" ({' '.join(shown)})" if shown else "")
        if not setting.value:
            others += [] if reason or not setting.meaning else [f"{setting.name} is not set: {meaning}"]
        elif reason:
            others.append(f"{setting.name}={setting.value} is not used: {reason}")
        else:
            read.append(f"{setting.name}={setting.value} is read as {meaning}")
            warnings += [setting.warning] if setting.warning else []
    others.extend(names.explain(source, request))
    warnings.extend(_explain_workers(framework, source, request))
    others.append(names.effect)
    work, variables = request.workload, names.kmp_variables
    if not (work and work.has(*KMP_READERS, method=DetectionMethod.PRELOADED)):
        variables = ()
    if variables:
        values = " and ".join(f"{name}={value}" for name, value in variables)
        others.append(f"ranks get {values} unless you set them, as {names.title} does for this runtime")
    lists = len(request.mask.parts) if request.mask else 0
    hint = ""  # what to do if the CPU lists are for the workers of one server
    if "mask" not in given and names.workers and lists > 1:
        hint = f"for one server with {lists} workers ({names.workers} {lists}), "
        hint += f"{_render_remedy(framework, lists)}; for {lists} servers, use -n {lists}"
    compat = Compat(
        framework=framework,
        read=tuple(read),
        others=tuple(others),
        warnings=tuple(warnings),
        divided=names.divided,
        workers=hint,
        variables=variables,
    )
    return request.replace(compat=compat)


def make_rank_variables(
    framework: str, command: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return the variables of a framework that are removed from ranks, and the (NAME, value) pairs to set.

    Values may have fields such as {cpus}.
    """
    names = FRAMEWORKS[framework]
    nodes = "" if names.node_option in frameworks.read_options(command) else names.nodes  # positions in it
    removed = filter(None, (names.bind, names.reserve, nodes, names.slices))
    lists = [names.inside] * (_find_first(names, command) + 1)
    return tuple(removed), ((names.bind, "|".join(lists)),)


def _find_objection(setting: ForeignSetting, request: Request, given: Collection[str]) -> str:
    overriding = next((option for option in setting.overridden_by if option in given), None)
    if overriding:
        return f"--{overriding.replace('_', '-')} is given"
    if setting.objection:
        return setting.objection
    if setting.requires_binding and request.is_unbound:
        return "ranks are not bound"
    if setting.requires_no_mask and request.mask is not None and request.mask.word is not MaskWord.AUTO:
        return "the mask selects the CPUs"
    if "service_total" in setting.request_fields and request.bind is Bind.EXACT:
        return "--bind exact leaves no thread that could use service CPUs"
    return ""


def _explain_workers(framework: str, source: FrameworkInput, request: Request) -> Iterator[str]:
    """Yield a warning if the command is a server that starts several workers, and ranks are bound.

    If the plan is for the workers of a server, yield a warning if their number is not the number of ranks.
    """
    names = FRAMEWORKS[framework]
    workers = frameworks.count_workers(names, source.command)
    selecting = {names.node_option, names.first_option} & frameworks.read_options(source.command).keys()
    if source.for_workers and selecting and not source.env.get(names.plugin):
        yield f"start the server without {min(selecting)}: it would select from these lists again"
    if frameworks.count_own_workers(names, source) > 1 or workers == 1 or request.is_unbound:
        return
    if not source.for_workers:
        remedy = _render_remedy(framework, workers)
        if names.plugin:
            remedy += f", or set {names.plugin}=1 if ompbind is installed beside {names.title}"
        yield f"each server starts {workers} workers, and a rank has the CPUs of one worker; {remedy}"
    elif request.rank_count not in (None, workers):
        lists = count(request.rank_count or 0, "CPU list")
        yield f"the server starts {workers} workers, and the plan has {lists}; use -n {workers}"


def _render_remedy(framework: str, workers: int) -> str:
    plan = f"ompbind plan -n {workers} --compat {framework} --format {framework}"
    return f'use eval "$({plan})" instead of ompbind run'


def make_foreign_settings(names: Framework, source: FrameworkInput) -> tuple[ForeignSetting, ...]:
    """Return the settings in the variables of a framework; an empty variable counts as not set.

    Raises MaskError, with the variable and the position, for a value that is not valid.
    """
    env, machine = source.env, source.machine
    values = {name: env.get(name, "").strip() for name in (names.bind, names.slices, names.reserve)}
    is_automatic = values[names.bind] in ("", names.automatic)
    has_slices = values[names.slices] not in ("", "0")
    if is_automatic:
        bind = _make_automatic_setting(names, source, has_slices=has_slices)
    else:
        bind = _make_bind_setting(names, source)
    settings = [bind]
    if bind.request_fields.get("strategy") == "nodes":  # for vLLM, nodes whose memory is not allowed are last
        last = EMPTY
        if names.nodes and machine.memory_allowed is not None:
            last = CpuSet(node.number for node in machine.nodes) - machine.memory_allowed
        fields = _number_nodes(names, source, last)
        settings.append(
            ForeignSetting(names.bind, "", "", fields, overridden_by=("strategy",), requires_no_mask=True)
        )
    if has_slices:
        meaning, replacing = "equal shares of the machine, whole cores each", ("strategy", "cores")
        fields = {"strategy": "compact", **_number_nodes(names, source)}
        slices = ForeignSetting(names.slices, values[names.slices], meaning, fields, replacing, False, True)
        settings.append(slices)
    if values[names.reserve]:
        setting = _make_service_setting(names.reserve, env[names.reserve])
        has_lists = source.for_workers and not is_automatic
        reason = f"{names.bind} has CPU lists, and {names.title} then reserves no CPUs"
        settings.append(setting._replace(objection=reason) if has_lists else setting)
    elif names.reserve and is_automatic:
        settings.append(_make_default_service(names, source))
    settings += _make_nodes_setting(names, source)
    if env.get(names.memory, "").strip():
        settings.append(_make_memory_setting(names.memory, env[names.memory]))
    return tuple(settings)


def _make_automatic_setting(names: Framework, source: FrameworkInput, *, has_slices: bool) -> ForeignSetting:
    selection = frameworks.find_selection(names, source.machine) or Selection(request_fields={})
    strategies = (name for name, level in selection.strategies.items() if len(source.machine.at(level)) > 1)
    fields = {"strategy": next(strategies, "nodes"), **selection.request_fields}
    if frameworks.count_own_workers(names, source) > 1:  # each of them is to have a domain
        fields["strategy"] = DEFAULT_STRATEGY
    if has_slices:
        del fields["strategy"]  # slices have their own
    value, meaning = source.env.get(names.bind, "").strip(), f"the CPUs that {names.title} selects"
    return ForeignSetting(names.bind, value, meaning, fields, overridden_by=("mask",))


def _make_bind_setting(names: Framework, source: FrameworkInput) -> ForeignSetting:
    text, meaning, more = source.env[names.bind], "the CPUs of ranks (-m)", tuple[str, ...]()
    word = text.strip()
    words = " or ".join(repr(word) for word in (names.automatic, names.unbound) if word)
    hint = f"{names.title} accepts {words}, or one list per rank with | between them"
    mask = _parse(names.bind, text, hint)
    if word == names.unbound:
        meaning, more = "no binding (-m none)", ("smt", "sibling", "bind")
    elif mask.word is not None:
        raise _make_error(names.bind, text, f"{names.title} does not accept {word!r}", hint)
    mask = mask.replace(parts=mask.parts[_find_first(names, source.command, len(mask.parts)) :])
    replacing = ("mask", "strategy", "cores", *more)
    return ForeignSetting(names.bind, word, meaning, {"mask": mask}, replacing)


def _find_first(names: Framework, command: Sequence[str], existing: int = RANK_LIMIT) -> int:
    """Return the position of the first NUMA node or CPU list that a server uses; raises MaskError."""
    first = whole_number(frameworks.read_options(command).get(names.first_option, ""), RANK_LIMIT) or 0
    if first >= max(existing, 1):
        hint = f"use a number below {existing}: they count from 0"
        raise _make_error(names.first_option, str(first), f"there is no NUMA node or list {first}", hint)
    return first


def _number_nodes(names: Framework, source: FrameworkInput, last: CpuSet = EMPTY) -> dict[str, object]:
    """Return the field of a request for all NUMA nodes by their OS numbers; none if there are no nodes."""
    usable = (node for node in source.machine.nodes if not node.cpus.isdisjoint(source.machine.allowed))
    numbers = sorted((node.number for node in usable), key=lambda number: (number in last, number))
    used = numbers[_find_first(names, source.command, len(numbers)) :]
    return {"nodes": _select_nodes(",".join(map(str, used)), names.bind)} if used else {}


def _make_service_setting(name: str, text: str) -> ForeignSetting:
    number = _check_number(name, text, "CPUs", "give the CPUs to reserve for all ranks together, as in '1'")
    fields, meaning = {"service_total": number}, "service CPUs of all ranks together"
    return ForeignSetting(name, text.strip(), meaning, fields, _SERVICE_OPTIONS, requires_binding=True)


def _make_default_service(names: Framework, source: FrameworkInput) -> ForeignSetting:
    """Return the CPUs that a framework reserves by default; ranks with too few CPUs have fewer."""
    selection = frameworks.find_selection(names, source.machine) or Selection(request_fields={})
    words = (re.split("[=.]", word)[0].replace("_", "-") for word in source.command)
    connector = bool(names.connector) and names.connector in words
    workers = frameworks.count_own_workers(names, source)
    total, each = selection.service_total, (selection.service_each + connector) * workers
    numbers = ((each, "per rank"), (total, "of all ranks together"))
    meaning = " and ".join(f"{count(number, 'service CPU')} {of}" for number, of in numbers if number)
    meaning += f", with {names.connector}" if connector else ""
    fields = {"service_total": total, "service_each": each, "service_optional": True}
    replacing = (*_SERVICE_OPTIONS, "cores", "threads")
    return ForeignSetting(names.reserve, "", meaning, fields, replacing, True, True)


def _make_memory_setting(name: str, text: str) -> ForeignSetting:
    number = _check_number(name, text, "GiB", "give the GiB of each rank, as in '40'")
    meaning = f"{number} GiB of memory for each rank" if number else "memory of a size that the server picks"
    return ForeignSetting(name, text.strip(), meaning, {"memory_bytes": number << 30})


def _check_number(name: str, text: str, unit: str, hint: str) -> int:
    if (number := whole_number(text.strip(), 10**5)) is None:
        raise _make_error(name, text, f"{text.strip()!r} is not a number of {unit}", hint)
    return number


def _make_nodes_setting(names: Framework, source: FrameworkInput) -> list[ForeignSetting]:
    """Return the NUMA nodes of ranks, by their OS numbers, in the order of ranks; none if all are used.

    Nodes that do not exist, or whose memory is not allowed, are dropped if others remain.
    """
    name, text, machine = names.nodes, source.env.get(names.nodes, ""), source.machine
    option = frameworks.read_options(source.command).get(names.node_option, "")
    if not (shown := option or text.strip()):
        return []
    if option:
        name, text = names.node_option, _select_positions(names, option, text) if text.strip() else option
    nodes = _select_nodes(text, name)
    existing = usable = CpuSet(node.number for node in machine.nodes)
    if machine.memory_allowed is not None:
        usable &= machine.memory_allowed
    numbers = CpuSet(number for item in nodes.parts[0] for number in item.chain[0].numbers)
    if not numbers.isdisjoint(usable):
        kept = (item for item in nodes.parts[0] if item.chain[0].numbers[0] in usable)
        nodes = nodes.replace(parts=(tuple(kept),))
    absent, forbidden, warning = numbers - existing, numbers & existing - usable, ""
    if numbers == forbidden:
        warning = f"{name} has only NUMA nodes whose memory is not allowed: ranks use memory of other nodes"
    elif absent or forbidden:
        texts = [f"there is no {named('NUMA node', absent)}"] if absent else []
        why = "not used, because its memory is not allowed"
        texts += [f"{named('NUMA node', forbidden)} {why}"] if forbidden else []
        warning = f"{name}: {'; '.join(texts)}"
    meaning = "the NUMA nodes to use, in this order"
    objection = f"{names.slices} is set" if names.slices in source.env else ""  # to any value, also 0
    return [ForeignSetting(name, shown, meaning, {"nodes": nodes}, (), True, True, objection, warning)]


def _select_positions(names: Framework, option: str, text: str) -> str:
    """Return the nodes of a list at the positions that an option names; raises MaskError."""
    nodes = text.split(",")
    positions = [whole_number(word.strip(), len(nodes)) for word in option.split(",")]
    if None in positions:
        message, hint = f"no such position in {names.nodes}={text}", f"use numbers below {len(nodes)}"
        raise _make_error(names.node_option, option, message, hint)
    return ",".join(nodes[position or 0] for position in positions)


def _select_nodes(text: str, name: str) -> Mask:
    """Return the mask of the NUMA nodes with the OS numbers in a text, in their order, each once."""
    hint = "give the numbers of NUMA nodes in the order of ranks, with commas or as a range"
    invalid = re.search(r"[^0-9, \t-]", text)
    if invalid:
        message = f"{invalid[0]!r} is not allowed in a list of NUMA nodes"
        raise MaskError(f"{name}: {message}", text=text, span=invalid.span(), hint=hint)
    (items,) = _parse(name, text, hint).parts
    selected: dict[int, Item] = {}
    for number, span in ((number, item.span) for item in items for number in item.cpus):
        selector = Selector(level=Level.NODE, numbers=(number,), by_os_number=True, span=span)
        selected.setdefault(number, Item(span=span, chain=(selector,)))
    return Mask(text=text, parts=(tuple(selected.values()),))


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
    start = len(text) - len(text.lstrip())
    return MaskError(f"{name}: {message}", text=text, span=(start, len(text.rstrip())), hint=hint)
