"""Mask text as a value: the grammar by which people name CPUs, and nothing about any machine.

A *mask* is text that names CPUs; per-rank *parts* are separated by `|`, *items* of a part are joined
by commas, and an item that begins with `^` takes away from the whole part. Every item remembers its
place in the text, so that what is wrong with it on some machine can be marked there.
"""

from collections.abc import Iterator
from enum import StrEnum

from ompbind.cpuset import CPU_LIMIT, CpuSet, strided
from ompbind.errors import MaskError
from ompbind.record import Record
from ompbind.topology import Level

SELECTABLE = tuple(level for level in Level if level is not Level.CLUSTER)
"""The levels that a mask may name domains of, as in `node:0`."""

EXAMPLES = "'0-3', '0-7|8-15', 'node:0', 'package:1.core:0-3' or 'all,^0'"


class Word(StrEnum):
    """A mask that is one word."""

    AUTO = "auto"
    NONE = "none"


class Selector(Record):
    """Domains of one level: the given logical numbers among the allowed, or OS numbers (`#`)."""

    level: Level
    numbers: tuple[int, ...]
    by_os_number: bool = False


class Item(Record):
    """One item of a part: CPUs by number, or a chain of selectors, or everything (neither).

    `span` is its place in the mask text; `taken_away` tells that it began with `^`.
    """

    span: tuple[int, int]
    taken_away: bool = False
    cpus: tuple[int, ...] = ()
    chain: tuple[Selector, ...] = ()


class Mask(Record):
    """A whole mask: one tuple of items for each part, or a single word and no part."""

    text: str
    parts: tuple[tuple[Item, ...], ...] = ()
    word: Word | None = None


def parse_mask(text: str) -> Mask:
    """Read mask text; raises MaskError with the position of what does not fit the grammar."""
    word = {"auto": Word.AUTO, "none": Word.NONE, "nobind": Word.NONE}.get(text.strip())
    if word:
        return Mask(text=text, word=word)
    spans = _split(text, (0, len(text)), "|")
    return Mask(text=text, parts=tuple(tuple(_items(text, span)) for span in spans))


def part_fault(mask: Mask, items: tuple[Item, ...], message: str, hint: str) -> MaskError:
    """Make the error about some items of a mask, marked from the first to the last of them."""
    return MaskError(message, text=mask.text, span=(items[0].span[0], items[-1].span[1]), hint=hint)


def _split(text: str, span: tuple[int, int], separator: str) -> list[tuple[int, int]]:
    """Cut a span at the separators, blanks around the pieces left out."""
    start, pieces = span[0], []
    for piece in text[span[0] : span[1]].split(separator):
        begin = start + len(piece) - len(piece.lstrip())
        pieces.append((begin, begin + len(piece.strip())))
        start += len(piece) + 1
    return pieces


def _items(text: str, part: tuple[int, int]) -> Iterator[Item]:
    spans = _split(text, part, ",")
    while spans:
        begin, end = spans.pop(0)
        if _is_hex(text[begin:end]):
            while spans and _is_hex_word(text[spans[0][0] : spans[0][1]]):
                end = spans.pop(0)[1]
        yield _item(text, (begin, end))


def _is_hex(token: str) -> bool:
    return token.lstrip("^").lower().startswith("0x")


def _is_hex_word(token: str) -> bool:
    """Tell a further word of a kernel mask, always eight digits, from a CPU number."""
    return len(token) == 8 and all(digit in "0123456789abcdefABCDEF" for digit in token)


def _item(text: str, span: tuple[int, int]) -> Item:
    begin, end = span
    token = text[begin:end]
    if not token:
        raise _fault(text, (begin, begin + 1), "an item is empty here")
    taken_away = token.startswith("^")
    body = (begin + 1, end) if taken_away else span
    token = text[body[0] : body[1]]
    if token == "all":
        return Item(span=span, taken_away=taken_away)
    if _is_hex(token):
        return Item(span=span, taken_away=taken_away, cpus=_hex(text, body))
    if ":" in token and token[0].isalpha():
        return Item(span=span, taken_away=taken_away, chain=_chain(text, body))
    return Item(span=span, taken_away=taken_away, cpus=_range(text, body))


