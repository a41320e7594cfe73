"""Variables of a framework, read as planning options, and what ranks should see of them.

A *wish* is what one of its variables asks for; an option that
answers the same question beats it. Inside a rank the program would bind once more by itself, so its
own variable is replaced there by what makes it leave the rank's CPUs and places as they are.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module

from ompbind.compat.table import FRAMEWORKS
from ompbind.errors import MaskError
from ompbind.machine.model import Level
from ompbind.masks.grammar import Item, Selector
from ompbind.masks.mask import Mask, Word, parse_mask
from ompbind.planning.request import Request
from ompbind.record import Record

Environment = Mapping[str, str]


class Framework(Record):
    """The variables and words of one framework; every framework fills one in, in a file of its own.

    `title` is its name for people. The variable `bind` says which CPUs ranks get: `automatic` is its word for
    one NUMA node each, `unbound` the one for no binding. `reserve` and `nodes` are the variables for CPUs
    kept free and for NUMA nodes, "" where there is none. Ranks find `inside` in `bind`, which may have fields
    as {cpus}, as `effect` says; the variables `others` would contradict it.
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


def load_framework(family: str) -> Framework:
    """Return what is known of a framework, from the module that the table names."""
    framework: Framework = import_module(FRAMEWORKS[family]).FRAMEWORK
    return framework


class Wish(Record):
    """What one variable asks for: `meaning` in words, `fills` as fields of the request.

    The options in `beaten_by` answer the same question; `value` is "" for a variable that is not set.
    """

    name: str
    value: str
    meaning: str
    fills: Mapping[str, object]
    beaten_by: tuple[str, ...] = ()


def make_wishes(family: str, env: Environment) -> tuple[Wish, ...]:
    """Read the variables of a framework; one that is empty counts as not set.

    Raises MaskError, which names the variable and marks the place, for a value that cannot be read.
    """
    names = load_framework(family)
    wishes = [_bind_wish(names, env)]
    if env.get(names.reserve, "").strip():
        wishes.append(_reserve_wish(names.reserve, env[names.reserve]))
    if env.get(names.nodes, "").strip():
        wishes.append(_nodes_wish(names.nodes, env[names.nodes]))
    return tuple(wishes)


def fill_request(request: Request, family: str, env: Environment, given: Collection[str]) -> Request:
    """Fill those fields of a request that no option has `given` with what the variables ask for."""
    read: list[str] = []
    others: list[str] = []
    for wish in make_wishes(family, env):
        reason = _reason_against(wish, request, given)
        request = request if reason else request.replace(**wish.fills)
        if not wish.value:
            others += [] if reason else [f"{wish.name} is not set: {wish.meaning}"]
        elif reason:
            others.append(f"{wish.name}={wish.value} is not used: {reason}")
        else:
            read.append(f"{wish.name}={wish.value} is read as {wish.meaning}")
    others.append(load_framework(family).effect)
    return request.replace(compat=family, compat_read=tuple(read), compat_others=tuple(others))


def ranks_lose(family: str) -> tuple[str, ...]:
    """Return the variables that are for the plan, or would contradict it, and so not for ranks."""
    names = load_framework(family)
    return tuple(name for name in (names.bind, names.reserve, names.nodes, *names.others) if name)


def ranks_find(family: str) -> tuple[tuple[str, str], ...]:
    """Return the (NAME, value) pairs that ranks find instead; values may have fields as {cpus}."""
    names = load_framework(family)
    return ((names.bind, names.inside),)


def _reason_against(wish: Wish, request: Request, given: Collection[str]) -> str:
    """Say why a wish is not granted, "" where nothing speaks against it."""
    beaten = next((option for option in wish.beaten_by if option in given), None)
    if beaten:
        return f"--{beaten.replace('_', '-')} is given"
    mask = request.mask
    if mask is None or mask.word is Word.AUTO or "strategy" in wish.fills or "mask" in wish.fills:
        return ""
    if mask.word is Word.NONE:
        return "ranks are not bound"
    return "the mask says which CPUs" if "nodes" in wish.fills else ""


