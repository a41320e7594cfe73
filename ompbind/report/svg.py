"""What a terminal shows as an SVG picture: one file without scripts, and without fonts from the network."""

import io
import re
from html import escape

from ompbind.report.text import Screen, count_columns
from ompbind.text import clean_lines

SVG_SCREEN = Screen(width=100, height=1000, styled=True)
"""The screen whose text becomes a picture."""

_TEMPLATE = """\
<svg viewBox="0 0 {terminal_width} {terminal_height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: {char_height}px monospace; white-space: pre }}
{styles}
</style>
<defs>
{lines}
</defs>
<rect width="100%" height="100%" fill="#ffffff"/>
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</svg>
"""

_ILLEGAL = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot represent."""


def render_svg(text: str, title: str) -> str:
    """Render text with colours, which was made for `SVG_SCREEN`, as an SVG picture in ASCII."""
    from rich.console import Console  # noqa: PLC0415 - door: rich
    from rich.terminal_theme import DEFAULT_TERMINAL_THEME  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    shown = Text.from_ansi(_ILLEGAL.sub("\ufffd", text.replace("\x1b", "\ue000")).replace("\ue000", "\x1b"))
    longest = max(map(count_columns, shown.plain.split("\n")))
    console = Console(record=True, file=io.StringIO(), width=min(longest, SVG_SCREEN.width))
    console.print(shown)
    picture = console.export_svg(theme=DEFAULT_TERMINAL_THEME, code_format=_TEMPLATE)
    picture = picture.replace("<style>", f"<title>{escape(clean_lines(title))}</title>\n<style>", 1)
    return picture.encode("ascii", "xmlcharrefreplace").decode()
