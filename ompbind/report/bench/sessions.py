"""Several sessions side by side: the median of each candidate in each session, and how it has changed."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from ompbind.bench.compare_sessions import CandidateChange, SessionsComparison
from ompbind.bench.records import Session
from ompbind.cpuset import count
from ompbind.report.bench.measurements import (
    align_points,
    join_command,
    make_scale,
    name_change,
    name_metric,
    render_interval,
    render_ratio,
)
from ompbind.report.text import PIPE, Column, Screen, render_paragraph, render_table
from ompbind.text import clean_line

_MEDIAN = 12  # characters of a column with medians
_OTHERS = 56  # characters of the other columns


def render_sessions(comparison: SessionsComparison, screen: Screen = PIPE) -> str:
    """Render the sessions, a table of the candidates, and what the ratios do not show."""
    sessions, changes, width = comparison.sessions, comparison.changes, screen.text_width
    lines = []
    for number, session in enumerate(sessions, 1):
        where = ", ".join(filter(None, (session.hardware.hostname, session.hardware.processor)))
        runs, command = count(len(session.runs), "run"), join_command(session.command)
        parts = (_render_time(session.started), clean_line(where), runs, clean_line(command))
        lines.append(render_paragraph(f"session {number}", ", ".join(filter(None, parts)), width))
    table = render_table(list(_make_columns(sessions, changes, width)), width) if changes else ""
    better, _ = name_change(sessions[0].metrics[0])
    last = f"session {len(sessions)}"
    compared = f"{last} compared with session 1; above 1, {last} is {better}"
    unknown = (
        "the sessions ran at different times; the ratio also contains what has changed on the machine between"
        " them, such as other load or the temperature"
    )
    notes = [
        render_paragraph("ratio", compared, width),
        *(render_paragraph("differs", clean_line(each.text), width) for each in comparison.differences),
        render_paragraph("note", unknown, width),
    ]
    text = "\n\n".join(filter(None, ("\n".join(lines), table, "\n".join(notes))))
    return text if screen.is_unicode else text.encode("ascii", "replace").decode()


def render_failure(change: CandidateChange, limit: float) -> str:
    """Return why a candidate fails: its ratio is below that of a run that takes more time by `limit`."""
    name = f"candidate {clean_line(change.candidate)}"
    if change.ratio is None or change.has_failed:
        return f"{name} has no valid run in the last session"
    interval, least = render_interval(change.interval), render_ratio(1 / (1 + limit))
    return f"{name} has a ratio of {render_ratio(change.ratio)}, interval {interval}; the limit is {least}"


def _render_time(started: float) -> str:
    """Return a time in seconds of the epoch as "2026-11-23 10:15 UTC"; "" if it is no time."""
    try:
        return f"{datetime.fromtimestamp(started, UTC):%Y-%m-%d %H:%M UTC}"
    except (ValueError, OverflowError, OSError):  # a file can contain any number
        return ""


def _make_columns(
    sessions: Sequence[Session], changes: Sequence[CandidateChange], width: int
) -> Iterator[Column]:
    """Yield the columns; if the medians of all sessions do not fit, only the first and the last."""
    numbers = range(len(sessions))
    if len(sessions) * _MEDIAN + _OTHERS > width:
        numbers = range(0, len(sessions), max(len(sessions) - 1, 1))
    metric = sessions[0].metrics[0]
    scale = make_scale(metric, (median for change in changes for median in change.medians if median))
    yield Column(title="candidate", cells=[clean_line(change.candidate) for change in changes], grows=True)
    for number in numbers:
        title = f"{name_metric(metric)} {number + 1}"
        cells = [scale.render(change.medians[number]) for change in changes]
        yield Column(title=title, cells=cells, right=True)
    ratios = ["-" if change.ratio is None else render_ratio(change.ratio) for change in changes]
    yield Column(title="ratio", cells=align_points(ratios), right=True)
    yield Column(title="interval", cells=[render_interval(change.interval) for change in changes])
    cells = [_render_change(change, name_change(metric)) for change in changes]
    yield Column(title="result", cells=cells, grows=True)


def _render_change(change: CandidateChange, words: tuple[str, str]) -> str:
    """Return whether the candidate has changed, with the words for better and worse."""
    if not (change.runs[0] and change.runs[-1]):
        return "new" if change.runs[-1] else "no valid run" if change.runs[0] else "never valid"
    if change.interval is None:
        return "too few runs"
    low, high = change.interval
    return words[0] if low > 1 else words[1] if high < 1 else "no difference known"
