"""The output multiplexer: forwards the output of all ranks to standard output, standard error and log files.

The supervisor polls one descriptor for all output: the epoll of the multiplexer. Inside it are the epolls of
one or two forwarders, each with the streams that go to one writer:

    supervisor --> epoll of the multiplexer --+--> epoll of a forwarder --> standard output of all ranks
                                              +--> epoll of a forwarder --> standard error of all ranks

When a writer would block, its forwarder is paused: one call removes its events from the epoll, for any number
of streams. While no rank writes, ompbind does not wake up.
"""

import fcntl
import os
import select
import sys
import termios
from collections.abc import Mapping

from ompbind.errors import LaunchError
from ompbind.execution.output.forwarder import TAIL_BYTES, Forwarder, RankStream
from ompbind.execution.output.line_prefix import LinePrefixer, decode_last_lines, line_limit, make_prefixes
from ompbind.execution.output.log_files import ERR, OUT, LogDirectory
from ompbind.execution.output.writer import is_same_file, open_writer
from ompbind.execution.rlimits import check_file_limit
from ompbind.record import Record


class Output(Record):
    """Where standard output and standard error of all ranks go, unless ranks inherit both.

    At least one of `tag` and `directory` is given. With `tag` every line goes to the output of ompbind, with
    its rank as a prefix; `timestamps` adds the time to the prefix. `colours` is whether the prefix is
    coloured, on standard output and on standard error. `pty` gives each rank a pseudo-terminal as standard
    output, so that programs do not buffer lines. With `directory` the output goes to the log files RANK.out
    and RANK.err there; `force` overwrites existing files.
    """

    tag: bool = False
    timestamps: bool = False
    colours: tuple[bool, bool] = (False, False)
    directory: str | None = None
    force: bool = False
    pty: bool = False

    @property
    def files_per_rank(self) -> int:
        """The number of files that ompbind has open for each running rank; its pidfd is one of them."""
        return 1 + (2 if self.tag else 0) * (2 if self.directory is not None else 1)


_PIPE_BYTES = 1 << 20
"""Capacity of the pipe of one stream at most; the kernel allows unprivileged users no more."""

_ALL_PIPES_BYTES = 16 << 20
"""Capacity of all pipes together: beyond 64 MiB per user the kernel makes only small pipes."""

_DEFAULT_PIPE_BYTES = 64 << 10  # capacity of a new pipe

LINES, COLUMNS = 24, 80
"""The size of pseudo-terminals if ompbind itself has no terminal."""


def make_log_name(label: str) -> str:
    """Return the beginning of the names of the log files of a rank: "2" or "load.2"."""
    return label.replace(" ", ".")


