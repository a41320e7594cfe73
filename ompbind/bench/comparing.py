"""When results are looked at, and what the ratios within rounds say about two candidates.

Each look could show a difference by chance. So looks take place only after a few planned rounds, and the
permitted error of 5 % is divided by their number and by the number of comparisons. Looking after every round
at 95 % would show a difference between two equal candidates in every fourth session.

A session that is resumed with more rounds has more planned looks, and each look is judged with its smaller
part of the error. Looks that took place before had a larger part, so the error is above 5 % at most by that
of the added looks: by 0.8 % from 40 to 60 rounds.
"""

import math
import statistics
from collections.abc import Collection

from ompbind.bench.intervals import find_min_count, make_median_interval
from ompbind.bench.records import ComparisonResult, Rules
from ompbind.record import Record

FIRST_LOOK = 8
"""The round of the first look. Each further look is after half as many rounds again: 12, 18, 27, 40, …"""

ERROR = 0.05
"""The probability at most that a phase shows a difference between equal candidates, over all looks."""

MAX_MORE_ROUNDS = 10_000
"""A longer session is not proposed."""

BETTER = {ComparisonResult.BEST, ComparisonResult.FASTER}
NOT_BETTER = {ComparisonResult.SLOWER, ComparisonResult.SAME}
DECIDED = {ComparisonResult.BEST, *NOT_BETTER}
"""Results that need no further rounds."""


def make_looks(max_rounds: int) -> tuple[int, ...]:
    """Return the rounds of a phase after which results are looked at: 8, 12, 18, 27, 40, 60, 90, 135, …"""
    looks = []
    look = FIRST_LOOK
    while look <= max_rounds:
        looks.append(look)
        look = look * 3 // 2
    return tuple(looks)


def find_last_round(max_rounds: int) -> int:
    """Return the last round of a phase: the last look, because later rounds could decide nothing."""
    return (make_looks(max_rounds) or (max_rounds,))[-1]


class Criterion(Record):
    """How two candidates are compared at one look.

    `error` is the permitted error of this look and comparison, `matters` the log ratio that matters.
    """

    error: float
    matters: float


def make_criterion(rules: Rules, comparisons: int) -> Criterion:
    """Return the criterion of each of `comparisons` at each planned look."""
    parts = max(1, len(make_looks(rules.max_rounds))) * max(1, comparisons)
    return Criterion(error=ERROR / parts, matters=math.log1p(rules.matters))


class Evidence(Record):
    """Log ratios within rounds: their number, median and range, and the interval of the median.

    `interval` is None if there are too few rounds.
    """

    rounds: int
    median: float
    range: tuple[float, float]
    interval: tuple[float, float] | None


def make_evidence(ratios: Collection[float], criterion: Criterion) -> Evidence | None:
    """Return what log ratios say, None without any."""
    if not ratios:
        return None
    return Evidence(
        rounds=len(ratios),
        median=statistics.median(ratios),
        range=(min(ratios), max(ratios)),
        interval=make_median_interval(tuple(ratios), criterion.error),
    )


def judge(evidence: Evidence | None, criterion: Criterion) -> ComparisonResult:
    """Return the result of a comparison with the reference; BEST means faster by what matters."""
    if evidence is None or evidence.interval is None:
        return ComparisonResult.UNKNOWN
    low, high = evidence.interval
    if -criterion.matters <= low and high <= criterion.matters:
        return ComparisonResult.SAME
    if low > 0:
        return ComparisonResult.BEST if evidence.median >= criterion.matters else ComparisonResult.FASTER
    return ComparisonResult.SLOWER if high < 0 else ComparisonResult.UNKNOWN


def estimate_more_rounds(evidence: Evidence | None, criterion: Criterion) -> int | None:
    """Return after how many more rounds a look would decide if nothing changes; None if that is too many.

    The width of an interval shrinks with the square root of the number of rounds. The first interval is the
    whole range.
    """
    needed, rounds = float(find_min_count(criterion.error)), 0
    if evidence:
        rounds, interval = evidence.rounds, evidence.interval or evidence.range
        needed = max(needed, rounds * _find_growth(evidence.median, interval, criterion.matters))
    if needed > MAX_MORE_ROUNDS:
        return None
    look = next(look for look in make_looks(2 * MAX_MORE_ROUNDS) if look >= needed and look > rounds)
    return look - rounds


def _find_growth(median: float, interval: tuple[float, float], matters: float) -> float:
    """Return the factor of rounds until an interval decides: excludes 0, or is within what matters."""
    below, above = median - interval[0], interval[1] - median
    margins = [(max(below, above), matters - abs(median)), (above, -median)]
    if median >= matters:
        margins.append((below, median))
    return min(((width / margin) ** 2 for width, margin in margins if margin > 0), default=math.inf)
