"""Find out whether a rank is ready, as `commands.ready` says.

A check may wait without end for an answer, a command or a regular expression. So it is a process of its own,
which the supervisor kills at its time limit.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import NoReturn, TypeAlias
from urllib.parse import SplitResult

from ompbind.commands.rank_command import EXEC, RankCommand
from ompbind.commands.ready import read_ready
from ompbind.errors import LaunchError, OmpbindError
from ompbind.execution.output.run_output import RunOutput
from ompbind.execution.process_pair import redirect_to_null
from ompbind.execution.spawn import fork_child
from ompbind.text import clean_line, remove_escape_sequences

_POLL_S = 0.05  # seconds between two checks of a rank that is not ready
_ANSWER_BYTES = 4096
_REQUEST_S, _COMMAND_S = 5.0, 30.0  # seconds that an HTTP request, and a command, may take
_CONNECT_S = 0.5  # for a connection to this machine: it succeeds or fails at once, unless the server is busy
_ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))

Check: TypeAlias = Callable[[], str]  # looks once whether a rank is ready; returns "", or why it is not
BLOCK_BYTES = 1 << 20  # bytes that are read at once, and characters of a line that are kept together

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


def _run_command(of: RankCommand, words: list[str]) -> str:
    """Return "" if a command exits with code 0; raises LaunchError if it cannot be started."""
    command, null = f"{clean_line(shlex.join(words))} for {of.name}", subprocess.DEVNULL
    try:
        done = subprocess.run(
            words, env=of.env, cwd=of.directory or None, stdin=null, stdout=null, stderr=null,
            timeout=_COMMAND_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"{command} does not finish within {_COMMAND_S:g} s"
    except OSError as error:
        raise LaunchError(f"{EXEC}{command}: {error.strerror}") from error
    return f"{command} exits with code {done.returncode}" if done.returncode else ""


def make_check(command: RankCommand, logs: Iterable[int]) -> Check:
    """Return the check of a rank with --ready; `logs` are descriptors of its output."""
    match read_ready(command.ready):
        case int(port):
            wrong = f"port {port} of {command.name} accepts no connection"
            return lambda: "" if accepts_connections(port) else wrong
        case SplitResult() as url:
            return partial(_ask_server, command.name, url)
        case re.Pattern() as pattern:
            return _make_line_check(command.name, pattern, logs)
        case words:
            return partial(_run_command, command, words)


def check_commands(commands: Iterable[RankCommand]) -> None:
    """Check, before ranks start, what they wait for with --ready; raises the errors of `read_ready`.

    Raises LaunchError for a port that another program has: the rank would look ready at once.
    """
    for command in commands:
        port = read_ready(command.ready) if command.ready else 0
        if isinstance(port, int) and port and accepts_connections(port):
            text = f"port {port} accepts connections before {command.name} has started"
            raise LaunchError(f"--ready {command.ready}: {text}", hint="another program has it: stop it")


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
                check = make_check(command, output.open_logs(command.rank))
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
