"""The results of a session for people: a table of each group, pictures in characters, and the command to use.

The table shows the candidates of a group, best first. Below it is what the reader should know: which
candidates had the same plan, could not run or ran no longer, and remarks on the runs. The recommended command
is last, on a line of its own that is never wrapped, so that it can be pasted.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from ompbind.bench.conclusions import Comparison, ComparisonResult, Conclusion, Group
from ompbind.bench.records import Kind, Phase, Run, Session
from ompbind.cpuset import count
from ompbind.record import Record
from ompbind.report.bench.measurements import (
    EXCLUDED,
    Recommendation,
    find_median,
    join_command,
    list_choices,
    list_compared_runs,
    make_command,
    make_scale,
    name_change,
    name_metric,
    render_interval,
    render_ratio,
)
from ompbind.report.bench.terminal_picture import draw_ratios, draw_scaling
from ompbind.report.ps import render_age
from ompbind.report.run_summary import render_short
from ompbind.report.text import (
    PIPE,
    Column,
    Screen,
    dim,
    make_visible,
    render_bytes,
    render_paragraph,
    render_rows,
)
from ompbind.text import clean_line

_NARROW = 72
"""Characters of a line below which the table has no column of rounds."""

_WIDE = 120
"""Characters of a line from which on the table has columns on what the runs used."""


def render_bench(
    session: Session, conclusion: Conclusion, screen: Screen = PIPE, *, verbose: bool = False
) -> str:
    """Render what a session found; with `verbose` narrow screens show what the runs used too."""
    parts = ["\n".join(_make_heading(session, screen))]
    for group in conclusion.groups:
        parts += _render_group(_GroupView(session=session, group=group, screen=screen), verbose=verbose)
    parts += [
        "\n".join(draw_scaling(session, conclusion, screen)),
        "\n".join(_make_notes(session, conclusion, screen)),
        *_render_choices(session, conclusion, screen),
    ]
    text = "\n\n".join(filter(None, parts))
    return text if screen.draws else text.encode("ascii", "replace").decode()


def _make_heading(session: Session, screen: Screen) -> Iterator[str]:
    """Yield the command, the machine, and how many runs there are."""
    hardware, width = session.hardware, screen.text_width
    yield render_paragraph("command", clean_line(join_command(session.command)), width)
    quota = "" if hardware.quota is None else f"quota of {count(hardware.quota, 'CPU')}"
    allowed = f"CPUs {hardware.allowed}" if hardware.allowed else ""
    machine = filter(None, (hardware.hostname, hardware.processor, allowed, quota))
    yield render_paragraph("machine", clean_line(", ".join(machine)) or "unknown", width)
    compared = sum(run.phase is not Phase.WARM_UP for run in session.runs)
    runs = f"{count(compared, 'run')} and {count(len(session.runs) - compared, 'warm-up')}"
    duration = f" in {render_age(_find_duration(session))}" if session.runs else ""
    reason = clean_line(session.ended) or "not finished"
    yield render_paragraph("session", f"{runs}{duration}: {reason}", width)


def _find_duration(session: Session) -> float:
    """Return the seconds from the start of the first run to the end of the last run."""
    ends = [run.started + max(run.wall_s, default=0.0) for run in session.runs]
    return max(ends) - min(run.started for run in session.runs)


class _GroupView(Record):
    """A group of a session, and the screen that shows it."""

    session: Session
    group: Group
    screen: Screen

    @property
    def names(self) -> list[str]:
        """The names of the candidates, best first."""
        return [comparison.candidate for comparison in self.group.comparisons]


def _render_group(view: _GroupView, *, verbose: bool) -> Iterator[str]:
    """Yield the table of a group, further tables on what its runs used, and the picture of its ratios."""
    columns, usage = list(_make_columns(view)), list(_make_usage_columns(view))
    width = view.screen.text_width
    if _measure([*columns, *usage]) <= width:
        yield _render_styled([*columns, *usage], view)
    else:
        yield _render_styled(columns, view)
        if verbose or width >= _WIDE:
            yield from (_render_styled(part, view) for part in _split_columns(columns[0], usage, width))
    yield "\n".join(draw_ratios(view.session, view.group, view.screen))


def _measure(columns: Sequence[Column]) -> int:
    """Return the width in which no cell of a table wraps."""
    return sum(max(map(len, (column.title, *column.cells))) + 2 for column in columns) - 2


def _split_columns(first: Column, columns: Sequence[Column], width: int) -> Iterator[list[Column]]:
    """Yield the columns of tables that fit a width; each table begins with the first column."""
    part = [first]
    for column in columns:
        if len(part) > 1 and _measure([*part, column]) > width:
            yield part
            part = [first]
        part.append(column)
    yield part


def list_columns(session: Session, group: Group) -> list[Column]:
    """Return all columns of the table of a group."""
    view = _GroupView(session=session, group=group, screen=PIPE)
    return [*_make_columns(view), *_make_usage_columns(view)]


def _render_styled(columns: Sequence[Column], view: _GroupView) -> str:
    """Render a table; on terminals the choice is bold, and candidates that run no more are faint."""
    title, *rows = render_rows(columns, view.screen.text_width)
    if view.screen.styled:
        rows = [
            _style(row, comparison, view.group)
            for row, comparison in zip(rows, view.group.comparisons, strict=True)
        ]
    return "\n".join([title, *rows])


def _style(row: str, comparison: Comparison, group: Group) -> str:
    if comparison.candidate == group.choice:
        return "\n".join(f"\033[1m{line}\033[22m" for line in row.split("\n"))
    return dim(row) if comparison.result in EXCLUDED else row


def _make_columns(view: _GroupView) -> Iterator[Column]:
    comparisons, metric = view.group.comparisons, view.session.metrics[0]
    medians = [comparison.median for comparison in comparisons]
    scale = make_scale(metric, filter(None, medians))
    yield Column(title="candidate", cells=list(map(clean_line, view.names)), grows=True)
    yield Column(title=name_metric(metric), cells=list(map(scale.render, medians)), right=True)
    yield Column(title="ratio", cells=list(map(_render_ratio, comparisons)), right=True)
    yield Column(title="interval", cells=[render_interval(comparison.interval) for comparison in comparisons])
    if view.screen.text_width >= _NARROW:
        yield Column(title="rounds", cells=list(map(_render_rounds, comparisons)), right=True)
    yield Column(title="result", cells=list(map(_render_result, comparisons)), grows=True)


def _render_ratio(comparison: Comparison) -> str:
    if comparison.result is ComparisonResult.REFERENCE:
        return "1"
    return "-" if comparison.ratio is None else render_ratio(comparison.ratio)


def _render_rounds(comparison: Comparison) -> str:
    return "" if comparison.result is ComparisonResult.REFERENCE else str(comparison.rounds)


def _render_result(comparison: Comparison) -> str:
    """Return the result in words, with the number of rounds that would decide."""
    more = comparison.more_rounds
    needed = f"; about {count(more, 'more round')}" if more else ""
    return f"{comparison.result}{needed}"


def _make_usage_columns(view: _GroupView) -> Iterator[Column]:
    """Yield columns with medians over the runs of each candidate: other metrics, and what the runs used."""
    found = list_compared_runs(view.session)
    rows = [found.get(name, ()) for name in view.names]

    def find_medians(find: Callable[[Run], float | None]) -> list[float | None]:
        return [find_median(map(find, runs)) for runs in rows]

    for at, metric in enumerate(view.session.metrics[1:], 1):
        medians = find_medians(partial(_find_value, at))
        scale = make_scale(metric, filter(None, medians))
        yield from _make_column(name_metric(metric), medians, scale.render)
    yield from _make_column("CPU s", find_medians(lambda run: run.user_s + run.system_s), "{:.2f}".format)
    yield from _make_column("memory", find_medians(lambda run: run.max_rss_bytes), _render_size)
    yield from _make_column("forced", find_medians(lambda run: run.forced_switches), render_short)
    yield from _make_column("migrations", find_medians(lambda run: run.migrations), render_short)
    for name in list_counters(view.session.runs):
        yield from _make_column(name, find_medians(partial(_find_counter, name)), render_short)


def _make_column(
    title: str, values: Sequence[float | None], render: Callable[[float], str]
) -> Iterator[Column]:
    """Yield a column of numbers; none if no value is known."""
    if any(value is not None for value in values):
        cells = ["-" if value is None else render(value) for value in values]
        yield Column(title=clean_line(title), cells=cells, right=True)


def _render_size(size: float) -> str:
    return render_bytes(round(size))


def _find_value(at: int, run: Run) -> float | None:
    return run.values[at] if len(run.values) > at else None


def _find_counter(name: str, run: Run) -> float | None:
    return dict(run.counters).get(name)


_MIGRATIONS = "cpu-migrations"  # the counter whose value is a field of runs too


def list_counters(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return the names of the performance counters of some runs, without migrations."""
    names = dict.fromkeys(name for run in runs for name, _ in run.counters)
    return tuple(name for name in names if name != _MIGRATIONS)


