"""Find out whether a server is ready: a line of its output matches a pattern, or a port accepts connections.

Both are checked for each rank: --ready REGEX or --ready tcp:PORT, with placeholders as in tcp:{rank+8000}.
"""

import codecs
import errno
import io
import re
import socket
import warnings
from collections.abc import Iterable

from ompbind.errors import PositionError
from ompbind.text import clean_line, remove_escape_sequences

TCP = "tcp:"
"""What --ready begins with to wait for a port."""

_PORTS = range(1, 1 << 16)
_CONNECT_S = 0.5  # for a connection to this machine: it succeeds or fails at once, unless the server is busy
_ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


BLOCK_BYTES = 1 << 20
"""Bytes that are read at once, and characters of a line that are kept together."""

OVERLAP = 1000
"""Characters at the end of a part of a longer line that its next part begins with: no number is split."""


class PortCheck:
    """Checks whether a program on this machine accepts TCP connections at a port."""

    def __init__(self, port: int) -> None:
        self.port = port

    def is_ready(self) -> bool:
        """Return whether the port accepts a connection, which is closed again."""
        return any(_can_connect(family, host, self.port) for family, host in _ADDRESSES)

    def is_closing(self) -> bool:
        """Return whether closed connections keep the port, so that only SO_REUSEADDR makes it usable."""
        with socket.socket() as server:
            try:
                server.bind((_ADDRESSES[0][1], self.port))
            except OSError as error:
                return error.errno == errno.EADDRINUSE
        return False

    def describe(self, rank: int) -> str:
        """Return why a rank is not ready."""
        return f"port {self.port} of rank {rank} accepts no connection"

    def close(self) -> None:
        """Do nothing: no file is open between two checks."""


def _can_connect(family: int, host: str, port: int) -> bool:
    try:
        with socket.socket(family) as client:
            client.settimeout(_CONNECT_S)
            client.bind((host, 0))
            if client.getsockname()[1] == port:
                return False  # it would connect to itself, and then the server could not have the port
            client.connect((host, port))
            return True
    except OSError:
        return False


class OutputReader:
    """Reads the lines of an output file, which a program may still extend.

    Output may be large and may be binary, so it is read in blocks, as UTF-8 with "?" for other bytes. Line
    feed, carriage return and both together end a line: progress bars write carriage returns. Colours are
    removed.
    """

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


class LineCheck:
    """Checks whether a line of some output files matches a pattern; reads only what is new."""

    def __init__(self, pattern: re.Pattern[str], paths: Iterable[str]) -> None:
        self._pattern = pattern
        self._missing = list(paths)
        self._readers: list[OutputReader] = []

    def is_ready(self) -> bool:
        """Return whether a line that was written since the last check matches, also an incomplete line."""
        for path in tuple(self._missing):
            try:
                self._readers.append(OutputReader(path))
                self._missing.remove(path)
            except FileNotFoundError:
                pass  # the rank has not started yet
        for reader in self._readers:
            while lines := reader.read_lines():
                if any(map(self._pattern.search, lines.split("\n"))):
                    return True
            if self._pattern.search(reader.incomplete):
                return True
        return False

    def describe(self, rank: int) -> str:
        """Return why a rank is not ready."""
        return f"no line of the output of rank {rank} matches '{clean_line(self._pattern.pattern)}'"

    def close(self) -> None:
        """Close the files."""
        for reader in self._readers:
            reader.close()


def compile_pattern(text: str) -> re.Pattern[str]:
    """Compile a regular expression; raises PositionError if it is wrong."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of syntax that may change its meaning in later versions
            return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        at = getattr(error, "pos", None) or 0
        wrong = f"wrong regular expression: {getattr(error, 'msg', 'it is too large')}"
        hint = "the syntax is that of Python's module re; a backslash makes a character literal, as in '\\('"
        raise PositionError(wrong, text=text, span=(at, at + 1), hint=hint) from None


Check = PortCheck | LineCheck


def make_check(ready: str, paths: Iterable[str]) -> Check:
    """Return the check for the text of --ready, with its placeholders filled, and for the output of a rank.

    Raises PositionError for a wrong port or pattern.
    """
    if not ready.startswith(TCP):
        return LineCheck(compile_pattern(ready), paths)
    digits = ready.removeprefix(TCP)
    if digits.isascii() and digits.isdigit() and len(digits) <= 5 and int(digits) in _PORTS:
        return PortCheck(int(digits))
    wrong = f"{digits!r} is not a port: write a number from {_PORTS[0]} to {_PORTS[-1]}"
    hint = "for example tcp:8000, or tcp:{rank+8000} for several ranks"
    raise PositionError(wrong, text=ready, span=(len(TCP), len(ready)), hint=hint)
