"""A machine, with or without a plan, as a picture: one SVG 1.1 file without scripts, fonts or other files."""

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from math import log

from ompbind.machine.model import Machine
from ompbind.planning.plan import Plan
from ompbind.report.diagram.model import Arrangement, Box, make_boxes
from ompbind.report.diagram.plan_overlay import COLOURS, make_overlay
from ompbind.report.machine_text import render_summary

# The layout of a picture: sizes of boxes from the inside out, then positions from the outside in.
#
# A box is as large as its title and its content need. Its content is arranged in columns: as many as give a
# near-square shape, or as many as fit a width. At first positions are relative to the surrounding box; the
# last step adds them up:
#
#     ┌ box ─────────────────┐   pad: from the edge to the content
#     │ title                │   gap: between the boxes inside
#     │ ┌──┐ gap ┌──┐        │
#     │ └──┘     └──┘        │   number of columns: _choose_columns()
#     │ ┌──┐                 │   positions: _grid_positions()
#     │ └──┘                 │
#     └──────────────────────┘
#
# All numbers are whole pixels and depend on the content alone: the same machine always gives the same
# picture.

_CHARACTER = 7  # pixels of an average character, at most, in the sans-serif fonts of browsers
LINE = 16  # pixels from one line of text to the next
_MAX_WIDTH = 1600  # pixels that a row of packages, or of other wide boxes, may take before it wraps
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


def _with_size(box: Box) -> Box:
    """Return a box with its size; the boxes inside have sizes, and positions relative to it."""
    pad, gap = _SPACE.get(box.style, _SPACE["other"])
    longest = max(box.min_characters, len(box.label), *map(len, box.title))
    min_width = max(box.width - 2 * pad, _CHARACTER * longest)
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
    for at, inner in enumerate(box.inside):  # all get the width of the column
        if inner.arrangement == "fill":
            inside[at] = _with_size(inner.replace(width=max(width, _LEGEND_WIDTH)))
        elif inner.inside:
            inside[at] = inside[at].replace(width=width)
        else:
            inside[at] = _with_size(inner.replace(width=width))
    return inside, _grid_positions(inside, 1, gap)


def _join_title(parts: Sequence[str], width: int) -> tuple[str, ...]:
    """Join the parts of a title into lines that fit a width."""
    lines: list[str] = []
    for part in parts:
        if lines and _CHARACTER * len(joined := f"{lines[-1]} · {part}") <= width:
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
    limit = _MAX_WIDTH if arrangement == "wide" else min_width
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


_ILLEGAL = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot represent."""


def render_svg_file(size: tuple[int, int], title: str, style: str, body: Iterable[str]) -> str:
    """Render an SVG 1.1 file of some width and height in pixels; `body` are lines of elements."""
    width, height = size
    lines = [
        '<?xml version="1.0"?>',
        f'<svg xmlns="http://www.w3.org/2000/svg" version="1.1" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">',
        f"<title>{escape_xml(title)}</title>",
        f'<style type="text/css">{escape(style, quote=False)}</style>',
        *body,
        "</svg>",
    ]
    return "\n".join(lines)


def escape_xml(text: str) -> str:
    """Escape text for XML; illegal characters are replaced, others than ASCII become references."""
    return escape(_ILLEGAL.sub("\ufffd", text)).encode("ascii", "xmlcharrefreplace").decode()


_STYLE = """\
text{font:12px Helvetica,Arial,sans-serif;fill:#1c2128}
rect{fill:#fff;stroke:#8b949e}
.drawer>rect{fill:#f3f4f6}
.book>rect{fill:#e9ebef}
.package>rect{fill:#edf1f6}
.node>rect{fill:#fdf6dc}
.die>rect{fill:#f3edf8}
.l3>rect{fill:#e2f1ec}
.cluster>rect{fill:#eee8f5}
.l2>rect{fill:#d2e7df}
.memory>rect{fill:#f7dfda}
.devices>rect{fill:#e3e0f4}
[class*=performance]>rect{fill:#e6f1fd}
[class*=efficiency]>rect{fill:#fbe2ba}
.performance-0>rect{fill:#a5cdf5}
.performance-1>rect{fill:#cfe4fa}
.efficiency-0>rect{fill:#f8cd8c}
.cpu>rect{fill:#fff;fill-opacity:.55}
.cpu>text,.key>text{text-anchor:middle}
.not-allowed>rect{fill:#c9cdd2;fill-opacity:1;stroke:#a3a9b0}
.not-allowed>text{fill:#4d545c}
.apart>rect{stroke:#1c2128;stroke-width:1.5;stroke-dasharray:4 2}"""
"""The style sheet of boxes, by their style and marks."""

_FILLS = ("#77aadd", "#ee8866", "#99ddff", "#eedd88", "#44bb99", "#bbcc33", "#ffaabb")
"""The colours of ranks: light, for dark text, and in an order that colour-blind readers can distinguish."""

_PLAN_STYLE = "\n".join(
    [
        ".label{font-weight:bold}",
        ".cpu>rect,.reserved>rect{fill-opacity:1}",
        ".idle>text{fill:#4d545c}",
        ".shared>rect,.reserved>rect{stroke:#1c2128;stroke-width:2}",
        *(f".rank-{i}>rect{{fill:{_FILLS[i]}}}" for i in range(COLOURS)),
    ]
)
"""The style sheet of CPUs in the picture of a plan, in addition to _STYLE."""


def render_svg(machine: Machine) -> str:
    """Render the machine as an SVG 1.1 file: boxes in boxes, down to its CPUs by number.

    Domains, cores and CPUs have tooltips. Characters other than ASCII are written as references, so the
    encoding of the file does not matter.
    """
    return _render_boxes(make_boxes(machine), f"{machine.source}: {render_summary(machine)}", _STYLE)


def render_plan_svg(plan: Plan) -> str:
    """Render the picture of a plan's machine: every CPU with the rank that has it, or why none does.

    The tooltip of a core shows all CPUs and the number of threads of its rank.
    """
    overlay = make_overlay(plan)
    boxes, style = make_boxes(plan.machine, overlay), f"{_STYLE}\n{_PLAN_STYLE}"
    return _render_boxes(boxes, " ".join(overlay.heading), style)


def _render_boxes(boxes: Box, title: str, style: str) -> str:
    picture = _with_absolute_positions(_with_size(boxes), 0, 0)
    return render_svg_file((picture.width, picture.height), title, style, _render_box(picture))


def _render_box(box: Box) -> Iterator[str]:
    yield f'<g class="{" ".join((box.style, *box.marks))}">'
    if box.tooltip:
        yield f"<title>{escape_xml(box.tooltip)}</title>"
    is_centred = box.style in ("cpu", "key")
    if box.style not in ("group", "lines", "line"):
        corner = ' rx="3"' if is_centred else ""
        yield f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}"{corner}/>'
    pad, _ = _SPACE.get(box.style, _SPACE["other"])
    x = box.x + (box.width // 2 if is_centred else pad)
    y = box.y + pad - 4  # pixels from the base line of a text to its bottom
    for line in box.title:
        y += LINE
        yield f'<text x="{x}" y="{y}">{escape_xml(line)}</text>'
    if box.label:
        yield f'<text class="label" x="{x}" y="{y + LINE}">{escape_xml(box.label)}</text>'
    for inner in box.inside:
        yield from _render_box(inner)
    yield "</g>"
