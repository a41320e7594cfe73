"""Find out whether a server is ready: what --ready says, for each rank.

    tcp:PORT      the port accepts connections on this machine
    http:URL      a GET request is answered with a status below 400; the URL may be http://… or //…
    text:REGEX    a line of the output matches; "text:" may be omitted
    exec:CMD      the command exits with code 0

The text may have placeholders, as in tcp:{rank+8000}; they are filled before a check is made. A check ends at
its time limit even while it waits for an answer or a command.
"""

import codecs
import http.client
import io
import re
import shlex
import signal
import socket
import subprocess
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn, TypeAlias
from urllib.parse import SplitResult, urlsplit

from ompbind.commands.placeholders import check as check_placeholders
from ompbind.commands.rank_command import (
    EXEC,
    HTTP,
    TCP,
    TEXT,
    RankCommand,
)
from ompbind.errors import LaunchError, OptionError, PositionError
from ompbind.text import clean_line, remove_escape_sequences

_REQUEST_S, _COMMAND_S = 5.0, 30.0
"""Seconds that an HTTP request, and a command, may take."""

_PORTS = range(1, 1 << 16)
_CONNECT_S = 0.5  # for a connection to this machine: it succeeds or fails at once, unless the server is busy
_ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


BLOCK_BYTES = 1 << 20
"""Bytes that are read at once, and characters of a line that are kept together."""

OVERLAP = 1000
"""Characters at the end of a part of a longer line that its next part begins with: no number is split."""


class TimeOverError(Exception):
    """The time limit of a check is over; no OSError, which checks take for an answer."""


@contextmanager
def time_limit(until: float) -> Iterator[None]:
    """Raise TimeOverError in this process at a time of the monotonic clock, also while it waits."""

    def stop(number: int, frame: object) -> NoReturn:
        raise TimeOverError

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(0.001, until - time.monotonic()))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class PortCheck:
    """Checks whether a program on this machine accepts TCP connections at a port."""

    def __init__(self, port: int) -> None:
        self.port = port

    def is_ready(self) -> bool:
        """Return whether the port accepts a connection, which is closed again."""
        return any(_can_connect(family, host, self.port) for family, host in _ADDRESSES)

    def describe(self, rank: str) -> str:
        """Return why a rank is not ready."""
        return f"port {self.port} of {rank} accepts no connection"


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
        self._file = open(path, "rb")  # noqa: SIM115 - `close` closes it
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

    def describe(self, rank: str) -> str:
        """Return why a rank is not ready."""
        return f"no line of the output of {rank} matches '{clean_line(self._pattern.pattern)}'"


class HttpCheck:
    """Checks whether an HTTP server answers a GET request with a status below 400."""

    def __init__(self, url: SplitResult) -> None:
        self._url = url
        self._answer = "no answer"

    def is_ready(self) -> bool:
        """Return whether the server answers."""
        try:
            client = http.client.HTTPConnection(self._url.hostname or "", self._url.port, timeout=_REQUEST_S)
            try:
                client.request("GET", self._url._replace(scheme="", netloc="", fragment="").geturl() or "/")
                status = client.getresponse().status
            finally:
                client.close()
        except (OSError, http.client.HTTPException) as error:
            self._answer = f"no answer ({getattr(error, 'strerror', None) or type(error).__name__})"
            return False
        self._answer = f"status {status}"
        return status < 400

    def describe(self, rank: str) -> str:
        """Return why a rank is not ready."""
        return f"{self._url.geturl()} of {rank}: {self._answer}"


class CommandCheck:
    """Checks whether a command exits with code 0, in the environment and the directory of a rank."""

    def __init__(self, words: list[str], env: Mapping[str, str] | None, directory: str) -> None:
        self._words = words
        self._env = env
        self._directory = directory or None
        self._result = "does not finish"

    def is_ready(self) -> bool:
        """Return whether the command succeeds; raises LaunchError if it cannot be started."""
        null = subprocess.DEVNULL
        try:
            done = subprocess.run(
                self._words, env=self._env, cwd=self._directory, stdin=null, stdout=null, stderr=null,
                timeout=_COMMAND_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            self._result = f"does not finish within {_COMMAND_S:g} s"
            return False
        except OSError as error:
            raise LaunchError(f"{EXEC}{clean_line(shlex.join(self._words))}: {error.strerror}") from error
        self._result = f"exits with code {done.returncode}"
        return done.returncode == 0

    def describe(self, rank: str) -> str:
        """Return why a rank is not ready."""
        return f"{clean_line(shlex.join(self._words))} for {rank} {self._result}"


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


Check: TypeAlias = PortCheck | HttpCheck | LineCheck | CommandCheck


def make_check(
    ready: str, paths: Iterable[str], *, env: Mapping[str, str] | None = None, directory: str = ""
) -> Check:
    """Return the check for the text of --ready, with its placeholders filled.

    `paths` are the files with the output of the rank, `env` and `directory` are for commands. Raises
    PositionError and OptionError for a wrong port, URL, pattern or command.
    """
    if ready.startswith(TCP):
        return PortCheck(_read_port(ready))
    if ready.startswith(HTTP):
        return HttpCheck(_read_url(ready.removeprefix(HTTP)))
    if ready.startswith(EXEC):
        return CommandCheck(_split(ready.removeprefix(EXEC)), env, directory)
    return LineCheck(compile_pattern(ready.removeprefix(TEXT)), paths)


def check_ready(ready: str) -> None:
    """Raise OptionError or PositionError for a wrong text of --ready.

    Of a text with braces, which may be placeholders, only these are checked: the result differs from rank to
    rank.
    """
    if "{" in ready and ready.startswith((TCP, HTTP, EXEC)):
        check_placeholders(ready)
    else:
        make_check(ready, ())


def check_commands(commands: Iterable[RankCommand]) -> None:
    """Check, before ranks start, what they wait for with --ready.

    Raises PositionError and OptionError for a text that is wrong with the values of a rank, and LaunchError
    for a port that another program has: the rank would look ready at once.
    """
    for command in commands:
        check = make_check(command.ready, ()) if command.ready else None
        if isinstance(check, PortCheck) and check.is_ready():
            text = f"port {check.port} accepts connections before {command.name} has started"
            raise LaunchError(f"--ready {command.ready}: {text}", hint="another program has it: stop it")


def _read_port(ready: str) -> int:
    digits = ready.removeprefix(TCP)
    if digits.isascii() and digits.isdigit() and len(digits) <= 5 and int(digits) in _PORTS:
        return int(digits)
    wrong = f"{digits!r} is not a port: write a number from {_PORTS[0]} to {_PORTS[-1]}"
    hint = "for example tcp:8000, or tcp:{rank+8000} for several ranks"
    raise PositionError(wrong, text=ready, span=(len(TCP), len(ready)), hint=hint)


def _read_url(text: str) -> SplitResult:
    """Return the URL of an HTTP server; "http:" may be written once or twice."""
    url = urlsplit(text if text.startswith(HTTP) else HTTP + text)
    try:
        has_server = bool(url.hostname) and url.port != 0
    except ValueError:
        has_server = False
    if has_server:
        return url
    hint = "for example http://127.0.0.1:8000/health"
    raise OptionError(f"{text!r} is not the URL of an HTTP server", hint=hint)


def _split(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise OptionError(f"{EXEC}{text}: {error}", hint="close each quote") from None
    if words:
        return words
    raise OptionError(f"{EXEC} names no command", hint="for example exec:'pg_isready -p 5432'")
