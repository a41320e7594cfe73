"""The outlet: what stands between ranks and where the user wants their output.

Everything that ranks write to and everything that is written to is one file descriptor for the supervisor,
an epoll of its own. Streams that lead to one sink are a channel inside it: when the sink takes no more, the
channel leaves the epoll with one call, however many streams it has. Nothing wakes up while nobody writes.
"""

import os
import select
import sys
from collections.abc import Sequence

from ompbind.errors import LaunchError
from ompbind.execution.output.channel import TAIL, Channel, News, Stream
from ompbind.execution.output.line_prefix import Lines, last_lines, line_limit, make_marks
from ompbind.execution.output.log_files import ERR, OUT, log_path, make_folder, open_log, read_tail
from ompbind.execution.output.options import Output
from ompbind.execution.output.ptys import open_pipe, open_pty, open_terminal, pipe_size, read_size, set_size
from ompbind.execution.output.writer import open_writer, same_file
from ompbind.execution.rlimits import check_files

_OUT, _ERR = 1, 2
_KINDS = {_OUT: OUT, _ERR: ERR}
_FULL = "'ulimit -n' tells how many files may be open, /proc/sys/kernel/pty/max how many terminals"
_NAMES = {_OUT: "standard output", _ERR: "standard error"}


class OutputMultiplexer:
    """Where all output of one run goes through.

    `open_streams` makes what a rank writes to. Whenever `fileno()` is readable, `work()` does what can be done
    without waiting. `say` writes messages between the lines of ranks.
    """

    def __init__(self, output: Output | None, ranks: Sequence[int]) -> None:
        """Look whether everything can be opened; raises LaunchError, before anything starts, if not.

        Without `output` ranks inherit both standard files, and messages are all there is.
        """
        self._output = output = output or Output()
        self._news = News()
        streams = len(ranks) * len(_KINDS) if output.tag else 0
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
        self._by_number: dict[int, Channel] = {}
        self._channels: dict[int, Channel] = {}
        if output.tag:  # now, while both are still what the user gave
            self._channel(_OUT)
            self._channel(_ERR)

    def open_streams(self, rank: int) -> tuple[int, int]:
        """Open what a rank is to have as standard output and error, -1 for ours; raises LaunchError."""
        if not self._output.tag and self._output.folder is None:
            return -1, -1
        out = -1
        try:
            out = self._open_stream(rank, _OUT)
            return out, self._open_stream(rank, _ERR)
        except LaunchError:
            self.close_streams(out)  # which ends its stream
            raise
        except OSError as error:
            self.close_streams(out)
            wrong = f"rank {rank}: what it would write to cannot be opened: {error.strerror}"
            raise LaunchError(wrong, hint=_FULL) from error

    def close_streams(self, *ends: int) -> None:
        """Close what a rank writes to here, once the rank has it."""
        for end in ends:
            if end >= 0:
                os.close(end)

    def fileno(self) -> int:
        """Return the number of an epoll that is readable when there is something to do."""
        return self._epoll.fileno()

    def work(self) -> None:
        """Read and write what can be without waiting, a bounded amount."""
        for number, _ in self._epoll.poll(0):
            channel = self._by_number[number]
            self._settle(channel, channel.pour())

    def say(self, text: str) -> None:
        """Write a message, whole lines, on standard error after all that waits there already."""
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        data = text.encode(encoding, "backslashreplace")
        channel = self._channel(_ERR)
        channel.writer.put((data if data.endswith(b"\n") else data + b"\n",))
        if not channel.paused:
            self._settle(channel, channel.flush())

    def finish(self) -> None:
        """Read what is left now that all processes of all ranks have ended.

        Whoever still holds a stream has left its rank, and is not waited for.
        """
        for channel in set(self._channels.values()):
            channel.finish()
            if not channel.paused:
                self._settle(channel, channel.pour())

    @property
    def idle(self) -> bool:
        """Tell whether everything has been written and every stream has ended."""
        return not any(channel.streams or channel.writer.size for channel in self._channels.values())

    @property
    def written(self) -> int:
        """The bytes that have been written so far to standard output and error."""
        return sum(channel.writer.written for channel in set(self._channels.values()))

    @property
    def broken(self) -> bool:
        """Tell whether standard output or error cannot be written any more: its reader has gone, or worse."""
        return any(channel.writer.broken for channel in self._channels.values())

    @property
    def troubles(self) -> tuple[str, ...]:
        """What could not be written so far, and why; readers that have gone are none."""
        return tuple(self._news.troubles)

    def broken_pty_ranks(self) -> tuple[int, ...]:
        """Return, each once, ranks that wrote to a pseudo-terminal nobody reads, and should get SIGPIPE."""
        streams, self._news.broken_ptys = self._news.broken_ptys, []
        for stream in streams:
            self._channel(_OUT).end_patience(stream)
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

    def _open_stream(self, rank: int, number: int) -> int:
        """Open what a rank writes to as a standard file; raises OSError and LaunchError.

        It is the log file itself, or one end of a pipe or pseudo-terminal whose other end is read here.
        """
        path, log = "", -1
        if self._output.folder is not None:
            path = log_path(self._output.folder, rank, _KINDS[number])
            log = open_log(path, rank, force=self._output.force)
        if not self._output.tag:
            return log
        is_pty = self._output.pty and number == _OUT
        try:
            source, end = open_pty(read_size(self._terminal)) if is_pty else open_pipe(self._pipe_size)
        except OSError:
            if log >= 0:
                os.close(log)
            raise
        stream = self._make_stream(rank, number, source)
        stream.is_pty, stream.log, stream.path = is_pty, log, path
        self._channel(number).add(stream)
        return end

    def _make_stream(self, rank: int, number: int, source: int) -> Stream:
        marks = make_marks(rank, coloured=self._output.colours[number - 1])
        stream = Stream(rank, source, Lines(self._limit), marks)
        if number == _ERR:
            stream.tail = b""
            self._tails[rank] = stream
        elif self._output.pty:
            self._ptys[rank] = stream
        return stream

    def _channel(self, number: int) -> Channel:
        """Return the channel of a standard file, the same one for both where these are the same file."""
        if number not in self._channels:
            self._channels[number] = self._make_channel(number)
        return self._channels[number]

    def _make_channel(self, number: int) -> Channel:
        if number == _ERR and _OUT in self._channels and same_file(_OUT, _ERR):
            return self._channels[_OUT]
        writer = open_writer(number, _NAMES[number])
        channel = Channel(writer, self._news, stamped=self._output.timestamps)
        self._epoll.register(channel.readers, select.EPOLLIN)
        self._by_number[channel.readers.fileno()] = channel
        return channel

    def _settle(self, channel: Channel, free: bool) -> None:
        """Read a channel while its sink takes more, else wait for the sink to do so, once."""
        if not free:
            self._wait_for(channel)
        if channel.paused == free:
            channel.paused = not free
            self._epoll.modify(channel.readers, select.EPOLLIN if free else 0)

    def _wait_for(self, channel: Channel) -> None:
        number, events = channel.writer.file, select.EPOLLOUT | select.EPOLLONESHOT
        if number in self._by_number:
            self._epoll.modify(number, events)
        else:
            self._epoll.register(number, events)
            self._by_number[number] = channel
