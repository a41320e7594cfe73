"""Channels: all streams of ranks that lead to one sink, read only while it takes more.

Streams of a channel share an epoll. The channel goes round them, reads a block of each in turn, gathers the
lines and writes them together. While the sink takes nothing, nothing is read, and ranks wait as they would
for the reader itself: memory is bounded by what was read last, not by what ranks write.
"""

import os
import select
import time
from collections import deque

from ompbind.execution.output.line_prefix import Lines, Marks, add_stamp
from ompbind.execution.output.log_files import write_whole
from ompbind.execution.output.writer import NonBlockingWriter

_BLOCK = 128 << 10  # bytes that are read of one stream at once
_GATHER = 64 << 10  # bytes that are gathered, from one stream or many, before they are written
_BATCH = 64  # streams that one look at a channel returns; the kernel goes round them
_ROUNDS = 8  # looks at a channel in one call, so that signals are heard in between
_REST = 1 << 20  # bytes that are read of a stream after its rank has ended; no pipe holds more
TAIL = 4096
"""Bytes that are kept of what each rank has written last to standard error."""


class Stream:
    """What one rank writes to one of its files: where it is read, and how its lines are marked.

    With a `log`, which is at `path`, its bytes go there as well; -1 is none. `tail` are the last of them,
    None where nobody will ask. `left` counts what may still be read at the end.
    """

    def __init__(self, rank: int, source: int, lines: Lines, marks: Marks) -> None:
        self.rank = rank
        self.source = source
        self.lines = lines
        self.marks = marks
        self.is_pty = False
        self.log = -1
        self.path = ""
        self.tail: bytes | None = None
        self.left = _REST
        self.refused = False
        self.closed = False


class News:
    """What happened to the output that the user or the supervisor must hear of.

    `troubles` are sentences; `broken_ptys` are pseudo-terminals that a rank has written to and nobody reads.
    """

    def __init__(self) -> None:
        self.troubles: list[str] = []
        self.broken_ptys: list[Stream] = []


class Channel:
    """A sink and the streams that lead there, by the number of their source.

    `paused` is set while the sink takes nothing. `_ready` are streams that have something and had no turn
    yet, `_lost` is set once the sink is broken and the streams know it, `_ending` when all ranks have ended.
    """

    def __init__(self, writer: NonBlockingWriter, news: News, *, stamped: bool = False) -> None:
        self.writer = writer
        self.readers = select.epoll()
        self.streams: dict[int, Stream] = {}
        self.paused = False
        self._news = news
        self._stamped = stamped
        self._ready: deque[int] = deque()
        self._lost = False
        self._ending = False

    def add(self, stream: Stream) -> None:
        """Read a stream from now on; one that has nowhere to go is closed, so that its rank notices."""
        self.streams[stream.source] = stream
        self.readers.register(stream.source, select.EPOLLIN)
        if self._lost:
            self._refuse(stream)

    def end_patience(self, stream: Stream) -> None:
        """Let a rank that has got SIGPIPE, and writes to its pseudo-terminal all the same, get an error."""
        if not stream.closed:
            self.readers.modify(stream.source, select.EPOLLIN)

    def pour(self) -> bool:
        """Read and write until there is nothing left, the turn is over, or the sink takes no more.

        Tells whether the sink takes more. Raises nothing: what cannot be written is news.
        """
        if not self.flush():
            return False
        for _ in range(_ROUNDS):
            if not (self._ready or self._ending):
                self._ready.extend([number for number, _ in self.readers.poll(0, _BATCH)])
            if not self._ready:
                return True
            if not self._take_turns():
                return False
        return True

    def flush(self) -> bool:
        """Write what waits, and tell whether the sink takes more."""
        free = self.writer.flush()
        if self.writer.broken and not self._lost:
            self._lose()
        return free

    def finish(self) -> None:
        """Have every stream closed as soon as it is empty, whoever may hold its other end."""
        self._ending = True
        self._ready = deque(self.streams)

    def _take_turns(self) -> bool:
        """Read a block of each stream that is ready; tells whether the sink takes more."""
        stamp = _read_clock() if self._stamped else b""
        while self._ready:
            stream = self.streams.get(self._ready.popleft())
            if stream:
                self._read(stream, stamp)
                if self.writer.size >= _GATHER and not self.flush():
                    return False  # those that had no turn are first when it goes on
        return self.flush()

    def _read(self, stream: Stream, stamp: bytes) -> None:
        try:
            block = os.read(stream.source, _BLOCK)
        except BlockingIOError:
            if self._ending:
                self._end(stream, stamp)
            return
        except OSError:
            block = b""  # this is how a pseudo-terminal tells that nobody has it open any more
        if not block:
            self._end(stream, stamp)
            return
        self._distribute(stream, block, stamp)
        if self._ending:
            stream.left -= len(block)
            if stream.left > 0:
                self._ready.append(stream.source)
            else:
                self._end(stream, stamp)

    def _distribute(self, stream: Stream, block: bytes, stamp: bytes) -> None:
        if stream.tail is not None:
            stream.tail = block[-TAIL:] if len(block) >= TAIL else (stream.tail + block)[-TAIL:]
        if stream.log >= 0:
            self._log(stream, block)
        if self._lost:
            self._refuse(stream, written=True)
        else:
            self.writer.put(stream.lines.take(block, add_stamp(stream.marks, stamp)))

    def _log(self, stream: Stream, block: bytes) -> None:
        """Write to the log file; when it takes no more it is given up, and all else goes on."""
        try:
            write_whole(stream.log, block)
        except OSError as error:
            trouble = f"rank {stream.rank}: {stream.path} cannot be written any more: {error.strerror}"
            self._news.troubles.append(trouble)
            os.close(stream.log)
            stream.log = -1

    def _lose(self) -> None:
        """Note that the sink is broken: let ranks notice that write only there."""
        self._lost = True
        if self.writer.trouble:
            self._news.troubles.append(self.writer.trouble)
        for stream in list(self.streams.values()):
            self._refuse(stream)

    def _refuse(self, stream: Stream, *, written: bool = False) -> None:
        """Let a rank notice that nobody reads it, unless its log file goes on.

        It is closed, so that the next write brings SIGPIPE. A pseudo-terminal brings an error only: whoever
        writes there is news, and waits until somebody has been told to send the signal.
        """
        if stream.log >= 0:
            return
        if not stream.is_pty or stream.refused:
            self._close(stream)
        elif written:
            stream.refused = True
            self.readers.modify(stream.source, 0)
            self._news.broken_ptys.append(stream)

    def _end(self, stream: Stream, stamp: bytes) -> None:
        if not self._lost:
            self.writer.put(stream.lines.end(add_stamp(stream.marks, stamp)))
        self._close(stream)

    def _close(self, stream: Stream) -> None:
        if stream.closed:
            return
        stream.closed = True
        del self.streams[stream.source]
        self.readers.unregister(stream.source)
        os.close(stream.source)
        if stream.log >= 0:
            os.close(stream.log)
            stream.log = -1


def _read_clock() -> bytes:
    """Return the local time of day to the millisecond, as `20:06:53.123`."""
    now = time.time()
    day = time.localtime(now)
    return b"%02d:%02d:%02d.%03d" % (day.tm_hour, day.tm_min, day.tm_sec, now % 1 * 1000)
