"""The outlet: what stands between ranks and where the user wants their output.

Everything that ranks write to and everything that is written to is one file descriptor for the supervisor,
an epoll of its own. Streams that lead to one sink are a lane inside it: when the sink takes no more, the lane
leaves the epoll with one call, however many streams it has. Nothing wakes up while nobody writes.
"""

import os
import select
import sys
from collections.abc import Sequence

from ompbind.errors import LaunchError
from ompbind.execution.output.channel import TAIL, Lane, News, Stream
from ompbind.execution.output.line_prefix import Lines, last_lines, line_limit, make_marks
from ompbind.execution.output.log_files import ERR, OUT, log_path, make_folder, open_log, read_tail
from ompbind.execution.output.options import Output
from ompbind.execution.output.ptys import (
    check_files,
    open_pipe,
    open_pty,
    open_terminal,
    pipe_size,
    read_size,
    set_size,
)
from ompbind.execution.output.writer import no_sink, open_sink, same_file
from ompbind.record import Record

_OUT, _ERR, _NOWHERE = 1, 2, 0
"""Lanes, by the standard file that they lead to; 0 is for streams that go to log files alone."""

_KINDS = {_OUT: OUT, _ERR: ERR}
_NAMES = {_OUT: "standard output", _ERR: "standard error"}


class Ends(Record):
    """What a starting rank gets as standard output and error: file descriptors, -1 where it inherits ours."""

    out: int = -1
    err: int = -1


