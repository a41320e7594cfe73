"""Blocks of text: stacked, side by side, padded, framed.

All lines of a block have the same width on the screen. A line may also hold escape sequences for colours;
this is why a block knows its width, and the length of its lines is never used.

    ┌ title ─────┐ ┌ title ─┐
    │ ┌ title ─┐ │ │ block  │      beside([frame(stack([frame(block), block])), frame(block)])
    │ │ block  │ │ └────────┘
    │ └────────┘ │
    │ block      │
    └────────────┘
"""

from collections.abc import Iterable, Sequence
from textwrap import wrap

from ompbind.record import Record


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
    height = max(len(block.lines) for block in blocks)
    columns = [(*block.lines, *[" " * block.width] * (height - len(block.lines))) for block in blocks]
    width = sum(block.width for block in blocks) + gap * (len(blocks) - 1)
    return Block(width=width, lines=tuple(map((" " * gap).join, zip(*columns, strict=True))))


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
