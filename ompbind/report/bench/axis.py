"""Axes of pictures: the position of a value, and the values that are marked."""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil, floor, log, log10

from ompbind.record import Record

_LEAST_RATIO = 1.02  # the last ratio divided by the first, at least, so that noise does not look large
_LEAST_PART = 1e-9  # of the values, between the first and the last, at least
_LEAST_SPAN = 1e-200  # smaller values count as 0, as arithmetic with them is not exact
_MARGIN = 0.03  # of the values, before the first and after the last


class Axis(Record):
    """An axis from `low` to `high`, with positions from 0 to `length`.

    If it is `logarithmic`, equal factors have equal lengths, and `low` is above 0.
    """

    low: float
    high: float
    length: int
    logarithmic: bool = False

    def find(self, value: float) -> int:
        """Return the position of a value; values beyond the axis are at its ends."""
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            return round(self.length * log(value / self.low) / log(self.high / self.low))
        return round(self.length * (value - self.low) / (self.high - self.low))


def make_ratio_axis(ratios: Iterable[float], length: int) -> Axis:
    """Make a logarithmic axis that shows these ratios, and 1."""
    shown = (1.0, *ratios)
    low, high = min(shown), max(shown)
    widen = max(_LEAST_RATIO / (high / low), 1.0) ** 0.5 * (high / low) ** _MARGIN
    return Axis(low=low / widen, high=high * widen, length=length, logarithmic=True)


def make_value_axis(values: Iterable[float], length: int, *, from_zero: bool = False) -> Axis:
    """Make an axis that shows these values, and 0 on request."""
    shown = (*values, *((0.0,) if from_zero else ()))
    low, high = min(shown), max(shown)
    span = max(high - low, abs(high) * _LEAST_PART)
    margin = (span if span > _LEAST_SPAN else 1.0) * _MARGIN
    is_zero = from_zero and low == 0
    return Axis(low=low if is_zero else low - margin, high=high + margin, length=length)


def list_ticks(axis: Axis, most: int) -> Sequence[float]:
    """Return at most so many round values of an axis, in rising order."""
    if axis.logarithmic and axis.high / axis.low > 4:
        for factors in ((1, 2, 5), (1, 3), (1,)):
            ticks = tuple(_list_powers(axis, factors))
            if len(ticks) <= most:
                return ticks
        return ticks[:: ceil(len(ticks) / most)]
    for step in _list_steps((axis.high - axis.low) / most):
        first, last = ceil(axis.low / step), floor(axis.high / step)
        if last - first < most:
            break
    return tuple(float(f"{number * step:.12g}") for number in range(first, last + 1))


def _list_powers(axis: Axis, factors: Sequence[int]) -> Iterator[float]:
    """Yield the values of an axis that are a factor and a power of ten."""
    for exponent in range(floor(log10(axis.low)), ceil(log10(axis.high)) + 1):
        for factor in factors:
            if axis.low <= (value := float(f"{factor}e{exponent}")) <= axis.high:
                yield value


def _list_steps(least: float) -> Iterator[float]:
    """Yield round distances between ticks, from about a least distance on."""
    exponent = floor(log10(least))
    for power in (exponent, exponent + 1):
        yield from (float(f"{factor}e{power}") for factor in (1, 2, 5))
