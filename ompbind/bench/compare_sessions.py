"""Compare sessions that ran at different times: each candidate of one session with itself in another.

Within a session candidates run in turn, so drift of the machine concerns all of them. Two sessions are not
interleaved: what has changed between them (the program, the machine, its temperature, other processes) is
part of their ratio. The interval covers only the noise within the sessions.

The interval is of the shift between the logarithms of both samples (Hodges and Lehmann): the differences of
all pairs of values are sorted, and the distribution of the Mann-Whitney statistic says which of them limit
the interval. It needs no normal noise. The standard library is enough.
"""

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from statistics import NormalDist, median

from ompbind.bench.comparing import make_index
from ompbind.bench.records import Session
from ompbind.errors import RequestError
from ompbind.record import Record


class Difference(Record):
    """One thing that differs: its name, and its text in each of the sessions, "" for none.

    If both texts are equal, `about` says everything.
    """

    about: str
    before: str = ""
    now: str = ""

    @property
    def text(self) -> str:
        """The difference as a part of a sentence: "allowed CPUs: 0-7, now 0-3"."""
        if self.before == self.now:
            return self.about
        return f"{self.about}: {self.before or 'none'}, now {self.now or 'none'}"


def find_differences(before: Session, now: Session) -> tuple[Difference, ...]:
    """Return how the machine, the command, and what is measured differ; seed, rounds and options may differ.

    Candidates are compared by `find_candidate_differences`.
    """
    texts = zip(_render_facts(before), _render_facts(now), strict=True)
    return tuple(
        Difference(about=about, before=first, now=second)
        for (about, first), (_, second) in texts
        if first != second
    )


