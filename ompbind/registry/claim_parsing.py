"""Parse the text of a claim, which any user can write.

A text with an invalid field, or with more than a machine can need, counts as no claim.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ompbind.cpuset import CpuSet
from ompbind.machine.model import MAX_CPUS
from ompbind.planning.occupancy import LiveRun
from ompbind.registry.claim_format import FIELDS, HEAD, RANKS_LIMIT, RESTARTS
from ompbind.text import clean_name

_RANK_LINE = "\nrank "
_SET_LIMIT = 5 * MAX_CPUS // 2  # characters of a set: every second CPU of the largest machine


def parse_text(text: str, uid: int, *, with_ranks: bool = True) -> LiveRun | None:
    """Return the run in a text that the user `uid` has written; None if the text is not a valid claim.

    Planning needs no single ranks: without `with_ranks` their lines are not parsed.
    """
    if not with_ranks and text.endswith("\n"):
        text = text.partition(_RANK_LINE)[0].rstrip("\n") + "\n"
    head, *lines = text.split("\n")
    if head != HEAD or not text.endswith("\n") or text.count(_RANK_LINE) > RANKS_LIMIT:
        return None
    pairs = [line.split(" ", 1) for line in lines if " " in line]
    values = dict(pairs)
    try:
        given = [(name, values[key]) for key, name in FIELDS.items() if key in values]
        fields = {name: _PARSERS.get(name, clean_name)(value) for name, value in given}
        ranks = tuple(_parse_rank(value) for key, value in pairs if key == "rank")
        restarts = _parse_number(values.get(RESTARTS.strip(), "0"))
        return LiveRun(uid=uid, ranks=ranks, restarts=restarts, **fields)
    except (TypeError, ValueError):  # a field is missing or invalid
        return None


def _parse_rank(text: str) -> tuple[int, CpuSet]:
    number, _, cpus = text.partition(" ")
    return _parse_number(number), _parse_cpus(cpus)


def _parse_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError(f"{text!r} is not a number")
    return int(text)


def _parse_cpus(text: str) -> CpuSet:
    """Parse a set without strides: runs write none, and a short stride can name very many CPUs."""
    if ":" in text or len(text) > _SET_LIMIT:
        raise ValueError(f"{text!r} has a stride, or is too long")
    cpus = CpuSet.from_list(text)
    if cpus.bits.bit_length() > MAX_CPUS:
        raise ValueError("CPUs past the highest possible one")
    return cpus


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "run_id": lambda text: clean_name(text or "?"),
    "pid": _parse_number,
    "pid_space": _parse_number,
    "started": _parse_number,
    "claimed": _parse_cpus,
    "avoided": _parse_cpus,
    "wanted": _parse_cpus,
}
"""Field of `LiveRun` → its parser; all other fields are names."""
