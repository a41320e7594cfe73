"""The scaling curve of a session: the values of the best candidate over the number of ranks.

A second curve is the command without ompbind, a third the ideal. Equal factors of ranks have equal lengths.
"""

from collections.abc import Callable, Iterator, Sequence

from ompbind.bench.records import Conclusion, Session
from ompbind.report.bench.measurements import ScalingPoint, list_scaling, make_scale, name_metric
from ompbind.report.bench.pictures import Axis, list_ticks, make_value_axis
from ompbind.report.diagram.chart_elements import (
    LINE,
    MARGIN,
    WIDTH,
    fit_text,
    render_line,
    render_text,
)

SCALING_HEIGHT = 300
"""Pixels of the scaling curve, with its heading and the texts below its axis."""

_LEFT = MARGIN + 70  # the left end of the curve
_LENGTH = 500  # pixels of the axis of ranks
_LEGEND_X = _LEFT + _LENGTH + 40
_HEIGHT = SCALING_HEIGHT - 5 * LINE  # pixels of the axis of values
_TICKS = 6  # marks of an axis, at most
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
    for tick in list_ticks(axis, _TICKS):
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
    yield from _render_legend(points, top + 2 * LINE)


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


def _render_legend(points: Sequence[ScalingPoint], top: int) -> Iterator[str]:
    """Yield what each curve means, and which candidate is best with each number of ranks."""
    y = top
    for style, name, find in _SERIES:
        if any(find(point) is not None for point in points):
            yield from _render_curve(style, [(_LEGEND_X, y), (_LEGEND_X + 30, y)])
            yield render_text(_LEGEND_X + 42, y + 4, name)
            y += LINE + 4
    for point in points[:_LISTED]:
        y += LINE
        yield render_text(_LEGEND_X, y, fit_text(point.candidate, WIDTH - MARGIN - _LEGEND_X), "faint")
