"""The runs of a session, found by phase, candidate and round."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ompbind.bench.records import Phase, Run, Session, Status, Verification
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