def _make_notes(session: Session, conclusion: Conclusion, screen: Screen) -> Iterator[str]:
    """Yield how to read the ratio, which candidates did not run, and remarks."""
    width = screen.text_width
    better, _ = name_change(session.metrics[0])
    references = [clean_line(group.reference) for group in conclusion.groups if group.reference]
    if references:
        reference = references[0] if len(references) == 1 else "the reference of the same table"
        text = f"compared with {reference} in the same rounds; above 1 is {better}"
        yield render_paragraph("ratio", text, width)
    for label, text in _list_notes(session, conclusion):
        yield render_paragraph(label, clean_line(text), width)


def _list_notes(session: Session, conclusion: Conclusion) -> Iterator[tuple[str, str]]:
    for candidate in session.candidates:
        if candidate.same:
            yield "same plan", f"{candidate.name}: also {' and '.join(candidate.same)}"
    for result, reason, names in _list_exclusions(conclusion):
        several = len(names) > 1 and len(names) == len(session.candidates)
        yield result, f"{'all candidates' if several else '; '.join(names)}: {make_words(reason)}"
    for refusal in session.refusals:
        yield "cannot run", f"{refusal.name}: {make_words(refusal.reason)}"
    for remark in conclusion.remarks:
        where = f"{remark.candidate}: " if remark.candidate else ""
        yield "remark", f"{where}{remark.text}"


