"""Blocks of text in characters: painted, stacked, side by side, framed.

All lines of a block are equally wide on the screen. What a line holds beyond that are the codes of its
colours, so widths are told, never counted.
"""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from textwrap import wrap

from ompbind.record import Record


class Block(Record):
    """Lines that take `width` characters each on the screen."""

    width: int = 0
    lines: tuple[str, ...] = ()


class Frame(Record):
    """The characters of a frame, and what stands between the parts of a title in it."""

    top: tuple[str, str, str]
    side: str
    bottom: tuple[str, str, str]
    dot: str


DRAWN = Frame(top=("┌", "─", "┐"), side="│", bottom=("└", "─", "┘"), dot=" · ")
TYPED = Frame(top=("+", "-", "+"), side="|", bottom=("+", "-", "+"), dot=", ")

SIDES = 4  # characters that a frame takes in width, with a blank on each side of what is inside


def text_block(lines: Sequence[str], width: int = 0) -> Block:
    """Make a block of plain lines, padded to the longest one, or to `width` if that is more."""
    width = max(width, *map(len, lines), 0)
    return Block(width=width, lines=tuple(line.ljust(width) for line in lines))


def pad(block: Block, width: int) -> Block:
    """Widen a block with blanks."""
    blanks = " " * (width - block.width)
    return Block(width=width, lines=tuple(f"{line}{blanks}" for line in block.lines)) if blanks else block


def stack(blocks: Sequence[Block]) -> Block:
    """Put blocks below each other."""
    width = max((one.width for one in blocks), default=0)
    return Block(width=width, lines=tuple(line for one in blocks for line in pad(one, width).lines))


def beside(blocks: Sequence[Block], gap: int) -> Block:
    """Put blocks beside each other, so many blanks apart; below the shorter ones is nothing."""
    rows = zip_longest(*(one.lines for one in blocks))
    blanks = [" " * one.width for one in blocks]
    lines = (
        (blank if cell is None else cell for cell, blank in zip(row, blanks, strict=True)) for row in rows
    )
    width = sum(one.width for one in blocks) + gap * (len(blocks) - 1)
    return Block(width=width, lines=tuple((" " * gap).join(line) for line in lines))


def columns_of(count: int, width: int, room: int, gap: int) -> int:
    """Return how many of some blocks of one width stand in a row: all, or about the same in every row."""
    most = max(1, (room + gap) // (width + gap))
    rows = -(-count // most)
    return -(-count // rows)


def frame(block: Block, title: Sequence[str], width: int, style: Frame) -> Block:
    """Draw a frame of some outer width around a block, with the first line of its title in the border."""
    inner = width - SIDES
    first, *further = title
    left, line, right = style.top
    border = f"{left} {first} {line * (inner - len(first))}{right}"
    inside = stack([text_block(further, inner), pad(block, inner)])
    left, line, right = style.bottom
    lines = [border, *(f"{style.side} {text} {style.side}" for text in inside.lines)]
    return Block(width=width, lines=(*lines, f"{left}{line * (width - 2)}{right}"))


def pack(parts: Iterable[str], width: int, dot: str) -> list[str]:
    """Join the parts of a title into lines of some width, and cut those that alone are longer."""
    lines: list[str] = []
    for part in parts:
        if lines and len(joined := f"{lines[-1]}{dot}{part}") <= width:
            lines[-1] = joined
        else:
            lines.extend(wrap(part, width, break_on_hyphens=False))
    return lines
