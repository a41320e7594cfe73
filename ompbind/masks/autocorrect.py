"""Correct a mask that has syntax errors: find the closest text that the grammar accepts.

Valid items stay as they are written. Every other item is first normalized (`_normalize`: other dashes, commas
and quotes), then corrected by the first rule whose pattern matches (`_RULES`), and dropped if the result is
still not valid. The machine is not known here: a corrected mask may name CPUs that do not exist.
"""

import re
from collections.abc import Callable

from ompbind.cpuset import CPU_LIMIT
from ompbind.errors import MaskError
from ompbind.masks.grammar import SELECTABLE, WORDS, TextSpan, find_item_spans, is_hex, read_items, split_span
from ompbind.text import suggest_name

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
    known = [str(level) for level in SELECTABLE]
    single = other.lower().removesuffix("s")
    return next((_NAMES.get(name, name) for name in (other.lower(), single) if name in (*known, *_NAMES)), "")


def correct_mask(text: str) -> str:
    """Return the closest valid mask text; "auto" if no item can be kept."""
    if text.strip().lower() in WORDS:
        return text.strip().lower()
    parts = (_correct_items(text, span, _correct_item) for span in split_span(text, (0, len(text)), "|"))
    return "|".join(part for part in parts if part) or "auto"


def _correct_items(text: str, part: TextSpan, correct: Callable[[str], str]) -> str:
    """Return the items of a part, with `correct` applied to invalid ones; "" if none is left."""
    items = [text[begin:end] for begin, end in find_item_spans(text, part)]
    return ",".join(filter(None, (item if _is_valid(item) else correct(item) for item in items)))


def _is_valid(text: str) -> bool:
    try:
        read_items(text, (0, len(text)))
    except MaskError:
        return False
    return True


def _correct_item(item: str) -> str:
    """Return a corrected item, or several if it names several things; "" if nothing can be kept."""
    normalized = _normalize(item)
    return _correct_items(normalized, (0, len(normalized)), _correct_normalized)


def _normalize(item: str) -> str:
    """Replace other characters by the grammar's; spaces that separate numbers become commas."""
    text = item.translate(_CHARACTERS).lower().strip()
    if is_hex(text):
        return re.sub(r"[^0-9a-fx^,]", "", text)
    text = re.sub(r"\.{2,}", "-", text)
    text = re.sub(r"\s*([-:/.#^])\s*", r"\1", text)
    text = re.sub(r"([-:/#^])\1+", r"\1", text)
    text = re.sub(r"^(\d+-\d+):(?=\d+-)", r"\1,", text)
    text = re.sub(r"(?<=\d)[:/](?=[a-z])", ".", text)
    text = re.sub(r"(?<=\d)\.(?=\d)", ",", text)
    text = re.sub(r"^([a-z].*)\.\^(.+)$", r"\1,^\1.\2", text)
    return re.sub(r"\s+", ",", text)


def _correct_normalized(item: str) -> str:
    """Return an item corrected by the first rule that matches it; "" if it is still not valid."""
    prefix, body = ("^", item[1:]) if item.startswith("^") else ("", item)
    corrected = prefix + next(rule for pattern, rule in _RULES if re.match(pattern, body))(body)
    return corrected if _is_valid(corrected) else ""


def _correct_hex(body: str) -> str:
    """Return the hexadecimal digits of every word of a mask, after the prefix `0x`."""
    first, *words = (re.sub(r"[^0-9a-f]", "", word) for word in re.sub(r"^0?x", "", body).split(","))
    return ",".join(["0x" + first, *words])


def _correct_chain(body: str) -> str:
    """Return the selectors of a chain whose names are known, or close to a known name."""
    selectors = (_correct_selector(selector) for selector in body.split("."))
    return ".".join(selector for selector in selectors if selector)


def _correct_selector(selector: str) -> str:
    found = re.match(r"(l[123](?![0-9])|l[123](?=[0-9])|[a-z]+)[^0-9#-]*(#?)(.*)", selector)
    if found is None:
        return ""
    name, hash_mark, numbers = found.groups()
    numbers = _correct_numbers(numbers.replace("#", ""))
    if name in _THREADS:
        return numbers
    known = [str(level) for level in SELECTABLE]
    name = _NAMES.get(name) or suggest_name(name, known)
    return f"{name}:{hash_mark}{numbers or 0}" if name else ""


def _correct_numbers(body: str) -> str:
    """Return the number, range or stride at the start of a text, with the lower bound first."""
    found = re.match(r"\D*(\d+)(?:-(\d*)(?::(\d*)(?:/(\d*))?)?)?", body)
    if found is None:
        return ""
    low, high, used, group = (_read_clipped(number) for number in found.groups())
    if low is None or low >= CPU_LIMIT:
        return ""
    if high is None:
        return str(low)
    first, last = sorted((low, min(high, CPU_LIMIT - 1)))
    stride = sorted(number for number in (used, group) if number)
    return f"{first}-{last}" + (f":{'/'.join(map(str, stride))}" if stride else "")


def _read_clipped(digits: str | None) -> int | None:
    """Return the number that any count of digits names, at most CPU_LIMIT; None for no digits."""
    if not digits:
        return None
    significant = digits.lstrip("0")
    return min(int(significant or "0"), CPU_LIMIT) if len(significant) <= 7 else CPU_LIMIT


_RULES = (
    (r"(auto|none|nobind|any|every|everything|all|\*)$", lambda _body: "all"),
    (r"0?x|(?=.*[a-f])[0-9a-f]{2,}$", _correct_hex),
    (r"[a-z]", _correct_chain),
    (r"", _correct_numbers),
)
"""How items are corrected: (pattern at the start of the item, function); the first match counts."""
