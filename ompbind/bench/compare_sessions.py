"""Compare sessions that ran at different times: each candidate of one session with itself in another.

Within a session candidates run in turn, so drift of the machine concerns all of them. Two sessions are not
interleaved: what has changed between them (the program, the machine, its temperature, other processes) is
part of their ratio. The interval covers only the noise within the sessions: it is that of `comparing`, for
the ratios of the first runs of both sessions, the second runs, and so on.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from statistics import median

from ompbind.bench.comparing import ERROR, RunIndex, make_median_interval
from ompbind.bench.records import Session
from ompbind.bench.results import find_differences
from ompbind.bench.table import (
    join_command,
    make_scale,
    name_change,
    name_metric,
    render_interval,
    render_ratio,
)
from ompbind.cpuset import count
from ompbind.errors import RequestError
from ompbind.record import Record
from ompbind.report.text import PIPE, Column, Screen, render_paragraph, render_table
from ompbind.text import clean_line


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


def compare_sessions(sessions: Sequence[Session]) -> tuple[CandidateChange, ...]:
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
    values = [RunIndex(session).values for session in sessions]
    names = dict.fromkeys(candidate.name for session in sessions for candidate in session.candidates)
    error = ERROR / max(1, sum(bool(values[0].get(name) and values[-1].get(name)) for name in names))
    sign = 1 if sessions[0].metrics[0].higher else -1
    changes = []
    for name in names:
        own = [of.get(name, ()) for of in values]
        medians = tuple(median(found) if found else None for found in own)
        change = CandidateChange(candidate=name, medians=medians, runs=tuple(map(len, own)))
        pairs = [*zip(own[0], own[-1], strict=False)]
        if pairs and min(map(min, pairs)) > 0:
            logs = [sign * math.log(now / before) for before, now in pairs]
            interval = make_median_interval(logs, error)
            ends = interval and (math.exp(interval[0]), math.exp(interval[1]))
            change = change.replace(ratio=math.exp(median(logs)), interval=ends)
        changes.append(change)
    return tuple(changes)


_MEDIAN = 12  # characters of a column with medians
_OTHERS = 56  # characters of the other columns


def render_sessions(
    sessions: Sequence[Session], changes: Sequence[CandidateChange], screen: Screen = PIPE
) -> str:
    """Render the sessions, a table of the candidates, and what the ratios do not show."""
    width = screen.text_width
    lines = []
    for number, session in enumerate(sessions, 1):
        started = ""
        with suppress(ValueError, OverflowError, OSError):  # a file can contain any number
            started = f"{datetime.fromtimestamp(session.started, UTC):%Y-%m-%d %H:%M UTC}"
        where = ", ".join(filter(None, (session.hardware.hostname, session.hardware.processor)))
        runs, command = count(len(session.runs), "run"), join_command(session.command)
        parts = filter(None, (started, clean_line(where), runs, clean_line(command)))
        lines.append(render_paragraph(f"session {number}", ", ".join(parts), width))
    table = render_table(list(_make_columns(sessions, changes, width)), width) if changes else ""
    better, _ = name_change(sessions[0].metrics[0])
    last = f"session {len(sessions)}"
    unknown = (
        "the sessions ran at different times; the ratio also contains what has changed on the machine between"
        " them, such as other load or the temperature"
    )
    notes = [
        render_paragraph("ratio", f"{last} compared with session 1; above 1, {last} is {better}", width),
        *(
            render_paragraph("differs", clean_line(text), width)
            for text in find_differences(sessions[0], sessions[-1])
        ),
        render_paragraph("note", unknown, width),
    ]
    text = "\n\n".join(filter(None, ("\n".join(lines), table, "\n".join(notes))))
    return text if screen.is_unicode else text.encode("ascii", "replace").decode()


def render_failure(change: CandidateChange, limit: float) -> str:
    """Return why a candidate fails: its ratio is below that of a run that takes more time by `limit`."""
    name = f"candidate {clean_line(change.candidate)}"
    if change.has_failed:
        return f"{name} has no valid run in the last session"
    interval, least = render_interval(change.interval), render_ratio(1 / (1 + limit))
    return f"{name} has a ratio of {render_ratio(change.ratio)}, interval {interval}; the limit is {least}"


def _make_columns(
    sessions: Sequence[Session], changes: Sequence[CandidateChange], width: int
) -> Iterator[Column]:
    """Yield the columns; if the medians of all sessions do not fit, only the first and the last."""
    numbers = range(len(sessions))
    if len(sessions) * _MEDIAN + _OTHERS > width:
        numbers = range(0, len(sessions), max(len(sessions) - 1, 1))
    metric = sessions[0].metrics[0]
    render = make_scale(metric, (median for change in changes for median in change.medians))
    yield Column(title="candidate", cells=[clean_line(change.candidate) for change in changes], grows=True)
    for number in numbers:
        title = f"{name_metric(metric)} {number + 1}"
        yield Column(title=title, cells=[render(change.medians[number]) for change in changes], right=True)
    yield Column(title="ratio", cells=[render_ratio(change.ratio) for change in changes], right=True)
    yield Column(title="interval", cells=[render_interval(change.interval) for change in changes])
    cells = [_render_change(change, name_change(metric)) for change in changes]
    yield Column(title="result", cells=cells, grows=True)


def _render_change(change: CandidateChange, words: tuple[str, str]) -> str:
    if not (change.runs[0] and change.runs[-1]):
        return "new" if change.runs[-1] else "no valid run" if change.runs[0] else "never valid"
    if change.interval is None:
        return "too few runs"
    low, high = change.interval
    return words[0] if low > 1 else words[1] if high < 1 else "no difference known"
