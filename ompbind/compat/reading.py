"""Read the CPU variables of a framework as planning options, and replace them in the environment of ranks.

A *foreign setting* is what one variable requests. An option of ompbind for the same thing overrides it. In a
rank, the framework would read its variables and bind threads again: so some variables are removed, and the
variable that binds gets a value with which the framework keeps the CPUs of the rank.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module

from ompbind.compat.table import FRAMEWORKS
from ompbind.errors import MaskError
from ompbind.machine.model import Level
from ompbind.masks.grammar import Item, Selector
from ompbind.masks.mask import Mask, MaskWord, parse_mask
from ompbind.planning.request import Request
from ompbind.record import Record

Environment = Mapping[str, str]


class Framework(Record):
    """The variables of one framework; each framework has a module with one such record.

    `title` is its name in messages. The variable `bind` selects the CPUs of ranks; its value `automatic`
    means one NUMA node per rank, its value `unbound` no binding ("" if there is no such value). `reserve` is
    the variable for reserved cores, `nodes` for NUMA nodes, "" if there is none. In ranks, `bind` has the
    value `inside`, with fields such as {cpus}; `effect` is the note on it. The variables `others` are removed
    from ranks, because they contradict a plan. `workers` is the command line of a server with workers, up to
    their number. `ompbind plan --format` has a format with the name of the framework for it.
    """

    title: str
    bind: str
    automatic: str
    unbound: str = ""
    reserve: str = ""
    nodes: str = ""
    others: tuple[str, ...] = ()
    inside: str
    effect: str
    workers: str = ""


def load_framework(name: str) -> Framework:
    """Return the record of a framework, from the module that the table names."""
    framework: Framework = import_module(FRAMEWORKS[name]).FRAMEWORK
    return framework


class ForeignSetting(Record):
    """What one variable requests: `meaning` in words, `request_fields` as values for fields of `Request`.

    `value` is "" if the variable is not set. Each option in `overridden_by` overrides the setting.
    """

    name: str
    value: str
    meaning: str
    request_fields: Mapping[str, object]
    overridden_by: tuple[str, ...] = ()


def make_foreign_settings(framework: str, env: Environment) -> tuple[ForeignSetting, ...]:
    """Return the settings in the variables of a framework; an empty variable counts as not set.

    Raises MaskError, with the variable and the position, for a value that is not valid.
    """
    names = load_framework(framework)
    settings = [_make_bind_setting(names, env)]
    if env.get(names.reserve, "").strip():
        settings.append(_make_reserve_setting(names.reserve, env[names.reserve]))
    if env.get(names.nodes, "").strip():
        settings.append(_make_nodes_setting(names.nodes, env[names.nodes]))
    return tuple(settings)


def fill_request(request: Request, framework: str, env: Environment, given: Collection[str]) -> Request:
    """Return the request with the settings of a framework, except where an option is `given`."""
    read: list[str] = []
    others: list[str] = []
    for setting in make_foreign_settings(framework, env):
        reason = _find_objection(setting, request, given)
        request = request if reason else request.replace(**setting.request_fields)
        if not setting.value:
            others += [] if reason else [f"{setting.name} is not set: {setting.meaning}"]
        elif reason:
            others.append(f"{setting.name}={setting.value} is not used: {reason}")
        else:
            read.append(f"{setting.name}={setting.value} is read as {setting.meaning}")
    others.append(load_framework(framework).effect)
    return request.replace(
        compat=framework,
        compat_read=tuple(read),
        compat_others=tuple(others),
        compat_workers=_make_workers_hint(framework, request),
    )


def _make_workers_hint(framework: str, request: Request) -> str:
    """Return what to do if the CPU lists are for the workers of one server, which are not ranks."""
    command = load_framework(framework).workers
    lists = len(request.mask.parts) if request.mask else 0
    if not command or lists < 2:
        return ""
    plan = f"ompbind plan -n {lists} --compat {framework} --format {framework}"
    return (
        f'for one server with {lists} workers ({command} {lists}), use eval "$({plan})" instead of ompbind'
        f" run; for {lists} servers, use -n {lists}"
    )


def find_hidden_variables(framework: str) -> tuple[str, ...]:
    """Return the variables of a framework that are removed from ranks."""
    names = load_framework(framework)
    return tuple(name for name in (names.bind, names.reserve, names.nodes, *names.others) if name)


def make_rank_variables(framework: str) -> tuple[tuple[str, str], ...]:
    """Return the (NAME, value) pairs that are set in ranks; values may have fields such as {cpus}."""
    names = load_framework(framework)
    return ((names.bind, names.inside),)


def _find_objection(setting: ForeignSetting, request: Request, given: Collection[str]) -> str:
    """Return why a setting is not used, "" if it is used."""
    overriding = next((option for option in setting.overridden_by if option in given), None)
    if overriding:
        return f"--{overriding.replace('_', '-')} is given"
    mask = request.mask
    if (
        mask is None
        or mask.word is MaskWord.AUTO
        or "strategy" in setting.request_fields
        or "mask" in setting.request_fields
    ):
        return ""
    if mask.word is MaskWord.NONE:
        return "ranks are not bound"
    return "the mask selects the CPUs" if "nodes" in setting.request_fields else ""


def _make_bind_setting(names: Framework, env: Environment) -> ForeignSetting:
    """Return which CPUs ranks get: one NUMA node each, lists, or no binding."""
    text = env.get(names.bind, "")
    word = text.strip()
    if word in ("", names.automatic):
        return ForeignSetting(
            name=names.bind,
            value=word,
            meaning="one NUMA node per rank (-s nodes)",
            request_fields={"strategy": "nodes"},
            overridden_by=("mask", "strategy"),
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


def _parse_lists(names: Framework, text: str) -> Mask:
    words = " or ".join(repr(word) for word in (names.automatic, names.unbound) if word)
    hint = f"{names.title} accepts {words}, or one list per rank, as in '0-31|32-63'"
    mask = _parse(names.bind, text, hint)
    if mask.word is not None:
        raise _make_error(names.bind, text, f"{names.title} does not accept {text.strip()!r}", hint)
    return mask


def _make_reserve_setting(name: str, text: str) -> ForeignSetting:
    """Return the number of cores to reserve for each rank."""
    number = text.strip()
    if not (number.isascii() and number.isdigit() and len(number) <= 5):
        hint = "give the number of cores to reserve per rank, as in '1'"
        raise _make_error(name, text, f"{number!r} is not a number of cores", hint)
    return ForeignSetting(
        name=name,
        value=number,
        meaning=f"reserved cores per rank (--reserve {int(number)})",
        request_fields={"reserve": int(number)},
        overridden_by=("reserve", "reserve_total"),
    )


def _make_nodes_setting(name: str, text: str) -> ForeignSetting:
    """Return the NUMA nodes of ranks, by their OS numbers, in the order of ranks."""
    hint = "give the numbers of NUMA nodes in the order of ranks, as in '1,0' or '0-3'"
    invalid = re.search(r"[^0-9, \t-]", text)
    if invalid:
        message = f"{invalid[0]!r} is not allowed in a list of NUMA nodes"
        raise MaskError(f"{name}: {message}", text=text, span=invalid.span(), hint=hint)
    (items,) = _parse(name, text, hint).parts
    return ForeignSetting(
        name=name,
        value=text.strip(),
        meaning="the NUMA nodes to use, in this order",
        request_fields={"nodes": Mask(text=text, parts=(tuple(_node_items(name, text, items)),))},
    )


def _node_items(name: str, text: str, items: tuple[Item, ...]) -> Iterator[Item]:
    """Turn items with numbers into items that select the NUMA nodes with these OS numbers."""
    used: set[int] = set()
    for item in items:
        repeated = used.intersection(item.cpus)
        if repeated:
            message = f"{name}: NUMA node {min(repeated)} is named twice"
            raise MaskError(message, text=text, span=item.span, hint="name each node once")
        used.update(item.cpus)
        selector = Selector(level=Level.NODE, numbers=item.cpus, by_os_number=True, span=item.span)
        yield Item(span=item.span, chain=(selector,))


def _parse(name: str, text: str, hint: str) -> Mask:
    """Parse the lists of a variable; unlike in masks, spaces are allowed around every number."""

    def squeeze(
        item: re.Match[str],
    ) -> str:  # moves spaces around a dash to the end, so that positions stay right
        return re.sub(r"[ \t]*-[ \t]*", "-", item[0]).ljust(len(item[0]))

    squeezed = re.sub(r"[^,|]+", squeeze, text)
    try:
        return parse_mask(squeezed).replace(text=text)
    except MaskError as error:
        raise MaskError(f"{name}: {error.message}", text=text, span=error.span, hint=hint) from None


def _make_error(name: str, text: str, message: str, hint: str) -> MaskError:
    """Return the error about a whole value."""
    start = len(text) - len(text.lstrip())
    return MaskError(f"{name}: {message}", text=text, span=(start, len(text.rstrip())), hint=hint)
