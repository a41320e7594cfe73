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
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache

from ompbind.bench.candidates import drop_ranks
from ompbind.bench.records import (
    Candidate,
    ComparisonResult,
    Kind,
    Phase,
    Rules,
    Run,
    Session,
    Status,
    Verification,
)
from ompbind.record import Record

MAX_INVALID = 3
"""A candidate whose runs were not bound as planned in so many checks in a row is disqualified."""


class RunIndex(Record):
    """What the decisions need of the runs of a session. A key with a phase is (phase, candidate).

    `logs` are the logarithms of the first metric of valid runs by round, negative for times: a higher number
    is better. `values` are the finite values of all rounds in the order of runs, by candidate. `last` is the
    last round in which a candidate ran. `disqualified` are reasons by candidate.
    """

    logs: Mapping[tuple[Phase, str], Mapping[int, float]]
    values: Mapping[str, Sequence[float]]
    last: Mapping[tuple[Phase, str], int]
    disqualified: Mapping[str, str]

    def find_last(self, phase: Phase, candidates: Iterable[str]) -> int:
        """Return the last round of a phase in which any of the candidates ran, 0 if none."""
        return max((self.last.get((phase, name), 0) for name in candidates), default=0)

    def compare(self, phase: Phase, name: str, other: str) -> dict[int, float]:
        """Return the log ratio of each round in which both have a valid run; above 0 `name` is better."""
        others = self.logs.get((phase, other), {})
        own = self.logs.get((phase, name), {})
        return {number: log - others[number] for number, log in own.items() if number in others}


def make_index(session: Session) -> RunIndex:
    """Return the index of all runs."""
    logs: defaultdict[tuple[Phase, str], dict[int, float]] = defaultdict(dict)
    values: defaultdict[str, list[float]] = defaultdict(list)
    last: dict[tuple[Phase, str], int] = {}
    direction = 1 if session.metrics[0].higher else -1
    for run in session.runs:
        key = (run.phase, run.candidate)
        last[key] = run.round
        if is_valid(run) and run.phase != Phase.WARM_UP and math.isfinite(run.values[0]):
            value = run.values[0]
            values[run.candidate].append(value)
            if is_comparable(value):
                logs[key][run.round] = direction * math.log(value)
    return RunIndex(logs=logs, values=values, last=last, disqualified=_find_disqualified(session.runs))


def is_valid(run: Run) -> bool:
    """Return whether a run counts: it succeeded and was bound as planned."""
    return run.status == Status.OK and bool(run.values)


def is_comparable(value: float) -> bool:
    """Return whether a ratio to a value is possible."""
    return 0 < value < math.inf


def _find_disqualified(runs: Iterable[Run]) -> dict[str, str]:
    """Return the reasons by candidate: a failed run, or MAX_INVALID violated checks without a valid check."""
    reasons: dict[str, str] = {}
    violated: dict[str, int] = {}
    for run in runs:
        name = run.candidate
        if run.status == Status.FAILED:
            reasons.setdefault(name, run.reason or "a run failed")
        elif run.status == Status.INVALID:
            violated[name] = violated.get(name, 0) + 1
            if violated[name] == MAX_INVALID:
                reasons.setdefault(name, f"not bound as planned in {MAX_INVALID} checks: {run.reason}")
        elif run.verification == Verification.VERIFIED:
            violated[name] = 0
    return reasons


REFERENCE_ORDER = (Kind.UNBOUND, Kind.DEFAULT, Kind.VARIED)
"""The reference of a group is its first candidate that can run, in this order of kinds."""


class Group(Record):
    """Candidates that do the same work, in the order in which they can be the reference.

    `ranks` is None for several numbers of ranks. `reference` is "" if all are disqualified. `contenders` are
    compared with the reference: all others that are not disqualified, the simplest first. `references` are
    the candidates that show the effect of binding, by candidate: the first with the same number of ranks.
    """

    ranks: int | None
    candidates: tuple[Candidate, ...]
    reference: str
    contenders: tuple[str, ...]
    references: Mapping[str, str]

    def find_simpler(self, name: str, others: Iterable[str]) -> tuple[str, ...]:
        """Return which other candidates are simpler than a candidate."""
        complexity = {each.name: _get_complexity(each) for each in self.candidates}
        return tuple(other for other in others if complexity[other] < complexity[name])


def make_groups(session: Session, index: RunIndex) -> tuple[Group, ...]:
    """Return the groups in the order of the candidates: one, or one for each number of ranks."""
    if session.rules.same_work:
        return (_make_group(session.candidates, index),) if session.candidates else ()
    return _split_by_ranks(session.candidates, index)


def _split_by_ranks(candidates: Sequence[Candidate], index: RunIndex) -> tuple[Group, ...]:
    numbers = dict.fromkeys(candidate.ranks for candidate in candidates)
    return tuple(_make_group([it for it in candidates if it.ranks == number], index) for number in numbers)


def make_parts(group: Group, name: str, index: RunIndex) -> tuple[Group, ...]:
    """Return the groups whose ratios have one cause: each number of ranks, then the numbers of ranks.

    The last part has the candidates with the binding of `name`; if only one number of ranks has this binding,
    the unbound candidates. A part with one number of ranks is left out.
    """
    if group.ranks is not None:
        return (group,)
    able = [each for each in group.candidates if each.name in group.references]
    parts = _split_by_ranks(group.candidates, index)
    for binding in (*(_list_bindings(each)[0] for each in able if each.name == name), Kind.UNBOUND.value):
        same = [each for each in able if binding in _list_bindings(each)]
        if len(same) > 1:
            return (*parts, _make_group(same, index))
    return parts


def _list_bindings(candidate: Candidate) -> list[str]:
    """Return the names of a candidate and of its equals, without the number of ranks."""
    return [drop_ranks(name, candidate.ranks) for name in (candidate.name, *candidate.same)]


def count_comparisons(session: Session, groups: tuple[Group, ...]) -> int:
    """Return how many comparisons with a reference were planned at the start of the session."""
    return len(session.candidates) - len(groups)


def _make_group(candidates: Sequence[Candidate], index: RunIndex) -> Group:
    by_kind = tuple(sorted(candidates, key=lambda each: REFERENCE_ORDER.index(each.kind)))
    able = [each for each in by_kind if each.name not in index.disqualified]
    reference = able[0].name if able else ""
    others = sorted((each for each in able if each.name != reference), key=_get_complexity)
    numbers = {each.ranks for each in candidates}
    first = {each.ranks: each.name for each in reversed(able)}
    return Group(
        ranks=numbers.pop() if len(numbers) == 1 else None,
        candidates=by_kind,
        reference=reference,
        contenders=tuple(each.name for each in others),
        references={each.name: first[each.ranks] for each in able},
    )


def _get_complexity(candidate: Candidate) -> tuple[bool, int]:
    """Return a key that sorts simple candidates first: without ompbind, fewest choices, the default plan."""
    return candidate.kind != Kind.UNBOUND, len(candidate.choices)


# The confidence interval of a median, without assumptions about the distribution.
#
# No package is needed: the interval is between two of the sorted values, and binomial coefficients say
# which. An interval from the standard deviation would need normal noise, and times have bursts and several
# modes.


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
