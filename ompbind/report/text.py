"""Plain text for people: columns and wrapped lines that fit the width of a terminal."""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any
from unicodedata import category, east_asian_width

from ompbind.cpuset import CpuSet, named, render_ranges
from ompbind.errors import OmpbindError, PositionError
from ompbind.record import Record
from ompbind.text import clean_line, clean_lines, remove_escape_sequences

WIDTH = 80  # characters in a line where the output is no terminal

WIDEST = 200
"""Characters in a line of tables and paragraphs on wider terminals: longer lines are hard to read."""


class Screen(Record):
    """What a terminal shows: characters in a line, lines, colours (`styled`), characters beyond ASCII."""

    width: int = WIDTH
    height: int = 24
    styled: bool = False
    is_unicode: bool = True

    @property
    def text_width(self) -> int:
        """Characters in a line of tables and paragraphs."""
        return min(self.width, WIDEST)

    @property
    def times(self) -> str:
        """The character between a number and what is counted."""
        return "×" if self.is_unicode else "x"


PIPE = Screen()  # what is no terminal: a pipe or a file, without colours


class Column(Record):
    """One column of a table.

    `right` aligns the cells to the right. Columns that `grow` share the width that the others leave;
    longer cells of them wrap at spaces and commas.
    """

    title: str
    cells: Sequence[str]
    right: bool = False
    grows: bool = False


def render_table(columns: Sequence[Column], width: int = WIDTH) -> str:
    """Render columns side by side in lines of `width` characters; long cells of growing columns wrap."""
    return "\n".join(render_rows(columns, width))


def render_rows(columns: Sequence[Column], width: int = WIDTH) -> Iterator[str]:
    """Yield the rows of a table, the titles first; a row with wrapped cells has several lines."""
    widths, gap = _column_widths(columns, width)
    for row in zip(*((column.title, *column.cells) for column in columns), strict=True):
        lines = []
        for texts in zip_longest(*map(_wrap_cell, row, widths), fillvalue=""):
            cells = []
            for text, cell_width, column in zip(texts, widths, columns, strict=True):
                space = " " * (cell_width - count_columns(text))
                cells.append(space + text if column.right else text + space)
            lines.append((" " * gap).join(cells).rstrip())
        yield "\n".join(lines)


def _column_widths(columns: Sequence[Column], width: int) -> tuple[list[int], int]:
    """Return the width of every column, and the number of spaces between two columns.

    Every column first gets its least width. The rest of the line goes to the fixed columns, so that their
    titles need not wrap, and then to the growing columns. From the shortest on, each of these gets what its
    longest cell needs, but at most an equal share of what is left: a long column gets what short ones leave.
    """
    needed = [max(map(count_columns, (column.title, *column.cells))) for column in columns]
    for gap, longest_word in _DENSITIES:
        widths = [_least_width(column, longest_word) for column in columns]
        left = width - gap * (len(columns) - 1) - sum(widths)
        if left >= 0:
            break
    order = sorted(range(len(columns)), key=lambda i: (columns[i].grows, needed[i]))
    for at, i in enumerate(order):
        waiting = order[at:]
        share = (left + sum(widths[j] for j in waiting)) // len(waiting) if columns[i].grows else needed[i]
        added = max(0, min(needed[i] - widths[i], share - widths[i], left))
        widths[i] += added
        left -= added
    return widths, gap


_DENSITIES = ((2, 24), (1, 24), (1, 16), (1, 8))
"""Spaces between columns, and characters of the longest word that growing columns do not split.

A table that is too wide for the terminal with one pair is rendered with the next. IDs of runs have up to 24
characters: these are to be copied.
"""


def _least_width(column: Column, longest_word: int) -> int:
    """Return the width in which the title of a column wraps or, if it grows, all cells wrap between words."""
    title = max(map(count_columns, column.title.split()), default=0)
    if not column.grows:
        return max(title, *map(count_columns, column.cells), 0)
    words = (word for cell in column.cells for word in re.split(_WORD_END, cell))
    return min(max(title, *map(count_columns, words), 0), longest_word)


_WORD_END = r"\s|(?<=[,|])"  # not compiled here: a start needs none of these expressions


def _wrap_cell(text: str, width: int) -> list[str]:
    """Split a cell into lines: at spaces if its words fit, else after commas and bars too."""
    if count_columns(text) <= width:
        return [text]
    lines = _wrap(_make_breakable(text, width), width)
    return [line.replace(_MAY_END, "") for line in lines] or [""]


def _wrap(text: str, width: int, **options: Any) -> list[str]:
    """Split text into lines as textwrap does, but not at hyphens: options stay whole."""
    from textwrap import wrap  # noqa: PLC0415 - door: long lines

    options |= {"break_on_hyphens": False, "expand_tabs": False, "replace_whitespace": False}
    return wrap(text, width, **options)


def render_paragraph(label: str, text: str, width: int = WIDTH) -> str:
    """Render a labelled line, continued under its text where it is long."""
    return _fill(text, f"{label}: ", "  ", width)


def wrap_indented(line: str, width: int = WIDTH) -> str:
    """Continue a line that is too long on further lines, indented by four more spaces than itself."""
    if len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    return _fill(line.strip(), indent, f"{indent}    ", width)


