"""The elements of charts in SVG: text, lines, markers, and their style for light and dark backgrounds.

Series differ in the shape of their markers and in dashes too, so that a chart is readable without colours.
Positions are whole pixels.
"""

import textwrap

from ompbind.report.diagram.svg_file import escape_xml
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
