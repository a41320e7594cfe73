"""Tables of `inspect --watch`: a line for each row; a narrow screen has fewer columns.

Tables of other commands wrap long cells instead (`text.render_table`): there, each word counts.

Drawn without a library: with 4 ranks of 16 threads, tables of rich take 14 ms for 80x24 characters and 25 ms
for 160x50, this takes 0.5 and 0.9 ms. A sample takes 11 ms, so rich alone would bring the view above 1 % of a
CPU at the default interval.
"""

from collections.abc import Iterator, Sequence

from ompbind.record import Record
from ompbind.report.text import Screen, count_columns
from ompbind.text import Severity, clean_lines

GAP = "  "
_LEAST_LAST = len("warning: oversubscribed")  # other columns are left out for so much of the last one

_STYLES = {Severity.OK: "32", Severity.NOTE: "33", Severity.WARNING: "1;33", Severity.ERROR: "1;31"}
"""Numbers of the escape sequences for colours and bold text."""

BOLD, FAINT = "1", "2"
"""Numbers of the escape sequences for bold and faint text."""


class LiveColumn(Record):
    """A column. `least` is its least width, so that the table does not change with every number.

    If the screen is too narrow, the columns with the highest `order` are left out first; 0 is always shown.
    """

    title: str
    order: int = 0
    least: int = 0
    right: bool = True


class LiveRow(Record):
    """A row: a cell for each column; the last one has the colour of the severity, if there is one."""

    cells: tuple[str, ...]
    severity: Severity | None = None


def render_live_table(
    columns: Sequence[LiveColumn], rows: Sequence[LiveRow], screen: Screen
) -> Iterator[str]:
    """Yield the lines of a table. The last column gets the rest of the line, and is cut if it is too long."""
    widths = [_find_width(column, [row.cells[i] for row in rows]) for i, column in enumerate(columns)]
    shown = _choose_columns(columns, widths, screen.width)
    last = screen.width - sum(widths[i] + len(GAP) for i in shown[:-1])
    titles = [_align(columns[i], columns[i].title, widths[i]) for i in shown[:-1]]
    yield style(GAP.join([*titles, fit(columns[-1].title, last)]), BOLD, screen)
    for row in rows:
        cells = [_align(columns[i], row.cells[i], widths[i]) for i in shown[:-1]]
        text = fit(row.cells[-1], last)
        cells.append(style(text, _STYLES[row.severity], screen) if row.severity else text)
        yield GAP.join(cells).rstrip()


def _find_width(column: LiveColumn, cells: Sequence[str]) -> int:
    """Return the width of a column; 0 if all its cells are empty."""
    if cells and not any(cells):
        return 0
    return max(column.least, *map(count_columns, (column.title, *cells)))


def _choose_columns(columns: Sequence[LiveColumn], widths: Sequence[int], width: int) -> list[int]:
    """Return the indices of the columns that fit, without empty columns.

    The last column keeps what it needs, or `_LEAST_LAST`.
    """
    shown = [i for i, column in enumerate(columns) if widths[i]]
    last = min(widths[-1], _LEAST_LAST)
    for i in sorted(shown, key=lambda i: -columns[i].order):
        if sum(widths[j] + len(GAP) for j in shown[:-1]) + last <= width or not columns[i].order:
            break
        shown.remove(i)
    return shown


def _align(column: LiveColumn, text: str, width: int) -> str:
    space = " " * (width - count_columns(text))
    return space + text if column.right else text + space


def fit(text: str, width: int) -> str:
    """Return a text without control characters, cut to a width."""
    text = clean_lines(text)
    if count_columns(text) <= width:
        return text
    while count_columns(text) > width - 3:
        text = text[:-1]
    return f"{text}..."


def style(text: str, code: str, screen: Screen) -> str:
    """Return a text with colours, if the screen has them."""
    return f"\x1b[{code}m{text}\x1b[m" if screen.styled else text