def _bind_wish(names: Framework, env: Environment) -> Wish:
    """Read which CPUs ranks get: one NUMA node each, lists, or no binding."""
    text = env.get(names.bind, "")
    word = text.strip()
    if word in ("", names.automatic):
        return Wish(
            name=names.bind,
            value=word,
            meaning="one NUMA node for each rank (-s nodes)",
            fills={"strategy": "nodes"},
            beaten_by=("mask", "strategy"),
        )
    unbound = word == names.unbound
    return Wish(
        name=names.bind,
        value=word,
        meaning="no binding (-m none)" if unbound else "the CPUs of ranks (-m)",
        fills={"mask": parse_mask(word) if unbound else _parse_lists(names, text)},
        beaten_by=("mask", "strategy", "smt", "bind") if unbound else ("mask", "strategy"),
    )


def _parse_lists(names: Framework, text: str) -> Mask:
    words = " or ".join(repr(word) for word in (names.automatic, names.unbound) if word)
    hint = f"{names.title} knows lists as '0-31|32-63', one for each rank, and {words}"
    mask = _parse(names.bind, text, hint)
    if mask.word is not None:
        raise _fault(names.bind, text, f"{text.strip()!r} is no word of {names.title}", hint)
    return mask


def _reserve_wish(name: str, text: str) -> Wish:
    """Read CPUs to keep free, per rank, as its documentation has it."""
    number = text.strip()
    if not (number.isascii() and number.isdigit() and len(number) <= 5):
        hint = "write how many cores of each rank, as in '1'"
        raise _fault(name, text, f"{number!r} is not a number of cores", hint)
    return Wish(
        name=name,
        value=number,
        meaning=f"cores kept free of each rank (--reserve {int(number)})",
        fills={"reserve": int(number)},
        beaten_by=("reserve", "reserve_total"),
    )


def _nodes_wish(name: str, text: str) -> Wish:
    """Read NUMA nodes by the numbers of the OS; their order is that of ranks."""
    hint = "write NUMA nodes by number, in the order of ranks, as in '1,0' or '0-3'"
    strange = re.search(r"[^0-9, \t-]", text)
    if strange:
        message = f"{strange[0]!r} does not belong in a list of NUMA nodes"
        raise MaskError(f"{name}: {message}", text=text, span=strange.span(), hint=hint)
    (items,) = _parse(name, text, hint).parts
    return Wish(
        name=name,
        value=text.strip(),
        meaning="the NUMA nodes to use, in this order",
        fills={"nodes": Mask(text=text, parts=(tuple(_node_items(name, text, items)),))},
    )


def _node_items(name: str, text: str, items: tuple[Item, ...]) -> Iterator[Item]:
    """Turn items that name numbers into ones that name the NUMA nodes with these numbers."""
    seen: set[int] = set()
    for item in items:
        again = seen.intersection(item.cpus)
        if again:
            message = f"{name}: NUMA node {min(again)} is named twice"
            raise MaskError(message, text=text, span=item.span, hint="name every node once")
        seen.update(item.cpus)
        chosen = Selector(level=Level.NODE, numbers=item.cpus, by_os_number=True, span=item.span)
        yield Item(span=item.span, chain=(chosen,))


def _parse(name: str, text: str, hint: str) -> Mask:
    """Parse the lists of a variable, in which blanks may stand around every number."""

    def squeeze(item: re.Match[str]) -> str:  # blanks around a dash move to the end: all else keeps its place
        return re.sub(r"[ \t]*-[ \t]*", "-", item[0]).ljust(len(item[0]))

    squeezed = re.sub(r"[^,|]+", squeeze, text)
    try:
        return parse_mask(squeezed).replace(text=text)
    except MaskError as fault:
        raise MaskError(f"{name}: {fault.message}", text=text, span=fault.span, hint=hint) from None


def _fault(name: str, text: str, message: str, hint: str) -> MaskError:
    """Make the error about a whole value."""
    start = len(text) - len(text.lstrip())
    return MaskError(f"{name}: {message}", text=text, span=(start, len(text.rstrip())), hint=hint)
