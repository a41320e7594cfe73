"""Pictures of a session in the characters of a terminal.

Ratios: a line for each candidate, with a dot for each round, and the median with its interval. All lines have
one axis, on which equal factors have equal lengths:

                  0.84         1            1.15
    spread                     │         ··├·●─┤··      ●: the median, ├─┤: its interval
    smt=2         ··├●┤·       │                        ·: a round, :: several; │: the reference

Scaling: a bar for each number of ranks, and a mark where it would end with ideal scaling.
"""

from collections.abc import Iterable, Iterator, Sequence

from ompbind.bench.candidate_names import drop_ranks
from ompbind.bench.records import Comparison, Conclusion, Group, Session
from ompbind.record import Record
from ompbind.report.bench.axis import Axis, make_ratio_axis
from ompbind.report.bench.measurements import (
    list_ratios,
    list_scaling,
    make_scale,
    name_metric,
    shorten_name,
)
from ompbind.report.text import Column, Screen, render_paragraph, render_rows, render_table
from ompbind.text import clean_line

_GAP = 2  # characters between a label and a line of the picture
_LONGEST = 100  # characters of the axis, at most


class _Characters(Record):
    """What the picture is drawn with; `ends` are the ends of an interval."""

    dot: str
    dots: str
    ends: tuple[str, str]
    line: str
    median: str
    reference: str
    bar: str


_BOXES = _Characters(dot="·", dots=":", ends=("├", "┤"), line="─", median="●", reference="│", bar="█")
_ASCII = _Characters(dot=".", dots=":", ends=("[", "]"), line="=", median="o", reference="|", bar="#")


def draw_ratios(session: Session, group: Group, screen: Screen) -> Iterator[str]:
    """Yield the lines of a picture of the ratios of a group; none if no ratio is known."""
    found = list_ratios(session, group)
    shown = [comparison for comparison in group.comparisons if found[comparison.candidate]]
    if not shown:
        return
    labels = [shorten_name(comparison.candidate, group) for comparison in shown]
    length = min(screen.text_width - _find_label_width(labels, screen) - _GAP, _LONGEST)
    ratios = [ratio for comparison in shown for ratio in _list_all(comparison, found[comparison.candidate])]
    axis = make_ratio_axis(ratios, length - 1)
    characters = _BOXES if screen.draws else _ASCII
    lines = [_draw_line(each, found[each.candidate], axis, characters) for each in shown]
    marks = _draw_marks(axis, min(ratios), max(ratios))
    columns = [Column(title="", cells=labels, grows=True), Column(title=marks, cells=lines)]
    yield from render_rows(columns, screen.text_width)
    key = (
        f"{characters.dot} a round, {characters.dots} several, {characters.ends[0]}{characters.median}"
        f"{characters.ends[1]} median and interval, {characters.reference} "
        f"{shorten_name(group.reference, group)}"
    )
    yield render_paragraph("picture", key, screen.text_width)


def _find_label_width(labels: Iterable[str], screen: Screen) -> int:
    """Return the characters of the longest label, at most a third of a line: longer ones are wrapped."""
    return min(max(map(len, labels)), screen.text_width // 3)


def _list_all(comparison: Comparison, ratios: Sequence[float]) -> Iterator[float]:
    """Yield everything of a comparison that the axis must show."""
    yield from ratios
    yield from (ratio for ratio in comparison.interval or () if ratio > 0)
    if comparison.ratio:
        yield comparison.ratio


def _draw_marks(axis: Axis, least: float, most: float) -> str:
    """Return the line above the picture: 1, and the ends of what is shown where there is space."""
    marks = [" "] * (axis.length + 1)
    _write(marks, axis.find(1.0), "1")
    for ratio in (least, most):
        text = f"{ratio:.2f}"
        start = min(max(axis.find(ratio) - len(text) // 2, 0), axis.length + 1 - len(text))
        if all(mark == " " for mark in marks[max(start - 2, 0) : start + len(text) + 2]):
            _write(marks, start, text)
    return "".join(marks)


def _write(cells: list[str], start: int, text: str) -> None:
    cells[start : start + len(text)] = text


def _draw_line(comparison: Comparison, ratios: Sequence[float], axis: Axis, characters: _Characters) -> str:
    """Return the line of a candidate: its interval, on top of it the dots, then its ends and the median."""
    cells = [" "] * (axis.length + 1)
    cells[axis.find(1.0)] = characters.reference
    ends = [axis.find(end) for end in comparison.interval or () if end > 0]
    if ends:
        _write(cells, min(ends), characters.line * (max(ends) - min(ends) + 1))
    for ratio in ratios:
        at = axis.find(ratio)
        cells[at] = characters.dots if cells[at] in (characters.dot, characters.dots) else characters.dot
    for at, end in zip(ends, characters.ends, strict=False):
        cells[at] = end
    if comparison.ratio:
        cells[axis.find(comparison.ratio)] = characters.median
    return "".join(cells)


def draw_scaling(session: Session, conclusion: Conclusion, screen: Screen) -> Iterator[str]:
    """Yield the lines of a scaling curve: a bar for each number of ranks; none for a single number."""
    points = list_scaling(session, conclusion)
    if not points:
        return
    metric, characters = session.metrics[0], _BOXES if screen.draws else _ASCII
    scale = make_scale(metric, [point.value for point in points])
    names = [clean_line(drop_ranks(point.candidate, point.ranks)) for point in points]
    columns = [
        Column(title="ranks", cells=[str(point.ranks) for point in points], right=True),
        Column(title="best candidate", cells=names, grows=True),
        Column(
            title=name_metric(metric),
            cells=[scale.render(point.value) for point in points],
            right=True,
        ),
    ]
    width = screen.text_width
    used = max(map(len, render_table(columns, width * 2 // 3).split("\n"))) + _GAP
    length = min(width - used, _LONGEST)
    most = max(value for point in points for value in (point.value, point.ideal or 0.0)) or 1.0
    bars = [
        _draw_bar(point.value / most, (point.ideal or 0.0) / most, length, characters) for point in points
    ]
    yield render_table([*columns, Column(title="", cells=bars)], width)
    if any(point.ideal is not None for point in points):
        yield render_paragraph("scaling", f"{characters.reference} ideal", width)


def _draw_bar(share: float, ideal: float, length: int, characters: _Characters) -> str:
    """Return a bar of a share of `length`, with a mark at the ideal share, 0 for none."""
    cells = [characters.bar] * max(round(share * length), 1)
    if ideal:
        at = min(max(round(ideal * length) - 1, 0), length - 1)
        cells += [" "] * (at + 1 - len(cells))
        cells[at] = characters.reference
    return "".join(cells)
