"""OpenMP places: which ones each binding mode gives to a rank, and their text, written and read.

A *place* is a set of CPUs that an OpenMP thread may float in. The text is only ever `{a,b},{c}` with
decimal numbers, the one form that every OpenMP runtime reads in the same way; past TEXT_LIMIT bytes
runs are written `{start:length}`. The *initial thread* of a program is narrowed to its first place by
most runtimes, and everything that it creates inherits that, so the first place is the whole rank
unless the mode is "exact".
"""

from collections.abc import Iterator, Sequence

from ompbind.cpuset import CpuSet
from ompbind.openmp.binding import Bind
from ompbind.openmp.runtimes import OmpRuntime

TEXT_LIMIT = min(one.facts.places_limit for one in OmpRuntime if one.facts.places_limit)
"""Bytes of OMP_PLACES that every runtime accepts."""

Cores = Sequence[CpuSet]
"""The CPUs of one rank, core by core, in the rank's order."""


def make_places(cpus: Sequence[int], cores: Cores, bind: Bind) -> tuple[CpuSet, ...]:
    """Make the places of a rank with these CPUs, in order; none at all for Bind.NONE."""
    if bind is Bind.NONE:
        return ()
    whole = CpuSet(cpus)
    if bind is Bind.RANK:
        return (whole,)
    if bind is Bind.CORE:
        return (whole, *cores[1:])
    each = tuple(CpuSet((cpu,)) for cpu in cpus)
    return each if bind is Bind.EXACT else (whole, *each[1:])


def places_text(places: Sequence[CpuSet]) -> str | None:
    """Write places as OMP_PLACES wants them, or None when no form is short enough for every runtime."""
    for write in (_numbers, _runs):
        text = ",".join(f"{{{write(place)}}}" for place in places)
        if len(text) <= TEXT_LIMIT:
            return text
    return None


def _numbers(place: CpuSet) -> str:
    return ",".join(map(str, place))


def _runs(place: CpuSet) -> str:
    return ",".join(str(start) if length == 1 else f"{start}:{length}" for start, length in place.runs())


def parse_places(text: str) -> tuple[CpuSet, ...] | None:
    """Read OMP_PLACES as far as it is braces with numbers or `start:length` in them; None for other forms."""
    text = "".join(text.split())
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        return tuple(CpuSet(_parse_place(place)) for place in text[1:-1].split("},{"))
    except ValueError:
        return None


def _parse_place(place: str) -> Iterator[int]:
    for item in place.split(","):
        start, colon, length = item.partition(":")
        first = _parse_number(start)
        yield from range(first, first + (_parse_number(length) if colon else 1))


def _parse_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise ValueError(f"{text!r} is not a CPU number")
    return int(text)
