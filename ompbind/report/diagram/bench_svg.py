"""A session as a picture: a row for each candidate, with the values of its runs and its ratio.

    unbound      2 ranks                     time                           ratio to unbound
    name                  ·· ··|· ·                               ·  ├─◆─┤  ·          ┊
    result            ·····|···· ·                                              ├◆┤    ┊
                  1.2         1.3         1.4                    0.8                  1.0

On the left is a dot for each run that counts, and a bar at their median. On the right is a dot for each
round, and the median ratio with its interval. The reference has no ratio. A scaling curve follows if the
session has several numbers of ranks.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from ompbind.bench.records import Comparison, Conclusion, Group, Session
from ompbind.cpuset import count
from ompbind.record import Record
from ompbind.report.bench.measurements import (
    Scale,
    join_command,
    list_compared_runs,
    list_ratios,
    make_scale,
    name_metric,
    render_ratio,
    shorten_name,
)
from ompbind.report.bench.pictures import Axis, list_ticks, make_ratio_axis, make_value_axis
from ompbind.report.diagram.chart_elements import (
    LINE,
    MARGIN,
    STYLE,
    WIDTH,
    fit_text,
    render_line,
    render_rect,
    render_text,
    wrap_text,
)
from ompbind.report.diagram.scaling_svg import SCALING_HEIGHT, render_scaling
from ompbind.report.diagram.svg_file import render_svg_file

_LABELS = 230  # pixels of the names and results
_PANEL = 310  # pixels of each axis
_GAP = WIDTH - 2 * MARGIN - _LABELS - 2 * _PANEL
_PADDING = 6  # pixels between the texts of two candidates
_VALUES_X = MARGIN + _LABELS
_RATIOS_X = _VALUES_X + _PANEL + _GAP
_TICKS = 7  # marks of an axis, at most
_DOT = 3  # radius of a dot


def render_bench_svg(session: Session, conclusion: Conclusion) -> str:
    """Render a session as an SVG 1.1 file for light and dark backgrounds."""
    command = join_command(session.command)
    lines = [render_text(MARGIN, MARGIN + LINE, fit_text(command, WIDTH - 2 * MARGIN), "head")]
    lines.append(render_text(MARGIN, MARGIN + 2 * LINE + 4, _make_legend(session), "faint"))
    y = MARGIN + 3 * LINE
    for group in conclusion.groups:
        chart = _Chart(session=session, group=group, top=y)
        lines += _render_chart(chart)
        y += chart.height + MARGIN
    scaling = list(render_scaling(session, conclusion, y))
    height = y + (SCALING_HEIGHT + MARGIN if scaling else 0)
    page = render_rect((0, 0), (WIDTH, height), "page")
    return render_svg_file((WIDTH, height), f"ompbind bench: {command}", STYLE, [page, *lines, *scaling])


def _make_legend(session: Session) -> str:
    """Return what dots, bars, diamonds and the grey band mean."""
    matters = f"{100 * session.rules.matters:g} %"
    band = f"grey band: differences below {matters} do not matter"
    return f"dot: a run, or a round; bar: median; diamond: median ratio with its interval; {band}"


class _Chart(Record):
    """The chart of a group: what it shows, and its position from `top` on."""

    session: Session
    group: Group
    top: int

    @property
    def comparisons(self) -> Sequence[Comparison]:
        """The rows."""
        return self.group.comparisons

    @property
    def first_row(self) -> int:
        """The top of the first row, below the headings."""
        return self.top + 2 * LINE

    @property
    def labels(self) -> Sequence[Sequence[str]]:
        """The lines of the name of each row; names are wrapped, not cut, because their ends can differ."""
        names = (shorten_name(row.candidate, self.group) for row in self.comparisons)
        return [wrap_text(name, _LABELS) for name in names]

    @property
    def tops(self) -> Sequence[int]:
        """The top of each row, then the bottom of the last row."""
        heights = (LINE * (1 + len(label)) + _PADDING for label in self.labels)
        return list(accumulate(heights, initial=self.first_row))

    @property
    def bottom(self) -> int:
        """The bottom of the last row."""
        return self.tops[-1]

    @property
    def height(self) -> int:
        """Pixels of the chart, with the texts below its axes."""
        return self.bottom + 2 * LINE - self.top

    @property
    def runs(self) -> Sequence[tuple[float, ...]]:
        """The values of the runs that count, of each row."""
        runs = list_compared_runs(self.session)
        return [tuple(run.values[0] for run in runs.get(row.candidate, ())) for row in self.comparisons]

    @property
    def ratios(self) -> Sequence[tuple[float, ...]]:
        """The ratio of each round, of each row."""
        ratios = list_ratios(self.session, self.group)
        return [ratios[row.candidate] for row in self.comparisons]


def _render_chart(chart: _Chart) -> Iterator[str]:
    """Yield the headings, the axes and the rows of a chart."""
    runs, ratios = chart.runs, chart.ratios
    values = [value for row in runs for value in row]
    scale = make_scale(chart.session.metrics[0], values)
    value_axis = make_value_axis(values or [1.0], _PANEL)
    ends = [end for row in chart.comparisons for end in row.interval or () if end > 0]
    ratio_axis = make_ratio_axis([*ends, *(ratio for row in ratios for ratio in row)], _PANEL)
    yield from _render_headings(chart, scale)
    yield from _render_band(chart, ratio_axis)
    ticks = [(value_axis.find(tick), scale.render_tick(tick)) for tick in list_ticks(value_axis, _TICKS)]
    yield from _render_ticks(chart, _VALUES_X, ticks)
    ticks = [(ratio_axis.find(tick), f"{tick:g}") for tick in list_ticks(ratio_axis, _TICKS)]
    yield from _render_ticks(chart, _RATIOS_X, ticks)
    for row, (comparison, label) in enumerate(zip(chart.comparisons, chart.labels, strict=True)):
        top, bottom = chart.tops[row : row + 2]
        yield f'<g class="{"chosen" if comparison.candidate == chart.group.choice else "other"}">'
        yield from _render_labels(comparison, label, top)
        yield from _render_values(comparison, runs[row], value_axis, (top + bottom) // 2)
        yield from _render_ratios(comparison, ratios[row], ratio_axis, (top + bottom) // 2)
        yield "</g>"


def _render_headings(chart: _Chart, scale: Scale) -> Iterator[str]:
    """Yield the headings: the number of ranks, and what both axes show."""
    y = chart.top + LINE
    ranks = "" if chart.group.ranks is None else count(chart.group.ranks, "rank")
    yield render_text(MARGIN, y, ranks, "head")
    unit = f" ({scale.unit})" if scale.unit else ""
    yield render_text(
        _VALUES_X, y, fit_text(f"{name_metric(chart.session.metrics[0])}{unit}", _PANEL), "faint"
    )
    if chart.group.reference:
        text = f"ratio to {shorten_name(chart.group.reference, chart.group)}, above 1 is better"
        yield render_text(_RATIOS_X, y, fit_text(text, _PANEL), "faint")


def _render_band(chart: _Chart, axis: Axis) -> Iterator[str]:
    """Yield the band of ratios that do not matter, and the line at 1."""
    matters, top, rows = chart.session.rules.matters, chart.first_row, chart.bottom - chart.first_row
    first, last = axis.find(1 / (1 + matters)), axis.find(1 + matters)
    yield render_rect((_RATIOS_X + first, top), (last - first, rows), "band")
    x = _RATIOS_X + axis.find(1.0)
    yield render_line((x, top), (x, chart.bottom), "zero")


def _render_ticks(chart: _Chart, x: int, ticks: Sequence[tuple[int, str]]) -> Iterator[str]:
    """Yield a line and a label for each mark of an axis that begins at x, given with its position."""
    yield render_line((x, chart.bottom), (x + _PANEL, chart.bottom), "grid")
    for at, label in ticks:
        yield render_line((x + at, chart.first_row), (x + at, chart.bottom + 4), "grid")
        yield render_text(x + at, chart.bottom + LINE + 2, label, "faint middle")


def _render_labels(comparison: Comparison, label: Sequence[str], y: int) -> Iterator[str]:
    """Yield the lines of the name of a candidate and, below them, its result."""
    for number, line in enumerate(label, 1):
        yield render_text(MARGIN, y + number * LINE - 1, line, "name")
    ratio = "" if comparison.ratio is None else f", {render_ratio(comparison.ratio)}"
    y += (len(label) + 1) * LINE - 1
    yield render_text(MARGIN, y, fit_text(f"{comparison.result}{ratio}", _LABELS), "faint")


def _render_values(comparison: Comparison, values: Sequence[float], axis: Axis, y: int) -> Iterator[str]:
    """Yield a dot for each run around a line at y, and a bar at the median."""
    for number, value in enumerate(values):
        yield _render_dot(_VALUES_X + axis.find(value), y, number)
    if comparison.median is not None and values:
        x = _VALUES_X + axis.find(comparison.median)
        yield render_line((x, y - 12), (x, y + 12), "mid")


def _render_ratios(comparison: Comparison, ratios: Sequence[float], axis: Axis, y: int) -> Iterator[str]:
    """Yield a dot for each round around a line at y, the interval, and a diamond at the median ratio."""
    for number, ratio in enumerate(ratios):
        yield _render_dot(_RATIOS_X + axis.find(ratio), y, number)
    if comparison.interval and min(comparison.interval) > 0:
        first, last = (_RATIOS_X + axis.find(end) for end in comparison.interval)
        ends = f"M{first} {y - 6}V{y + 6}M{last} {y - 6}V{y + 6}"
        yield f'<path class="interval" d="{ends}M{first} {y}H{last}"/>'
    if comparison.ratio:
        x = _RATIOS_X + axis.find(comparison.ratio)
        yield f'<path class="median" d="M{x - 6} {y}L{x} {y - 6}L{x + 6} {y}L{x} {y + 6}Z"/>'


def _render_dot(x: int, y: int, number: int) -> str:
    """Render a dot; successive dots are at different heights, so that equal values are visible."""
    return f'<circle class="dot" cx="{x}" cy="{y + 4 * (number % 5 - 2)}" r="{_DOT}"/>'
