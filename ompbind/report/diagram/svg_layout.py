"""Where boxes stand in a picture: first their sizes, from the inside out, then their places.

All are whole pixels and come from the content alone, so that a machine always gives the same picture.
"""

from collections.abc import Sequence
from math import log

from ompbind.report.diagram.model import Box, Flow

LETTER = 7  # pixels that a character takes at most on average, in the fonts that browsers have for sans-serif
LINE = 16  # pixels from one line of text to the next
ROOM = 1600  # pixels beside each other that packages, and what is as wide, may fill before they wrap
_LEGEND = 640  # pixels beside each other that what flows with the rest may fill, however narrow that is
_ASPECT = 1.6  # width by height of an arrangement that is near-square and still suits a screen
_BLANK = 3.0  # what a blank part of the last row costs, beside being away from that aspect

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
"""Pixels between the edge of a box and what is inside it, and between the boxes inside, by style."""

Spots = Sequence[tuple[int, int]]  # where boxes stand, each by its left upper corner


def lay_out(box: Box) -> Box:
    """Return a box with its size and place, and so all that is inside it."""
    return _placed(_sized(box), 0, 0)


def padding(style: str) -> int:
    """Return the pixels between the edge of a box and what is inside it."""
    return _SPACE.get(style, _SPACE["other"])[0]


def _sized(box: Box) -> Box:
    """Return a box with its size, and what is inside it with sizes and places relative to it."""
    pad, gap = _SPACE.get(box.style, _SPACE["other"])
    floor = max(box.width - 2 * pad, LETTER * max(box.letters, len(box.label), *map(len, box.title)))
    inner, spots = _arranged(box, floor, gap)
    wide, high = _extent(inner, spots)
    lines = _packed(box.title, max(wide, floor))
    top = pad + LINE * (len(lines) + bool(box.label)) + (pad // 2 if lines and inner else 0)
    return box.replace(
        title=lines,
        inside=tuple(one.replace(x=x + pad, y=y + top) for one, (x, y) in zip(inner, spots, strict=True)),
        width=max(wide, floor) + 2 * pad,
        height=top + high + pad,
    )


def _arranged(box: Box, floor: int, gap: int) -> tuple[Sequence[Box], Spots]:
    """Return what is inside a box with sizes, and where it stands; `floor` is the width its title takes."""
    inner = [_sized(one) for one in box.inside]
    if box.flow != "column":
        return inner, _spots(inner, _columns(inner, box.flow, gap, floor), gap)
    width = max((one.width for one in inner if one.flow != "rest"), default=0)
    inner = [_widened(raw, done, width) for raw, done in zip(box.inside, inner, strict=True)]
    return inner, _spots(inner, 1, gap)


def _widened(raw: Box, done: Box, width: int) -> Box:
    """Return one box of a column as wide as the column; what is inside it stays as it is where it can."""
    if raw.flow == "rest":
        return _sized(raw.replace(width=max(width, _LEGEND)))
    return done.replace(width=width) if raw.inside else _sized(raw.replace(width=width))


def _packed(parts: Sequence[str], width: int) -> tuple[str, ...]:
    """Join the parts of a title into lines that fit a width."""
    lines: list[str] = []
    for part in parts:
        if lines and LETTER * len(joined := f"{lines[-1]} · {part}") <= width:
            lines[-1] = joined
        else:
            lines.append(part)
    return tuple(lines)


def _spots(boxes: Sequence[Box], columns: int, gap: int) -> Spots:
    """Return where boxes stand that fill rows of so many columns."""
    spots, y = [], 0
    for start in range(0, len(boxes), columns):
        row, x = boxes[start : start + columns], 0
        for box in row:
            spots.append((x, y))
            x += box.width + gap
        y += max(box.height for box in row) + gap
    return spots


def _extent(boxes: Sequence[Box], spots: Spots) -> tuple[int, int]:
    corners = [(x + box.width, y + box.height) for box, (x, y) in zip(boxes, spots, strict=True)]
    return max((x for x, _ in corners), default=0), max((y for _, y in corners), default=0)


def _columns(boxes: Sequence[Box], flow: Flow, gap: int, floor: int) -> int:
    """Choose how many boxes stand beside each other: no fewer than fit below the title."""
    if len(boxes) < 2:
        return 1
    choices = sorted({-(-len(boxes) // rows) for rows in range(1, len(boxes) + 1)})
    extents = {columns: _extent(boxes, _spots(boxes, columns, gap)) for columns in choices}
    room = ROOM if flow == "wide" else floor
    fitting = [columns for columns in choices if extents[columns][0] <= room] or choices[:1]
    if flow != "square":
        return fitting[-1]

    def cost(columns: int) -> float:
        wide, high = extents[columns]
        blank = -len(boxes) % columns / len(boxes)  # of the last row
        return abs(log(wide / high / _ASPECT)) + _BLANK * blank

    return min((columns for columns in choices if columns >= fitting[-1]), key=cost)


def _placed(box: Box, x: int, y: int) -> Box:
    at = (box.x + x, box.y + y)
    return box.replace(x=at[0], y=at[1], inside=tuple(_placed(one, *at) for one in box.inside))
