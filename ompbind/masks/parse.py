"""Mask text → `Mask`; the error about a wrong text suggests the closest text that the grammar accepts.

A suggestion keeps valid items as they are written. The idea: `_EDITS` are tried in order, small changes
first; each changes all items that are not valid yet, and the last one drops them. The machine is not known
here: a corrected mask may name CPUs that do not exist.
"""

import re

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
    """Return the closest valid mask text; "auto" for an empty text, "" if no item can be kept."""
    if not text.strip():
        return "auto"
    if text.strip().lower() in WORDS:
        return text.strip().lower()
    for pattern, replacement in _EDITS:
        parts = []
        for part in split_span(text, (0, len(text)), "|"):
            items = [text[begin:end] for begin, end in find_item_spans(text, part)]
            items = [item if _is_valid(item) else re.sub(pattern, replacement, item) for item in items]
            parts.append(",".join(filter(None, items)))
        text = "|".join(filter(None, parts))
    return text


def _is_valid(item: str) -> bool:
    try:
        read_items(item, (0, len(item)))
    except MaskError:
        return False
    return True


def _correct_selector(found: re.Match[str]) -> str:
    """Return a selector with the name and the number that the grammar has; "" if the name is unknown."""
    name, mark, numbers = found[1], "#" if "#" in found[2] else "", found[3].replace("#", "")
    if name in _THREADS:
        return numbers
    name = name_level(name) or suggest_name(name, [str(level) for level in SELECTABLE])
    return f"{name}:{mark}{numbers or 0}" if name else ""


def _cut_end(found: re.Match[str]) -> str:
    """Return the longest valid start of a text that ends with a number; "" if there is none."""
    text = found[0]
    ends = [] if is_hex(text) else [end.start() for end in re.finditer(r"(?<=\d)(?!\d)", text)]
    return next((text[:end] for end in reversed(ends) if _is_valid(text[:end])), "")


_EDITS = (
    (r"(?s).+", lambda found: found[0].translate(_CHARACTERS).lower()),
    (r"(\^?)(?<!\w)(?:auto|none|nobind|any|every|everything|all|\*)$", r"\1all"),
    (r"(?s)^(\^?)0?x(.*)", lambda found: f"{found[1]}0x{re.sub('[^0-9a-f,]', '', found[2])}"),
    (r"^(\^?)(?=.*[a-f])([0-9a-f]{2,})$", r"\g<1>0x\2"),
    (r"\s*([-:/.#^])\s*", r"\1"),
    (r"\.{2,}", "-"),
    (r"([-:/#^])\1+", r"\1"),
    (r"^(\d+-\d+):(?=\d+-)", r"\1,"),  # 0-3:4-7
    (r"(?<=\d)[:/](?=[a-z])", "."),  # node:0:core:1
    (r"(?<=\d)\.(?=\d)|\s+", ","),
    (r"^([a-z].*)\.\^(.+)$", r"\1,^\1.\2"),  # node:0.^core:0
    (r"(?<![a-z\d])(l[123]|[a-z]+)([^\d.]*)([^.]*)", _correct_selector),
    (r"^(\^?)[^\d^a-z]+", r"\1"),  # characters before the first number
    (r"(?<![\da-z])0+(?=\d)", ""),
    # by length first, because int() refuses thousands of digits
    (r"(\d+)([-/])(\d+)", lambda found: found[2].join(sorted(sorted(found.group(1, 3)), key=len))),
    (r"(?<=-)\d{5,}", lambda found: str(min(int(found[0][:8]), CPU_LIMIT - 1))),
    (r"(-\d+):0*/", r"\1:"),  # 0-7:0/4
    (r"[^.]+", _cut_end),
    (r"^(\^?)\.+|\.(?=\.|$)", r"\1"),  # dots without a selector
    (r"(?s).+", _cut_end),
)
"""What is tried in order for items that are not valid: (pattern, replacement)."""
