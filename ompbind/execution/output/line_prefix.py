"""Tagged lines: what ranks write, as bytes, with the number of the rank before every line.

A *mark* is what stands before a line: `[2] `, or `[2+] ` where it goes on with the line before of that rank,
which was too long to be held back until its end. Nothing is decoded: bytes come out as they came in,
whatever they mean, and only b"\\n" ends a line.
"""

from collections.abc import Sequence

Buffer = bytes | bytearray | memoryview

Marks = tuple[bytes, bytes]
"""What stands before a line of a rank, and before a piece that continues one."""

LINE_LIMIT = 1 << 20
"""Bytes of a line that are held back until it ends; a longer one goes out in pieces of that size."""

HELD_LIMIT = 32 << 20
"""Bytes that all streams together hold back, so that many ranks get lower limits."""

_LEAST_LIMIT = 16 << 10  # the limit of a line with however many ranks
_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
"""Colours of tags, rank by rank and then from the start; red is left to errors."""

WORDS = 10
"""Lines that `last_lines` returns at most."""


def line_limit(streams: int) -> int:
    """Return how many bytes of a line are held back with a number of streams, a power of two."""
    share = min(LINE_LIMIT, HELD_LIMIT // max(streams, 1))
    return max(_LEAST_LIMIT, 1 << (share.bit_length() - 1))


def make_marks(rank: int, *, coloured: bool = False) -> Marks:
    """Return what stands before the lines of a rank, both with a blank at the end."""
    before, after = (f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m", "\x1b[0m") if coloured else ("", "")
    return f"{before}[{rank}]{after} ".encode(), f"{before}[{rank}+]{after} ".encode()


def add_stamp(marks: Marks, stamp: bytes) -> Marks:
    """Return marks with a time in them, as `[2] 20:06:53.123 `; as they are without one."""
    return (marks[0] + stamp + b" ", marks[1] + stamp + b" ") if stamp else marks


class Lines:
    """The lines of one stream: blocks go in, whole lines with marks come out.

    However the bytes are divided into blocks, the same comes out. What does come out are buffers to be
    written one after the other; they begin and end with a line.
    """

    __slots__ = ("_held", "_limit", "_torn")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = bytearray()
        self._torn = False  # the beginning of what is held has gone out already

    def take(self, block: bytes, marks: Marks) -> Sequence[Buffer]:
        """Take a block and return the lines that have become whole by it."""
        limit = self._limit
        if len(block) <= limit:
            return self._take(block, marks)
        parts = (block[at : at + limit] for at in range(0, len(block), limit))
        return [out for part in parts for out in self._take(part, marks)]

    def end(self, marks: Marks) -> Sequence[Buffer]:
        """Return a last line that no newline ended, with one, so that nothing sticks to it."""
        if not self._held:
            return ()
        held, self._held = self._held, bytearray()
        return self._mark(marks), held, b"\n"

    def _take(self, block: bytes, marks: Marks) -> Sequence[Buffer]:
        """Take a block of at most the limit: the only long line in it can be the one that is held."""
        first = block.find(b"\n")
        if first < 0:
            self._held += block
            return self._cut(marks) if len(self._held) > self._limit else ()
        out: list[Buffer] = []
        if len(self._held) + first > self._limit:
            self._held += block[:first]
            block = block[first:]
            out = self._cut(marks)
        # One search for all lines: a tag after each newline, of which the last one is too many.
        tagged = block.replace(b"\n", b"\n" + marks[0])
        end = tagged.rfind(b"\n") + 1
        out.append(self._mark(marks))
        if self._held:
            out.append(self._held)
            self._held = bytearray()
        out.append(memoryview(tagged)[:end])
        self._held += memoryview(tagged)[end + len(marks[0]) :]
        return out

    def _mark(self, marks: Marks) -> bytes:
        """Return the mark of the line that begins, or goes on, with what is held."""
        torn, self._torn = self._torn, False
        return marks[torn]

    def _cut(self, marks: Marks) -> list[Buffer]:
        """Return pieces of what is held, until no more than the limit is."""
        out: list[Buffer] = []
        while len(self._held) > self._limit:
            out += (self._mark(marks), self._held[: self._limit], b"\n")
            del self._held[: self._limit]
            self._torn = True
        return out


def last_lines(data: bytes, *, whole: bool = True) -> tuple[str, ...]:
    """Return the last lines of what a rank wrote; unless it is `whole`, its first line may be half of one."""
    lines = data.rstrip(b"\n").split(b"\n")
    if not whole and len(lines) > 1:
        del lines[0]
    return tuple(line.decode("utf-8", "replace") for line in lines[-WORDS:]) if any(lines) else ()
