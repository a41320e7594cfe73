"""The results of a session for people: a table of each group, pictures in characters, and the command to use.

The table shows the candidates of a group, best first. Below it is what the reader should know: which
candidates had the same plan, could not run or ran no longer, and remarks on the runs. The recommended command
is last, on a line of its own that is never wrapped, so that it can be pasted.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ompbind.bench.records import Comparison, ComparisonResult, Conclusion, Group, Kind, Phase, Run, Session
from ompbind.cpuset import count
from ompbind.record import Record
from ompbind.report.bench.measurements import (
    EXCLUDED,
    Recommendation,
    align_points,
    find_median,
    index_candidates,
    join_command,
    list_choices,
    list_compared_runs,
    list_counters,
    make_command,
    make_scale,
    make_words,
    name_change,
    name_metric,
    name_ranks,
    render_interval,
    render_more_rounds,
    render_ratio,
    shorten_name,
)
from ompbind.report.bench.pictures import draw_ratios, draw_scaling
from ompbind.report.ps import render_age
from ompbind.report.run_summary import render_short
from ompbind.report.text import PIPE, Column, Screen, clip, dim, render_bytes, render_paragraph, render_rows
from ompbind.text import clean_line

_NARROW = 72
"""Characters of a line below which the table has no column of rounds."""

_NARROW_TITLE = 10
"""Characters of the name of a metric in such a table: beside long ratios it has no space for more."""

_FEW = 3
"""Dropped candidates whose reasons are shown; the reasons of more candidates are alike."""

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
        *render_choices(session, conclusion, screen),
    ]
    text = "\n\n".join(filter(None, parts))
    return text if screen.has_box_characters else text.encode("ascii", "replace").decode()


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

    @property
    def short_names(self) -> list[str]:
        """The names as the group shows them."""
        return [shorten_name(name, self.group) for name in self.names]


def _render_group(view: _GroupView, *, verbose: bool) -> Iterator[str]:
    """Yield the table of a group, further tables on what its runs used, and the picture of its ratios."""
    columns, usage = list(_make_columns(view)), list(_make_usage_columns(view))
    width = view.screen.text_width
    heading = name_ranks(view.group)
    yield f"\033[1m{heading}\033[22m" if heading and view.screen.styled else heading
    if _measure([*columns, *usage]) <= width:
        yield _render_styled([*columns, *usage], view)
    else:
        yield _render_styled(columns, view)
        if verbose or width >= _WIDE:
            yield from (_render_styled(part, view) for part in _split_columns(columns[0], usage, width))
    yield "\n".join(draw_ratios(view.session, view.group, view.screen))
    yield "\n".join(_make_group_notes(view))


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
    yield Column(title="candidate", cells=view.short_names, grows=True)
    is_narrow = view.screen.text_width < _NARROW
    title = clip(name_metric(metric), _NARROW_TITLE) if is_narrow else name_metric(metric)
    yield Column(title=title, cells=list(map(scale.render, medians)), right=True)
    yield Column(title="ratio", cells=align_points(map(_render_ratio, comparisons)), right=True)
    yield Column(title="interval", cells=[render_interval(comparison.interval) for comparison in comparisons])
    if not is_narrow:
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
    needed = f"; {render_more_rounds(comparison.more_rounds)}" if comparison.more_rounds else ""
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


def _make_notes(session: Session, conclusion: Conclusion, screen: Screen) -> Iterator[str]:
    """Yield how to read ratios and intervals, what cannot run, and remarks."""
    width = screen.text_width
    references = {shorten_name(group.reference, group) for group in conclusion.groups if group.reference}
    if references:
        better, _ = name_change(session.metrics[0])
        reference = references.pop() if len(references) == 1 else "the reference of the same table"
        text = f"compared with {reference} in the same rounds; above 1 is {better}"
        yield render_paragraph("ratio", text, width)
    if any(comparison.interval for group in conclusion.groups for comparison in group.comparisons):
        yield render_paragraph("interval", "contains the true ratio, with 95 % confidence", width)
    for refusal in session.refusals:
        text = clean_line(f"{refusal.name}: {make_words(refusal.reason)}")
        yield render_paragraph("cannot run", text, width)
    for remark in conclusion.remarks:
        where = f"{remark.candidate}: " if remark.candidate else ""
        yield render_paragraph("remark", clean_line(f"{where}{remark.text}"), width)


def _make_group_notes(view: _GroupView) -> Iterator[str]:
    """Yield which candidates of a group have the same plan, and why candidates do not run any more."""
    width, group = view.screen.text_width, view.group
    candidates = index_candidates(view.session)
    for comparison in group.comparisons:
        name = comparison.candidate
        if name in candidates and candidates[name].same:
            also = " and ".join(shorten_name(other, group) for other in candidates[name].same)
            yield render_paragraph("same plan", f"{shorten_name(name, group)}: also {also}", width)
    failed, dropped = (
        [each for each in group.comparisons if each.result is result]
        for result in (ComparisonResult.DISQUALIFIED, ComparisonResult.DROPPED)
    )
    few = dropped if len(dropped) <= _FEW else []
    reasons: dict[tuple[str, str], list[str]] = {}  # of the candidates with this result and reason
    for each in (*failed, *few):
        reasons.setdefault((str(each.result), each.reason), []).append(shorten_name(each.candidate, group))
    for (result, reason), names in reasons.items():
        who = "all candidates" if 1 < len(names) == len(group.comparisons) else "; ".join(names)
        text = shorten_name(make_words(reason), group)  # why it was dropped begins with a name
        yield render_paragraph(result, clean_line(f"{who}: {text}"), width)
    if dropped and not few:
        text = f"{len(dropped)} candidates lost every round to a better candidate"
        yield render_paragraph(str(ComparisonResult.DROPPED), text, width)


def render_choices(session: Session, conclusion: Conclusion, screen: Screen) -> Iterator[str]:
    """Yield a paragraph for each group: what is recommended, and the command to paste."""
    chosen = {choice.group: choice for choice in list_choices(session, conclusion)}
    for group in conclusion.groups:
        several = len(conclusion.groups) > 1 and group.ranks is not None
        label = f"recommended for {count(group.ranks or 0, 'rank')}" if several else "recommended"
        choice = chosen.get(group)
        text = _explain_choice(choice, session) if choice else _explain_none(group)
        lines = [render_paragraph(label, text, screen.text_width)]
        if choice and not (choice.candidate.kind is Kind.UNBOUND and choice.candidate.ranks > 1):
            command = make_command(choice.candidate, session.command)
            lines.append(f"    {join_command(command, ascii_only=not screen.has_box_characters)}")
        yield "\n".join(lines)


def _explain_choice(choice: Recommendation, session: Session) -> str:
    """Return what is known about a choice, in words."""
    group, comparison = choice.group, choice.comparison
    name, reference = (shorten_name(each, group) for each in (comparison.candidate, group.reference))
    if comparison.result is ComparisonResult.REFERENCE:
        what = ", the command without ompbind" if choice.candidate.kind is Kind.UNBOUND else ""
        others = {each.result for each in group.comparisons if each.candidate != group.reference}
        if others == {ComparisonResult.DISQUALIFIED}:
            return f"nothing was compared: all candidates but {name}{what} have failed"
        return f"no candidate is known to be better than {name}{what}"
    ratio = "-" if comparison.ratio is None else render_ratio(comparison.ratio)
    compared = f"{ratio} times as {'good' if session.metrics[0].pattern else 'fast'} as {reference}"
    interval = f", interval {render_interval(comparison.interval)}" if comparison.interval else ""
    rounds = f"from {count(comparison.rounds, 'round')} after the choice"
    unknown = "which is not confirmed by further rounds"
    return f"{name}, {compared}{interval}, {rounds if comparison.fresh else unknown}"


def _explain_none(group: Group) -> str:
    """Return why nothing is recommended, and how to find out."""
    if not group.reference:
        return "nothing; no candidate could be measured"
    needed = [comparison.more_rounds for comparison in group.comparisons if comparison.more_rounds]
    if not needed:
        return "nothing yet; the runs do not show which candidate is better"
    return (
        f"nothing yet; {render_more_rounds(min(needed))} would decide (see --max-rounds, --budget, --results)"
    )
