"""The elements of charts in SVG: text, lines, markers, and their style for light and dark backgrounds.

Series differ in the shape of their markers and in dashes too, so that a chart is readable without colours.
Positions are whole pixels.
"""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from ompbind.bench.records import Comparison, Conclusion, GroupConclusion, Session
from ompbind.cpuset import count
from ompbind.record import Record
from ompbind.report.bench.measurements import (
    ScalingPoint,
    join_command,
    list_compared_runs,
    list_ratios,
    list_scaling,
    make_scale,
    name_metric,
    render_ratio,
    shorten_name,
)
from ompbind.report.bench.pictures import Axis, list_ticks, make_ratio_axis, make_value_axis
from ompbind.report.diagram.svg import escape_xml, render_svg_file
from ompbind.report.text import clip

WIDTH = 920  # pixels of a picture
MARGIN = 16  # pixels around it, and between its parts
LINE = 16  # pixels from one line of text to the next

_CHARACTER = 7  # pixels of an average character, at most

STYLE = """\
text{font:12px Helvetica,Arial,sans-serif;fill:#1c2128}
.page{fill:#fff}
.head{font-weight:bold}
.faint{fill:#59636e}
.end{text-anchor:end}
.middle{text-anchor:middle}
.grid{stroke:#d1d9e0}
.zero{stroke:#59636e;stroke-dasharray:3 3}
.band{fill:#eff2f5}
.dot{fill:#0969da;fill-opacity:.45}
.mid{stroke:#1c2128;stroke-width:2}
.interval{stroke:#1c2128;stroke-width:2;fill:none}
.median{fill:#1c2128}
.chosen .dot{fill:#1a7f37}
.chosen .name{font-weight:bold}
.best{stroke:#1a7f37;stroke-width:2;fill:none}
.unbound{stroke:#bc4c00;stroke-width:2;stroke-dasharray:6 3;fill:none}
.ideal{stroke:#59636e;stroke-dasharray:2 4;fill:none}
.best-mark{fill:#1a7f37}
.unbound-mark{fill:#bc4c00}
@media (prefers-color-scheme:dark){
text{fill:#f0f6fc}
.page{fill:#0d1117}
.faint{fill:#9198a1}
.grid{stroke:#30363d}
.zero,.ideal{stroke:#9198a1}
.band{fill:#1c2430}
.dot{fill:#4493f8;fill-opacity:.6}
.mid,.interval{stroke:#f0f6fc}
.median{fill:#f0f6fc}
.chosen .dot{fill:#3fb950}
.best{stroke:#3fb950}
.unbound{stroke:#f0883e}
.best-mark{fill:#3fb950}
.unbound-mark{fill:#f0883e}
}"""
"""The style sheet of charts; readers that do not know @media show the light colours."""


def render_text(x: int, y: int, text: str, style: str = "") -> str:
    """Render text whose base line is at y."""
    attribute = f' class="{style}"' if style else ""
    return f'<text{attribute} x="{x}" y="{y}">{escape_xml(text)}</text>'


def render_line(start: tuple[int, int], stop: tuple[int, int], style: str) -> str:
    """Render a straight line between two points."""
    return f'<line class="{style}" x1="{start[0]}" y1="{start[1]}" x2="{stop[0]}" y2="{stop[1]}"/>'


def render_rect(corner: tuple[int, int], size: tuple[int, int], style: str) -> str:
    """Render a rectangle by its left upper corner."""
    return f'<rect class="{style}" x="{corner[0]}" y="{corner[1]}" width="{size[0]}" height="{size[1]}"/>'


