"""What rounds say about candidates: log ratios within rounds, and the confidence interval of their median.

*Which ratio.* Candidates of one round run one after the other, so a slow change of the machine concerns all
of them. Compared are therefore only runs of the same round: the logarithm of the ratio, above 0 if the first
candidate is better.

*Which interval.* The interval of the median ratio is between two of the sorted ratios. Each ratio is below
the true median with probability 1/2, so the number of ratios below it is binomial, and binomial coefficients
say which two. That needs no normal noise: times have bursts and several modes, and a few outliers change
nothing.

*Which correction.* A session stops as soon as the answer is clear, and recommends the best of many
candidates. Both find differences by chance: looking after every round at 95 % shows one between two equal
candidates in every fourth session. So results are looked at only after planned rounds (8, 12, 18, 27, 40, …),
and the permitted error of 5 % is divided by the number of looks, and by the number of comparisons with a
reference (Bonferroni). Then all intervals of a session hold together with a probability of 95 %, whichever
candidate is chosen because of them, and whenever the session stops. The median ratio of the best of many
candidates is optimistic, because the best one also had luck; its interval is not.

That none of several candidates is better by what matters is a single statement, which is wrong only if it is
wrong of one of them. So its error is divided by the number of looks only.

A session that is resumed with more rounds has more planned looks, each with a smaller part of the error.
Looks that took place before had a larger part, so the error is above 5 % at most by that of the added looks:
by 0.8 % from 40 to 60 rounds.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache

from ompbind.bench.candidates import drop_ranks
from ompbind.bench.records import Candidate, ComparisonResult, Kind, Run, Session, Status, Verification
from ompbind.record import Record

MAX_INVALID = 3  # a candidate whose runs were not bound as planned in so many checks in a row is disqualified

FIRST_LOOK = 8
"""The round of the first look. Each further look is after half as many rounds again: 12, 18, 27, 40, …"""

ERROR = 0.05
"""The probability at most that a session shows a difference between equal candidates, over all looks."""

MAX_ROUNDS = 1000  # of a session

BETTER = {ComparisonResult.BEST, ComparisonResult.FASTER}
NOT_BETTER = {ComparisonResult.SLOWER, ComparisonResult.SAME}


class Evidence(Record):
    """Log ratios within rounds: their number, median and range, and the interval of the median.

    `interval` is None if there are too few rounds.
    """

    rounds: int
    median: float
    range: tuple[float, float]
    interval: tuple[float, float] | None


class RunIndex:
    """What the decisions need of the runs of a session, by candidate, and how two candidates are compared.

    `runs` are all runs, and `last` is the last round of each candidate. `logs` are the logarithms of the
    first metric of valid runs by round, negative for times: a higher number is better. `values` are the
    finite values of all rounds in the order of runs; warm-ups have none. `disqualified` are reasons.

    `error` is the permitted error of one comparison at one look, `error_of_look` that of one look alone, as
    planned at the start of the session. `matters` is the log ratio that matters.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.runs: dict[str, list[Run]] = {candidate.name: [] for candidate in session.candidates}
        self.logs: defaultdict[str, dict[int, float]] = defaultdict(dict)
        self.values: defaultdict[str, list[float]] = defaultdict(list)
        direction = 1 if session.metrics[0].higher else -1
        for run in session.runs:
            self.runs.setdefault(run.candidate, []).append(run)
            if run.counts and math.isfinite(value := run.values[0]):
                self.values[run.candidate].append(value)
                if value > 0:
                    self.logs[run.candidate][run.round] = direction * math.log(value)
        self.last = {name: own[-1].round if own else 0 for name, own in self.runs.items()}
        reasons = {name: _find_disqualification(own) for name, own in self.runs.items()}
        self.disqualified = {name: reason for name, reason in reasons.items() if reason}
        self.matters = math.log1p(session.rules.matters)
        self.error_of_look = ERROR / len(make_looks(session.rules.max_rounds))
        comparisons = sum(len(names) for group in make_groups(session) for names in group.references.values())
        self.error = self.error_of_look / max(1, comparisons)

    def find_last(self, candidates: Iterable[str]) -> int:
        """Return the last round in which any of the candidates ran, 0 if none."""
        return max((self.last.get(name, 0) for name in candidates), default=0)

    def find_ratios(self, name: str, other: str) -> dict[int, float]:
        """Return the log ratio of each round in which both have a valid run; above 0 `name` is better."""
        others = self.logs.get(other, {})
        own = self.logs.get(name, {})
        return {number: log - others[number] for number, log in own.items() if number in others}

    def compare(self, name: str, other: str) -> Evidence | None:
        """Return what the rounds say about two candidates, None without rounds; above 0 `name` is better."""
        ratios = [*self.find_ratios(name, other).values()]
        if not ratios:
            return None
        return Evidence(
            rounds=len(ratios),
            median=statistics.median(ratios),
            range=(min(ratios), max(ratios)),
            interval=make_median_interval(ratios, self.error),
        )

    def judge(self, name: str, other: str) -> ComparisonResult:
        """Return whether a candidate is better than a reference; BEST means better by what matters."""
        evidence = self.compare(name, other)
        if evidence is None or evidence.interval is None:
            return ComparisonResult.UNKNOWN
        low, high = evidence.interval
        if -self.matters <= low and high <= self.matters:
            return ComparisonResult.SAME
        if low > 0:
            return ComparisonResult.BEST if evidence.median >= self.matters else ComparisonResult.FASTER
        return ComparisonResult.SLOWER if high < 0 else ComparisonResult.UNKNOWN

    def can_be_better(self, name: str, other: str) -> bool:
        """Return whether a candidate can be better than another by what matters."""
        ratios = [*self.find_ratios(name, other).values()]
        interval = make_median_interval(ratios, 2 * self.error_of_look)  # one side counts
        return interval is None or interval[1] > self.matters

    def estimate_more_rounds(self, evidence: Evidence | None) -> int | None:
        """Return after how many more rounds a look would decide if nothing changes; None if too many.

        An interval decides if it excludes 0 or is within what matters. Its width shrinks with the square root
        of the number of rounds. The first interval is the whole range.
        """
        needed, rounds = float(find_least_rounds(self.error)), 0
        if evidence:
            rounds, median = evidence.rounds, evidence.median
            low, high = evidence.interval or evidence.range
            below, above = median - low, high - median
            margins = [(max(below, above), self.matters - abs(median)), (above, -median)]
            if median >= self.matters:
                margins.append((below, median))
            growth = ((width / margin) ** 2 for width, margin in margins if margin > 0)
            needed = max(needed, rounds * min(growth, default=math.inf))
        looks = make_looks(MAX_ROUNDS)
        return next((look - rounds for look in looks if look >= needed and look > rounds), None)


