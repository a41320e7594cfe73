"""The elements of charts in SVG: text, lines, markers, and their style for light and dark backgrounds.

Series differ in the shape of their markers and in dashes too, so that a chart is readable without colours.
Positions are whole pixels.
"""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, pairwise

from ompbind.bench.records import Comparison, Conclusion, GroupConclusion, Session
from ompbind.cpuset import count
from ompbind.report.bench.measurements import (
    Scale,
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


def render_bench_svg(session: Session, conclusion: Conclusion) -> str:
    """Render a session as an SVG 1.1 file for light and dark backgrounds."""
    command = join_command(session.command)
    most = 1 + session.rules.matters
    band = f"grey band: ratios from {render_ratio(1 / most)} to {render_ratio(most)} do not matter"
    legend = f"dot: a run, or a round; bar: median; diamond: median ratio with its interval; {band}"
    lines = [
        render_text(MARGIN, MARGIN + LINE, fit_text(command, WIDTH - 2 * MARGIN), "head"),
        render_text(MARGIN, MARGIN + 2 * LINE + 4, legend, "faint"),
    ]
    y = MARGIN + 3 * LINE
    for group in conclusion.groups:
        chart, bottom = _render_chart(session, group, y)
        lines += chart
        y = bottom + 2 * LINE + MARGIN
    scaling = list(render_scaling(session, conclusion, y))
    height = y + (SCALING_HEIGHT + MARGIN if scaling else 0)
    page = render_rect((0, 0), (WIDTH, height), "page")
    return render_svg_file((WIDTH, height), f"ompbind bench: {command}", STYLE, [page, *lines, *scaling])


def _render_chart(session: Session, group: GroupConclusion, y: int) -> tuple[list[str], int]:
    """Return the headings, the axes and the rows of a group from y on, and the bottom of its rows."""
    runs, ratios, comparisons = list_compared_runs(session), list_ratios(session, group), group.comparisons
    values = [[run.values[0] for run in runs.get(row.candidate, ())] for row in comparisons]
    shown = list(chain.from_iterable(values))
    scale = make_scale(session.metrics[0], shown)
    value_axis = make_value_axis(shown or [1.0], _PANEL)
    ends = [end for row in comparisons for end in row.interval or () if end > 0]
    ratio_axis = make_ratio_axis(chain(ends, *ratios.values()), _PANEL)
    # names are wrapped, not cut, because their ends can differ
    names = (shorten_name(row.candidate, group) for row in comparisons)
    labels = [textwrap.wrap(name, _LABELS // _CHARACTER, break_on_hyphens=False) or [""] for name in names]
    heights = (LINE * (1 + len(label)) + _PADDING for label in labels)
    edges = list(accumulate(heights, initial=y + 2 * LINE))  # the top of each row, and the bottom of the last
    top, bottom = edges[0], edges[-1]
    lines = [*_render_headings(session, group, scale, y + LINE)]
    matters = session.rules.matters
    first, mid, last = (_RATIOS_X + ratio_axis.find(ratio) for ratio in (1 / (1 + matters), 1.0, 1 + matters))
    lines.append(render_rect((first, top), (last - first, bottom - top), "band"))
    lines.append(render_line((mid, top), (mid, bottom), "zero"))
    ticks = [(value_axis.find(tick), scale.render_tick(tick)) for tick in list_ticks(value_axis, _TICKS)]
    lines += _render_ticks(_VALUES_X, ticks, top, bottom)
    ticks = [(ratio_axis.find(tick), f"{tick:g}") for tick in list_ticks(ratio_axis, _TICKS)]
    lines += _render_ticks(_RATIOS_X, ticks, top, bottom)
    for row, label, own, (start, stop) in zip(comparisons, labels, values, pairwise(edges), strict=True):
        lines.append(f'<g class="{"chosen" if row.candidate == group.choice else "other"}">')
        lines += _render_labels(row, label, start)
        lines += _render_values(row, own, value_axis, (start + stop) // 2)
        lines += _render_ratios(row, ratios[row.candidate], ratio_axis, (start + stop) // 2)
        lines.append("</g>")
    return lines, bottom


def _render_headings(session: Session, group: GroupConclusion, scale: Scale, y: int) -> Iterator[str]:
    """Yield the headings: the number of ranks, and what both axes show."""
    ranks = "numbers of ranks" if group.ranks is None else count(group.ranks, "rank")
    yield render_text(MARGIN, y, ranks, "head")
    unit = f" ({scale.unit})" if scale.unit else ""
    yield render_text(_VALUES_X, y, fit_text(f"{name_metric(session.metrics[0])}{unit}", _PANEL), "faint")
    if group.reference:
        text = f"ratio to {shorten_name(group.reference, group)}, above 1 is better"
        yield render_text(_RATIOS_X, y, fit_text(text, _PANEL), "faint")


def _render_ticks(x: int, ticks: Sequence[tuple[int, str]], top: int, bottom: int) -> Iterator[str]:
    """Yield a line and a label for each mark of an axis that begins at x, given with its position."""
    yield render_line((x, bottom), (x + _PANEL, bottom), "grid")
    for at, label in ticks:
        yield render_line((x + at, top), (x + at, bottom + 4), "grid")
        yield render_text(x + at, bottom + LINE + 2, label, "faint middle")


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
    return f'<circle class="dot" cx="{x}" cy="{y + 4 * (number % 5 - 2)}" r="3"/>'


# The scaling curve of a session: values over the number of ranks, on a logarithmic axis.

SCALING_HEIGHT = 300
"""Pixels of the scaling curve, with its heading and the texts below its axis."""

_LEFT = MARGIN + 70  # the left end of the curve
_LENGTH = 500  # pixels of the axis of ranks
_LEGEND_X = _LEFT + _LENGTH + 40
_HEIGHT = SCALING_HEIGHT - 5 * LINE  # pixels of the axis of values

_SERIES: tuple[tuple[str, str, Callable[[ScalingPoint], float | None]], ...] = (
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
    for tick in list_ticks(axis, most=6):
        y = bottom - axis.find(tick)
        yield render_line((_LEFT, y), (_LEFT + _LENGTH, y), "grid")
        yield render_text(_LEFT - 8, y + 4, scale.render_tick(tick), "faint end")
    last = -WIDTH
    for point in points:
        x = _LEFT + ranks.find(point.ranks)
        if x - last >= 40:  # there is space for a label
            last = x
            yield render_text(x, bottom + LINE + 2, str(point.ranks), "faint middle")
    yield render_text(_LEFT + _LENGTH // 2, bottom + 2 * LINE + 4, "ranks", "faint middle")
    for style, _, find in _SERIES:
        known = [(point, value) for point in points if (value := find(point)) is not None]
        places = [(_LEFT + ranks.find(point.ranks), bottom - axis.find(value)) for point, value in known]
        yield from _render_curve(style, places)
    yield from _render_legend(points, top + 2 * LINE)


def _render_curve(style: str, places: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yield a curve through some places, with a marker at each: a circle, or a square for `unbound`."""
    if len(places) > 1:
        line = "L".join(f"{x} {y}" for x, y in places)
        yield f'<path class="{style}" d="M{line}"/>'
    for x, y in places:
        if style == "best":
            yield f'<circle class="best-mark" cx="{x}" cy="{y}" r="5"/>'
        elif style == "unbound":
            yield f'<rect class="unbound-mark" x="{x - 4}" y="{y - 4}" width="8" height="8"/>'


def _render_legend(points: Sequence[ScalingPoint], y: int) -> Iterator[str]:
    """Yield what each curve means, and which candidate is best with each number of ranks."""
    for style, name, find in _SERIES:
        if any(find(point) is not None for point in points):
            yield from _render_curve(style, [(_LEGEND_X, y), (_LEGEND_X + 30, y)])
            yield render_text(_LEGEND_X + 42, y + 4, name)
            y += LINE + 4
    for point in points[:10]:
        y += LINE
        yield render_text(_LEGEND_X, y, fit_text(point.candidate, WIDTH - MARGIN - _LEGEND_X), "faint")