def fit_text(text: str, width: int) -> str:
    """Cut a text that would be wider than so many pixels."""
    return clip(text, max(width // _CHARACTER, 4))


def wrap_text(text: str, width: int) -> list[str]:
    """Split a text into lines of at most so many pixels, at spaces where possible."""
    return textwrap.wrap(text, width // _CHARACTER, break_on_hyphens=False) or [""]


# A session as a picture: a row for each candidate, with the values of its runs and its ratio.
#
#     unbound      2 ranks                     time                           ratio to unbound
#     name                  ·· ··|· ·                               ·  ├─◆─┤  ·          ┊
#     result            ·····|···· ·                                              ├◆┤    ┊
#                   1.2         1.3         1.4                    0.8                  1.0
#
# On the left is a dot for each run that counts, and a bar at their median. On the right is a dot for each
# round, and the median ratio with its interval. The reference has no ratio. A scaling curve follows if the
# session has several numbers of ranks.


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
    band = f"grey band: differences below {100 * session.rules.matters:g} % do not matter"
    legend = f"dot: a run, or a round; bar: median; diamond: median ratio with its interval; {band}"
    lines.append(render_text(MARGIN, MARGIN + 2 * LINE + 4, legend, "faint"))
    y = MARGIN + 3 * LINE
    for group in conclusion.groups:
        chart = _Chart(session=session, group=group, top=y)
        lines += _render_chart(chart)
        y += chart.height + MARGIN
    scaling = list(render_scaling(session, conclusion, y))
    height = y + (SCALING_HEIGHT + MARGIN if scaling else 0)
    page = render_rect((0, 0), (WIDTH, height), "page")
    return render_svg_file((WIDTH, height), f"ompbind bench: {command}", STYLE, [page, *lines, *scaling])


class _Chart(Record):
    """The chart of a group: what it shows, and its position from `top` on."""

    session: Session
    group: GroupConclusion
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
    matters, top, rows = chart.session.rules.matters, chart.first_row, chart.bottom - chart.first_row
    first, last = ratio_axis.find(1 / (1 + matters)), ratio_axis.find(1 + matters)
    yield render_rect((_RATIOS_X + first, top), (last - first, rows), "band")
    x = _RATIOS_X + ratio_axis.find(1.0)
    yield render_line((x, top), (x, chart.bottom), "zero")
    ticks = [(value_axis.find(tick), scale.render_tick(tick)) for tick in list_ticks(value_axis, _TICKS)]
    yield from _render_ticks(chart, _VALUES_X, ticks)
    ticks = [(ratio_axis.find(tick), f"{tick:g}") for tick in list_ticks(ratio_axis, _TICKS)]
    yield from _render_ticks(chart, _RATIOS_X, ticks)
    for row, (comparison, label) in enumerate(zip(chart.comparisons, chart.labels, strict=True)):
        top, bottom = chart.tops[row : row + 2]
        yield f'<g class="{"chosen" if comparison.candidate == chart.group.choice else "other"}">'
        for number, line in enumerate(label, 1):
            yield render_text(MARGIN, top + number * LINE - 1, line, "name")
        ratio = "" if comparison.ratio is None else f", {render_ratio(comparison.ratio)}"
        below = top + (len(label) + 1) * LINE - 1
        yield render_text(MARGIN, below, fit_text(f"{comparison.result}{ratio}", _LABELS), "faint")
        middle = (top + bottom) // 2
        for number, value in enumerate(runs[row]):
            yield _render_dot(_VALUES_X + value_axis.find(value), middle, number)
        if comparison.median is not None and runs[row]:
            x = _VALUES_X + value_axis.find(comparison.median)
            yield render_line((x, middle - 12), (x, middle + 12), "mid")
        yield from _render_ratios(comparison, ratios[row], ratio_axis, (top + bottom) // 2)
        yield "</g>"


def _render_ticks(chart: _Chart, x: int, ticks: Sequence[tuple[int, str]]) -> Iterator[str]:
    """Yield a line and a label for each mark of an axis that begins at x, given with its position."""
    yield render_line((x, chart.bottom), (x + _PANEL, chart.bottom), "grid")
    for at, label in ticks:
        yield render_line((x + at, chart.first_row), (x + at, chart.bottom + 4), "grid")
        yield render_text(x + at, chart.bottom + LINE + 2, label, "faint middle")


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


# The scaling curve of a session: the values of the best candidate over the number of ranks.
#
# A second curve is the command without ompbind, a third the ideal. Equal factors of ranks have equal
# lengths.


SCALING_HEIGHT = 300
"""Pixels of the scaling curve, with its heading and the texts below its axis."""

_LEFT = MARGIN + 70  # the left end of the curve
_LENGTH = 500  # pixels of the axis of ranks
_LEGEND_X = _LEFT + _LENGTH + 40
_HEIGHT = SCALING_HEIGHT - 5 * LINE  # pixels of the axis of values
_AXIS_TICKS = 6  # marks of an axis, at most
_LISTED = 10  # best candidates that are listed

_Find = Callable[[ScalingPoint], float | None]

_SERIES: tuple[tuple[str, str, _Find], ...] = (
    ("best", "best candidate", lambda point: point.value),
    ("unbound", "without ompbind", lambda point: point.unbound),
    ("ideal", "ideal", lambda point: point.ideal),
)
"""The style of each curve, its name, and its values."""


def render_scaling(session: Session, conclusion: Conclusion, top: int) -> Iterator[str]:
    """Yield the elements of the scaling curve from `top` on; none for a single number of ranks."""
    points = list_scaling(session, conclusion)
    if not points:
        return
    values = [value for _, _, find in _SERIES for point in points if (value := find(point)) is not None]
    ranks = Axis(low=points[0].ranks, high=points[-1].ranks, length=_LENGTH, logarithmic=True)
    axis, metric = make_value_axis(values, _HEIGHT, from_zero=True), session.metrics[0]
    scale, bottom = make_scale(metric, values), top + 2 * LINE + _HEIGHT
    unit = f" ({scale.unit})" if scale.unit else ""
    yield render_text(MARGIN, top + LINE, fit_text(f"{name_metric(metric)}{unit} by ranks", WIDTH), "head")
    for tick in list_ticks(axis, _AXIS_TICKS):
        y = bottom - axis.find(tick)
        yield render_line((_LEFT, y), (_LEFT + _LENGTH, y), "grid")
        yield render_text(_LEFT - 8, y + 4, scale.render_tick(tick), "faint end")
    for x, point in _list_labelled(points, ranks):
        yield render_text(x, bottom + LINE + 2, str(point.ranks), "faint middle")
    yield render_text(_LEFT + _LENGTH // 2, bottom + 2 * LINE + 4, "ranks", "faint middle")
    for style, _, find in _SERIES:
        known = [(point, value) for point in points if (value := find(point)) is not None]
        places = [(_LEFT + ranks.find(point.ranks), bottom - axis.find(value)) for point, value in known]
        yield from _render_curve(style, places)
    y = top + 2 * LINE
    for style, name, find in _SERIES:
        if any(find(point) is not None for point in points):
            yield from _render_curve(style, [(_LEGEND_X, y), (_LEGEND_X + 30, y)])
            yield render_text(_LEGEND_X + 42, y + 4, name)
            y += LINE + 4
    for point in points[:_LISTED]:
        y += LINE
        yield render_text(_LEGEND_X, y, fit_text(point.candidate, WIDTH - MARGIN - _LEGEND_X), "faint")


def _list_labelled(points: Sequence[ScalingPoint], ranks: Axis) -> Iterator[tuple[int, ScalingPoint]]:
    """Yield the points with space for a label below the axis, and their positions."""
    last = -WIDTH
    for point in points:
        x = _LEFT + ranks.find(point.ranks)
        if x - last >= 40:
            last = x
            yield x, point


def _render_curve(style: str, places: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yield a curve through some places, with a marker at each."""
    if len(places) > 1:
        line = "L".join(f"{x} {y}" for x, y in places)
        yield f'<path class="{style}" d="M{line}"/>'
    yield from (_render_marker(style, place) for place in places if style != "ideal")


def _render_marker(style: str, place: tuple[int, int]) -> str:
    """Render the marker of a curve: a circle, or a square for `unbound`."""
    x, y = place
    if style == "unbound":
        return f'<rect class="unbound-mark" x="{x - 4}" y="{y - 4}" width="8" height="8"/>'
    return f'<circle class="best-mark" cx="{x}" cy="{y}" r="5"/>'
