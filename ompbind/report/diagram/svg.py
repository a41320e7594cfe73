"""A machine, with or without a plan, as a picture: one SVG 1.1 file without scripts, fonts or other files."""

from collections.abc import Iterator

from ompbind.machine.model import Machine
from ompbind.planning.plan import Plan
from ompbind.report.diagram.model import Box, make_boxes
from ompbind.report.diagram.plan_overlay import COLOURS, make_overlay
from ompbind.report.diagram.svg_file import escape_xml, render_svg_file
from ompbind.report.diagram.svg_layout import LINE, get_padding, make_layout
from ompbind.report.machine_text import render_summary

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

_CENTRED = ("cpu", "key")  # styles of boxes with centred text
_BASE = LINE - 4  # pixels from the top of a line of text to its base line


def render_svg(machine: Machine) -> str:
    """Render the machine as an SVG 1.1 file: boxes in boxes, down to its CPUs by number.

    Domains, cores and CPUs have tooltips. Characters other than ASCII are written as references, so the
    encoding of the file does not matter.
    """
    return _render(make_boxes(machine), f"{machine.source}: {render_summary(machine)}", _STYLE)


def render_plan_svg(plan: Plan) -> str:
    """Render the picture of a plan's machine: every CPU with the rank that has it, or why none does.

    The tooltip of a core shows all CPUs and the number of threads of its rank.
    """
    overlay = make_overlay(plan)
    return _render(make_boxes(plan.machine, overlay), " ".join(overlay.heading), f"{_STYLE}\n{_PLAN_STYLE}")


def _render(boxes: Box, title: str, style: str) -> str:
    picture = make_layout(boxes)
    return render_svg_file((picture.width, picture.height), title, style, _render_box(picture))


def _render_box(box: Box) -> Iterator[str]:
    yield f'<g class="{" ".join((box.style, *box.marks))}">'
    if box.tooltip:
        yield f"<title>{escape_xml(box.tooltip)}</title>"
    if box.style not in ("group", "lines", "line"):
        corner = ' rx="3"' if box.style in _CENTRED else ""
        yield f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}"{corner}/>'
    yield from _render_title(box)
    for inner in box.inside:
        yield from _render_box(inner)
    yield "</g>"


def _render_title(box: Box) -> Iterator[str]:
    """Yield the lines of the title and the label below it; small boxes have them centred."""
    pad = get_padding(box.style)
    x = box.x + (box.width // 2 if box.style in _CENTRED else pad)
    lines = [("", line) for line in box.title] + [(' class="label"', box.label)] * bool(box.label)
    for row, (attribute, line) in enumerate(lines):
        yield f'<text{attribute} x="{x}" y="{box.y + pad + LINE * row + _BASE}">{escape_xml(line)}</text>'
