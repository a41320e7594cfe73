"""Plain text for people: columns and wrapped lines that fit a terminal of 80 characters.

The tables on the way to a started rank are written here and not by rich, whose import alone takes
longer than all the rest of a dry run.
"""

import textwrap
from collections.abc import Sequence
from itertools import takewhile, zip_longest

from ompbind.cpuset import CpuSet, runs_texts
from ompbind.errors import MaskError, OmpbindError
from ompbind.record import Record
from ompbind.text import plain

WIDTH = 80  # characters in a line

_GAP = "  "


class Screen(Record):
    """Where text is read: characters in a line, lines, and whether it shows colours and boxes."""

    width: int = WIDTH
    height: int = 24
    styled: bool = False
    draws: bool = True


class Column(Record):
    """One column of a table; `grows` gets what width is left and wraps at commas and blanks."""

    title: str
    cells: Sequence[str]
    right: bool = False
    grows: bool = False


def render_table(columns: Sequence[Column]) -> str:
    """Render columns side by side; cells of growing columns continue on lines of their own."""
    widths = _widths(columns)
    rows = zip(*((column.title, *column.cells) for column in columns), strict=True)
    lines: list[str] = []
    for row in rows:
        wrapped = map(_wrap_cell, row, widths)
        for texts in zip_longest(*wrapped, fillvalue=""):
            cells = (
                text.rjust(width) if column.right else text.ljust(width)
                for text, width, column in zip(texts, widths, columns, strict=True)
            )
            lines.append(_GAP.join(cells).rstrip())
    return "\n".join(lines)


def _widths(columns: Sequence[Column]) -> list[int]:
    natural = [max(map(len, (column.title, *column.cells))) for column in columns]
    growing = [i for i, column in enumerate(columns) if column.grows]
    room = WIDTH - len(_GAP) * (len(columns) - 1) - sum(w for i, w in enumerate(natural) if i not in growing)
    for i in sorted(growing, key=lambda i: natural[i]):
        natural[i] = min(natural[i], max(room // len(growing), len(columns[i].title), 8))
        room -= natural[i]
        growing = growing[1:]
    return natural


def _wrap_cell(text: str, width: int) -> list[str]:
    """Cut a cell into lines, at blanks if its words fit, else after commas too."""
    if len(text) <= width:
        return [text]
    return textwrap.wrap(breakable(text, width), width, break_on_hyphens=False) or [""]


def render_paragraph(label: str, text: str) -> str:
    """Render a labelled line, continued under its text where it is long."""
    return _fill(text, f"{label}: ", "  ")


def wrap_indented(line: str) -> str:
    """Continue a line that is too long on further ones, indented more than it is itself."""
    if len(line) <= WIDTH:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    return _fill(line.strip(), indent, f"{indent}    ")


def _fill(text: str, first: str, further: str) -> str:
    """Fill lines with words, the first line and the further ones after a beginning of their own.

    Long words end lines after their commas and bars, and are else what they were: values can be copied.
    """
    words = "".join(" " if sign.isspace() and sign != _HOLDS else sign for sign in plain(text))
    filled = textwrap.fill(
        breakable(words, WIDTH // 2, _MAY_END),
        WIDTH,
        initial_indent=first,
        subsequent_indent=further,
        expand_tabs=False,
        replace_whitespace=False,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return filled.replace(_MAY_END, "")


_MAY_END = "\t"  # a blank that is not printed, at which a line may end


def breakable(text: str, width: int, blank: str = " ") -> str:
    """Put blanks after the commas and bars of words longer than `width`, so that lines can end there."""
    words = text.split(" ")
    return " ".join(
        word if len(word) <= width else word.replace(",", f",{blank}").replace("|", f"|{blank}")
        for word in words
    )


def render_error(error: OmpbindError) -> str:
    """Render an error: what was wrong, where in the mask if it is one, and what would work."""
    lines = [render_paragraph("ompbind: error", error.message)]
    hint = error.hint
    if isinstance(error, MaskError):
        lines.extend(_mark(error))
        hint = "; ".join(filter(None, (hint, _try(error))))
    if hint:
        lines.append(render_paragraph("  hint", hint).replace(_HOLDS, " "))
    return "\n".join(lines)


_HOLDS = "\N{NO-BREAK SPACE}"  # a blank at which no line ends, until it is printed

COPYABLE = 320
"""Characters of a mask that a hint shows whole; of longer ones it shows what is other than in the text."""


def _try(error: MaskError) -> str:
    """Say which mask to try, or where a long one is other; lines break where masks allow blanks."""
    text, better = error.text.strip(), error.suggestion
    if len(better) <= COPYABLE:
        return f"try --mask{_HOLDS}'{better}'" if better else ""
    same = _shared(text, better)
    start = max(better.rfind(sign, 0, same) for sign in ",|") + 1
    end = len(better) - _shared(text[start:][::-1], better[start:][::-1])
    if end > start:
        end = min((at for sign in ",|" if (at := better.find(sign, end)) >= 0), default=len(better))
    before, after = text[start : len(text) - (len(better) - end)].strip(",| "), clip(better[start:end])
    return f"try '{after}' in place of '{clip(before)}'" if after else f"try without '{clip(before)}'"


def _shared(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def clip(text: str, limit: int = WIDTH - 20) -> str:
    """Cut a text that is longer than a limit, and say so."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _mark(error: MaskError) -> list[str]:
    """Show the mask with its fault marked below, cut around the fault when it is long."""
    start, stop = error.span
    left = max(0, start - 40)
    shown = "".join(" " if sign.isspace() else plain(sign) for sign in error.text[left : left + WIDTH - 12])
    before, after = ("..." if left else ""), ("..." if left + len(shown) < len(error.text) else "")
    at = len(before) + start - left
    marks = "^" * max(1, min(stop, left + len(shown)) - start)
    return [f"    {before}{shown}{after}", "    " + " " * at + marks]


def render_cpus(cpus: CpuSet) -> str:
    """Write a set as list text, four and more evenly spaced runs as one stride: "0-62:2", "0-31:2/8".

    Masks take all of these.
    """
    return ",".join(runs_texts(list(cpus.runs())))


def dim(line: str) -> str:
    """Make a line faint on terminals."""
    return f"\033[2m{line}\033[22m"


def render_bytes(size: int | None) -> str:
    """Write a size in binary units, "unknown" for None."""
    if size is None:
        return "unknown"
    amount, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if amount >= 100 or unit == "B" else f"{amount:.1f} {unit}"