class Outlet:
    """Where all output of one run goes through.

    `open_ends` makes what a rank writes to. Whenever `fileno()` is readable, `work()` does what can be done
    without waiting. `say` writes messages between the lines of ranks.
    """

    def __init__(self, output: Output, ranks: Sequence[int]) -> None:
        """Look whether everything can be opened; raises LaunchError, before anything starts, if not."""
        self._output = output
        self._news = News()
        streams = len(ranks) * sum(map(self._is_stream, _KINDS))
        self._limit = line_limit(streams)
        self._pipe_size = pipe_size(streams)
        if streams:
            check_files(len(ranks) * output.files_of_a_rank)
        if output.folder is not None:
            make_folder(output.folder, ranks, force=output.force)
        self._tails: dict[int, Stream] = {}
        self._ptys: dict[int, Stream] = {}
        self._terminal = open_terminal() if output.pty else -1
        self._epoll = select.epoll()
        self._by_number: dict[int, Lane] = {}
        self._lanes: dict[int, Lane] = {}
        if output.tag:  # now, while both are still what the user gave
            self._lane(_OUT)
            self._lane(_ERR)

    def open_ends(self, rank: int) -> Ends:
        """Open what a rank is to write to; raises LaunchError that names the rank."""
        if self._output.inherited:
            return Ends()
        out = -1
        try:
            out = self._open_end(rank, _OUT)
            return Ends(out=out, err=self._open_end(rank, _ERR))
        except (OSError, LaunchError) as error:
            if out >= 0:
                os.close(out)  # which ends its stream
            if isinstance(error, LaunchError):
                raise
            raise _end_error(rank, error) from error

    def close_ends(self, ends: Ends) -> None:
        """Close what a rank writes to here, once the rank has it."""
        for end in (ends.out, ends.err):
            if end >= 0:
                os.close(end)

    def fileno(self) -> int:
        """Return the number of an epoll that is readable when there is something to do."""
        return self._epoll.fileno()

    def work(self) -> None:
        """Read and write what can be without waiting, a bounded amount."""
        for number, _ in self._epoll.poll(0):
            lane = self._by_number[number]
            self._settle(lane, lane.pour())

    def say(self, text: str) -> None:
        """Write a message, whole lines, on standard error after all that waits there already."""
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        data = text.encode(encoding, "backslashreplace")
        lane = self._lane(_ERR)
        lane.sink.put((data if data.endswith(b"\n") else data + b"\n",))
        if not lane.paused:
            self._settle(lane, lane.flush())

    def finish(self) -> None:
        """Read what is left now that all processes of all ranks have ended.

        Whoever still holds a stream has left its rank, and is not waited for.
        """
        for lane in set(self._lanes.values()):
            lane.finish()
            if not lane.paused:
                self._settle(lane, lane.pour())

    @property
    def idle(self) -> bool:
        """Tell whether everything has been written and every stream has ended."""
        return not any(lane.streams or lane.sink.size for lane in self._lanes.values())

    @property
    def written(self) -> int:
        """The bytes that have been written so far to standard output and error."""
        return sum(lane.sink.written for lane in set(self._lanes.values()))

    @property
    def broken(self) -> bool:
        """Tell whether standard output or error cannot be written any more: its reader has gone, or worse."""
        return any(lane.sink.broken for number, lane in self._lanes.items() if number != _NOWHERE)

    @property
    def troubles(self) -> tuple[str, ...]:
        """What could not be written so far, and why; readers that have gone are none."""
        return tuple(self._news.troubles)

    def broken_pty_ranks(self) -> tuple[int, ...]:
        """Return, each once, ranks that wrote to a pseudo-terminal nobody reads, and should get SIGPIPE."""
        streams, self._news.broken_ptys = self._news.broken_ptys, []
        for stream in streams:
            self._lane(_OUT if stream.lines else _NOWHERE).end_patience(stream)
        return tuple(stream.rank for stream in streams)

    def last_words(self, rank: int) -> tuple[str, ...]:
        """Return the last lines that a rank wrote to standard error, as far as they went through here."""
        stream = self._tails.get(rank)
        if stream and stream.tail is not None:
            return last_lines(stream.tail, whole=len(stream.tail) < TAIL)
        if self._output.folder is None:
            return ()
        tail, whole = read_tail(log_path(self._output.folder, rank, ERR), TAIL)
        return last_lines(tail, whole=whole)

    def set_size(self) -> None:
        """Give the pseudo-terminals of ranks the size of the terminal that ompbind shows on."""
        size = read_size(self._terminal) if self._ptys else (0, 0)
        for stream in self._ptys.values():
            if not stream.closed:
                set_size(stream.source, size)

    def close(self) -> None:
        """Close everything; what has not been written is lost."""
        for lane in set(self._lanes.values()):
            lane.close()
        if self._terminal >= 0:
            os.close(self._terminal)
        self._epoll.close()

    def _is_stream(self, number: int) -> bool:
        """Tell whether a standard file of ranks is read here, or is a log file itself."""
        return self._output.tag or (self._output.pty and number == _OUT and self._output.folder is not None)

    def _open_end(self, rank: int, number: int) -> int:
        """Open what a rank writes to as a standard file; raises OSError and LaunchError."""
        path, log = "", -1
        if self._output.folder is not None:
            path = log_path(self._output.folder, rank, _KINDS[number])
            log = open_log(path, rank, force=self._output.force)
        if not self._is_stream(number):
            return log
        try:
            source, end, is_pty = self._open_pair(number)
        except OSError:
            if log >= 0:
                os.close(log)
            raise
        stream = Stream(rank, source, is_pty=is_pty)
        stream.log, stream.path = log, path
        self._connect(stream, number)
        return end

    def _open_pair(self, number: int) -> tuple[int, int, bool]:
        """Return both ends of a pipe or pseudo-terminal, and whether it is the latter."""
        if self._output.pty and number == _OUT:
            return *open_pty(read_size(self._terminal)), True
        return *open_pipe(self._pipe_size), False

    def _connect(self, stream: Stream, number: int) -> None:
        if self._output.tag:
            stream.lines = Lines(self._limit)
            stream.marks = make_marks(stream.rank, coloured=self._output.colours[number - 1])
        if number == _ERR:
            stream.tail = b""
            self._tails[stream.rank] = stream
        if stream.is_pty:
            self._ptys[stream.rank] = stream
        self._lane(number if self._output.tag else _NOWHERE).add(stream)

    def _lane(self, number: int) -> Lane:
        """Return the lane of a standard file, the same one for both where these are the same file."""
        if number not in self._lanes:
            self._lanes[number] = self._make_lane(number)
        return self._lanes[number]

    def _make_lane(self, number: int) -> Lane:
        if number == _ERR and _OUT in self._lanes and same_file(_OUT, _ERR):
            return self._lanes[_OUT]
        sink = open_sink(number, _NAMES[number]) if number != _NOWHERE else no_sink()
        lane = Lane(sink, self._news, stamped=self._output.timestamps and number != _NOWHERE)
        self._epoll.register(lane.readers, select.EPOLLIN)
        self._by_number[lane.readers.fileno()] = lane
        return lane

    def _settle(self, lane: Lane, free: bool) -> None:
        """Read a lane while its sink takes more, else wait for the sink to do so, once."""
        if not free:
            self._wait_for(lane)
        if lane.paused == free:
            lane.paused = not free
            self._epoll.modify(lane.readers, select.EPOLLIN if free else 0)

    def _wait_for(self, lane: Lane) -> None:
        number, events = lane.sink.file, select.EPOLLOUT | select.EPOLLONESHOT
        if number in self._by_number:
            self._epoll.modify(number, events)
        else:
            self._epoll.register(number, events)
            self._by_number[number] = lane


def _end_error(rank: int, error: OSError) -> LaunchError:
    return LaunchError(
        f"rank {rank}: what it would write to cannot be opened: {error.strerror}",
        hint="'ulimit -n' tells how many files may be open, /proc/sys/kernel/pty/max how many terminals",
    )
