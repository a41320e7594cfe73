"""Prefix lines with the rank that wrote them, as bytes.

A *prefix* is `[2] `, in a run with groups `[load 2] `, or `[2+] ` before a piece that continues a line: lines
longer than a limit are forwarded in pieces. Nothing is decoded: bytes are forwarded unchanged, and only
b"\\n" ends a line.
"""

from collections.abc import Sequence

Buffer = bytes | bytearray | memoryview

LinePrefixes = tuple[bytes, bytes]
"""The prefix of a line of a rank, and the prefix of a piece that continues a line."""

LINE_LIMIT = 1 << 20
"""Bytes of an incomplete line that are kept until its end; a longer line is split into such pieces."""

KEPT_LIMIT = 32 << 20
"""Bytes of incomplete lines of all streams together; with many ranks the limit of a line is lower."""

LEAST_LIMIT = 16 << 10  # the lowest limit of a line, with any number of ranks
_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
"""Colours of prefixes, by rank modulo their number; red is reserved for errors."""

LAST_LINES_LIMIT = 10  # lines that `decode_last_lines` returns at most


def divide(total: int, streams: int, least: int, most: int) -> int:
    """Return the bytes of each of a number of streams, a power of two."""
    share = min(most, total // max(streams, 1))
    return max(least, 1 << (share.bit_length() - 1))


def make_prefixes(rank: int, label: str = "", *, coloured: bool = False) -> LinePrefixes:
    """Return the prefixes of a rank, with its number or the label in place of it; both end with a space."""
    label = label or str(rank)
    before, after = (f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m", "\x1b[0m") if coloured else ("", "")
    return f"{before}[{label}]{after} ".encode(), f"{before}[{label}+]{after} ".encode()


def add_timestamp(prefixes: LinePrefixes, timestamp: bytes) -> LinePrefixes:
    """Return prefixes with a time, as `[2] 20:06:53.123 `; unchanged if the timestamp is empty."""
    return (prefixes[0] + timestamp + b" ", prefixes[1] + timestamp + b" ") if timestamp else prefixes


class LinePrefixer:
    """Splits the bytes of one stream into lines with prefixes, and keeps an incomplete last line.

    The result does not depend on how the bytes are divided into blocks. It is a sequence of buffers to be
    written one after the other; together they are whole lines.
    """

    __slots__ = ("_continues", "_kept", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._continues = False  # the beginning of the kept line has been forwarded already

    def add(self, block: bytes, prefixes: LinePrefixes) -> Sequence[Buffer]:
        """Add a block and return the lines that it completes."""
        limit = self._limit
        if len(block) <= limit:
            return self._add_short(block, prefixes)
        parts = (block[at : at + limit] for at in range(0, len(block), limit))
        return [out for part in parts for out in self._add_short(part, prefixes)]

    def finish(self, prefixes: LinePrefixes) -> Sequence[Buffer]:
        """Return the incomplete last line, if there is any, with a newline added."""
        if not self._kept:
            return ()
        kept, self._kept = self._kept, bytearray()
        return self._next_prefix(prefixes), kept, b"\n"

    def _add_short(self, block: bytes, prefixes: LinePrefixes) -> Sequence[Buffer]:
        """Add a block of at most `limit` bytes: only its first line, with the kept bytes, can be longer.

        kept b"ab", block b"c\\nd\\nef"   ->   b"[2] ", b"ab", b"c\\n[2] d\\n"   kept b"ef"
        """
        first = block.find(b"\n")
        if first < 0:
            self._kept += block
            return self._split(prefixes) if len(self._kept) > self._limit else ()
        out: list[Buffer] = []
        if len(self._kept) + first > self._limit:
            self._kept += block[:first]
            block = block[first:]
            out = self._split(prefixes)
        # One replacement for all lines is fast. It adds a prefix after each newline, the last of them too.
        prefixed = block.replace(b"\n", b"\n" + prefixes[0])
        end = prefixed.rfind(b"\n") + 1
        out.append(self._next_prefix(prefixes))
        if self._kept:
            out.append(self._kept)
            self._kept = bytearray()
        out.append(memoryview(prefixed)[:end])
        self._kept += memoryview(prefixed)[end + len(prefixes[0]) :]
        return out

    def _next_prefix(self, prefixes: LinePrefixes) -> bytes:
        """Return the prefix for the kept bytes: of a new line, or of a line that continues."""
        continues, self._continues = self._continues, False
        return prefixes[continues]

    def _split(self, prefixes: LinePrefixes) -> list[Buffer]:
        """Return pieces of the kept line until no more bytes than the limit are left."""
        out: list[Buffer] = []
        while len(self._kept) > self._limit:
            out += (self._next_prefix(prefixes), self._kept[: self._limit], b"\n")
            del self._kept[: self._limit]
            self._continues = True
        return out


def decode_last_lines(data: bytes, *, whole: bool = True) -> tuple[str, ...]:
    """Return the last lines of some output; unless it is `whole`, drop its first line, which may be cut."""
    lines = data.rstrip(b"\n").split(b"\n")
    if not whole and len(lines) > 1:
        del lines[0]
    return tuple(line.decode("utf-8", "replace") for line in lines[-LAST_LINES_LIMIT:]) if any(lines) else ()
