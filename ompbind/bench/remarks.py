"""Remarks on the runs of a session: what a reader should know before believing the comparisons.

Nothing is removed because of a remark. To add a remark: a function from _Runs to remarks, and its row in
CHECKS.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ompbind.bench.comparing import RunIndex, is_comparable, is_valid
from ompbind.bench.records import (
    ComparisonResult,
    GroupConclusion,
    Kind,
    Phase,
    Remark,
    Run,
    Session,
    Status,
    Verification,
)
from ompbind.cpuset import count
from ompbind.record import Record

# What the values of one candidate look like in the order of its runs: outliers, slow starts, trends, modes.
#
# Each function returns None (or nothing) for normal noise, except in at most 5 % of series.


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


MIN_STOLEN = 0.01
"""Stolen time is reported for runs that lost this part of their wall time."""

MIN_OTHERS = 0.05
"""Other processes are reported if they used this part of the CPUs during all runs together."""


class _Runs(Record):
    """A session and its groups.

    `compared` are all runs except warm-ups. `logs` are the logarithms of their values, by candidate, in the
    order of runs. `matters` is the log ratio that matters. `trends` are the ratios of the last values to the
    first values, `slow_starts` how many times better the other runs are than the first ones, by candidate.
    """

    session: Session
    groups: tuple[GroupConclusion, ...]
    compared: tuple[Run, ...]
    logs: Mapping[str, Sequence[float]]
    matters: float
    trends: Mapping[str, float]
    slow_starts: Mapping[str, float]


def make_remarks(
    session: Session, index: RunIndex, groups: tuple[GroupConclusion, ...]
) -> tuple[Remark, ...]:
    """Return all remarks: first on what was compared, then on values, then on the machine.

    A throughput starts slowly if it is low. The first runs do not count for a trend, and a trend makes the
    first runs slow too, so a candidate has one of both at most.
    """
    logs = {name: [*map(math.log, filter(is_comparable, own))] for name, own in index.values.items()}
    matters = math.log1p(session.rules.matters)
    trends = _find_ratios({name: find_trend(own[START:], matters) for name, own in logs.items()})
    direction = 1 if session.metrics[0].higher else -1
    better = {name: [direction * log for log in own] for name, own in logs.items() if name not in trends}
    runs = _Runs(
        session=session,
        groups=groups,
        compared=tuple(run for run in session.runs if run.phase != Phase.WARM_UP),
        logs=logs,
        matters=matters,
        trends=trends,
        slow_starts=_find_ratios({name: find_slow_start(own, matters) for name, own in better.items()}),
    )
    return tuple(remark for check in CHECKS for remark in check(runs))


def _find_ratios(logs: Mapping[str, float | None]) -> dict[str, float]:
    """Return the ratios for the log ratios that were found."""
    return {name: math.exp(log) for name, log in logs.items() if log is not None}


def _check_references(runs: _Runs) -> Iterator[Remark]:
    kinds = {candidate.name: candidate.kind for candidate in runs.session.candidates}
    for group in runs.groups:
        unbound = [each.candidate for each in group.comparisons if kinds[each.candidate] == Kind.UNBOUND]
        if unbound and group.reference and group.reference not in unbound:
            text = f"{', '.join(unbound)} failed, so the others are compared with {group.reference}"
            yield Remark(code="reference", text=text)


def _check_invalid(runs: _Runs) -> Iterator[Remark]:
    for name, own in _sort_by_candidate(runs.session.runs).items():
        invalid = [run for run in own if run.status == Status.INVALID]
        if invalid:
            verb = "was" if len(invalid) == 1 else "were"
            reason = f": {invalid[-1].reason}" if invalid[-1].reason else ""
            text = f"{len(invalid)} of {count(len(own), 'run')} {verb} not bound as planned{reason}"
            yield Remark(code="invalid", candidate=name, text=text)


def _check_zeros(runs: _Runs) -> Iterator[Remark]:
    for name, own in _sort_by_candidate(runs.compared).items():
        wrong = sum(is_valid(run) and not is_comparable(run.values[0]) for run in own)
        if wrong:
            text = f"{count(wrong, 'value')} of {len(own)} cannot be compared: a ratio needs positive numbers"
            yield Remark(code="not-positive", candidate=name, text=text)


def _check_few(runs: _Runs) -> Iterator[Remark]:
    texts = {
        each.candidate: f"too few rounds for an interval: {each.rounds}"
        for group in runs.groups
        for each in group.comparisons
        if each.result == ComparisonResult.UNKNOWN and each.interval is None
    }
    most = max((each.rounds for group in runs.groups for each in group.comparisons), default=0)
    yield from _share(
        "few-rounds", texts, len(runs.session.candidates), f"too few rounds for intervals: {most}"
    )


def _check_unseen(runs: _Runs) -> Iterator[Remark]:
    text, unseen = "binding not verified: {} shorter than a sample", {}
    bound = [each.name for each in runs.session.candidates if each.kind != Kind.UNBOUND]
    by_candidate = _sort_by_candidate(runs.session.runs)
    for name in bound:
        results = [run.verification for run in by_candidate.get(name, ())]
        checks = len(results) - results.count(Verification.NOT_CHECKED)
        if checks and results.count(Verification.UNSEEN) == checks:
            unseen[name] = checks
    texts = {name: text.format(count(checks, "run")) for name, checks in unseen.items()}
    yield from _share("unseen", texts, len(bound), text.format(count(sum(unseen.values()), "run")))


def _check_outliers(runs: _Runs) -> Iterator[Remark]:
    for name, logs in runs.logs.items():
        if found := find_outliers(logs, runs.matters):
            low, high = (f"{math.exp(end(found)):.2f}" for end in (min, max))
            factors = low if low == high else f"{low} to {high}"
            verb = "is an outlier" if len(found) == 1 else "are outliers"
            text = f"{len(found)} of {count(len(logs), 'value')} {verb}: {factors} times the median"
            yield Remark(code="outliers", candidate=name, text=text)


def _check_slow_starts(runs: _Runs) -> Iterator[Remark]:
    found = runs.slow_starts
    median = statistics.median(found.values()) if found else 1
    first, better = f"the first {START} runs", "are the slowest; the median ratio of the others to them is"
    texts = {name: f"{first} {better} {ratio:.2f}" for name, ratio in found.items()}
    common = f"{first} of {len(found)} candidates {better} {median:.2f}"
    yield from _share("slow-start", texts, len(runs.logs), common)


def _check_trends(runs: _Runs) -> Iterator[Remark]:
    found = runs.trends
    texts = {name: f"the values {_render_trend(trend)}" for name, trend in found.items()}
    median = statistics.median(found.values()) if found else 1
    moved = f"the values of {len(found)} candidates {_render_trend(median)}"
    common = f"{moved}; ratios within rounds are not affected"
    yield from _share("drift", texts, len(runs.logs), common)


def _render_trend(trend: float) -> str:
    return f"{'rose' if trend > 1 else 'fell'} to {trend:.2f} times the first values during the session"


def _check_modes(runs: _Runs) -> Iterator[Remark]:
    """Yield candidates with two modes; a trend or a slow start explains most of them better."""
    explained = {**runs.trends, **runs.slow_starts}
    for name, logs in runs.logs.items():
        modes = None if name in explained else find_modes(logs, runs.matters)
        if modes:
            factor = math.exp(modes.high - modes.low)
            text = f"two modes: {_percent(1 - modes.share)} of the values are {factor:.2f} times the others"
            yield Remark(code="two-modes", candidate=name, text=text)


def _check_lost_time(runs: _Runs) -> Iterator[Remark]:
    total = count(len(runs.compared), "run")
    throttled = [run.conditions.throttled_s for run in runs.compared if run.conditions.throttled_s]
    if throttled:
        part = f"{len(throttled)} of {total}, {sum(throttled):.2g} s in all"
        yield Remark(code="throttled", text=f"the CPU quota stopped threads in {part}")
    stolen = [
        run.conditions.stolen_s
        for run in runs.compared
        if run.conditions.stolen_s and run.conditions.stolen_s > MIN_STOLEN * max(run.wall_s, default=0)
    ]
    if stolen:
        part = f"{len(stolen)} of {total}, {sum(stolen):.2g} s in all"
        yield Remark(code="stolen", text=f"the hypervisor took CPU time in {part}")
    known = [run for run in runs.compared if run.conditions.others_share is not None and run.wall_s]
    weights = [max(run.wall_s) for run in known]
    shares = [run.conditions.others_share or 0.0 for run in known]
    if known and (share := statistics.fmean(shares, weights)) >= MIN_OTHERS:
        text = f"other processes used {_percent(share)} of the CPUs of the runs, in single runs"
        yield Remark(code="others", text=f"{text} up to {_percent(max(shares))}")
    shared = sum(bool(run.conditions.other_runs) for run in runs.compared)
    if shared:
        yield Remark(code="other-runs", text=f"other runs were live during {shared} of {total}")


def _check_memory(runs: _Runs) -> Iterator[Remark]:
    for name, own in _sort_by_candidate(runs.session.runs).items():
        killed = sum(run.conditions.oom_kills for run in own)
        if killed:
            noun = "process" if killed == 1 else "processes"
            text = f"the kernel killed {killed} {noun} because memory was used up"
            yield Remark(code="out-of-memory", candidate=name, text=text)


CHECKS: tuple[Callable[[_Runs], Iterable[Remark]], ...] = (
    _check_references,
    _check_invalid,
    _check_zeros,
    _check_few,
    _check_unseen,
    _check_outliers,
    _check_slow_starts,
    _check_trends,
    _check_modes,
    _check_lost_time,
    _check_memory,
)


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %"


def _sort_by_candidate(runs: Iterable[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.candidate, []).append(run)
    return found


def _share(code: str, texts: Mapping[str, str], total: int, common: str) -> Iterator[Remark]:
    """Yield one remark for the session if more than half of several candidates have it, else one for each."""
    if len(texts) > max(1, total / 2):
        yield Remark(code=code, text=common)
    else:
        yield from (Remark(code=code, candidate=name, text=text) for name, text in texts.items())