def _hex(text: str, span: tuple[int, int]) -> tuple[int, ...]:
    digits = text[span[0] + 2 : span[1]]
    try:
        cpus = tuple(CpuSet.from_mask(",".join(word.strip() for word in digits.split(","))))
    except ValueError:
        raise _fault(text, span, f"{text[span[0] : span[1]]!r} is not a hexadecimal mask") from None
    if not cpus:
        raise _fault(text, span, "this mask names no CPU")
    return cpus


def _chain(text: str, span: tuple[int, int]) -> tuple[Selector, ...]:
    return tuple(_selector(text, piece) for piece in _split(text, span, "."))


def _selector(text: str, span: tuple[int, int]) -> Selector:
    name, colon, numbers = text[span[0] : span[1]].partition(":")
    level = next((level for level in SELECTABLE if level == name), None)
    if level is None or not colon:
        known = ", ".join(f"{level}:" for level in SELECTABLE)
        raise _fault(
            text, (span[0], span[0] + max(1, len(name))), f"unknown selector {name!r}", f"known are {known}"
        )
    by_os_number = numbers.startswith("#")
    start = span[0] + len(name) + 1 + by_os_number
    return Selector(level=level, numbers=_range(text, (start, span[1])), by_os_number=by_os_number)


def _range(text: str, span: tuple[int, int]) -> tuple[int, ...]:
    """Read "5", "0-3", "0-15:2" or "0-31:2/8" into numbers, in order."""
    body, colon, rest = text[span[0] : span[1]].partition(":")
    low, dash, high = body.partition("-")
    start = _number(text, (span[0], span[0] + len(low)))
    if not dash and not colon:
        return (start,)
    stop = _number(text, (span[0] + len(low) + 1, span[0] + len(body))) if dash else start
    if stop < start:
        raise _fault(text, span, f"the range {body!r} is reversed", f"write {high}-{low}{colon}{rest}")
    if colon and not dash:
        raise _fault(text, span, "a stride needs a range before it", f"write {low}-LAST:STRIDE")
    if not colon:
        return tuple(range(start, stop + 1))
    width, step = _stride(text, (span[0] + len(body) + 1, span[1]))
    return tuple(strided(start, stop, width, step))


def _stride(text: str, span: tuple[int, int]) -> tuple[int, int]:
    used, slash, _group = text[span[0] : span[1]].partition("/")
    first = _number(text, (span[0], span[0] + len(used)))
    width, step = (first, _number(text, (span[0] + len(used) + 1, span[1]))) if slash else (1, first)
    if width == 0 or step == 0:
        raise _fault(text, span, "a stride of zero names no CPU", "write '0-15:2' for every second CPU")
    if width > step:
        raise _fault(text, span, f"cannot take {width} of every {step}", f"write {step}/{width}")
    return width, step


def _number(text: str, span: tuple[int, int]) -> int:
    token = text[span[0] : span[1]]
    if token.isascii() and token.isdigit() and len(token) <= 7 and int(token) < CPU_LIMIT:
        return int(token)
    mark = (span[0], max(span[1], span[0] + 1))
    if not token:
        minus = text[span[0] : span[0] + 1] == "-"
        raise _fault(text, mark, "a number is negative here" if minus else "a number is missing here")
    if token.isascii() and token.isdigit():
        raise _fault(text, mark, f"{token} is too large for a CPU number", f"the highest is {CPU_LIMIT - 1}")
    if token.lower() in ("all", "auto", "none", "nobind"):
        lone = "is written in small letters" if token.lower() == "all" else "stands alone"
        raise _fault(text, mark, f"the word {token.lower()!r} {lone}")
    raise _fault(text, mark, f"{token!r} is not a number")


def _fault(text: str, span: tuple[int, int], message: str, hint: str = "") -> MaskError:
    return MaskError(message, text=text, span=span, hint=hint or f"masks look like {EXAMPLES}")
