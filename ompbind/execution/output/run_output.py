"""The output of a run: of all ranks to standard output, standard error and log files, and messages.

The loop of the supervisor listens to the epolls of two forwarders, for standard output and standard error of
all ranks, or of one if both are the same file. When a writer would block, its forwarder is paused: the loop
listens to the writer instead, for any number of streams. While no rank writes, ompbind does not wake up.
"""

import errno
import fcntl
import os
import select
import stat
import sys
import termios
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from ompbind.errors import LaunchError
from ompbind.execution.loop import Loop
from ompbind.execution.output import line_prefix
from ompbind.execution.output.forwarder import TAIL_BYTES, Forwarder, RankStream, is_same_file, open_writer
from ompbind.execution.output.log_files import ERR, OUT, LogDirectory, make_log_name
from ompbind.execution.run_options import Output, Reporter

_PIPE_BYTES = 1 << 20
"""Capacity of the pipe of one stream at most; the kernel allows unprivileged users no more."""

_ALL_PIPES_BYTES = 16 << 20
"""Capacity of all pipes together: beyond 64 MiB per user the kernel makes only small pipes."""

_DEFAULT_PIPE_BYTES = 64 << 10  # capacity of a new pipe

LINES, COLUMNS = 24, 80  # the size of pseudo-terminals if ompbind itself has no terminal