def _fill(text: str, first_indent: str, next_indent: str, width: int) -> str:
    """Wrap text into lines; the first line and the following lines have different indents.

    Long words may end a line after a comma or bar and are not changed otherwise, and no line ends within
    quotes: values and commands can be copied.
    """
    words = "".join(" " if char.isspace() else char for char in clean_lines(text))

    def keep_whole(quoted: re.Match[str]) -> str:  # unless it is one word, such as a mask
        return quoted[0].replace(_MAY_END, "").replace(" ", _SPACE) if " " in quoted[0] else quoted[0]

    shown = re.sub(_QUOTED, keep_whole, _make_breakable(words, width // 2))
    indents = {"initial_indent": first_indent, "subsequent_indent": next_indent}
    lines = _wrap(shown, width, **indents, break_long_words=False)
    return "\n".join(lines).replace(_MAY_END, "").replace(_SPACE, " ")


_MAY_END = "\t"  # a place where a line may end; it is removed when the text is printed
_SPACE = "\x1f"  # a space at which no line ends, in words of shells

_QUOTED = r"""(?<![\w'"])'[^']*'(?:"'"'[^']*')*"""
"""A text in single quotes, as shlex.quote writes it too; an apostrophe follows a letter."""


def _make_breakable(text: str, width: int) -> str:
    """Let lines end after the commas and bars of words longer than `width`."""
    words = text.split(" ")
    return " ".join(
        word if len(word) <= width else re.sub(r"([,|])", rf"\1{_MAY_END}", word) for word in words
    )


def make_visible(line: str) -> str:
    """Return what a terminal shows of a line in the end, without colours.

    Text before a carriage return is overwritten by the text after it, as in progress bars.
    """
    overwritten = [part for part in remove_escape_sequences(line).split("\r") if part.strip()]
    text = overwritten[-1].expandtabs() if overwritten else ""
    return clean_line(text).rstrip()


def wrap_quoted(line: str, width: int = WIDTH) -> str:
    """Indent a line that a program wrote, and continue it where it is long; words stay whole."""
    indents = {"initial_indent": "    ", "subsequent_indent": "        "}
    return "\n".join(_wrap(line, width, **indents, break_long_words=False))


def render_error(error: OmpbindError, width: int = WIDTH) -> str:
    """Render an error: what is wrong, its position if that is known, and a hint on what would work."""
    lines = [render_paragraph("ompbind: error", error.message, width)]
    if isinstance(error, PositionError) and error.text:
        lines.extend(_mark(error, width))
    if error.hint:
        lines.append(render_paragraph("  hint", error.hint, width))
    return "\n".join(lines)


def clip(text: str, limit: int = WIDTH - 20) -> str:
    """Cut a text that takes more columns than a limit, and mark the cut with "..."."""
    if count_columns(text) <= limit:
        return text
    text = text[: limit - 3]
    while count_columns(text) > limit - 3:
        text = text[:-1]
    return f"{text}..."


def _mark(error: PositionError, width: int) -> list[str]:
    """Return two lines: the text, and "^" below the part that is wrong; a long text is cut around it."""
    start, stop = error.span
    left, right = max(0, start - width // 2), start + width
    while count_columns(error.text[left:start]) > width // 2:
        left += 1
    while count_columns(error.text[left:right]) > width - 12:
        right -= 1
    shown = "".join(" " if char.isspace() else clean_lines(char) for char in error.text[left:right])
    before, after = ("..." if left else ""), ("..." if left + len(shown) < len(error.text) else "")
    at = len(before) + count_columns(shown[: start - left])
    marks = "^" * max(1, count_columns(shown[start - left : stop - left]))
    return [f"    {before}{shown}{after}", "    " + " " * at + marks]


def count_columns(text: str) -> int:
    """Return how many columns of a terminal a text takes: wide characters take two, accents none."""
    if text.isascii():
        return len(text)
    return sum((east_asian_width(char) in "WF") + (category(char) not in ("Mn", "Me")) for char in text)


def render_cpus(cpus: CpuSet) -> str:
    """Return a set as list text, with four and more evenly spaced runs as one stride: "0-62:2", "0-31:2/8".

    Masks accept all of these.
    """
    return ",".join(render_ranges(list(cpus.ranges())))


def render_all_cpus(compute: CpuSet, service_cpus: CpuSet) -> str:
    """Return the CPUs of a rank: "CPUs 0-2", or "CPUs 0-2, service CPU 3"."""
    service = f", service {named('CPU', service_cpus)}" if service_cpus else ""
    return f"{named('CPU', compute)}{service}"


def dim(text: str) -> str:
    """Make every line of a text faint on terminals."""
    return "\n".join(f"\033[2m{line}\033[22m" for line in text.split("\n"))


def render_age(seconds: float) -> str:
    """Return a time span in its largest whole unit: "45 s", "3 min", "2 h", "5 d"."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds) // size} {unit}"
    return f"{max(0, int(seconds))} s"


def render_bytes(size: int) -> str:
    """Return a size in binary units."""
    amount, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if amount >= 100 or unit == "B" else f"{amount:.1f} {unit}"
