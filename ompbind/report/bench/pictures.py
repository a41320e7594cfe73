"""Axes of pictures, and pictures of sessions in the characters of a terminal: ratios and scaling."""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil, floor, log, log10

from ompbind.bench.candidates import drop_ranks
from ompbind.bench.records import Comparison, Conclusion, GroupConclusion, Session
from ompbind.record import Record
from ompbind.report.bench.measurements import list_ratios, list_scaling, make_scale, name_metric, shorten_name
from ompbind.report.text import Column, Screen, count_columns, render_paragraph, render_rows, render_table
from ompbind.text import clean_line

_LEAST_RATIO = 1.02  # the last ratio divided by the first, at least, so that noise does not look large
_LEAST_PART = 1e-9  # of the values, between the first and the last, at least
_LEAST_SPAN = 1e-200  # smaller values count as 0, as arithmetic with them is not exact
_MARGIN = 0.03  # of the values, before the first and after the last


class Axis(Record):
    """An axis from `low` to `high`, with positions from 0 to `length`.

    If it is `logarithmic`, equal factors have equal lengths, and `low` is above 0.
    """

    low: float
    high: float
    length: int
    logarithmic: bool = False

    def find(self, value: float) -> int:
        """Return the position of a value; values beyond the axis are at its ends."""
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            return round(self.length * log(value / self.low) / log(self.high / self.low))
        return round(self.length * (value - self.low) / (self.high - self.low))


def make_ratio_axis(ratios: Iterable[float], length: int) -> Axis:
    """Make a logarithmic axis that shows these ratios, and 1."""
    shown = (1.0, *ratios)
    low, high = min(shown), max(shown)
    widen = max(_LEAST_RATIO / (high / low), 1.0) ** 0.5 * (high / low) ** _MARGIN
    return Axis(low=low / widen, high=high * widen, length=length, logarithmic=True)


def make_value_axis(values: Iterable[float], length: int, *, from_zero: bool = False) -> Axis:
    """Make an axis that shows these values, and 0 on request."""
    shown = (*values, *((0.0,) if from_zero else ()))
    low, high = min(shown), max(shown)
    span = max(high - low, abs(high) * _LEAST_PART)
    margin = (span if span > _LEAST_SPAN else 1.0) * _MARGIN
    is_zero = from_zero and low == 0
    return Axis(low=low if is_zero else low - margin, high=high + margin, length=length)


def list_ticks(axis: Axis, most: int) -> Sequence[float]:
    """Return at most so many round values of an axis, in rising order."""
    if axis.logarithmic and axis.high / axis.low > 4:  # some factors times powers of ten
        exponents = range(floor(log10(axis.low)), ceil(log10(axis.high)) + 1)
        for factors in ((1, 2, 5), (1, 3), (1,)):
            values = (float(f"{factor}e{exponent}") for exponent in exponents for factor in factors)
            ticks = [value for value in values if axis.low <= value <= axis.high]
            if len(ticks) <= most:
                return ticks
        return ticks[:: ceil(len(ticks) / most)]
    least = (axis.high - axis.low) / most
    exponent = floor(log10(least))
    for step in (float(f"{factor}e{power}") for power in (exponent, exponent + 1) for factor in (1, 2, 5)):
        first, last = ceil(axis.low / step), floor(axis.high / step)
        if last - first < most:
            break
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


# Ratios: a line for each candidate, with a dot for each round, and the median with its interval. All lines
# have one axis, on which equal factors have equal lengths:
#
#                   0.84         1            1.15
#     spread                     │         ··├·●─┤··      ●: the median, ├─┤: its interval
#     smt=2         ··├●┤·       │                        ·: a round, :: several; │: the reference
#
# Scaling: a bar for each number of ranks, and a mark where it would end with ideal scaling.


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


def draw_ratios(session: Session, group: GroupConclusion, screen: Screen) -> Iterator[str]:
    """Yield the lines of a picture of the ratios of a group; none if no ratio is known."""
    found = list_ratios(session, group)
    shown = [comparison for comparison in group.comparisons if found[comparison.candidate]]
    if not shown:
        return
    labels = [shorten_name(comparison.candidate, group) for comparison in shown]
    width = screen.text_width
    label_width = min(max(map(count_columns, labels)), width // 3)  # longer labels are wrapped
    ratios: list[float] = []  # all that the axis must show
    for comparison in shown:
        ratios += found[comparison.candidate]
        ratios += (end for end in comparison.interval or () if end > 0)
        if comparison.ratio:
            ratios.append(comparison.ratio)
    axis = make_ratio_axis(ratios, min(width - label_width - _GAP, _LONGEST) - 1)
    characters = _BOXES if screen.has_box_characters else _ASCII
    lines = [_draw_line(each, found[each.candidate], axis, characters) for each in shown]
    marks = _draw_marks(axis, min(ratios), max(ratios))
    yield from render_rows(
        [Column(title="", cells=labels, grows=True), Column(title=marks, cells=lines)], width
    )
    key = (
        f"{characters.dot} a round, {characters.dots} several, {characters.ends[0]}{characters.median}"
        f"{characters.ends[1]} median and interval, {characters.reference} "
        f"{shorten_name(group.reference, group)}"
    )
    yield render_paragraph("picture", key, width)


def _draw_marks(axis: Axis, least: float, most: float) -> str:
    """Return the line above the picture: 1, and the ends of what is shown where there is space."""
    marks = [" "] * (axis.length + 1)
    marks[axis.find(1.0)] = "1"
    for ratio in (least, most):
        text = f"{ratio:.2f}"
        start = min(max(axis.find(ratio) - len(text) // 2, 0), axis.length + 1 - len(text))
        if all(mark == " " for mark in marks[max(start - 2, 0) : start + len(text) + 2]):
            marks[start : start + len(text)] = text
    return "".join(marks)


def _draw_line(comparison: Comparison, ratios: Sequence[float], axis: Axis, characters: _Characters) -> str:
    """Return the line of a candidate: its interval, on top of it the dots, then its ends and the median."""
    cells = [" "] * (axis.length + 1)
    cells[axis.find(1.0)] = characters.reference
    ends = [axis.find(end) for end in comparison.interval or () if end > 0]
    if ends:
        cells[min(ends) : max(ends) + 1] = characters.line * (max(ends) - min(ends) + 1)
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
    metric, characters = session.metrics[0], _BOXES if screen.has_box_characters else _ASCII
    scale = make_scale(metric, [point.value for point in points])
    names = [clean_line(drop_ranks(point.candidate, point.ranks)) for point in points]
    columns = [
        Column(title="ranks", cells=[str(point.ranks) for point in points], right=True),
        Column(title="best candidate", cells=names, grows=True),
        Column(title=name_metric(metric), cells=[scale.render(point.value) for point in points], right=True),
    ]
    width = screen.text_width
    used = max(map(count_columns, render_table(columns, width * 2 // 3).split("\n"))) + _GAP
    length = min(width - used, _LONGEST)
    most = max(value for point in points for value in (point.value, point.ideal or 0.0)) or 1.0
    bars = [_draw_bar(each.value / most, (each.ideal or 0.0) / most, length, characters) for each in points]
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
