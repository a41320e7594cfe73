"""An SVG file: its frame, and text that is valid in it. It has no scripts, fonts or other files."""

import re
from collections.abc import Iterable
from html import escape

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
