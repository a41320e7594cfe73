"""What stands between the commas of a mask, as values, and the grammar that reads it.

An *item* names CPUs by number, or by a chain of *selectors* (domains of a level, narrowed by domains
inside them), or names everything; one that begins with `^` takes away. Every item and selector remembers
its place in the text, so that what is wrong with it on some machine can be marked there.
"""

from collections.abc import Iterator

from ompbind.cpuset import CPU_LIMIT, CpuSet, strided
from ompbind.errors import MaskError
from ompbind.machine.model import Level
from ompbind.record import Record

SELECTABLE = tuple(level for level in Level if level is not Level.CLUSTER)
"""The levels that a mask may name domains of, as in `node:0`."""

WORDS = ("all", "auto", "none", "nobind")
"""What the grammar has words for; only the first may stand beside anything else."""

EXAMPLES = "'0-3', '0-7|8-15', 'node:0', 'package:1.core:0-3' or 'all,^0'"

Span = tuple[int, int]
"""A place in a text: its first character, and one past its last."""


class Selector(Record):
    """Domains of one level: the given logical numbers among the allowed, or OS numbers (`#`).

    `numbers` rise, and are what one range or stride names.
    """

    level: Level
    numbers: tuple[int, ...]
    by_os_number: bool = False
    span: Span = (0, 0)


class Item(Record):
    """One item of a part: CPUs by number, or a chain of selectors, or everything (neither).

    `taken_away` tells that it began with `^`.
    """

    span: Span = (0, 0)
    taken_away: bool = False
    cpus: tuple[int, ...] = ()
    chain: tuple[Selector, ...] = ()


def read_items(text: str, part: Span) -> tuple[Item, ...]:
    """Read the items of one part; raises MaskError with the position of what does not fit the grammar."""
    return tuple(_item(text, span) for span in item_spans(text, part))


def item_spans(text: str, part: Span) -> Iterator[Span]:
    """Yield the places of the items of one part; the words of a kernel mask are one item."""
    spans = split(text, part, ",")[::-1]
    while spans:
        begin, end = spans.pop()
        if is_hex(text[begin:end]):
            while spans and _is_hex_word(text[spans[-1][0] : spans[-1][1]]):
                end = spans.pop()[1]
        yield begin, end


def split(text: str, span: Span, separator: str) -> list[Span]:
    """Cut a span at the separators, blanks around the pieces left out."""
    start, pieces = span[0], []
    for piece in text[span[0] : span[1]].split(separator):
        begin = start + len(piece) - len(piece.lstrip())
        pieces.append((begin, begin + len(piece.strip())))
        start += len(piece) + 1
    return pieces


def is_hex(token: str) -> bool:
    """Tell a hexadecimal mask, or the first word of a kernel's, from other items."""
    return token.removeprefix("^").lstrip()[:2].lower() == "0x"


def _is_hex_word(token: str) -> bool:
    """Tell a further word of a kernel mask, always eight digits, from a CPU number."""
    return len(token) == 8 and all(digit in "0123456789abcdefABCDEF" for digit in token)


def _item(text: str, span: Span) -> Item:
    begin, end = span
    token = text[begin:end]
    if not token:
        raise _fault(text, (begin, begin + 1), "an item is empty here")
    taken_away = token.startswith("^")
    if taken_away:
        token = token[1:].lstrip()
        begin = end - len(token)
    if token == "all":
        return Item(span=span, taken_away=taken_away)
    if is_hex(token) and token[0] != "^":
        return Item(span=span, taken_away=taken_away, cpus=_hex(text, (begin, end)))
    if _is_chain(token):
        chain = tuple(_selector(text, piece) for piece in split(text, (begin, end), "."))
        return Item(span=span, taken_away=taken_away, chain=chain)
    return Item(span=span, taken_away=taken_away, cpus=_range(text, (begin, end)))


def _is_chain(token: str) -> bool:
    name = token.partition(".")[0].strip()
    return token[:1].isalpha() and (":" in token or name in list(SELECTABLE))


