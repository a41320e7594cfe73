"""A machine as a picture, and a plan on it: SVG 1.1 in one file, without scripts, fonts or other files."""

import re
from collections.abc import Iterator
from html import escape

from ompbind.machine.model import Machine
from ompbind.planning.plan import Plan
from ompbind.report.diagram.model import Box, make_boxes
from ompbind.report.diagram.plan_overlay import COLOURS, make_overlay
from ompbind.report.diagram.svg_layout import LINE, lay_out, padding
from ompbind.report.topology_json import render_summary

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
"""How boxes look, by style and marks."""

_FILLS = ("#77aadd", "#ee8866", "#99ddff", "#eedd88", "#44bb99", "#bbcc33", "#ffaabb")
"""The colours of ranks: light, for dark text, and neighbours are far apart for colour-blind readers too."""

_PLAN_STYLE = "\n".join(
    [
        ".label{font-weight:bold}",
        ".cpu>rect,.reserved>rect{fill-opacity:1}",
        ".idle>text{fill:#4d545c}",
        ".shared>rect,.reserved>rect{stroke:#1c2128;stroke-width:2}",
        *(f".rank-{i}>rect{{fill:{_FILLS[i]}}}" for i in range(COLOURS)),
    ]
)
"""How the CPUs of a plan look beside that."""

_CENTRED = ("cpu", "key")
_BASE = LINE - 4  # pixels from the top of a line of text to its base line

_ILLEGAL = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no way to write."""


def render_svg(machine: Machine) -> str:
    """Render the machine as a picture: boxes in boxes, with its CPUs by number, as a file in SVG 1.1.

    Levels, cores and CPUs tell by a tooltip what they are. All text is ASCII, other characters are
    references, so that it does not matter how the file is encoded.
    """
    return _render(make_boxes(machine), f"{machine.source}: {render_summary(machine)}", _STYLE)


def render_plan_svg(plan: Plan) -> str:
    """Render the picture of a plan's machine, every CPU with the rank that has it, or why none does.

    Cores tell by a tooltip all CPUs and the threads of their rank.
    """
    overlay = make_overlay(plan)
    return _render(make_boxes(plan.machine, overlay), " ".join(overlay.head), f"{_STYLE}\n{_PLAN_STYLE}")


def _render(boxes: Box, title: str, style: str) -> str:
    picture = lay_out(boxes)
    size = f'width="{picture.width}" height="{picture.height}"'
    lines = [
        '<?xml version="1.0"?>',
        f'<svg xmlns="http://www.w3.org/2000/svg" version="1.1" {size} '
        f'viewBox="0 0 {picture.width} {picture.height}">',
        f"<title>{_text(title)}</title>",
        f'<style type="text/css">{escape(style, quote=False)}</style>',
        *_drawn(picture),
        "</svg>",
    ]
    return "\n".join(lines)


def _drawn(box: Box) -> Iterator[str]:
    yield f'<g class="{" ".join((box.style, *box.marks))}">'
    if box.tip:
        yield f"<title>{_text(box.tip)}</title>"
    if box.style not in ("group", "lines", "line"):
        corner = ' rx="3"' if box.style in _CENTRED else ""
        yield f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}"{corner}/>'
    yield from _titled(box)
    for one in box.inside:
        yield from _drawn(one)
    yield "</g>"


def _titled(box: Box) -> Iterator[str]:
    """Yield the title line by line and the label below it, centred in what is small."""
    pad = padding(box.style)
    x = box.x + (box.width // 2 if box.style in _CENTRED else pad)
    lines = [("", line) for line in box.title] + [(' class="label"', box.label)] * bool(box.label)
    for y, (kind, line) in enumerate(lines):
        yield f'<text{kind} x="{x}" y="{box.y + pad + LINE * y + _BASE}">{_text(line)}</text>'


def _text(text: str) -> str:
    """Escape what XML has a meaning for, replace what it cannot write, and refer to what is not ASCII."""
    return escape(_ILLEGAL.sub("\ufffd", text)).encode("ascii", "xmlcharrefreplace").decode()
