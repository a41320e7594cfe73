"""Find out whether a server is ready: what --ready says, for each rank.

    tcp:PORT      the port accepts connections on this machine
    http:URL      a GET request is answered with a status below 400; the URL may be http://… or //…
    text:REGEX    a line of the output matches; "text:" may be omitted
    exec:CMD      the command exits with code 0

The text may have placeholders, as in tcp:{rank+8000}; they are filled before a check is made. A check may
wait without end for an answer, a command or a regular expression: it is a process, killed at its time limit.
"""

import codecs
import http.client
import io
import mmap
import os
import re
import shlex
import signal
import socket
import subprocess
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import NoReturn, TypeAlias
from urllib.parse import SplitResult, urlsplit

from ompbind.commands.placeholders import check as check_placeholders
from ompbind.commands.rank_command import EXEC, HTTP, TCP, TEXT, RankCommand
from ompbind.errors import LaunchError, OmpbindError, OptionError, PositionError
from ompbind.execution.output.run_output import RunOutput
from ompbind.execution.process_pair import redirect_to_null
from ompbind.execution.spawn import fork_child
from ompbind.text import clean_line, remove_escape_sequences, whole_number

_POLL_S = 0.05  # seconds between two checks of a rank that is not ready
_ANSWER_BYTES = 4096
_REQUEST_S, _COMMAND_S = 5.0, 30.0  # seconds that an HTTP request, and a command, may take
_PORTS = range(1, 1 << 16)
_CONNECT_S = 0.5  # for a connection to this machine: it succeeds or fails at once, unless the server is busy
_ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))

Check: TypeAlias = Callable[[], str]
"""Looks once whether a rank is ready; returns "", or why it is not."""

BLOCK_BYTES = 1 << 20
"""Bytes that are read at once, and characters of a line that are kept together."""

OVERLAP = 1000
"""Characters at the end of a part of a longer line that its next part begins with: no number is split."""


def accepts_connections(port: int) -> bool:
    """Return whether a program on this machine accepts connections at a port; they are closed again."""
    for family, host in _ADDRESSES:
        with suppress(OSError), socket.socket(family) as client:
            client.settimeout(_CONNECT_S)
            client.bind((host, 0))
            # else it would connect to itself, and then the server could not have the port
            if client.getsockname()[1] != port:
                client.connect((host, port))
                return True
    return False


class OutputReader:
    """Reads the lines of an output file, which a program may still extend.

    Output may be large and may be binary, so it is read in blocks, as UTF-8 with "?" for other bytes. Line
    feed, carriage return and both together end a line: progress bars write carriage returns. Colours are
    removed.
    """

    def __init__(self, file: str | int) -> None:
        self._file = open(file, "rb")  # noqa: SIM115 - `close` closes it
        utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
        self._rest = ""

    def read_new(self) -> Iterator[str]:
        """Yield what the file has gained: whole lines, many at a time, then what follows the last one."""
        has_grown = False
        while data := self._file.read(BLOCK_BYTES):
            has_grown = True
            text = self._rest + self._decoder.decode(data)
            lines, _, self._rest = text.rpartition("\n")
            if not lines and len(text) > BLOCK_BYTES:
                lines, self._rest = text, text[-OVERLAP:]
            if lines:
                yield remove_escape_sequences(lines)
        if has_grown and self._rest:
            yield remove_escape_sequences(self._rest)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _make_line_check(rank: str, pattern: re.Pattern[str], logs: Iterable[int]) -> Check:
    """Look for a line in the log files of a rank; each call reads only what is new."""
    readers = [OutputReader(log) for log in logs]
    wrong = f"no line of the output of {rank} matches '{clean_line(pattern.pattern)}'"

    def find_line() -> str:
        texts = (text for reader in readers for text in reader.read_new())
        return "" if any(pattern.search(line) for text in texts for line in text.split("\n")) else wrong

    return find_line


def _ask_server(rank: str, url: SplitResult) -> str:
    """Return "" if an HTTP server answers a GET request with a status below 400."""
    try:
        with closing(http.client.HTTPConnection(url.hostname or "", url.port, timeout=_REQUEST_S)) as client:
            client.request("GET", url._replace(scheme="", netloc="", fragment="").geturl() or "/")
            status = client.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        answer = f"no answer ({getattr(error, 'strerror', None) or type(error).__name__})"
    else:
        if status < 400:
            return ""
        answer = f"status {status}"
    return f"{url.geturl()} of {rank}: {answer}"