def _hex(text: str, span: Span) -> tuple[int, ...]:
    digits = text[span[0] + 2 : span[1]]
    try:
        cpus = tuple(CpuSet.from_mask(",".join(word.strip() for word in digits.split(","))))
    except ValueError:
        raise _fault(text, span, f"{_shown(text, span)} is not a hexadecimal mask") from None
    if not cpus:
        raise _fault(text, span, "this mask names no CPU")
    return cpus


def _selector(text: str, span: Span) -> Selector:
    name, colon, numbers = text[span[0] : span[1]].partition(":")
    mark = (span[0], span[0] + max(1, len(name)))
    if not name:
        raise _fault(text, mark, "a selector is missing here", "a dot stands between two selectors")
    level = next((level for level in SELECTABLE if level == name), None)
    if level is None:
        known = ", ".join(f"{level}:" for level in SELECTABLE)
        raise _fault(text, mark, f"unknown selector {_shown(text, mark)}", f"known are {known}")
    if not colon:
        raise _fault(text, mark, f"the selector {name!r} has no number", f"{name}:0 is the first {name}")
    by_os_number = numbers.startswith("#")
    numbered = _range(text, (span[0] + len(name) + 1 + by_os_number, span[1]))
    return Selector(level=level, numbers=numbered, by_os_number=by_os_number, span=span)


def _range(text: str, span: Span) -> tuple[int, ...]:
    """Read "5", "0-3", "0-15:2" or "0-31:2/8" into numbers, in order."""
    body, colon, _rest = text[span[0] : span[1]].partition(":")
    low, dash, _high = body.partition("-")
    start = _number(text, (span[0], span[0] + len(low)))
    if not dash and not colon:
        return (start,)
    if not dash:
        raise _fault(text, span, "a stride needs a range before it", "'0-15:2' names every second CPU")
    stop = _number(text, (span[0] + len(low) + 1, span[0] + len(body)))
    if stop < start:
        raise _fault(text, span, f"the range {body!r} is reversed", "the lower number stands first")
    if not colon:
        return tuple(range(start, stop + 1))
    width, step = _stride(text, (span[0] + len(body) + 1, span[1]))
    return tuple(strided(start, stop, width, step))


def _stride(text: str, span: Span) -> tuple[int, int]:
    used, slash, _group = text[span[0] : span[1]].partition("/")
    first = _number(text, (span[0], span[0] + len(used)))
    width, step = (first, _number(text, (span[0] + len(used) + 1, span[1]))) if slash else (1, first)
    if width == 0 or step == 0:
        raise _fault(text, span, "a stride of zero names no CPU", "'0-15:2' names every second CPU")
    if width > step:
        raise _fault(text, span, f"cannot take {width} of every {step}", "'0-31:2/8' names 2 of every 8")
    return width, step


def _number(text: str, span: Span) -> int:
    token = text[span[0] : span[1]]
    is_decimal = token.isascii() and token.isdigit()
    digits = (token.lstrip("0") or "0") if is_decimal else ""
    if 0 < len(digits) <= 7 and int(digits) < CPU_LIMIT:
        return int(digits)
    mark = (span[0], max(span[1], span[0] + 1))
    if token.startswith("-") or (not token and text[span[0] : span[0] + 1] == "-"):
        raise _fault(text, mark, "a number is negative here", "numbers begin with 0")
    if not token:
        raise _fault(text, mark, "a number is missing here")
    if is_decimal:
        highest = f"the highest is {CPU_LIMIT - 1}"
        raise _fault(text, mark, f"{_shown(text, span)} is too large for a CPU number", highest)
    if token.lower() in WORDS:
        alone = token.lower() == WORDS[0] or text.strip() == token
        lone = "must be in small letters" if alone else "must stand alone"
        raise _fault(text, mark, f"the word {token.lower()!r} {lone}")
    raise _fault(text, mark, f"{_shown(text, span)} is not a number")


def _shown(text: str, span: Span) -> str:
    """Quote what is at fault, cut where it is long: the mark shows where it is."""
    token = text[span[0] : span[1]]
    return repr(token if len(token) <= 40 else f"{token[:37]}...")


def _fault(text: str, span: Span, message: str, hint: str = "") -> MaskError:
    return MaskError(message, text=text, span=span, hint=hint or f"masks look like {EXAMPLES}")
