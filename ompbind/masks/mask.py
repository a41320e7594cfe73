"""A mask: text that names CPUs, as a value that is independent of any machine.

`|` separates the *parts* of the ranks, commas separate the *items* of a part. An item names CPUs in one of
three ways: by number, by a chain of *selectors* (domains of a level, then domains inside them, as in
`node:1.core:0-3`), or by the word `all`. An item that begins with `^` excludes its CPUs from the whole part.
Every item and selector remembers its position in the text, so that an error can mark it. Several texts can
mean the same; `mask_text` writes each meaning in one way, the *canonical text*.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from enum import StrEnum

from ompbind.cpuset import CPU_LIMIT, CpuSet, range_text, render_sequence, strided
from ompbind.errors import MaskError
from ompbind.machine.model import Level
from ompbind.record import Record
from ompbind.text import suggest_name, whole_number

SELECTABLE = tuple(level for level in Level if level is not Level.CLUSTER)
"""The levels whose domains a mask may select, as in `node:0`."""

_OTHER_FORMS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"^map_cpu:([\d,]+)$|^mask_cpu:((?:0x[\da-f]+,?)+)$", lambda it: it[it.lastindex or 0].replace(",","|")),
    (r"\bs(\d+):", r"package:\1.core:"), (r"\bm(\d+):", r"node:\1.core:"), ("@", ","), ("^all-", "all,^"),
    (r"\b(?:package|socket|pkg):?(?=[\d#])", "package:"), (r"\b(?:numanode|numa|node|n):?(?=[\d#])", "node:"),
    (r"\b(?:l3cache|ccd|ccx|llc):?(?=[\d#])", "l3:"), (r"\bl2cache:", "l2:"), (r"\bcore(?=\d)", "core:"),
    ("!|~", "^"), (r"^\w+:all$", "all"), (r"(?<=}),(?={)", "|"), (r"(?<=\d)[; ]+(?=\d)", "|"),
    (r"{(\d{1,5}):(\d{1,5})}", lambda it: f"{it[1]}-{int(it[1]) + int(it[2]) - 1}"), ("[{}]", ""),
    (rf"\b({'|'.join(SELECTABLE)})(?![\w:])", r"\1:0"),
    (r"\b[a-z]+(?=:)", lambda it: it[0] if it[0] in SELECTABLE else suggest_name(it[0], SELECTABLE) or it[0]),
)  # fmt: skip
"""Forms of Slurm, likwid-pin, hwloc and OMP_PLACES, and wrong selectors, in lower case, and what to write."""

TextSpan = tuple[int, int]
"""A position in a text: the index of its first character, and the index after its last one."""


class Selector(Record):
    """Domains of one level: ascending logical indices among the allowed ones or, with `#`, OS numbers."""

    level: Level
    numbers: tuple[int, ...]
    by_os_number: bool = False
    span: TextSpan = (0, 0)


class Item(Record):
    """One item of a part: `cpus` by number, or a `chain` of selectors, or neither for `all`; `^` excludes."""

    span: TextSpan = (0, 0)
    excluded: bool = False
    cpus: tuple[int, ...] = ()
    chain: tuple[Selector, ...] = ()


class MaskWord(StrEnum):
    """A mask that is a single word."""

    AUTO = "auto"
    NONE = "none"


MASK_WORDS = {"auto": MaskWord.AUTO, "none": MaskWord.NONE, "nobind": MaskWord.NONE}
"""The masks that name no CPUs, and what they mean; only the word `all` may be combined with other items."""


class Mask(Record):
    """A whole mask: one tuple of items for each part, or a single `word` and no part."""

    text: str
    parts: tuple[tuple[Item, ...], ...] = ()
    word: MaskWord | None = None

    @property
    def canonical(self) -> Mask:
        """The mask in canonical form, without text and positions: equal for masks of equal meaning.

        In each part adjacent numbers are one item, nothing is named twice, and exclusions are last.
        """
        parts = tuple(tuple(_make_canonical(part)) for part in self.parts)
        return Mask(text="", word=self.word, parts=parts)


def parse_mask(text: str) -> Mask:
    """Read mask text; raises MaskError with the position of the first error.

    >>> len(parse_mask("0-3|4-7").parts)
    2
    """
    if word := MASK_WORDS.get(text.strip()):
        return Mask(text=text, word=word)
    try:
        return _read_parts(text)
    except MaskError as error:
        meant = text.lower()
        for form, written in _OTHER_FORMS:
            meant = re.sub(form, written, meant)
        with suppress(MaskError):
            error.hint = error.hint or f"did you mean -m {shlex.quote(_read_parts(meant).text)}?"
        raise


def _read_parts(text: str) -> Mask:
    parts = _split_span(text, (0, len(text)), "|")
    return Mask(text=text, parts=tuple(tuple(_read_items(text, part)) for part in parts))


def _read_items(text: str, part: TextSpan) -> Iterator[Item]:
    """Yield the items of one part; a hexadecimal mask with several words is one item."""
    spans = _split_span(text, part, ",")[::-1]
    while spans:
        begin, end = spans.pop()
        if _is_hex(text[begin:end]):
            while spans and re.fullmatch("[0-9a-fA-F]{8}", text[spans[-1][0] : spans[-1][1]]):
                end = spans.pop()[1]
        yield _read_item(text, (begin, end))


def _split_span(text: str, span: TextSpan, separator: str) -> list[TextSpan]:
    """Split a span at each separator; spaces around the pieces are left out."""
    start, pieces = span[0], []
    for piece in text[span[0] : span[1]].split(separator):
        begin = start + len(piece) - len(piece.lstrip())
        pieces.append((begin, begin + len(piece.strip())))
        start += len(piece) + 1
    return pieces


def _is_hex(token: str) -> bool:
    return token.removeprefix("^").lstrip()[:2].lower() == "0x"


def _read_item(text: str, span: TextSpan) -> Item:
    begin, end = span
    token = text[begin:end]
    if not token:
        raise _error(text, (begin, begin + 1), "an item is empty")
    excluded = token.startswith("^")
    if excluded:
        token = token[1:].lstrip()
        begin = end - len(token)
    if token == "all":
        return Item(span=span, excluded=excluded)
    if _is_hex(token) and token[0] != "^":
        return Item(span=span, excluded=excluded, cpus=_read_hex(text, (begin, end)))
    name = token.partition(".")[0].strip()
    if token[:1].isalpha() and (":" in token or name in list(SELECTABLE)):
        chain = tuple(_read_selector(text, piece) for piece in _split_span(text, (begin, end), "."))
        return Item(span=span, excluded=excluded, chain=chain)
    return Item(span=span, excluded=excluded, cpus=_read_range(text, (begin, end)))


def _read_hex(text: str, span: TextSpan) -> tuple[int, ...]:
    words = text[span[0] + 2 : span[1]].split(",")
    try:
        cpus = tuple(CpuSet.from_mask(",".join(map(str.strip, words))))
    except ValueError:
        raise _error(text, span, f"{_quote(text, span)} is not a hexadecimal mask") from None
    if not cpus:
        raise _error(text, span, "this hexadecimal mask names no CPU")
    return cpus


def _read_selector(text: str, span: TextSpan) -> Selector:
    name, colon, numbers = text[span[0] : span[1]].partition(":")
    mark = (span[0], span[0] + max(1, len(name)))
    if not name:
        hint = "write a selector before and after each dot"
        raise _error(text, mark, "a selector is missing", hint)
    level = next((level for level in SELECTABLE if level == name), None)
    if level is None:
        raise _error(text, mark, f"unknown selector {_quote(text, mark)}")
    if not colon:
        raise _error(text, mark, f"the selector {name!r} has no number")
    by_os_number = numbers.startswith("#")
    numbered = _read_range(text, (span[0] + len(name) + 1 + by_os_number, span[1]))
    return Selector(level=level, numbers=numbered, by_os_number=by_os_number, span=span)


_STRIDE = "write FIRST-LAST:STEP, or FIRST-LAST:K/STEP for K of every STEP CPUs"


def _read_range(text: str, span: TextSpan) -> tuple[int, ...]:
    """Read "5", "0-3", "0-15:2" or "0-31:2/8"; return the numbers in ascending order."""
    body, colon, _rest = text[span[0] : span[1]].partition(":")
    low, dash, _high = body.partition("-")
    start = _read_number(text, (span[0], span[0] + len(low)))
    if not dash and not colon:
        return (start,)
    if not dash:
        raise _error(text, span, "a stride needs a range before it", _STRIDE)
    stop = _read_number(text, (span[0] + len(low) + 1, span[0] + len(body)))
    if stop < start:
        raise _error(text, span, f"the range {body!r} is reversed", "write the lower number first")
    if not colon:
        return tuple(range(start, stop + 1))
    # "2" is 1 of every 2 numbers, "2/8" the first 2 of every 8
    begin, end = span[0] + len(body) + 1, span[1]
    used, slash, _group = text[begin:end].partition("/")
    first = _read_number(text, (begin, begin + len(used)))
    width, step = (first, _read_number(text, (begin + len(used) + 1, end))) if slash else (1, first)
    if width == 0 or step == 0:
        raise _error(text, (begin, end), "a stride of zero names no CPU", _STRIDE)
    if width > step:
        raise _error(text, (begin, end), f"cannot take {width} of every {step}", _STRIDE)
    return tuple(strided(start, stop, width, step))


def _read_number(text: str, span: TextSpan) -> int:
    token = text[span[0] : span[1]]
    if (number := whole_number(token, CPU_LIMIT)) is not None:
        return number
    mark = (span[0], max(span[1], span[0] + 1))
    if token.startswith("-") or (not token and text[span[0] : span[0] + 1] == "-"):
        raise _error(text, mark, "a number is negative", "numbers start at 0")
    if not token:
        raise _error(text, mark, "a number is missing")
    if token.isascii() and not token.strip("0123456789"):
        highest = f"the highest CPU number is {CPU_LIMIT - 1}"
        raise _error(text, mark, f"{_quote(text, span)} is too large for a CPU number", highest)
    if (word := token.lower()) in ("all", *MASK_WORDS):
        is_allowed = token == text.strip() or word == "all" != token
        problem = "must be lower case" if is_allowed else "cannot be combined with other items"
        problem = "stands alone, without a selector" if token == "all" else problem
        raise _error(text, mark, f"the word {word!r} {problem}")
    raise _error(text, mark, f"{_quote(text, span)} is not a number")


def _quote(text: str, span: TextSpan) -> str:
    token = text[span[0] : span[1]]
    return repr(token if len(token) <= 40 else f"{token[:37]}...")


def _error(text: str, span: TextSpan, message: str, hint: str = "") -> MaskError:
    return MaskError(message, text=text, span=span, hint=hint)


def item_text(item: Item) -> str:
    """Return the text of one item; CPUs that no single range can name become several items."""
    prefix = "^" if item.excluded else ""
    if item.cpus:
        return ",".join(prefix + piece for piece in render_sequence(item.cpus))
    selectors = (
        f"{selector.level}:{'#' if selector.by_os_number else ''}{range_text(selector.numbers)}"
        for selector in item.chain
    )
    return prefix + (".".join(selectors) or "all")


def _make_canonical(part: Iterable[Item]) -> Iterator[Item]:
    """Yield the items of a part without positions and repetitions, exclusions last; adjacent lists merged."""
    items = [
        item.replace(span=(0, 0), chain=tuple(selector.replace(span=(0, 0)) for selector in item.chain))
        for item in part
    ]
    named: set[int | Item] = set()
    run: dict[int, None] = {}
    for item in [item for item in items if not item.excluded] or [Item()]:
        run.update((cpu, None) for cpu in item.cpus if cpu not in named)
        if not item.cpus and item not in named:
            if run:
                yield Item(cpus=tuple(run))
            named.update(run, (item,))
            run = {}
            yield item
    if run:
        yield Item(cpus=tuple(run))
    excluded = [item for item in items if item.excluded]
    if numbers := CpuSet(cpu for item in excluded for cpu in item.cpus):
        yield Item(excluded=True, cpus=tuple(numbers))
    yield from sorted({item for item in excluded if not item.cpus}, key=item_text)


def mask_text(mask: Mask) -> str:
    """Return the canonical text of a mask; parsed again, it means the same."""
    if mask.word is not None:
        return str(mask.word)
    return "|".join(",".join(map(item_text, part)) for part in mask.canonical.parts)


def part_error(mask: Mask, items: tuple[Item, ...], message: str, hint: str) -> MaskError:
    """Make an error about some items of a mask that marks the first to the last of them."""
    return MaskError(message, text=mask.text, span=(items[0].span[0], items[-1].span[1]), hint=hint)
