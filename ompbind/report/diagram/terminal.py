"""A plan as a picture in the terminal: the boxes of its machine in characters, each core by its rank.

Packages, nodes and what is as wide are frames; caches and what is as narrow are rows of cores, and the kind
of their cores is said where there are several. A picture that would be long counts neighbours that are
alike, and then leaves out the innermost boxes, as the tree of a machine does, if that makes it short.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from textwrap import wrap

from ompbind.cpuset import count
from ompbind.machine.model import Level, Machine
from ompbind.planning.plan import Plan
from ompbind.record import Record
from ompbind.report.diagram import text_canvas as canvas
from ompbind.report.diagram.model import Box, framed_levels, kind_marks, make_body, make_cores
from ompbind.report.diagram.plan_overlay import KEYS, NO_STAMP, NOTHING, Overlay, Stamp, make_overlay
from ompbind.report.diagram.text_canvas import SIDES, Block, stack
from ompbind.report.text import Screen, breakable
from ompbind.text import plain

LINES = 72
"""Lines of boxes from which on neighbours that are alike are counted, and then inner boxes left out."""

_ROWS = {str(level) for level in (Level.DIE, Level.L3, Level.CLUSTER, Level.L2)}
"""What is a row of cores where it holds nothing else."""

_FRAMED = 28  # characters that a frame needs; in less room a title stands above what is inside

_RUN, _ROW, _CELL = "run", "row", "cell"
"""The styles of boxes in text: cores that are in no box of their own, a narrow box of cores, a core."""

_GAP = 3  # blanks between rows that stand beside each other; frames have one

_PAINT = {
    **{f"rank-{i}": f"38;5;16;48;5;{code}" for i, code in enumerate((110, 209, 117, 186, 36, 148, 217))},
    "shared": "7",
    "reserved": "1",
    **dict.fromkeys(("idle", "apart", "not-allowed"), "2"),
}
"""What a terminal is told to show a mark; the colours of ranks are as in the picture for browsers."""


class _Brush(Record):
    """How to draw: what stands for the core of each CPU, its kind in words, who reads it, how wide cells are.

    `in_runs` counts cores that stand beside each other and are alike, instead of showing each.
    """

    stamps: Mapping[int, Stamp]
    kinds: Mapping[int, str]
    screen: Screen
    cell: int = 1
    in_runs: bool = False

    @property
    def frame(self) -> canvas.Frame:
        return canvas.DRAWN if self.screen.draws else canvas.TYPED


class _Part(Record):
    """A box on the way to a block: what is inside, and its width, at least and with its title in a line."""

    box: Box
    inside: Block
    width: int
    is_framed: bool = False
    in_a_line: int = 0


def render_picture(plan: Plan, screen: Screen) -> str:
    """Render the plan as a picture that fits a screen, with a legend and its warnings."""
    overlay = make_overlay(plan)
    body, in_runs = _body(plan.machine, overlay, screen)
    head, notes = _fitted(overlay.head, screen), _fitted([*_spare(overlay), *overlay.notes], screen)
    legend = _legend([*_keys(len(plan.placements), overlay, screen, in_runs)], screen)
    text = "\n\n".join(filter(None, map("\n".join, (head, body, legend, notes))))
    return text if screen.draws else text.encode("ascii", "replace").decode()


def _fitted(texts: Iterable[str], screen: Screen) -> Iterator[str]:
    for text in texts:
        words = breakable(" ".join(plain(text).split()), screen.width // 2)
        yield from wrap(words, screen.width, break_on_hyphens=False, subsequent_indent="  ")


def _body(machine: Machine, overlay: Overlay, screen: Screen) -> tuple[list[str], bool]:
    """Return the lines of the boxes in as much detail as there is room for, and whether cores are counted."""
    levels, cores = framed_levels(machine), make_cores(machine, NOTHING)
    words = {cpu: text for cpus, text in kind_marks(machine).values() for cpu in cpus}
    brush = _Brush(stamps=overlay.cores, kinds=words, screen=screen)
    whole = _lines(make_body(machine, cores, levels), brush)
    if len(whole) <= LINES:
        return whole, False
    brush = brush.replace(in_runs=True)
    shorter = [_lines(make_body(machine, cores, levels[:keep]), brush) for keep in range(len(levels), 0, -1)]
    return next((lines for lines in shorter if len(lines) <= LINES), (shorter or [whole])[0]), bool(shorter)


def _lines(body: Iterable[Box], brush: _Brush) -> list[str]:
    boxes = [_texted(box, brush) for box in body]
    brush = brush.replace(cell=max(map(_longest, boxes)))
    drawn = [_arranged((box,), brush.screen.width, brush) for box in boxes if box.inside]
    return [line.rstrip() for line in stack(drawn).lines]


def _longest(box: Box) -> int:
    return len(box.title[0]) if box.style == _CELL else max(map(_longest, box.inside), default=1)


def _texted(box: Box, brush: _Brush) -> Box:
    """Return a box with rows of cells for its cores, or such a row for a box of cores alone."""
    if box.style == "memory":
        return box
    inside = [one.inside[0] if _is_lone(one) else one for one in box.inside]
    items: list[Box] = []
    for kind, run in groupby(inside, key=lambda one: _kind(one, brush)):
        same = list(run)
        items.extend([_texted(one, brush) for one in same] if kind is None else [_row(kind, same, brush)])
    if box.style in _ROWS and [one.style for one in items] == [_RUN]:
        title = brush.frame.dot.join(filter(None, (*box.title, *items[0].title)))
        return items[0].replace(style=_ROW, title=(title,))
    return box.replace(inside=tuple(items))


def _is_lone(box: Box) -> bool:
    """Tell whether a box is a cache, or the like, of a single core."""
    return box.style in _ROWS and [one.style for one in box.inside] == [str(Level.CORE)]


def _kind(box: Box, brush: _Brush) -> str | None:
    """Return the kind of a core, "" where all are alike; None for a box that is no core."""
    return brush.kinds.get(box.cpus.first, "") if box.style == Level.CORE else None


def _row(kind: str, cores: Iterable[Box], brush: _Brush) -> Box:
    stamps = [brush.stamps[core.cpus.first] for core in cores]
    cells = [(one.sign, one.mark) for one in stamps]
    if brush.in_runs:
        cells = [(_counted(sign, len(list(run)), brush), mark) for (sign, mark), run in groupby(cells)]
    inside = (Box(style=_CELL, title=(text,), marks=(mark,)) for text, mark in cells)
    return Box(style=_RUN, title=(kind,), inside=tuple(inside))


def _counted(sign: str, times: int, brush: _Brush) -> str:
    return f"{sign}{_times(brush.screen)}{times}" if times > 1 else sign


def _times(screen: Screen) -> str:
    return "×" if screen.draws else "x"


def _arranged(boxes: Sequence[Box], room: int, brush: _Brush, is_column: bool = False) -> Block:
    """Draw boxes below each other or, those of a style, beside each other in columns of one width."""
    blocks = []
    for style, run in groupby(boxes, key=lambda one: one.style if one.style in (_RUN, _ROW) else ""):
        same = list(run)
        lead = max(len(one.title[0]) for one in same) if style else 0
        parts = [_part(box, room, lead, brush) for box in same]
        width, gap = max(part.width for part in parts), _GAP if style else 1
        columns = 1 if is_column else canvas.columns_of(len(parts), width, room, gap)
        if columns == 1:
            width = max([width, *(part.in_a_line for part in parts if part.in_a_line <= room)])
        done = [_finished(part, width, brush) for part in parts]
        blocks += [canvas.beside(done[i : i + columns], gap) for i in range(0, len(done), columns)]
    return stack(blocks)


def _part(box: Box, room: int, lead: int, brush: _Brush) -> _Part:
    """Draw what is inside a box, rows with titles of `lead` characters, and say how wide it has to be."""
    if box.style in (_RUN, _ROW):
        block = _drawn_row(box, room, lead, brush)
        return _Part(box=box, inside=block, width=block.width)
    is_framed = bool(box.title) and room >= _FRAMED and box.style != "memory"
    space = room - SIDES * is_framed
    block = _arranged(box.inside, space, brush, box.flow == "column")
    if not is_framed:
        block = stack([canvas.text_block(canvas.pack(box.title, room, brush.frame.dot)), block])
        return _Part(box=box, inside=block, width=block.width)
    longest = max(len(line) for part in box.title for line in canvas.pack([part], space, ""))
    width, in_a_line = max(block.width, longest) + SIDES, len(brush.frame.dot.join(box.title)) + SIDES
    return _Part(box=box, inside=block, width=width, is_framed=True, in_a_line=in_a_line)


def _finished(part: _Part, width: int, brush: _Brush) -> Block:
    if not part.is_framed:
        return canvas.pad(part.inside, width)
    title = canvas.pack(part.box.title, width - SIDES, brush.frame.dot)
    return canvas.frame(part.inside, title, width, brush.frame)


def _drawn_row(row: Box, room: int, lead: int, brush: _Brush) -> Block:
    """Draw a row of cells beside its title, or below it where there is no room for that."""
    title = row.title[0].ljust(lead)
    indent = lead + 2 if lead else 0
    if indent + brush.cell > max(room // 2, brush.cell):
        above = canvas.text_block(canvas.pack([title.rstrip()], room, ""))
        return stack([above, _drawn_row(row.replace(title=("",)), room, 0, brush)])
    cells = row.inside
    columns = _even_columns(len(cells), room - indent, brush.cell)
    lines = [_painted(cells[i : i + columns], brush) for i in range(0, len(cells), columns)]
    width = columns * (brush.cell + 1) - 1
    lines[-1] += " " * ((brush.cell + 1) * (-len(cells) % columns))
    starts = [title.ljust(indent), *[" " * indent] * (len(lines) - 1)]
    return Block(width=indent + width, lines=tuple(map(str.__add__, starts, lines)))


def _even_columns(count: int, room: int, cell: int) -> int:
    """Return how many cells stand in a row: all, or about as many in every row, by eights if they can."""
    most = max(1, (room + 1) // (cell + 1))
    if count <= most:
        return count
    fewest = canvas.columns_of(count, cell, room, 1)
    return next(up for step in (8, 4, 1) if (up := -(-fewest // step) * step) <= most)


def _painted(cells: Sequence[Box], brush: _Brush) -> str:
    """Return a line of cells; neighbours that look alike have their colour between them too."""
    runs = groupby(cells, key=lambda one: one.marks[0])
    texts = ((mark, " ".join(one.title[0].rjust(brush.cell) for one in run)) for mark, run in runs)
    return " ".join(_paint(text, mark, brush.screen) for mark, text in texts)


def _paint(text: str, mark: str, screen: Screen) -> str:
    return f"\033[{_PAINT[mark]}m{text}\033[0m" if screen.styled else text


def _legend(keys: Sequence[Stamp], screen: Screen) -> Iterator[str]:
    """Yield the lines that tell what signs mean, signs in a column."""
    wide = max(len(one.sign) for one in keys)
    for one in keys:
        sign = _paint(one.sign, one.mark, screen) if one.mark else one.sign
        first, *further = wrap(one.words, screen.width - wide - 2, break_on_hyphens=False)
        yield f"{' ' * (wide - len(one.sign))}{sign}  {first}"
        yield from (f"{' ' * (wide + 2)}{line}" for line in further)


def _keys(ranks: int, overlay: Overlay, screen: Screen, in_runs: bool) -> Iterator[Stamp]:
    """Yield what the legend tells: the ranks, one by one where they are few, and all other signs."""
    if ranks <= KEYS:
        yield from overlay.ranks
    else:
        words = "ranks; --format table tells their CPUs"
        yield NO_STAMP.replace(sign=f"0 to {ranks - 1}", words=words)
    yield from overlay.core_keys
    if in_runs:
        yield NO_STAMP.replace(sign=f"{_times(screen)}2", words="two cores beside each other")


def _spare(overlay: Overlay) -> Iterator[str]:
    """Say how many hardware threads a picture of cores does not show to be idle."""
    idle = [cpu for cpu, stamp in overlay.cpus.items() if stamp.mark == "idle"]
    spare = sum(overlay.cores[cpu].mark != "idle" for cpu in idle)
    if spare:
        yield f"note: {count(spare, 'hardware thread')} idle on cores that ranks have"