def open_pipe(size: int) -> tuple[int, int]:
    """Return the read end, which does not block, and the write end of a new pipe. Raises OSError."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    with suppress(OSError):  # the user has too many pipes: a small pipe works too, only slower
        if size > _DEFAULT_PIPE_BYTES:
            fcntl.fcntl(read_end, fcntl.F_SETPIPE_SZ, size)
    return read_end, write_end


def open_pty(terminal: int) -> tuple[int, int]:
    """Return the read end and the write end of a new pseudo-terminal that passes bytes on unchanged.

    It gets the size of a terminal, -1 for none. Raises OSError.
    """
    read_end, write_end = os.openpty()
    settings = termios.tcgetattr(write_end)
    settings[1] &= ~termios.OPOST
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(write_end, termios.TCSANOW, settings)
    os.set_blocking(read_end, False)
    copy_size(terminal, read_end)
    return read_end, write_end


def copy_size(source: int, terminal: int) -> None:
    """Give a terminal the lines and columns of the terminal `source`, or 24 and 80 if they are unknown."""
    size = (0, 0)
    with suppress(OSError, ValueError, termios.error):
        size = termios.tcgetwinsize(source)
    with suppress(OSError, termios.error):
        termios.tcsetwinsize(terminal, (size[0] or LINES, size[1] or COLUMNS))


_OUT, _ERR = 1, 2
_KINDS = {_OUT: OUT, _ERR: ERR}
_LIMITS_HINT = "check 'ulimit -n' (open files) and /proc/sys/kernel/pty/max (pseudo-terminals)"
_NAMES = {_OUT: "standard output", _ERR: "standard error"}


class RunOutput:
    """The output of one run: of ranks that do not inherit standard output, and messages between lines.

    `open_streams` opens the files that a rank writes to. `reader_closed` is true after SIGPIPE has killed a
    rank because the reader of its output has closed the pipe.
    """

    def __init__(
        self, output: Output | None, labels: Mapping[int, str], reporter: Reporter, loop: Loop
    ) -> None:
        """Check that all files can be opened; raises LaunchError if not, before any rank starts.

        `labels` has the label of each rank: its number, "2", or its group and its number there, "load 2".
        Without `output` ranks inherit standard output and error, and only messages are written here.
        """
        self.reader_closed = False
        self.write_errors: list[str] = []
        self._output = output = output or Output()
        self._labels = labels
        self._reporter = reporter
        self._loop = loop
        self._reported = 0  # how many of `write_errors` were reported
        streams = len(labels) * len(_KINDS) if output.tag else 0
        self._limit = line_prefix.divide(
            line_prefix.KEPT_LIMIT, streams, line_prefix.LEAST_LIMIT, line_prefix.LINE_LIMIT
        )
        self._pipe_size = line_prefix.divide(_ALL_PIPES_BYTES, streams, _DEFAULT_PIPE_BYTES, _PIPE_BYTES)
        self._logs: LogDirectory | None = None
        if output.directory is not None:
            names = map(make_log_name, labels.values())
            self._logs = LogDirectory(output.directory, names, force=output.force)
        self._tails: dict[int, RankStream] = {}
        self._terminal = -1
        if output.pty:
            self._terminal = next((os.dup(fd) for fd in (1, 2, 0) if os.isatty(fd)), -1)
        self._forwarders: dict[int, Forwarder] = {}
        self._stdout = -1 if output.tag else _open_pipe_path(1)
        if output.tag:  # now, before ompbind replaces its own standard output
            self._forwarder(_OUT)
            self._forwarder(_ERR)

    def message(self, line: str) -> None:
        """Write a message about one event to standard error, after what was written before; "" for none."""
        self.write(self._reporter.message(line) if line else "")

    def write(self, text: str) -> None:
        """Write text, as whole lines, to standard error, after what was written before; "" for none."""
        if not text:
            return
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        data = text.encode(encoding, "backslashreplace")
        forwarder = self._forwarder(_ERR)
        forwarder.writer.put((data if data.endswith(b"\n") else data + b"\n",))
        if not forwarder.paused:
            self._set_paused(forwarder, paused=not forwarder.flush())

    def report_write_errors(self) -> None:
        """Report the write errors that were not reported before; a reader that has closed its end is none."""
        for write_error in self.write_errors[self._reported :]:
            self._reported += 1
            self.write(self._reporter.error(write_error))

    @property
    def goes_to_pipe(self) -> bool:
        """Return whether ranks inherit a pipe as standard output."""
        return self._stdout >= 0

    def note_broken_pipe(self) -> None:
        """Note that SIGPIPE has killed a rank; a reader that has closed the pipe wants no messages either."""
        is_broken = any(forwarder.writer.broken for forwarder in self._forwarders.values())
        self.reader_closed |= is_broken or (self.goes_to_pipe and not _has_reader(self._stdout))

    def open_streams(self, rank: int, heading: str = "") -> tuple[int, int]:
        """Open standard output and error of a rank; -1 where it inherits them. Raises LaunchError.

        The `heading` is written to its log files before the output of a further attempt.
        """
        if not (self._output.tag or self._logs):
            return -1, -1
        out = self._open_stream(rank, _OUT, heading)
        try:
            return out, self._open_stream(rank, _ERR, heading)
        except LaunchError:
            self.close_streams(out)  # its forwarder then reads the end of the stream
            raise

    def close_streams(self, *write_ends: int) -> None:
        """Close the write ends of a rank's streams here, after the rank has inherited them."""
        for fd in write_ends:
            if fd >= 0:
                os.close(fd)

    def open_logs(self, rank: int) -> list[int]:
        """Open the log files of a rank for reading, none without a log directory. Raises LaunchError."""
        if self._logs is None:
            return []
        name = make_log_name(self._labels[rank])
        return [self._logs.open_again(name, kind) for kind in _KINDS.values()]

    def leave_streams(self) -> None:
        """Close the read ends of all ranks in a forked process: a rank gets SIGPIPE when no process reads."""
        for forwarder in set(self._forwarders.values()):
            for read_end in forwarder.streams:
                os.close(read_end)

    def end_streams(self, rank: int | None = None) -> bool:
        """Read what is left of an exited rank, None for all ranks, and return whether its streams are closed.

        They are not while a writer would block; the loop then reads the rest. A process that still has a
        write end open has left its rank; its further output is not read.
        """
        for forwarder in set(self._forwarders.values()):
            forwarder.end_streams(rank)
            if not forwarder.paused:
                self._forward(forwarder)
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

    def read_last_lines(self, rank: int) -> tuple[str, ...]:
        """Return the last lines of standard error of a rank; none if the rank inherits standard error."""
        stream = self._tails.get(rank)
        if stream and stream.tail is not None:
            return line_prefix.decode_last_lines(stream.tail, whole=len(stream.tail) < TAIL_BYTES)
        if self._logs is None:
            return ()
        tail, whole = self._logs.read_tail(make_log_name(self._labels[rank]), TAIL_BYTES)
        return line_prefix.decode_last_lines(tail, whole=whole)

    def set_size(self) -> None:
        """Set the pseudo-terminals of all ranks to the size of ompbind's terminal."""
        for forwarder in self._forwarders.values():
            for stream in forwarder.streams.values():
                if stream.is_pty:
                    copy_size(self._terminal, stream.read_end)

    def _open_stream(self, rank: int, fd: int, heading: str) -> int:
        """Open standard output or error (`fd`) of a rank; return its log file, or the end to write to."""
        path, log, name = "", -1, make_log_name(self._labels[rank])
        if self._logs:
            path = self._logs.make_path(name, _KINDS[fd])
            log = self._logs.open(name, _KINDS[fd], heading)
        if not self._output.tag:
            return log
        is_pty = self._output.pty and fd == _OUT
        try:
            ends = open_pty(self._terminal) if is_pty else open_pipe(self._pipe_size)
        except OSError as error:
            if log >= 0:
                os.close(log)
            wrong = f"rank {rank}: cannot open its output streams: {error.strerror}"
            raise LaunchError(wrong, hint=_LIMITS_HINT) from error
        prefixes = line_prefix.make_prefixes(rank, self._labels[rank], coloured=self._output.colours[fd - 1])
        stream = RankStream(rank, ends[0], line_prefix.LinePrefixer(self._limit), prefixes)
        stream.log, stream.path, stream.is_pty = log, path, is_pty
        if fd == _ERR:
            stream.tail = b""
            self._tails[rank] = stream
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
            forwarder = Forwarder(writer, self.write_errors, timestamps=self._output.timestamps)
            self._loop.listen(forwarder.readers.fileno(), partial(self._forward, forwarder))
        self._forwarders[fd] = forwarder
        return forwarder

    def _forward(self, forwarder: Forwarder) -> None:
        self._set_paused(forwarder, paused=not forwarder.forward())
        self.report_write_errors()

    def _set_paused(self, forwarder: Forwarder, *, paused: bool) -> None:
        """Pause a forwarder while its writer would block: wait for the writer instead of its streams."""
        if forwarder.paused == paused:
            return
        forwarder.paused = paused
        files = (forwarder.readers.fileno(), forwarder.writer.fd)
        self._loop.ignore(files[not paused])
        self._loop.listen(files[paused], partial(self._forward, forwarder), writable=paused)


def _open_pipe_path(number: int) -> int:
    """Return an O_PATH descriptor of a pipe, which does not keep it open; -1 if `number` is no pipe."""
    with suppress(OSError):
        if stat.S_ISFIFO(os.fstat(number).st_mode):
            return os.open(f"/proc/self/fd/{number}", os.O_PATH | os.O_CLOEXEC)
    return -1


def _has_reader(path_fd: int) -> bool:
    """Return whether a pipe has a reader, given a result of `_open_pipe_path`; True if that is unknown."""
    try:
        file = os.open(f"/proc/self/fd/{path_fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return error.errno != errno.ENXIO
    poller = select.poll()
    poller.register(file, 0)
    events = poller.poll(0)  # POLLERR if the pipe has no reader
    os.close(file)
    return not events
