"""What a mask with faults was probably meant to be: the closest text that the grammar takes.

Items that the grammar takes stay as they are written; each of the others is mended by what it looks like,
and left out where that does not make it an item. No machine is asked: what is mended may name CPUs that
a machine does not have.
"""

import re
from collections.abc import Callable
from difflib import get_close_matches

from ompbind.cpuset import CPU_LIMIT
from ompbind.errors import MaskError
from ompbind.masks.grammar import SELECTABLE, WORDS, Span, is_hex, item_spans, read_items, split

_SIGNS = str.maketrans("‐‑‒–—−;+&!~=", "------,,,^^:", "'\"()[]{}<>")
"""Signs that stand for those of the grammar in other places, and those that stand for nothing."""

_OTHER_NAMES = {
    "package": ("socket", "sockets", "pack", "pkg", "s"),
    "node": ("numa", "numanode", "mem", "n"),
    "l3": ("llc", "ccx", "cache", "l"),
    "die": ("ccd", "tile"),
    "core": ("c", "cpucore", "l1"),
    "l2": ("cluster", "module"),
}
"""What other tools call the levels."""

_NAMES = {other: name for name, others in _OTHER_NAMES.items() for other in others}
_THREADS = ("cpu", "cpus", "pu", "pus", "thread", "threads", "processor", "p", "t", "hwthread")
"""What other tools call CPUs; masks name these by bare numbers."""


def mended(text: str) -> str:
    """Return the closest mask text without faults; "auto" where nothing of it can be kept."""
    if text.strip().lower() in WORDS:
        return text.strip().lower()
    parts = (_mend_items(text, span, _mend_item) for span in split(text, (0, len(text)), "|"))
    return "|".join(part for part in parts if part) or "auto"


def _mend_items(text: str, part: Span, mend: Callable[[str], str]) -> str:
    """Return the items of a part, those mended that the grammar does not take; "" if none is left."""
    items = [text[begin:end] for begin, end in item_spans(text, part)]
    return ",".join(filter(None, (item if _reads(item) else mend(item) for item in items)))


def _reads(text: str) -> bool:
    try:
        read_items(text, (0, len(text)))
    except MaskError:
        return False
    return True


def _mend_item(item: str) -> str:
    """Return what is left of an item, which can be several; "" if nothing is."""
    tidied = _tidy(item)
    return _mend_items(tidied, (0, len(tidied)), _mend_piece)


def _tidy(item: str) -> str:
    """Replace the signs of other places by those of the grammar; blanks part items where no sign does."""
    text = item.translate(_SIGNS).lower().strip()
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


def _mend_piece(piece: str) -> str:
    """Return one tidied item without its fault, "" if it has another one."""
    sign, body = ("^", piece[1:]) if piece.startswith("^") else ("", piece)
    made = sign + next(mend for looks, mend in _MENDS if re.match(looks, body))(body)
    return made if _reads(made) else ""


def _mend_hex(body: str) -> str:
    """Keep the hexadecimal digits of a mask, and fill up its further words."""
    first, *words = (re.sub(r"[^0-9a-f]", "", word) for word in re.sub(r"^0?x", "", body).split(","))
    return ",".join(["0x" + first, *words])


def _mend_chain(body: str) -> str:
    """Keep the selectors whose names are known, or close to known ones."""
    selectors = (_mend_selector(selector) for selector in body.split("."))
    return ".".join(selector for selector in selectors if selector)


def _mend_selector(selector: str) -> str:
    found = re.match(r"(l[123](?![0-9])|l[123](?=[0-9])|[a-z]+)[^0-9#-]*(#?)(.*)", selector)
    if found is None:
        return ""
    name, sign, numbers = found.groups()
    numbers = _mend_numbers(numbers.replace("#", ""))
    if name in _THREADS:
        return numbers
    known = [str(level) for level in SELECTABLE]
    name = _NAMES.get(name) or next(iter(get_close_matches(name, known, 1)), "")
    return f"{name}:{sign}{numbers or 0}" if name else ""


def _mend_numbers(body: str) -> str:
    """Return the number, range or stride that a text begins with, its faults taken out."""
    found = re.match(r"\D*(\d+)(?:-(\d*)(?::(\d*)(?:/(\d*))?)?)?", body)
    if found is None:
        return ""
    low, high, used, group = (_clipped(number) for number in found.groups())
    if low is None or low >= CPU_LIMIT:
        return ""
    if high is None:
        return str(low)
    first, last = sorted((low, min(high, CPU_LIMIT - 1)))
    stride = sorted(number for number in (used, group) if number)
    return f"{first}-{last}" + (f":{'/'.join(map(str, stride))}" if stride else "")


def _clipped(digits: str | None) -> int | None:
    """Read digits, however many, as a number that is at most one too large; None if there are none."""
    if not digits:
        return None
    kept = digits.lstrip("0")
    return min(int(kept or "0"), CPU_LIMIT) if len(kept) <= 7 else CPU_LIMIT


_MENDS = (
    (r"(auto|none|nobind|any|every|everything|all|\*)$", lambda _body: "all"),
    (r"0?x|(?=.*[a-f])[0-9a-f]{2,}$", _mend_hex),
    (r"[a-z]", _mend_chain),
    (r"", _mend_numbers),
)
"""How items are mended, by what they look like; the first that fits."""
