"""Read the value of OMP_PLACES, in the forms that `places` writes."""

from collections.abc import Iterator

from ompbind.cpuset import CpuSet


def parse_places(text: str) -> tuple[CpuSet, ...] | None:
    """Return the places in a value of OMP_PLACES; None for forms other than `{a,b}` and `{start:length}`."""
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
