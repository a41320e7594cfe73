"""The confidence interval of a median, without assumptions about the distribution.

No package is needed: the interval is between two of the sorted values, and binomial coefficients say which.
An interval from the standard deviation would need normal noise, and times have bursts and several modes.
"""

from collections.abc import Sequence
from functools import cache


def make_median_interval(values: Sequence[float], error: float) -> tuple[float, float] | None:
    """Return the confidence interval of the median, (low, high); None if there are too few values.

    `error` is the probability at most that the true median is outside, both sides together. Each value is
    below the true median with probability 1/2 (at most, if values can be equal), so the number of values
    below it is binomial.
    """
    cut = find_cut(len(values), error)
    ordered = sorted(values)
    return (ordered[cut - 1], ordered[-cut]) if cut else None


@cache
def find_cut(count: int, error: float) -> int:
    """Return the rank of the lower limit among `count` sorted values, from 1; 0 if there are too few values.

    The upper limit has the same rank from the end.
    """
    cut, outcomes, term = 0, 1, 1  # outcomes, among 2**count, with at most `cut` values below the median
    while 2 * outcomes / 2**count <= error:
        term = term * (count - cut) // (cut + 1)  # the binomial coefficient of `cut`: faster than math.comb
        cut += 1
        outcomes += term
    return cut


@cache
def find_min_count(error: float) -> int:
    """Return the smallest number of values that have an interval with this error."""
    count = 1
    while not find_cut(count, error):
        count += 1
    return count