def _run_command(rank: str, words: list[str], env: Mapping[str, str] | None, directory: str) -> str:
    """Return "" if a command exits with code 0; raises LaunchError if it cannot be started."""
    command, null = clean_line(shlex.join(words)), subprocess.DEVNULL
    try:
        done = subprocess.run(
            words, env=env, cwd=directory or None, stdin=null, stdout=null, stderr=null,
            timeout=_COMMAND_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"{command} for {rank} does not finish within {_COMMAND_S:g} s"
    except OSError as error:
        raise LaunchError(f"{EXEC}{command}: {error.strerror}") from error
    return f"{command} for {rank} exits with code {done.returncode}" if done.returncode else ""


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


def make_check(
    ready: str,
    rank: str,
    logs: Iterable[int] = (),
    *,
    env: Mapping[str, str] | None = None,
    directory: str = "",
) -> Check:
    """Return the check for the text of --ready, with its placeholders filled, for messages about `rank`.

    `logs` are descriptors of the output of the rank, `env` and `directory` are for commands. Raises
    PositionError and OptionError for a wrong port, URL, pattern or command.
    """
    if ready.startswith(TCP):
        port = _read_port(ready)
        wrong = f"port {port} of {rank} accepts no connection"
        return lambda: "" if accepts_connections(port) else wrong
    if ready.startswith(HTTP):
        return partial(_ask_server, rank, _read_url(ready.removeprefix(HTTP)))
    if ready.startswith(EXEC):
        return partial(_run_command, rank, _split(ready.removeprefix(EXEC)), env, directory)
    return _make_line_check(rank, compile_pattern(ready.removeprefix(TEXT)), logs)


def check_ready(ready: str) -> None:
    """Raise OptionError or PositionError for a wrong text of --ready; placeholders are not filled."""
    if "{" in ready and ready.startswith((TCP, HTTP, EXEC)):
        check_placeholders(ready)
    else:
        make_check(ready, "")


def check_commands(commands: Iterable[RankCommand]) -> None:
    """Check, before ranks start, what they wait for with --ready; raises the errors of `make_check`.

    Raises LaunchError for a port that another program has: the rank would look ready at once.
    """
    for command in commands:
        if command.ready:
            make_check(command.ready, command.name)
        if command.ready.startswith(TCP) and accepts_connections(port := _read_port(command.ready)):
            text = f"port {port} accepts connections before {command.name} has started"
            raise LaunchError(f"--ready {command.ready}: {text}", hint="another program has it: stop it")


def _read_port(ready: str) -> int:
    digits = ready.removeprefix(TCP)
    if (port := whole_number(digits)) and port in _PORTS:
        return port
    wrong = f"{digits!r} is not a port: write a number from {_PORTS[0]} to {_PORTS[-1]}"
    hint = "for example tcp:8000, or tcp:{rank+8000} for several ranks"
    raise PositionError(wrong, text=ready, span=(len(TCP), len(ready)), hint=hint)


def _read_url(text: str) -> SplitResult:
    """Return the URL of an HTTP server; "http:" may be written once or twice."""
    with suppress(ValueError):
        url = urlsplit(text if text.startswith(HTTP) else HTTP + text)
        if url.hostname and url.port != 0:
            return url
    hint = "for example http://127.0.0.1:8000/health"
    raise OptionError(f"{text!r} is not the URL of an HTTP server", hint=hint)


def _split(text: str) -> list[str]:
    try:
        if words := shlex.split(text):
            return words
    except ValueError as error:
        raise OptionError(f"{EXEC}{text}: {error}", hint="close each quote") from None
    raise OptionError(f"{EXEC} names no command", hint="for example exec:'pg_isready -p 5432'")


class SharedAnswer:
    """The text that a check in a forked process has for the supervisor, also if it is killed."""

    def __init__(self, text: str) -> None:
        self._memory = mmap.mmap(-1, _ANSWER_BYTES)
        self.text = text

    @property
    def text(self) -> str:
        """Why the ranks are not ready, "" once they are."""
        return self._memory[:].rstrip(b"\0").decode(errors="replace")

    @text.setter
    def text(self, text: str) -> None:
        self._memory[:] = text.encode(errors="replace")[:_ANSWER_BYTES].ljust(_ANSWER_BYTES, b"\0")


def fork_check(
    commands: Sequence[RankCommand], output: RunOutput, signal_mask: frozenset[int]
) -> tuple[int, SharedAnswer]:
    """Fork a process that exits when all ranks of some commands are ready; returns its PID and its answer.

    It has the affinity mask of its parent. `signal_mask` is the mask of a command. Raises OSError.
    """
    answer = SharedAnswer("the process that checks it was killed")

    def wait_until_ready() -> NoReturn:
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, signal_mask)
        redirect_to_null(0, 1, 2)
        output.leave_streams()
        try:
            for command in commands:
                answer.text = f"{clean_line(command.ready)} of {command.name}: no answer"
                logs = output.open_logs(command.rank)
                check = make_check(
                    command.ready, command.name, logs, env=command.env, directory=command.directory
                )
                while why := check():
                    answer.text = why
                    time.sleep(_POLL_S)
            answer.text = ""
        except OmpbindError as error:
            answer.text = error.message
        except Exception as error:  # noqa: BLE001 - the supervisor reports it
            answer.text = f"{type(error).__name__}: {error}"
        os._exit(0)

    pid, pipe = fork_child(wait_until_ready)
    os.close(pipe)
    return pid, answer
