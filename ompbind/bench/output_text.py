"""Read what programs have written to their output files, also while they still write.

Output may be large and may be binary, so it is read in blocks, as UTF-8 with "?" for other bytes. Line feed,
carriage return and both together end a line: progress bars write carriage returns. Colours are removed.
"""

import codecs
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import closing

from ompbind.execution.output.line_prefix import decode_last_lines
from ompbind.execution.output.log_files import ERR, OUT
from ompbind.text import clean_line, remove_escape_sequences

BLOCK_BYTES = 1 << 20
"""Bytes that are read at once, and characters of a line that are kept together."""

OVERLAP = 1000
"""Characters at the end of a part of a longer line that its next part begins with: no number is split."""

_TAIL_BYTES = 4096
_LAST_LINES, _LINE_WIDTH = 3, 200
"""Lines of the last words of a program in an error, and characters of each."""


class OutputReader:
    """Reads the lines of an output file, which a program may still extend."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - `close` closes it
        utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
        self._rest = ""

    @property
    def incomplete(self) -> str:
        """What follows the last line end, once `read_lines` has returned ""."""
        return remove_escape_sequences(self._rest)

    def read_lines(self) -> str:
        """Return the next whole lines, without the last line end; "" at the end of the file."""
        while data := self._file.read(BLOCK_BYTES):
            text = self._rest + self._decoder.decode(data)
            lines, _, self._rest = text.rpartition("\n")
            if not lines and len(text) > BLOCK_BYTES:
                lines, self._rest = text, text[-OVERLAP:]
            if lines:
                return remove_escape_sequences(lines)
        return ""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def make_output_paths(directory: str, rank: int) -> tuple[str, str]:
    """Return the paths of standard output and standard error of a rank."""
    return os.path.join(directory, f"{rank}.{OUT}"), os.path.join(directory, f"{rank}.{ERR}")


def read_blocks(path: str) -> Iterator[str]:
    """Yield the lines of a file, many at a time; nothing if the program did not open it."""
    try:
        reader = OutputReader(path)
    except FileNotFoundError:
        return
    with closing(reader):
        while lines := reader.read_lines():
            yield lines
        yield reader.incomplete


def describe_last_lines(paths: tuple[str, str]) -> str:
    """Return the end of an error: the last lines of standard error, else of standard output."""
    shown = (render_last_lines(_read_last_lines(path)) for path in reversed(paths))
    return f"; {next(filter(None, shown), 'it has written nothing')}"


def render_last_lines(lines: Sequence[str]) -> str:
    """Return the last lines of a program that are not empty, in one line; "" without any."""
    written = [clean_line(remove_escape_sequences(line))[:_LINE_WIDTH] for line in lines if line.strip()]
    return f"last lines: {' | '.join(written[-_LAST_LINES:])}" if written else ""


def _read_last_lines(path: str) -> tuple[str, ...]:
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            data = file.read(_TAIL_BYTES).replace(b"\r", b"\n")
    except OSError:
        return ()
    return decode_last_lines(data, whole=size <= _TAIL_BYTES)