def choose_pipe_size(streams: int) -> int:
    """Return the capacity of each pipe in bytes, a power of two."""
    share = min(_PIPE_BYTES, _ALL_PIPES_BYTES // max(streams, 1))
    return max(_DEFAULT_PIPE_BYTES, 1 << (share.bit_length() - 1))


def open_pipe(size: int) -> tuple[int, int]:
    """Return the read end, which does not block, and the write end of a new pipe. Raises OSError."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    if size > _DEFAULT_PIPE_BYTES:
        try:
            fcntl.fcntl(read_end, fcntl.F_SETPIPE_SZ, size)
        except OSError:
            pass  # the user has too many pipes: a small pipe works too, only slower
    return read_end, write_end


def open_pty(size: tuple[int, int]) -> tuple[int, int]:
    """Return the read end and the write end of a new pseudo-terminal that passes bytes on unchanged.

    `size` is its lines and columns. Raises OSError.
    """
    read_end, write_end = os.openpty()
    settings = termios.tcgetattr(write_end)
    settings[1] &= ~termios.OPOST
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(write_end, termios.TCSANOW, settings)
    os.set_blocking(read_end, False)
    set_terminal_size(read_end, size)
    return read_end, write_end


def read_size(terminal: int) -> tuple[int, int]:
    """Return lines and columns of a terminal; 24 and 80 if there is no terminal or its size is unknown."""
    try:
        lines, columns = termios.tcgetwinsize(terminal)
    except (OSError, ValueError, termios.error):
        lines = columns = 0
    return lines or LINES, columns or COLUMNS


def set_terminal_size(terminal: int, size: tuple[int, int]) -> None:
    """Set lines and columns of a terminal; do nothing if it is closed."""
    try:
        termios.tcsetwinsize(terminal, size)
    except (OSError, termios.error):
        pass


_OUT, _ERR = 1, 2
_KINDS = {_OUT: OUT, _ERR: ERR}
_LIMITS_HINT = "check 'ulimit -n' (open files) and /proc/sys/kernel/pty/max (pseudo-terminals)"
_NAMES = {_OUT: "standard output", _ERR: "standard error"}


class OutputMultiplexer:
    """All output of one run.

    `open_streams` opens the files that a rank writes to. Call `forward_ready()` whenever `fileno()` is
    readable. `write_message` writes messages between the lines of ranks.
    """

    def __init__(self, output: Output | None, labels: Mapping[int, str]) -> None:
        """Check that all files can be opened; raises LaunchError if not, before any rank starts.

        `labels` has the label of each rank: its number, "2", or its group and its number there, "load 2".
        Without `output` ranks inherit standard output and error, and only messages are written here.
        """
        self._output = output = output or Output()
        self._errors: list[str] = []
        self._labels = labels
        streams = len(labels) * len(_KINDS) if output.tag else 0
        self._limit = line_limit(streams)
        self._pipe_size = choose_pipe_size(streams)
        if streams:
            check_file_limit(len(labels) * output.files_per_rank)
        self._logs: LogDirectory | None = None
        if output.directory is not None:
            self._logs = LogDirectory(
                output.directory, map(make_log_name, labels.values()), force=output.force
            )
        self._tails: dict[int, RankStream] = {}
        self._ptys: dict[int, RankStream] = {}
        self._terminal = -1
        if output.pty:
            self._terminal = next((os.dup(fd) for fd in (1, 2, 0) if os.isatty(fd)), -1)
        self._epoll = select.epoll()
        self._by_fd: dict[int, Forwarder] = {}
        self._forwarders: dict[int, Forwarder] = {}
        if output.tag:  # now, before ompbind replaces its own standard output
            self._forwarder(_OUT)
            self._forwarder(_ERR)

    def open_streams(self, rank: int, heading: str = "") -> tuple[int, int]:
        """Open standard output and error of a rank; -1 where it inherits them. Raises LaunchError.

        The `heading` is written to its log files before the output of a further attempt.
        """
        if not (self._output.tag or self._logs):
            return -1, -1
        out = -1
        try:
            out = self._open_stream(rank, _OUT, heading)
            return out, self._open_stream(rank, _ERR, heading)
        except LaunchError:
            self.close_streams(out)  # its forwarder then reads the end of the stream
            raise
        except OSError as error:
            self.close_streams(out)
            raise LaunchError(
                f"rank {rank}: cannot open its output streams: {error.strerror}", hint=_LIMITS_HINT
            ) from error

    def close_streams(self, *write_ends: int) -> None:
        """Close the write ends of a rank's streams here, after the rank has inherited them."""
        for fd in write_ends:
            if fd >= 0:
                os.close(fd)

    def fileno(self) -> int:
        """Return the descriptor of an epoll that is readable when there is output to forward."""
        return self._epoll.fileno()

    def forward_ready(self) -> None:
        """Read and write what is possible without blocking, a bounded amount."""
        for fd, _ in self._epoll.poll(0):
            forwarder = self._by_fd[fd]
            self._set_paused(forwarder, not forwarder.forward())

    def write_message(self, text: str) -> None:
        """Write a message, as whole lines, on standard error, after everything that is queued there."""
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        data = text.encode(encoding, "backslashreplace")
        forwarder = self._forwarder(_ERR)
        forwarder.writer.put((data if data.endswith(b"\n") else data + b"\n",))
        if not forwarder.paused:
            self._set_paused(forwarder, not forwarder.flush())

    def end_streams(self, rank: int | None = None) -> bool:
        """Read what is left of an exited rank, None for all ranks, and return whether its streams are closed.

        They are not while a writer would block. `forward_ready` then reads the rest. A process that still has
        a write end open has left its rank; its further output is not read.
        """
        for forwarder in set(self._forwarders.values()):
            forwarder.end_streams(None if rank is None else (rank,))
            if not forwarder.paused:
                self._set_paused(forwarder, not forwarder.forward())
        streams = (stream for forwarder in self._forwarders.values() for stream in forwarder.streams.values())
        return all(rank not in (None, stream.rank) for stream in streams)

    @property
    def idle(self) -> bool:
        """Whether everything has been written and every stream is closed."""
        return not any(
            forwarder.streams or forwarder.writer.pending_bytes for forwarder in self._forwarders.values()
        )

    @property
    def written(self) -> int:
        """The bytes written so far to standard output and error."""
        return sum(forwarder.writer.written for forwarder in set(self._forwarders.values()))

    @property
    def broken(self) -> bool:
        """Whether a write to standard output or error has failed, for example because its reader exited."""
        return any(forwarder.writer.broken for forwarder in self._forwarders.values())

    @property
    def write_errors(self) -> tuple[str, ...]:
        """The messages of all write errors so far; that a reader has closed its end is not an error."""
        return tuple(self._errors)

    def read_last_lines(self, rank: int) -> tuple[str, ...]:
        """Return the last lines of standard error of a rank; none if the rank inherits standard error."""
        stream = self._tails.get(rank)
        if stream and stream.tail is not None:
            return decode_last_lines(stream.tail, whole=len(stream.tail) < TAIL_BYTES)
        if self._logs is None:
            return ()
        tail, whole = self._logs.read_tail(make_log_name(self._labels[rank]), TAIL_BYTES)
        return decode_last_lines(tail, whole=whole)

    def set_size(self) -> None:
        """Set the pseudo-terminals of all ranks to the size of ompbind's terminal."""
        size = read_size(self._terminal) if self._ptys else (0, 0)
        for stream in self._ptys.values():
            if not stream.closed:
                set_terminal_size(stream.read_end, size)

    def _open_stream(self, rank: int, fd: int, heading: str) -> int:
        """Open standard output or error (`fd` 1 or 2) of a rank; return the descriptor that it writes to.

        That is the log file itself, or the write end of a pipe or pseudo-terminal that is read here. Raises
        OSError and LaunchError.
        """
        path, log = "", -1
        if self._logs:
            name = make_log_name(self._labels[rank])
            path = self._logs.make_path(name, _KINDS[fd])
            log = self._logs.open(name, _KINDS[fd], heading)
        if not self._output.tag:
            return log
        is_pty = self._output.pty and fd == _OUT
        try:
            ends = open_pty(read_size(self._terminal)) if is_pty else open_pipe(self._pipe_size)
        except OSError:
            if log >= 0:
                os.close(log)
            raise
        prefixes = make_prefixes(rank, self._labels[rank], coloured=self._output.colours[fd - 1])
        stream = RankStream(rank, ends[0], LinePrefixer(self._limit), prefixes)
        if fd == _ERR:
            stream.tail = b""
            self._tails[rank] = stream
        elif is_pty:
            self._ptys[rank] = stream
        stream.log, stream.path = log, path
        self._forwarder(fd).add(stream)
        return ends[1]

    def _forwarder(self, fd: int) -> Forwarder:
        """Return the forwarder to standard output or error; it is the same if both are the same file."""
        if fd in self._forwarders:
            return self._forwarders[fd]
        if fd == _ERR and _OUT in self._forwarders and is_same_file(_OUT, _ERR):
            forwarder = self._forwarders[_OUT]
        else:
            writer = open_writer(fd, _NAMES[fd])
            forwarder = Forwarder(writer, self._errors, timestamps=self._output.timestamps)
            self._epoll.register(forwarder.readers, select.EPOLLIN)
            self._by_fd[forwarder.readers.fileno()] = forwarder
        self._forwarders[fd] = forwarder
        return forwarder

    def _set_paused(self, forwarder: Forwarder, paused: bool) -> None:
        """Pause a forwarder while its writer would block: wait for the writer instead of its streams."""
        fd, events = forwarder.writer.fd, select.EPOLLOUT | select.EPOLLONESHOT
        if paused and fd in self._by_fd:
            self._epoll.modify(fd, events)
        elif paused:
            self._epoll.register(fd, events)
            self._by_fd[fd] = forwarder
        if forwarder.paused != paused:
            forwarder.paused = paused
            self._epoll.modify(forwarder.readers, 0 if paused else select.EPOLLIN)
