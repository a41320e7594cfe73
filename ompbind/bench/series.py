"""What the values of one candidate look like in the order of its runs: outliers, slow starts, trends, modes.

Each function returns None (or nothing) for normal noise, except in at most 5 % of series.
"""

import math
import statistics
from collections.abc import Sequence

from ompbind.record import Record

MIN_VALUES = 8
"""Fewer values show nothing."""

SPREADS = 6 * 1.4826
"""An outlier is this many median absolute deviations from the median: six standard deviations if normal."""

START = 3
"""How many first runs are compared with the others."""

CERTAIN = 2.58
"""The standard score that a trend needs, for an error of 1 %."""

MIN_MODE_VALUES = 12
MODE_SHARE = 0.2
"""A mode has at least this part of the values, so that outliers are no mode."""

UNIFORM_SPLIT = 0.75
"""The part of the variance that the two halves of a uniform distribution explain; a normal one has 0.64."""


class Modes(Record):
    """Two modes: the part of the values in the lower mode, and the mean of each."""

    share: float
    low: float
    high: float


def find_outliers(logs: Sequence[float], matters: float) -> list[float]:
    """Return the differences from the median of the values that are outliers."""
    if len(logs) < MIN_VALUES:
        return []
    median = statistics.median(logs)
    differences = [log - median for log in logs]
    limit = SPREADS * statistics.median(map(abs, differences))
    return [each for each in differences if abs(each) > max(limit, matters)]


def find_slow_start(logs: Sequence[float], matters: float) -> float | None:
    """Return by how much the first START values are below the median of the others, if all are the lowest.

    By chance that happens in one of 56 series of eight values, and more rarely in longer series.
    """
    first, others = logs[:START], logs[START:]
    if len(logs) < MIN_VALUES or max(first) >= min(others):
        return None
    difference = statistics.median(others) - statistics.median(first)
    return difference if difference >= matters else None


def find_trend(logs: Sequence[float], matters: float) -> float | None:
    """Return how much the values rise from their first to their last third (Mann-Kendall test)."""
    count = len(logs)
    if count < MIN_VALUES:
        return None
    rises = sum(
        (later > log) - (later < log) for number, log in enumerate(logs) for later in logs[number + 1 :]
    )
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    third = count // 3
    rise = statistics.median(logs[-third:]) - statistics.median(logs[:third])
    is_certain = abs(rises) - 1 > CERTAIN * deviation and rises * rise > 0
    return rise if is_certain and abs(rise) >= matters else None


def find_modes(logs: Sequence[float], matters: float) -> Modes | None:
    """Return the two modes if the best split in two explains more of the variance than without modes.

    The limit was found by simulation: 5 % of uniform series with 12 to 270 values are above it, and fewer
    than 1 % of normal series.
    """
    count = len(logs)
    if count < MIN_MODE_VALUES:
        return None
    ordered = sorted(logs)
    mean, variance = statistics.fmean(ordered), statistics.pvariance(ordered)
    best, split, below = 0.0, 0, 0.0
    least = math.ceil(MODE_SHARE * count)
    for number, log in enumerate(ordered[: count - least], 1):
        below += log - mean
        between = below**2 / (number * (count - number))
        if number >= least and between > best:
            best, split = between, number
    limit = UNIFORM_SPLIT + 0.5 / math.sqrt(count)
    if best <= limit * variance:
        return None
    low, high = statistics.fmean(ordered[:split]), statistics.fmean(ordered[split:])
    if high - low < matters:
        return None
    return Modes(share=split / count, low=low, high=high)
