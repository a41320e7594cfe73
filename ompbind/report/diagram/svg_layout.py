"""The layout of a picture: sizes of boxes from the inside out, then positions from the outside in.

A box is as large as its title and its content need. Its content is arranged in columns: as many as give a
near-square shape, or as many as fit a width. At first positions are relative to the surrounding box; the last
step adds them up:

    ┌ box ─────────────────┐   pad: from the edge to the content
    │ title                │   gap: between the boxes inside
    │ ┌──┐ gap ┌──┐        │
    │ └──┘     └──┘        │   number of columns: _choose_columns()
    │ ┌──┐                 │   positions: _grid_positions()
    │ └──┘                 │
    └──────────────────────┘

All numbers are whole pixels and depend on the content alone: the same machine always gives the same picture.
"""

from collections.abc import Sequence
from math import log

from ompbind.report.diagram.model import Arrangement, Box

CHARACTER = 7  # pixels of an average character, at most, in the sans-serif fonts of browsers
LINE = 16  # pixels from one line of text to the next
MAX_WIDTH = 1600  # pixels that a row of packages, or of other wide boxes, may take before it wraps
_LEGEND_WIDTH = 640  # pixels that the legend may take, even if the rest of the picture is narrower
_ASPECT = 1.6  # width by height of an ideal near-square arrangement on a screen
_EMPTY_COST = 3.0  # cost of empty space in the last row, compared with the distance to that aspect

_SPACE = {
    "core": (3, 2),
    "cpu": (4, 0),
    "group": (0, 8),
    "lines": (0, 0),
    "line": (0, 0),
    "machine": (16, 12),
    "key": (6, 0),
    "other": (8, 8),
}
"""Pixels from the edge of a box to its content, and between the boxes inside, by style."""

Positions = Sequence[tuple[int, int]]  # the left upper corners of boxes


def make_layout(box: Box) -> Box:
    """Return a box with its size and position, and so all boxes inside it."""
    return _with_absolute_positions(_with_size(box), 0, 0)


def get_padding(style: str) -> int:
    """Return the pixels from the edge of a box to its content."""
    return _SPACE.get(style, _SPACE["other"])[0]


def _with_size(box: Box) -> Box:
    """Return a box with its size; the boxes inside have sizes, and positions relative to it."""
    pad, gap = _SPACE.get(box.style, _SPACE["other"])
    longest = max(box.min_characters, len(box.label), *map(len, box.title))
    min_width = max(box.width - 2 * pad, CHARACTER * longest)
    inside, positions = _arrange(box, min_width, gap)
    content_width, content_height = _extent(inside, positions)
    width = max(content_width, min_width)
    lines = _join_title(box.title, width)
    top = pad + LINE * (len(lines) + bool(box.label)) + (pad // 2 if lines and inside else 0)
    return box.replace(
        title=lines,
        inside=tuple(
            inner.replace(x=x + pad, y=y + top) for inner, (x, y) in zip(inside, positions, strict=True)
        ),
        width=width + 2 * pad,
        height=top + content_height + pad,
    )


def _arrange(box: Box, min_width: int, gap: int) -> tuple[Sequence[Box], Positions]:
    """Return the boxes inside a box with their sizes, and their positions; its title takes `min_width`."""
    inside = [_with_size(inner) for inner in box.inside]
    if box.arrangement != "column":
        columns = _choose_columns(inside, box.arrangement, gap, min_width)
        return inside, _grid_positions(inside, columns, gap)
    width = max((inner.width for inner in inside if inner.arrangement != "fill"), default=0)
    inside = [_widen(raw, sized, width) for raw, sized in zip(box.inside, inside, strict=True)]
    return inside, _grid_positions(inside, 1, gap)


def _widen(raw: Box, sized: Box, width: int) -> Box:
    """Return a box of a column in the width of the column, given without and with its size."""
    if raw.arrangement == "fill":
        return _with_size(raw.replace(width=max(width, _LEGEND_WIDTH)))
    return sized.replace(width=width) if raw.inside else _with_size(raw.replace(width=width))


def _join_title(parts: Sequence[str], width: int) -> tuple[str, ...]:
    """Join the parts of a title into lines that fit a width."""
    lines: list[str] = []
    for part in parts:
        if lines and CHARACTER * len(joined := f"{lines[-1]} · {part}") <= width:
            lines[-1] = joined
        else:
            lines.append(part)
    return tuple(lines)


def _grid_positions(boxes: Sequence[Box], columns: int, gap: int) -> Positions:
    """Return the positions of boxes in rows of so many columns."""
    positions, y = [], 0
    for start in range(0, len(boxes), columns):
        row, x = boxes[start : start + columns], 0
        for box in row:
            positions.append((x, y))
            x += box.width + gap
        y += max(box.height for box in row) + gap
    return positions


def _extent(boxes: Sequence[Box], positions: Positions) -> tuple[int, int]:
    """Return the width and the height that boxes take together."""
    corners = [(x + box.width, y + box.height) for box, (x, y) in zip(boxes, positions, strict=True)]
    return max((x for x, _ in corners), default=0), max((y for _, y in corners), default=0)


def _choose_columns(boxes: Sequence[Box], arrangement: Arrangement, gap: int, min_width: int) -> int:
    """Return the number of columns: the most that fit the width; near-square arrangements may have more.

    Only numbers that differ in their rows are compared. A near-square arrangement has the lowest cost: its
    distance to the ideal aspect, and the empty part of its last row.
    """
    if len(boxes) < 2:
        return 1
    choices = sorted({-(-len(boxes) // rows) for rows in range(1, len(boxes) + 1)})
    extents = {columns: _extent(boxes, _grid_positions(boxes, columns, gap)) for columns in choices}
    limit = MAX_WIDTH if arrangement == "wide" else min_width
    fitting = [columns for columns in choices if extents[columns][0] <= limit] or choices[:1]
    if arrangement != "square":
        return fitting[-1]

    def cost(columns: int) -> float:
        width, height = extents[columns]
        empty = -len(boxes) % columns / len(boxes)  # cells of the last row, relative to all boxes
        return abs(log(width / height / _ASPECT)) + _EMPTY_COST * empty

    return min((columns for columns in choices if columns >= fitting[-1]), key=cost)


def _with_absolute_positions(box: Box, x: int, y: int) -> Box:
    x, y = box.x + x, box.y + y
    return box.replace(x=x, y=y, inside=tuple(_with_absolute_positions(inner, x, y) for inner in box.inside))
