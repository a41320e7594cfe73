"""A plan as a picture in the terminal: the boxes of its machine in characters, each core with its rank.

The boxes of `model` become text in three steps:

1. Simplify: cores become rows of cells. A cache that holds only cores becomes one row with a title; packages,
   NUMA nodes and other wide boxes keep a frame. The kind of cores is the title of their row if there are
   several kinds.
2. Measure, from the inside out: each box gets the text of its inside and the width that it needs.
3. Draw: boxes of equal width beside each other, as many as fit the screen, in frames.

    ┌ package 0 ────────────────────┐    frame: package; a row: L3 0 with its title and two cells
    │ L3 0  0 0   L3 1  1 1         │
    └───────────────────────────────┘

A picture that would be longer than LINES counts neighbouring cores of the same rank ("0×4"). If it is still
too long, the innermost boxes are left out, one level after the other.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from textwrap import wrap

from ompbind.cpuset import count
from ompbind.machine.model import Level, Machine
from ompbind.planning.plan import Plan
from ompbind.record import Record
from ompbind.report.diagram.model import Box, framed_levels, kind_marks, make_body, make_cores
from ompbind.report.diagram.plan_overlay import (
    KEYS,
    NO_ANNOTATION,
    NOTHING,
    Annotation,
    Overlay,
    make_overlay,
)
from ompbind.report.machine_text import render_device_names
from ompbind.report.text import Screen, breakable
from ompbind.text import clean_lines

# Blocks of text: stacked, side by side, padded, framed.
#
# All lines of a block have the same width on the screen. A line may also hold escape sequences for colours;
# this is why a block knows its width, and the length of its lines is never used.
#
#     ┌ title ─────┐ ┌ title ─┐
#     │ ┌ title ─┐ │ │ block  │      beside([frame(stack([frame(block), block])), frame(block)])
#     │ │ block  │ │ └────────┘
#     │ └────────┘ │
#     │ block      │
#     └────────────┘
#


class Block(Record):
    """Lines that take `width` characters each on the screen."""

    width: int = 0
    lines: tuple[str, ...] = ()


class Frame(Record):
    """The characters of a frame: left corner, line, right corner; `separator` is between parts of a title."""

    top: tuple[str, str, str]
    side: str
    bottom: tuple[str, str, str]
    separator: str


UNICODE = Frame(top=("┌", "─", "┐"), side="│", bottom=("└", "─", "┘"), separator=" · ")
ASCII = Frame(top=("+", "-", "+"), side="|", bottom=("+", "-", "+"), separator=", ")

FRAME_WIDTH = 4  # characters that a frame adds to the width: a border and a space on each side


def text_block(lines: Sequence[str], width: int = 0) -> Block:
    """Make a block of lines without colours, padded to the longest line, or to `width` if that is more."""
    width = max(width, *map(len, lines), 0)
    return Block(width=width, lines=tuple(line.ljust(width) for line in lines))


def pad(block: Block, width: int) -> Block:
    """Widen a block with spaces."""
    spaces = " " * (width - block.width)
    return Block(width=width, lines=tuple(f"{line}{spaces}" for line in block.lines)) if spaces else block


def stack(blocks: Sequence[Block]) -> Block:
    """Put blocks below each other."""
    width = max((block.width for block in blocks), default=0)
    return Block(width=width, lines=tuple(line for block in blocks for line in pad(block, width).lines))


def beside(blocks: Sequence[Block], gap: int) -> Block:
    """Put blocks beside each other with a gap of so many spaces; empty lines fill up shorter blocks."""
    rows = zip_longest(*(block.lines for block in blocks))
    empty = [" " * block.width for block in blocks]
    lines = ((fill if cell is None else cell for cell, fill in zip(row, empty, strict=True)) for row in rows)
    width = sum(block.width for block in blocks) + gap * (len(blocks) - 1)
    return Block(width=width, lines=tuple((" " * gap).join(line) for line in lines))


def balanced_columns(count: int, width: int, available: int, gap: int) -> int:
    """Return how many of `count` blocks of one width stand in a row: all, or about equally many in every row.

    `available` is the width of a row, `gap` the spaces between two blocks.
    """
    most = max(1, (available + gap) // (width + gap))
    rows = -(-count // most)
    return -(-count // rows)


def frame(block: Block, title: Sequence[str], width: int, style: Frame) -> Block:
    """Draw a frame of some outer width around a block, with the first line of its title in the border."""
    inner = width - FRAME_WIDTH
    first, *further = title
    left, line, right = style.top
    border = f"{left} {first} {line * (inner - len(first))}{right}"
    inside = stack([text_block(further, inner), pad(block, inner)])
    left, line, right = style.bottom
    lines = [border, *(f"{style.side} {text} {style.side}" for text in inside.lines)]
    return Block(width=width, lines=(*lines, f"{left}{line * (width - 2)}{right}"))


def join_title(parts: Iterable[str], width: int, separator: str) -> list[str]:
    """Join the parts of a title into lines of at most `width` characters; longer parts are wrapped."""
    lines: list[str] = []
    for part in parts:
        if lines and len(joined := f"{lines[-1]}{separator}{part}") <= width:
            lines[-1] = joined
        else:
            lines.extend(wrap(part, width, break_on_hyphens=False))
    return lines


LINES = 72
"""Lines of boxes; in a longer picture neighbouring cores are counted, and then inner boxes are left out."""

_ROW_LEVELS = {str(level) for level in (Level.DIE, Level.L3, Level.CLUSTER, Level.L2)}
"""Levels whose boxes become a row of cells if they hold only cores."""

_MIN_FRAME_WIDTH = 28  # characters that a frame needs; in less width the title is a line above the content

_CORES, _TITLED_CORES, _CELL = "cores", "titled-cores", "cell"
"""Styles of simplified boxes: a row of cores, a row in place of a cache or die, a core in a row."""

_TEXT_STYLES = ("memory", "devices")
"""Styles of boxes that are only text, without a frame."""

_ROW_GAP = 3  # spaces between rows that stand beside each other
_FRAME_GAP = 1  # spaces between frames that stand beside each other

_COLOURS = {
    **{f"rank-{i}": f"38;5;16;48;5;{code}" for i, code in enumerate((110, 209, 117, 186, 36, 148, 217))},
    "shared": "7",
    "reserved": "1",
    **dict.fromkeys(("idle", "apart", "taken", "not-allowed"), "2"),
}
"""The parameters of the escape sequence (SGR) of each mark; ranks have the same colours as in SVG."""


class _DrawingOptions(Record):
    """How cores are drawn.

    `annotations` maps each CPU to the annotation of its core, `kinds` to its core kind in words. `cell_width`
    is in characters. `counts_cores` joins neighbouring cores with the same annotation: "0×4".
    """

    annotations: Mapping[int, Annotation]
    kinds: Mapping[int, str]
    screen: Screen
    cell_width: int = 1
    counts_cores: bool = False

    @property
    def frame(self) -> Frame:
        return UNICODE if self.screen.has_box_characters else ASCII


class _MeasuredBox(Record):
    """A box whose inside is drawn: the width that it needs, and with its whole title in one line."""

    box: Box
    inside: Block
    width: int
    is_framed: bool = False
    one_line_width: int = 0


def render_picture(plan: Plan, screen: Screen) -> str:
    """Render the plan as a picture that fits a screen, with a legend and its warnings."""
    overlay = make_overlay(plan)
    body, counts_cores = _render_body(plan.machine, overlay, screen)
    heading = _wrap_lines(overlay.heading, screen)
    legend = _render_legend(len(plan.placements), overlay, screen, counts_cores)
    # a picture of cores does not show idle hardware threads of used cores
    idle = [cpu for cpu, annotation in overlay.cpus.items() if annotation.mark == "idle"]
    hidden = sum(overlay.cores[cpu].mark != "idle" for cpu in idle)
    note = [f"note: {count(hidden, 'idle hardware thread')} on cores of ranks"] if hidden else []
    notes = _wrap_lines([*note, *overlay.notes], screen)
    text = "\n\n".join(filter(None, map("\n".join, (heading, body, legend, notes))))
    return text if screen.has_box_characters else text.encode("ascii", "replace").decode()


def _wrap_lines(texts: Iterable[str], screen: Screen) -> Iterator[str]:
    for text in texts:
        words = breakable(" ".join(clean_lines(text).split()), screen.width // 2)
        yield from wrap(words, screen.width, break_on_hyphens=False, subsequent_indent="  ")


def _render_body(machine: Machine, overlay: Overlay, screen: Screen) -> tuple[list[str], bool]:
    """Return the lines of the boxes in as much detail as LINES allow, and whether cores are counted."""
    levels, cores = framed_levels(machine), make_cores(machine, NOTHING)
    words = {cpu: text for cpus, text in kind_marks(machine).values() for cpu in cpus}
    options = _DrawingOptions(annotations=overlay.cores, kinds=words, screen=screen)
    complete = _render_boxes(make_body(machine, cores, levels, render_device_names), options)
    if len(complete) <= LINES:
        return complete, False
    options = options.replace(counts_cores=True)
    shorter = [
        _render_boxes(make_body(machine, cores, levels[:keep], render_device_names), options)
        for keep in range(len(levels), 0, -1)
    ]
    first = (shorter or [complete])[0]
    return next((lines for lines in shorter if len(lines) <= LINES), first), bool(shorter)


def _render_boxes(body: Iterable[Box], options: _DrawingOptions) -> list[str]:
    boxes = [_simplify(box, options) for box in body]
    options = options.replace(cell_width=max(map(_longest_cell, boxes)))
    blocks = [_draw((box,), options.screen.width, options) for box in boxes if box.inside]
    return [line.rstrip() for line in stack(blocks).lines]


def _longest_cell(box: Box) -> int:
    return len(box.title[0]) if box.style == _CELL else max(map(_longest_cell, box.inside), default=1)


def _simplify(box: Box, options: _DrawingOptions) -> Box:
    """Return a box with rows of cells in place of its cores; a cache that holds only cores becomes a row."""
    if box.style in _TEXT_STYLES:
        return box
    inside = []
    for inner in box.inside:  # a cache, die or cluster of a single core is not shown
        is_single = inner.style in _ROW_LEVELS and [core.style for core in inner.inside] == [Level.CORE]
        inside.append(inner.inside[0] if is_single else inner)
    items: list[Box] = []
    for is_core, run in groupby(inside, key=lambda inner: inner.style == Level.CORE):
        if not is_core:
            items += (_simplify(inner, options) for inner in run)
            continue
        for kind, cores in groupby(run, key=lambda core: options.kinds.get(core.cpus.first, "")):
            items.append(_make_row(kind, cores, options))
    if box.style in _ROW_LEVELS and [item.style for item in items] == [_CORES]:
        title = options.frame.separator.join(filter(None, (*box.title, *items[0].title)))
        return items[0].replace(style=_TITLED_CORES, title=(title,))
    return box.replace(inside=tuple(items))


def _make_row(kind: str, cores: Iterable[Box], options: _DrawingOptions) -> Box:
    annotations = [options.annotations[core.cpus.first] for core in cores]
    cells = [(annotation.symbol, annotation.mark) for annotation in annotations]
    if options.counts_cores:
        runs = [(symbol, mark, len(list(run))) for (symbol, mark), run in groupby(cells)]
        times = options.screen.times
        cells = [(f"{symbol}{times}{n}" if n > 1 else symbol, mark) for symbol, mark, n in runs]
    inside = (Box(style=_CELL, title=(text,), marks=(mark,)) for text, mark in cells)
    return Box(style=_CORES, title=(kind,), inside=tuple(inside))


def _draw(boxes: Sequence[Box], available: int, options: _DrawingOptions, is_column: bool = False) -> Block:
    """Draw boxes within an available width.

    Rows of cores, and other boxes, stand beside each other as far as they fit, all of one width; with
    `is_column` they stand below each other.
    """
    blocks = []
    row_styles = (_CORES, _TITLED_CORES)
    for style, run in groupby(boxes, key=lambda box: box.style if box.style in row_styles else ""):
        same = list(run)
        title_width = max(len(box.title[0]) for box in same) if style else 0
        measured = [_measure(box, available, title_width, options) for box in same]
        width, gap = max(item.width for item in measured), _ROW_GAP if style else _FRAME_GAP
        columns = 1 if is_column else balanced_columns(len(measured), width, available, gap)
        if columns == 1:  # space is left, so that titles can take one line
            width = max([width, *(m.one_line_width for m in measured if m.one_line_width <= available)])
        finished = [_finish(item, width, options) for item in measured]
        blocks += [beside(finished[i : i + columns], gap) for i in range(0, len(finished), columns)]
    return stack(blocks)


def _measure(box: Box, available: int, title_width: int, options: _DrawingOptions) -> _MeasuredBox:
    """Draw the inside of a box and return it with the width that it needs.

    Rows pad their titles to `title_width` characters.
    """
    if box.style in (_CORES, _TITLED_CORES):
        block = _draw_row(box, available, title_width, options)
        return _MeasuredBox(box=box, inside=block, width=block.width)
    is_framed = bool(box.title) and available >= _MIN_FRAME_WIDTH and box.style not in _TEXT_STYLES
    inner_width = available - FRAME_WIDTH * is_framed
    block = _draw(box.inside, inner_width, options, box.arrangement == "column")
    separator = options.frame.separator
    if box.style == "devices":  # these lines are joined as far as the boxes beside them are wide
        lines = [line for part in box.title for line in join_title([part], available, "")]
        return _MeasuredBox(box=box, inside=block, width=max(map(len, lines)))
    if not is_framed:
        title = text_block(join_title(box.title, available, separator))
        block = stack([title, block])
        return _MeasuredBox(box=box, inside=block, width=block.width)
    longest = max(len(line) for part in box.title for line in join_title([part], inner_width, ""))
    return _MeasuredBox(
        box=box,
        inside=block,
        width=max(block.width, longest) + FRAME_WIDTH,
        is_framed=True,
        one_line_width=len(separator.join(box.title)) + FRAME_WIDTH,
    )


def _finish(measured: _MeasuredBox, width: int, options: _DrawingOptions) -> Block:
    """Return the block of a box in its final width, with its frame."""
    if measured.box.style == "devices":
        title = join_title(measured.box.title, width, options.frame.separator)
        return text_block(title, width)
    if not measured.is_framed:
        return pad(measured.inside, width)
    title = join_title(measured.box.title, width - FRAME_WIDTH, options.frame.separator)
    return frame(measured.inside, title, width, options.frame)


def _draw_row(row: Box, available: int, title_width: int, options: _DrawingOptions) -> Block:
    """Draw a row of cells beside its title, or below it where the width does not suffice for both."""
    title = row.title[0].ljust(title_width)
    indent = title_width + 2 if title_width else 0
    cell_width = options.cell_width
    if indent + cell_width > max(available // 2, cell_width):
        above = text_block(join_title([title.rstrip()], available, ""))
        return stack([above, _draw_row(row.replace(title=("",)), available, 0, options)])
    cells = row.inside
    columns = _cells_per_line(len(cells), available - indent, cell_width)
    lines = [_render_cells(cells[i : i + columns], options) for i in range(0, len(cells), columns)]
    width = columns * (cell_width + 1) - 1
    lines[-1] += " " * ((cell_width + 1) * (-len(cells) % columns))
    starts = [title.ljust(indent), *[" " * indent] * (len(lines) - 1)]
    return Block(width=indent + width, lines=tuple(map(str.__add__, starts, lines)))


def _cells_per_line(count: int, available: int, cell_width: int) -> int:
    """Return how many cells stand in a line: all, or about equally many, a multiple of 8 or 4 if it fits."""
    most = max(1, (available + 1) // (cell_width + 1))
    if count <= most:
        return count
    fewest = balanced_columns(count, cell_width, available, 1)
    return next(rounded for step in (8, 4, 1) if (rounded := -(-fewest // step) * step) <= most)


def _render_cells(cells: Sequence[Box], options: _DrawingOptions) -> str:
    """Return a line of cells; the spaces between neighbours of the same colour have that colour too."""
    runs = groupby(cells, key=lambda cell: cell.marks[0])
    texts = ((mark, " ".join(cell.title[0].rjust(options.cell_width) for cell in run)) for mark, run in runs)
    return " ".join(_colour(text, mark, options.screen) for mark, text in texts)


def _colour(text: str, mark: str, screen: Screen) -> str:
    return f"\033[{_COLOURS[mark]}m{text}\033[0m" if screen.styled else text


def _render_legend(ranks: int, overlay: Overlay, screen: Screen, counts_cores: bool) -> Iterator[str]:
    """Yield the lines of the legend: a column of symbols, and beside it what they mean.

    The ranks are listed one by one if they are few.
    """
    keys = list(overlay.ranks)
    if ranks > KEYS:
        words = "ranks; --format table lists their CPUs"
        keys = [NO_ANNOTATION.replace(symbol=f"0 to {ranks - 1}", words=words)]
    keys += overlay.core_keys
    if counts_cores:
        words = "two cores beside each other"
        keys.append(NO_ANNOTATION.replace(symbol=f"{screen.times}2", words=words))
    width = max(len(key.symbol) for key in keys)
    for key in keys:
        symbol = _colour(key.symbol, key.mark, screen) if key.mark else key.symbol
        first, *further = wrap(key.words, screen.width - width - 2, break_on_hyphens=False)
        yield f"{' ' * (width - len(key.symbol))}{symbol}  {first}"
        yield from (f"{' ' * (width + 2)}{line}" for line in further)