def _list_exclusions(conclusion: Conclusion) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield each result and reason for which candidates run no more, with the names of these candidates."""
    found: dict[tuple[str, str], list[str]] = {}
    for group in conclusion.groups:
        for comparison in group.comparisons:
            if comparison.reason and comparison.result in EXCLUDED:
                found.setdefault((str(comparison.result), comparison.reason), []).append(comparison.candidate)
    for (result, reason), names in found.items():
        yield result, reason, names


def make_words(reason: str) -> str:
    """Return the lines of a reason, such as the last words of a command, as a terminal shows them, joined."""
    return "; ".join(filter(None, (line.strip() for line in map(make_visible, reason.splitlines()))))


def _render_choices(session: Session, conclusion: Conclusion, screen: Screen) -> Iterator[str]:
    """Yield a paragraph for each group: what is recommended, and the command to paste."""
    chosen = {choice.group.reference: choice for choice in list_choices(session, conclusion)}
    for group in conclusion.groups:
        several = len(conclusion.groups) > 1 and group.ranks is not None
        label = f"recommended for {count(group.ranks or 0, 'rank')}" if several else "recommended"
        choice = chosen.get(group.reference)
        text = _explain_choice(choice, session) if choice else _explain_none(group)
        lines = [render_paragraph(label, text, screen.text_width)]
        if choice and not (choice.candidate.kind is Kind.UNBOUND and choice.candidate.ranks > 1):
            command = make_command(choice.candidate, session.command)
            lines.append(f"    {join_command(command, ascii_only=not screen.draws)}")
        yield "\n".join(lines)


def _explain_choice(choice: Recommendation, session: Session) -> str:
    """Return what is known about a choice, in words."""
    name, reference = clean_line(choice.candidate.name), clean_line(choice.group.reference)
    if choice.candidate.kind is Kind.UNBOUND:
        return f"no candidate is known to be better than {name}, the command without ompbind"
    if choice.comparison.result is ComparisonResult.SAME:
        return f"{name}, the simplest of the best; there is no real difference to {reference}"
    ratio = _render_ratio(choice.comparison)
    compared = (
        f"{ratio} times as fast as {reference}"
        if not session.metrics[0].pattern
        else (f"ratio {ratio} to {reference}")
    )
    interval = render_interval(choice.comparison.interval)
    known = f"{compared}, interval {interval}" if interval else compared
    is_best = choice.comparison.result is ComparisonResult.BEST
    if not is_best:
        return f"{name}, {known}, which is not confirmed by further rounds"
    fresh = f", from {count(choice.comparison.rounds, 'round')} after the choice"
    return f"{name}, {known}{fresh if choice.comparison.fresh else ''}"


def _explain_none(group: Group) -> str:
    """Return why nothing is recommended, and how to find out."""
    if not group.reference:
        return "nothing: every candidate has failed"
    needed = [comparison.more_rounds for comparison in group.comparisons if comparison.more_rounds]
    rounds = f"about {count(min(needed), 'more round')} would decide" if needed else "no result is known"
    return f"nothing yet; {rounds} (see --max-rounds, --budget, --results)"