def _render_facts(session: Session) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of everything that must be equal."""
    hardware = session.hardware
    yield "processor", hardware.processor
    yield "topology", f"digest {hardware.digest[:12]}"
    yield "allowed CPUs", hardware.allowed
    yield "CPU quota", "none" if hardware.quota is None else f"{hardware.quota:g} CPUs"
    yield "command", shlex.join(session.command)
    metrics = []
    for metric in session.metrics:
        better = "higher" if metric.higher else "lower"
        pattern = f" {metric.pattern!r}" if metric.pattern else ""
        metrics.append(f"{metric.name}{pattern} ({better} is better)")
    yield "metrics", ", ".join(metrics)
    yield "same work in all candidates", "yes" if session.rules.same_work else "no"
    yield "--matters", f"{session.rules.matters:.2%}"


def find_candidate_differences(before: Session, now: Session) -> tuple[Difference, ...]:
    """Return candidates that only one session has, and candidates with another plan or other variables.

    The digest of a plan contains the command, so digests are compared only if the commands are equal.
    """
    old, new = ({each.name: each for each in session.candidates} for session in (before, now))
    found = []
    if old.keys() != new.keys():
        found.append(Difference(about="candidates", before="; ".join(old), now="; ".join(new)))
    changed = [name for name in old if name in new and old[name].digest != new[name].digest]
    if changed and before.command == now.command:
        found.append(Difference(about=f"other plans or variables of {'; '.join(changed)}"))
    return tuple(found)


ERROR = 0.05
"""The probability that the interval of any candidate does not contain its ratio, all candidates together."""

_EXACT_LIMIT = 50  # values of both samples up to which the distribution is exact; the normal one is close


class CandidateChange(Record):
    """A candidate in several sessions.

    - `medians`: of the first metric in each session, None without valid runs
    - `runs`: the number of valid runs in each session, without warm-ups
    - `ratio`: of the last session to the first; above 1 the candidate is better in the last. None if one of
      them has no valid runs
    - `interval`: its confidence interval, (low, high); None if there are too few runs
    """

    candidate: str
    medians: tuple[float | None, ...]
    runs: tuple[int, ...]
    ratio: float | None = None
    interval: tuple[float, float] | None = None

    @property
    def has_failed(self) -> bool:
        """Return whether the candidate has valid runs in the first session and none in the last."""
        return bool(self.runs[0]) and not self.runs[-1]

    def is_slower(self, limit: float) -> bool:
        """Return whether it takes more time than the first by more than a part of 1; 0.05 is 5 %.

        It does if the whole interval is beyond the limit. For a metric where higher is better, the time is
        the reciprocal of the metric.
        """
        return self.interval is not None and self.interval[1] < 1 / (1 + limit)


class SessionsComparison(Record):
    """Several sessions, oldest first as they were given, and all their candidates.

    `differences` are between the first and the last session: the machine, the command, what is measured, and
    plans of candidates.
    """

    sessions: tuple[Session, ...]
    changes: tuple[CandidateChange, ...]
    differences: tuple[Difference, ...] = ()


def compare_sessions(sessions: Sequence[Session]) -> SessionsComparison:
    """Compare the first metric of each candidate in at least two sessions, the last with the first.

    Candidates are in the order of the first session; candidates that only later sessions have come after it.
    The error is divided by the number of candidates that are in both sessions. Raises RequestError if the
    first metrics differ.
    """
    metrics = dict.fromkeys(session.metrics[0] for session in sessions)
    if len(metrics) > 1:
        measured = ", ".join(dict.fromkeys(metric.name for metric in metrics))
        hint = "compare sessions with the same --metric and --higher"
        raise RequestError(f"the sessions do not measure the same: {measured}", hint=hint)
    values = [make_index(session).values for session in sessions]
    names = dict.fromkeys(candidate.name for session in sessions for candidate in session.candidates)
    both = [name for name in names if values[0].get(name) and values[-1].get(name)]
    error = ERROR / max(1, len(both))
    first, last = sessions[0], sessions[-1]
    higher = last.metrics[0].higher
    return SessionsComparison(
        sessions=tuple(sessions),
        changes=tuple(
            _compare(name, [of.get(name, ()) for of in values], higher=higher, error=error) for name in names
        ),
        differences=(*find_differences(first, last), *find_candidate_differences(first, last)),
    )


def find_failures(comparison: SessionsComparison, limit: float) -> tuple[CandidateChange, ...]:
    """Return the candidates that are slower by more than `limit`, or have no valid runs now."""
    return tuple(it for it in comparison.changes if it.has_failed or it.is_slower(limit))


def _compare(name: str, values: Sequence[Sequence[float]], *, higher: bool, error: float) -> CandidateChange:
    """Return how a candidate has changed, from its values in each session."""
    before, now = values[0], values[-1]
    change = CandidateChange(
        candidate=name,
        medians=tuple(median(found) if found else None for found in values),
        runs=tuple(map(len, values)),
    )
    if not (before and now) or min(*before, *now) <= 0:
        return change
    better, worse = (now, before) if higher else (before, now)
    differences = sorted(math.log(first) - math.log(second) for first in better for second in worse)
    cut = find_mann_whitney_cut(len(before), len(now), error)
    interval = (math.exp(differences[cut - 1]), math.exp(differences[-cut])) if cut else None
    return change.replace(ratio=math.exp(median(differences)), interval=interval)


@cache
def find_mann_whitney_cut(first: int, second: int, error: float) -> int:
    """Return which of the sorted differences limits the interval, from 1; 0 if there are too few values.

    The upper limit has the same rank from the end. `error` is for both sides together.
    """
    if first + second > _EXACT_LIMIT:
        mean, deviation = first * second / 2, math.sqrt(first * second * (first + second + 1) / 12)
        return max(0, math.floor(mean - NormalDist().inv_cdf(1 - error / 2) * deviation))
    arrangements = math.comb(first + second, first)
    cut, below = 0, 0
    for ways in _count_arrangements(first, second):
        below += ways
        if 2 * below / arrangements > error:
            break
        cut += 1
    return cut


def _count_arrangements(first: int, second: int) -> Iterable[int]:
    """Return how many orders of two samples have the statistic 0, 1, 2 and so on.

    These are the coefficients of the Gaussian binomial: the product of (1 - q^(second+i)) / (1 - q^i) for i
    from 1 to `first`.
    """
    ways = [1] + [0] * (first * second)
    for i in range(1, first + 1):
        for at in range(len(ways) - 1, second + i - 1, -1):
            ways[at] -= ways[at - second - i]
        for at in range(i, len(ways)):
            ways[at] += ways[at - i]
    return ways
