"""Mask text → `Mask`; the error about a wrong text suggests the closest text that the grammar accepts.

A suggestion keeps valid items as they are written. Every other item is first normalized (`_normalize`),
then corrected by the first rule whose pattern matches (`_RULES`), and dropped if the result is still not
valid. The machine is not known here: a corrected mask may name CPUs that do not exist.
"""

import re
from collections.abc import Callable

from ompbind.cpuset import CPU_LIMIT
from ompbind.errors import MaskError
from ompbind.masks.mask import (
    MASK_WORDS,
    SELECTABLE,
    WORDS,
    Mask,
    find_item_spans,
    is_hex,
    read_items,
    split_span,
)
from ompbind.text import suggest_name


def parse_mask(text: str) -> Mask:
    """Read mask text; raises MaskError with the position of the first error.

    >>> len(parse_mask("0-3|4-7").parts)
    2
    """
    word = MASK_WORDS.get(text.strip())
    if word:
        return Mask(text=text, word=word)
    try:
        parts = tuple(read_items(text, span) for span in split_span(text, (0, len(text)), "|"))
    except MaskError as error:
        error.suggestion = _correct_mask(text)
        raise
    return Mask(text=text, parts=parts)


_CHARACTERS = str.maketrans("‐‑‒–—−;+&!~=", "------,,,^^:", "'\"()[]{}<>")
"""Characters that are replaced (other dashes, `;` for a comma, `!` for `^`) or dropped (quotes, brackets)."""

_OTHER_NAMES = {
    "package": ("socket", "sockets", "pack", "pkg", "s"),
    "node": ("numa", "numanode", "ldom", "mem", "n"),
    "l3": ("llc", "ccx", "cache", "l3cache", "l"),
    "die": ("ccd", "tile"),
    "core": ("c", "cpucore", "l1"),
    "l2": ("cluster", "module"),
}
"""The names of levels in other tools."""

_NAMES = {other: name for name, others in _OTHER_NAMES.items() for other in others}
_THREADS = ("cpu", "cpus", "pu", "pus", "thread", "threads", "processor", "p", "t", "hwthread")
"""The names of CPUs in other tools; a mask names CPUs by number alone."""


def name_level(other: str) -> str:
    """Return the name of a level, also for its plural and its name in other tools; "" if it is none."""
    known = {**_NAMES, **{str(level): str(level) for level in SELECTABLE}}
    return known.get(other.lower()) or known.get(other.lower().removesuffix("s"), "")


def _correct_mask(text: str) -> str:
    """Return the closest valid mask text; "auto" if no item can be kept."""
    if text.strip().lower() in WORDS:
        return text.strip().lower()
    parts = (
        _correct_items(text[begin:end], lambda item: _correct_items(_normalize(item), _correct_item))
        for begin, end in split_span(text, (0, len(text)), "|")
    )
    return "|".join(part for part in parts if part) or "auto"


def _correct_items(part: str, correct: Callable[[str], str]) -> str:
    """Return the items of a part, with `correct` applied to invalid ones; "" if none is left."""
    items = [part[begin:end] for begin, end in find_item_spans(part, (0, len(part)))]
    return ",".join(filter(None, (item if _is_valid(item) else correct(item) for item in items)))


def _is_valid(text: str) -> bool:
    try:
        read_items(text, (0, len(text)))
    except MaskError:
        return False
    return True


def _normalize(item: str) -> str:
    """Replace other characters by the grammar's; spaces that separate numbers become commas."""
    text = item.translate(_CHARACTERS).lower().strip()
    if is_hex(text):
        return re.sub(r"[^0-9a-fx^,]", "", text)
    for pattern, replacement in (
        (r"\.{2,}", "-"),
        (r"\s*([-:/.#^])\s*", r"\1"),
        (r"([-:/#^])\1+", r"\1"),
        (r"^(\d+-\d+):(?=\d+-)", r"\1,"),
        (r"(?<=\d)[:/](?=[a-z])", "."),
        (r"(?<=\d)\.(?=\d)", ","),
        (r"^([a-z].*)\.\^(.+)$", r"\1,^\1.\2"),
        (r"\s+", ","),
    ):
        text = re.sub(pattern, replacement, text)
    return text


def _correct_item(item: str) -> str:
    """Return a normalized item corrected by the first rule that matches it; "" if it is still not valid."""
    body = item.removeprefix("^")
    rule = next(rule for pattern, rule in _RULES if re.match(pattern, body))
    corrected = item[: len(item) - len(body)] + rule(body)
    return corrected if _is_valid(corrected) else ""


def _correct_hex(body: str) -> str:
    """Return the hexadecimal digits of every word of a mask, after the prefix `0x`."""
    words = re.sub(r"^0?x", "", body).split(",")
    return "0x" + ",".join(re.sub(r"[^0-9a-f]", "", word) for word in words)


def _correct_selector(selector: str) -> str:
    found = re.match(r"(l[123](?![0-9])|l[123](?=[0-9])|[a-z]+)[^0-9#-]*(#?)(.*)", selector)
    if found is None:
        return ""
    name, hash_mark, numbers = found.groups()
    numbers = _correct_numbers(numbers.replace("#", ""))
    if name in _THREADS:
        return numbers
    name = _NAMES.get(name) or suggest_name(name, [str(level) for level in SELECTABLE])
    return f"{name}:{hash_mark}{numbers or 0}" if name else ""


def _correct_numbers(body: str) -> str:
    """Return the number, range or stride at the start of a text, with the lower bound first."""
    found = re.match(r"\D*(\d+)(?:-(\d*)(?::(\d*)(?:/(\d*))?)?)?", body)
    if found is None:
        return ""
    # a number of many digits counts as the limit: int() refuses thousands of digits
    numbers = [
        min(int(digits.lstrip("0")[:8] or 0), CPU_LIMIT) if digits else None for digits in found.groups()
    ]
    low, high, *stride = numbers
    if low is None or low >= CPU_LIMIT:
        return ""
    if high is None:
        return str(low)
    first, last = sorted((low, min(high, CPU_LIMIT - 1)))
    steps = sorted(number for number in stride if number)
    return f"{first}-{last}" + (f":{'/'.join(map(str, steps))}" if steps else "")


_RULES = (
    (r"(auto|none|nobind|any|every|everything|all|\*)$", lambda _body: "all"),
    (r"0?x|(?=.*[a-f])[0-9a-f]{2,}$", _correct_hex),
    (r"[a-z]", lambda body: ".".join(filter(None, map(_correct_selector, body.split("."))))),
    (r"", _correct_numbers),
)
"""How items are corrected: (pattern at the start of the item, function); the first match counts."""