def _find_disqualification(runs: Iterable[Run]) -> str:
    violated = 0
    for run in runs:
        if run.status == Status.FAILED:
            return run.reason or "a run failed"
        if run.status == Status.INVALID:
            violated += 1
            if violated == MAX_INVALID:
                return f"not bound as planned in {MAX_INVALID} checks: {run.reason}"
        elif run.verification == Verification.VERIFIED:
            violated = 0
    return ""


class Group(Record):
    """Candidates that do the same work, in the order in which they can be the reference.

    `ranks` is None for several numbers of ranks. `reference` is "" if all are disqualified. `contenders` are
    all others that are not disqualified, the simplest first. `references` are the candidates that each
    contender is compared with: the reference, and with several numbers of ranks the first candidate with its
    number, which shows the effect of binding, and the first number with its binding, which shows the effect
    of the number.
    """

    ranks: int | None
    candidates: tuple[Candidate, ...]
    reference: str
    contenders: tuple[str, ...]
    references: Mapping[str, tuple[str, ...]]


def make_groups(session: Session, disqualified: Collection[str] = ()) -> tuple[Group, ...]:
    """Return the groups in the order of the candidates: one, or one for each number of ranks."""
    if session.rules.same_work:
        return (_make_group(session.candidates, disqualified),) if session.candidates else ()
    return _split_by_ranks(session.candidates, disqualified)


