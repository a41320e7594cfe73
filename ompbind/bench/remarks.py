"""Remarks on the runs of a session: what a reader should know before believing the comparisons.

Nothing is removed because of a remark. To add a remark: a function from _Runs to remarks, and its row in
CHECKS.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ompbind.bench.comparing import RunIndex
from ompbind.bench.records import (
    ComparisonResult,
    GroupConclusion,
    Kind,
    Remark,
    Run,
    Session,
    Status,
    Verification,
)
from ompbind.cpuset import count
from ompbind.record import Record

MIN_VALUES = 8
"""Fewer values have no outliers."""

SPREADS = 6 * 1.4826
"""An outlier is this many median absolute deviations from the median: six standard deviations if normal."""

MIN_STOLEN = 0.01
"""Stolen time is reported for runs that lost this part of their wall time."""

MIN_OTHERS = 0.05
"""Other processes are reported if they used this part of the CPUs during all runs together."""


class _Runs(Record):
    """A session and its groups.

    `compared` are all runs except warm-ups; `own` are the runs of each candidate with warm-ups, `logs` the
    logarithms of its values. `matters` is the log ratio that matters.
    """

    session: Session
    groups: tuple[GroupConclusion, ...]
    compared: tuple[Run, ...]
    own: Mapping[str, Sequence[Run]]
    logs: Mapping[str, Sequence[float]]
    matters: float


def make_remarks(
    session: Session, index: RunIndex, groups: tuple[GroupConclusion, ...]
) -> tuple[Remark, ...]:
    """Return all remarks: first on what was compared, then on values, then on the machine."""
    names = [candidate.name for candidate in session.candidates]
    runs = _Runs(
        session=session,
        groups=groups,
        compared=tuple(run for run in session.runs if run.round),
        own={name: [run for run in session.runs if run.candidate == name] for name in names},
        logs={name: [*index.logs[name].values()] for name in names if name in index.logs},
        matters=math.log1p(session.rules.matters),
    )
    return tuple(remark for check in CHECKS for remark in check(runs))


def _check_invalid(runs: _Runs) -> Iterator[Remark]:
    for name, own in runs.own.items():
        invalid = [run for run in own if run.status == Status.INVALID]
        if invalid:
            verb = "was" if len(invalid) == 1 else "were"
            reason = f": {invalid[-1].reason}" if invalid[-1].reason else ""
            text = f"{len(invalid)} of {count(len(own), 'run')} {verb} not bound as planned{reason}"
            yield Remark(code="invalid", candidate=name, text=text)


def _check_few(runs: _Runs) -> Iterator[Remark]:
    compared = [each for group in runs.groups for each in group.comparisons]
    few = [each for each in compared if each.result == ComparisonResult.UNKNOWN and not each.interval]
    texts = {each.candidate: f"too few rounds for an interval: {each.rounds}" for each in few}
    most = max((each.rounds for each in compared), default=0)
    yield from _share("few-rounds", texts, len(runs.own), f"too few rounds for intervals: {most}")


def _check_unseen(runs: _Runs) -> Iterator[Remark]:
    text, unseen = "binding not verified: {} shorter than a sample", {}
    bound = [each.name for each in runs.session.candidates if each.kind != Kind.UNBOUND]
    for name in bound:
        results = [run.verification for run in runs.own[name]]
        checks = len(results) - results.count(Verification.NOT_CHECKED)
        if checks and results.count(Verification.UNSEEN) == checks:
            unseen[name] = checks
    texts = {name: text.format(count(checks, "run")) for name, checks in unseen.items()}
    yield from _share("unseen", texts, len(bound), text.format(count(sum(unseen.values()), "run")))


def _check_outliers(runs: _Runs) -> Iterator[Remark]:
    for name, logs in runs.logs.items():
        if found := find_outliers(logs, runs.matters):
            direction = 1 if runs.session.metrics[0].higher else -1
            low, high = (f"{math.exp(end(direction * each for each in found)):.2f}" for end in (min, max))
            factors = low if low == high else f"{low} to {high}"
            verb = "is an outlier" if len(found) == 1 else "are outliers"
            text = f"{len(found)} of {count(len(logs), 'value')} {verb}: {factors} times the median"
            yield Remark(code="outliers", candidate=name, text=text)


def find_outliers(logs: Sequence[float], matters: float) -> list[float]:
    """Return the differences from the median of the values that are outliers."""
    if len(logs) < MIN_VALUES:
        return []
    median = statistics.median(logs)
    differences = [log - median for log in logs]
    limit = SPREADS * statistics.median(map(abs, differences))
    return [each for each in differences if abs(each) > max(limit, matters)]


def _check_lost_time(runs: _Runs) -> Iterator[Remark]:
    total = count(len(runs.compared), "run")
    lost = {
        "throttled": ("the CPU quota stopped threads", [run.conditions.throttled_s for run in runs.compared]),
        "stolen": (
            "the hypervisor took CPU time",
            [
                run.conditions.stolen_s
                for run in runs.compared
                if (run.conditions.stolen_s or 0) > MIN_STOLEN * max(run.wall_s, default=0)
            ],
        ),
    }
    for code, (text, times) in lost.items():
        if found := [time for time in times if time]:
            yield Remark(code=code, text=f"{text} in {len(found)} of {total}, {sum(found):.2g} s in all")


def _check_others(runs: _Runs) -> Iterator[Remark]:
    known = [run for run in runs.compared if run.conditions.others_share is not None and run.wall_s]
    weights = [max(run.wall_s) for run in known]
    shares = [run.conditions.others_share or 0.0 for run in known]
    if known and (share := statistics.fmean(shares, weights)) >= MIN_OTHERS:
        text = f"other processes used {100 * share:.0f} % of the CPUs of the runs, in single runs"
        yield Remark(code="others", text=f"{text} up to {100 * max(shares):.0f} %")
    shared = sum(bool(run.conditions.other_runs) for run in runs.compared)
    if shared:
        text = f"other runs were live during {shared} of {count(len(runs.compared), 'run')}"
        yield Remark(code="other-runs", text=text)


CHECKS: tuple[Callable[[_Runs], Iterable[Remark]], ...] = (
    _check_invalid,
    _check_few,
    _check_unseen,
    _check_outliers,
    _check_lost_time,
    _check_others,
)


def _share(code: str, texts: Mapping[str, str], total: int, common: str) -> Iterator[Remark]:
    """Yield one remark for the session if more than half of several candidates have it, else one for each."""
    if len(texts) > max(1, total / 2):
        yield Remark(code=code, text=common)
    else:
        yield from (Remark(code=code, candidate=name, text=text) for name, text in texts.items())
