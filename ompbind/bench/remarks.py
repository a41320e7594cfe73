"""Remarks on the runs of a session: what a reader should know before believing the comparisons.

Nothing is removed because of a remark. To add a remark: a function that yields it, and its call in
`make_remarks`.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from ompbind.bench import records
from ompbind.bench.comparing import RunIndex
from ompbind.bench.records import ComparisonResult, GroupConclusion, Kind, Remark, Status, Verification
from ompbind.cpuset import count, join_words

MIN_VALUES = 8  # fewer values have no outliers

SPREADS = 6 * 1.4826
"""An outlier is this many median absolute deviations from the median: six standard deviations if normal."""

MIN_STOLEN = 0.01  # stolen time is reported for runs that lost this part of their wall time
MIN_OTHERS = 0.05  # other processes are reported if they used this part of the CPUs during all runs together


MORE_THREADS = 1.1  # so many times the threads that were planned must be busy to be others
SIMILAR = {ComparisonResult.SAME, ComparisonResult.UNKNOWN}


def make_remarks(index: RunIndex, groups: Sequence[GroupConclusion]) -> tuple[Remark, ...]:
    """Return all remarks: first on what was compared, then on values, then on the machine."""
    return (
        *_check_invalid(index),
        *_check_few(index, groups),
        *_check_pools(index),
        *_check_unseen(index),
        *_check_outliers(index),
        *_check_machine(index),
    )


def _check_invalid(index: RunIndex) -> Iterator[Remark]:
    for name, own in index.runs.items():
        invalid = [run for run in own if run.status == Status.INVALID]
        if invalid:
            verb = "was" if len(invalid) == 1 else "were"
            reason = f": {invalid[-1].reason}" if invalid[-1].reason else ""
            text = f"{len(invalid)} of {count(len(own), 'run')} {verb} not bound as planned{reason}"
            yield Remark(code="invalid", candidate=name, text=text)


def _check_few(index: RunIndex, groups: Sequence[GroupConclusion]) -> Iterator[Remark]:
    compared = [each for group in groups for each in group.comparisons]
    few = [each for each in compared if each.result == ComparisonResult.UNKNOWN and not each.interval]
    texts = {each.candidate: f"too few rounds for an interval: {each.rounds}" for each in few}
    most = max((each.rounds for each in compared), default=0)
    yield from _share("few-rounds", texts, len(index.runs), f"too few rounds for intervals: {most}")


def _check_pools(index: RunIndex) -> Iterator[Remark]:
    """Yield candidates that differ only in threads, but in no result, if more threads than planned ran."""
    alike: dict[object, list[records.Candidate]] = {}
    for each in index.session.candidates:
        others = tuple(choice for choice in each.choices if choice[0] != "threads")
        if each.kind != Kind.UNBOUND and index.values[each.name]:
            alike.setdefault((each.ranks, each.cpus, others), []).append(each)
    for few, *more in (sorted(each, key=lambda own: own.threads) for each in alike.values()):
        results = {index.judge(each.name, few.name) for each in more}
        runs = [run for run in index.runs[few.name] if run.counts]
        ran = sum(run.user_s + run.system_s for run in runs) / (sum(sum(run.wall_s) for run in runs) or 1.0)
        if more and results <= SIMILAR and ran > MORE_THREADS * few.threads:
            names, numbers = zip(*((each.name, str(each.threads)) for each in (few, *more)), strict=True)
            text = f"no difference found between {join_words(names)}: with {few.name}, {ran:.1f} threads of"
            text += " each rank were busy, so a pool may follow the affinity mask, which -c sets: compare"
            yield Remark(code="same-threads", text=f"{text} --vary cores={','.join(numbers)}")


def _check_unseen(index: RunIndex) -> Iterator[Remark]:
    text, unseen = "binding not verified: {} without a sample of each rank", {}
    bound = [each.name for each in index.session.candidates if each.kind != Kind.UNBOUND]
    for name in bound:
        results = [run.verification for run in index.runs[name]]
        checks = len(results) - results.count(Verification.NOT_CHECKED)
        if checks and results.count(Verification.UNSEEN) == checks:
            unseen[name] = checks
    texts = {name: text.format(count(checks, "run")) for name, checks in unseen.items()}
    yield from _share("unseen", texts, len(bound), text.format(count(sum(unseen.values()), "run")))


def _check_outliers(index: RunIndex) -> Iterator[Remark]:
    for name in index.runs:
        logs = [*index.logs.get(name, {}).values()]
        if found := find_outliers(logs, index.matters):
            direction = 1 if index.session.metrics[0].higher else -1
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


def _check_machine(index: RunIndex) -> Iterator[Remark]:
    runs = [run for run in index.session.runs if run.round]
    total = count(len(runs), "run")
    throttled = [run.conditions.throttled_s for run in runs if run.conditions.throttled_s]
    stolen = [
        run.conditions.stolen_s
        for run in runs
        if run.conditions.stolen_s and run.conditions.stolen_s > MIN_STOLEN * max(run.wall_s, default=0)
    ]
    for code, text, lost in (
        ("throttled", "the CPU quota stopped threads", throttled),
        ("stolen", "the hypervisor took CPU time", stolen),
    ):
        if lost:
            yield Remark(code=code, text=f"{text} in {len(lost)} of {total}, {sum(lost):.2g} s in all")
    known = [run for run in runs if run.conditions.others_share is not None and run.wall_s]
    weights = [max(run.wall_s) for run in known]
    shares = [run.conditions.others_share or 0.0 for run in known]
    if known and (share := statistics.fmean(shares, weights)) >= MIN_OTHERS:
        text = f"other processes used {100 * share:.0f} % of the CPUs of the runs, in single runs"
        yield Remark(code="others", text=f"{text} up to {100 * max(shares):.0f} %")
    if shared := sum(bool(run.conditions.other_runs) for run in runs):
        yield Remark(code="other-runs", text=f"other runs were live during {shared} of {total}")


def _share(code: str, texts: Mapping[str, str], total: int, common: str) -> Iterator[Remark]:
    """Yield one remark for the session if more than half of several candidates have it, else one for each."""
    if len(texts) > max(1, total / 2):
        yield Remark(code=code, text=common)
    else:
        yield from (Remark(code=code, candidate=name, text=text) for name, text in texts.items())