def _split_by_ranks(candidates: Sequence[Candidate], disqualified: Collection[str]) -> tuple[Group, ...]:
    numbers = dict.fromkeys(candidate.ranks for candidate in candidates)
    parts = ([each for each in candidates if each.ranks == number] for number in numbers)
    return tuple(_make_group(part, disqualified) for part in parts)


def _make_group(candidates: Sequence[Candidate], disqualified: Collection[str]) -> Group:
    by_kind = tuple(sorted(candidates, key=lambda each: list(Kind).index(each.kind)))
    able = [each for each in by_kind if each.name not in disqualified]
    reference = able[0].name if able else ""
    # simple candidates first: without ompbind, then those with the fewest choices
    simple = sorted(able, key=lambda each: (each.kind != Kind.UNBOUND, len(each.choices)))
    references = {}
    for each in able:
        same_number = next(other.name for other in able if other.ranks == each.ranks)
        bindings = _list_bindings(each)
        same_binding = next(other.name for other in able if not bindings.isdisjoint(_list_bindings(other)))
        found = dict.fromkeys((reference, same_number, same_binding))
        references[each.name] = tuple(name for name in found if name != each.name)
    numbers = {each.ranks for each in candidates}
    return Group(
        ranks=numbers.pop() if len(numbers) == 1 else None,
        candidates=by_kind,
        reference=reference,
        contenders=tuple(each.name for each in simple if each.name != reference),
        references=references,
    )


def make_parts(group: Group, name: str) -> tuple[Group, ...]:
    """Return the groups whose ratios have one cause: each number of ranks, then the numbers of ranks.

    The last part has the candidates with the binding of `name`; if only one number of ranks has this binding,
    the unbound candidates. A part with one number of ranks is left out.
    """
    if group.ranks is not None:
        return (group,)
    able = [each for each in group.candidates if each.name in group.references]
    parts = _split_by_ranks(group.candidates, {each.name for each in group.candidates} - {*group.references})
    for bindings in (*(_list_bindings(each) for each in able if each.name == name), {Kind.UNBOUND.value}):
        same = [each for each in able if not bindings.isdisjoint(_list_bindings(each))]
        if len({each.ranks for each in same}) > 1:
            return (*parts, _make_group(same, ()))
    return parts


def _list_bindings(candidate: Candidate) -> set[str]:
    """Return the names of a candidate and of its equals, without the number of ranks."""
    return {drop_ranks(name, candidate.ranks) for name in (candidate.name, *candidate.same)}


def make_looks(max_rounds: int) -> tuple[int, ...]:
    """Return the rounds after which results are looked at: 8, 12, 18, 27, 40, …; the last one is the end."""
    looks = [FIRST_LOOK]
    while looks[-1] * 3 // 2 <= max_rounds:
        looks.append(looks[-1] * 3 // 2)
    return (*looks[:-1], max_rounds)


def make_median_interval(values: Sequence[float], error: float) -> tuple[float, float] | None:
    """Return the confidence interval of the median, (low, high); None if there are too few values.

    `error` is the probability at most that the true median is outside, both sides together.
    """
    cut = find_cut(len(values), error)
    ordered = sorted(values)
    return (ordered[cut - 1], ordered[-cut]) if cut else None


def find_least_rounds(error: float) -> int:
    """Return the number of rounds from which on there is an interval; see `make_median_interval`."""
    return next(rounds for rounds in range(1, MAX_ROUNDS) if find_cut(rounds, error))


@cache
def find_cut(size: int, error: float) -> int:
    """Return the rank of the lower limit among `size` sorted values, from 1; 0 if there are too few values.

    The upper limit has the same rank from the end.
    """
    cut, outcomes, term = 0, 1, 1  # outcomes, among 2**size, with at most `cut` values below the median
    while 2 * outcomes / 2**size <= error:
        term = term * (size - cut) // (cut + 1)  # the binomial coefficient of `cut`: faster than math.comb
        cut += 1
        outcomes += term
    return cut
