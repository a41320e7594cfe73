"""Forward the output of ranks to one writer: read it, prefix its lines, write it.

All streams of ranks that go to one writer, for example standard output, share one `Forwarder`. It reads one
block of each ready stream in turn, and writes the lines of several streams together. Memory is bounded by
what was read last, not by how much the ranks write.

O_NONBLOCK is a flag of the open file description, which other processes may share. To set it would change
their writes too. So a pipe or terminal is opened again, through /proc/self/fd, for ompbind alone. If that is
not possible, poll(2) is called before each write, and little enough is written that it does not block.
"""

import os
import select
import stat
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from ompbind.execution.output.line_prefix import Buffer, LinePrefixer, LinePrefixes, add_timestamp
from ompbind.execution.output.log_files import write_all

_BLOCK_BYTES = 128 << 10  # bytes of one read
_FLUSH_BYTES = 64 << 10  # pending bytes, from one stream or many, after which the writer is flushed
_POLL_STREAMS = 64  # ready streams of one poll; the kernel returns other ready streams next time
_POLLS_PER_CALL = 8  # polls in one call of `forward`, so that signals are handled in between
_DRAIN_BYTES = 1 << 20  # bytes that are read of a stream after its rank has exited; no pipe holds more
_BUFFERS_PER_WRITE = 512  # the kernel accepts twice as many
TAIL_BYTES = 4096
"""The last bytes of the standard error of each rank, which are kept for the report of a failure."""

Write = Callable[[Sequence[Buffer]], int]
"""Write the beginning of some buffers; return how many bytes; raise BlockingIOError if it would block."""


class NonBlockingWriter:
    """A queue of buffers and the file that they are written to.

    `pending_bytes` counts queued bytes, `written` those already written. When a write fails, `broken` is set
    and the queue is dropped. `error_text` is the error message, "" if the reader has closed its end.
    """

    def __init__(self, name: str, fd: int, write: Write) -> None:
        self.name = name
        self.fd = fd
        self.pending_bytes = 0
        self.written = 0
        self.broken = False
        self.error_text = ""
        self._write = write
        self._pending: list[Buffer] = []

    def put(self, buffers: Sequence[Buffer]) -> None:
        """Queue buffers, which must not change any more; do nothing if the writer is broken."""
        if self.broken:
            return
        self._pending += buffers
        self.pending_bytes += sum(map(len, buffers))

    def flush(self) -> bool:
        """Write as much as possible without blocking; return whether the queue is empty."""
        while self.pending_bytes:
            try:
                left = self._write(self._pending[:_BUFFERS_PER_WRITE])
            except BlockingIOError:
                return False
            except OSError as error:
                self.broken = True
                if not isinstance(error, BrokenPipeError):
                    self.error_text = f"cannot write to {self.name}: {error.strerror}"
                self.pending_bytes = 0
                self._pending.clear()
                return True
            self.pending_bytes -= left
            self.written += left
            whole = 0  # buffers that were written whole; `left` are the bytes written of the next one
            while whole < len(self._pending) and left >= len(self._pending[whole]):
                left -= len(self._pending[whole])
                whole += 1
            del self._pending[:whole]
            if left:
                self._pending[0] = memoryview(self._pending[0])[left:]
        return True


def open_writer(fd: int, name: str) -> NonBlockingWriter:
    """Return a writer for an open file; if it is not open, the writer discards everything."""
    own_fd = -1
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd):
            with suppress(OSError):  # a socket, a file of another user, or no /proc
                own_fd = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
            if own_fd < 0:
                own_fd = os.dup(fd)
                return NonBlockingWriter(name, own_fd, _make_polling_write(own_fd))
        else:
            # Regular files and most devices do not block. The offset must stay shared with other writers.
            own_fd = os.dup(fd)
    except OSError:
        own_fd = os.open(os.devnull, os.O_WRONLY)
    return NonBlockingWriter(name, own_fd, partial(os.writev, own_fd))


def is_same_file(fd: int, other_fd: int) -> bool:
    """Return whether two descriptors are open on the same file."""
    try:
        return os.path.samestat(os.fstat(fd), os.fstat(other_fd))
    except OSError:
        return False


def _make_polling_write(fd: int) -> Write:
    """Return a `Write` for a blocking descriptor: it writes at most PIPE_BUF bytes, if poll allows it."""
    poller = select.poll()
    poller.register(fd, select.POLLOUT)

    def write(buffers: Sequence[Buffer]) -> int:
        if not poller.poll(0):
            raise BlockingIOError
        parts, left = [], select.PIPE_BUF
        for buffer in buffers:
            parts.append(memoryview(buffer)[:left])
            left -= len(parts[-1])
            if not left:
                break
        return os.writev(fd, parts)

    return write


class RankStream:
    """Standard output or standard error of one rank: the read end, and where its lines go.

    `prefixer` and `prefixes` mark its lines. `log` is the descriptor of its log file, which is at `path`;
    -1 for no log file. `tail` are the last bytes of the stream, None if they are not needed. `drain_bytes`
    limits what is read once its rank has exited (`ending`).
    """

    def __init__(self, rank: int, read_end: int, prefixer: LinePrefixer, prefixes: LinePrefixes) -> None:
        self.rank = rank
        self.read_end = read_end
        self.prefixer = prefixer
        self.prefixes = prefixes
        self.log = -1
        self.path = ""
        self.tail: bytes | None = None
        self.drain_bytes = _DRAIN_BYTES
        self.is_pty = self.ending = False


class Forwarder:
    """A writer and the streams that are forwarded to it, by the descriptor of their read end.

    `paused` is set while the writer would block. `_ready` are the streams to read next. `_writer_lost` is set
    when the writer is broken and all streams have been closed for it. `_draining` is set when all ranks have
    exited. Error messages are added to `errors`.
    """

    def __init__(self, writer: NonBlockingWriter, errors: list[str], *, timestamps: bool = False) -> None:
        self.writer = writer
        self.readers = select.epoll()
        self.streams: dict[int, RankStream] = {}
        self.paused = False
        self._errors = errors
        self._timestamps = timestamps
        self._ready: deque[int] = deque()
        self._writer_lost = False
        self._draining = False

    def add(self, stream: RankStream) -> None:
        """Read a stream from now on; if its writer is broken, close it so that its rank gets SIGPIPE."""
        self.streams[stream.read_end] = stream
        self.readers.register(stream.read_end, select.EPOLLIN)
        if self._writer_lost:
            self._reject(stream)

    def forward(self) -> bool:
        """Read and write a limited amount without blocking; return whether the writer accepts more."""
        if not self.flush():
            return False
        for _ in range(_POLLS_PER_CALL):
            if not (self._ready or self._draining):
                self._ready.extend([fd for fd, _ in self.readers.poll(0, _POLL_STREAMS)])
            if not self._ready:
                return True
            if not self._read_round():
                return False
        return True

    def flush(self) -> bool:
        """Write pending bytes; return whether the writer accepts more."""
        accepts_more = self.writer.flush()
        if self.writer.broken and not self._writer_lost:
            self._writer_lost = True
            if self.writer.error_text:
                self._errors.append(self.writer.error_text)
            for stream in list(self.streams.values()):
                self._reject(stream)
        return accepts_more

    def end_streams(self, rank: int | None) -> None:
        """Read what is left of a rank, None for all, and close its streams, also if a process has one."""
        ended = [stream for stream in self.streams.values() if rank in (None, stream.rank)]
        for stream in ended:
            stream.ending = True
        self._draining = self._draining or rank is None
        self._ready = deque(dict.fromkeys((*self._ready, *(stream.read_end for stream in ended))))

    def _read_round(self) -> bool:
        """Read a block of each ready stream; return whether the writer accepts more."""
        timestamp = b""
        if self._timestamps:  # the local time of day to the millisecond, as `20:06:53.123`
            now = time.time()
            day = time.localtime(now)
            timestamp = b"%02d:%02d:%02d.%03d" % (day.tm_hour, day.tm_min, day.tm_sec, now % 1 * 1000)
        while self._ready:
            stream = self.streams.get(self._ready.popleft())
            if stream:
                self._read_block(stream, timestamp)
                if self.writer.pending_bytes >= _FLUSH_BYTES and not self.flush():
                    return False  # the remaining streams of this round come first in the next one
        return self.flush()

    def _read_block(self, stream: RankStream, timestamp: bytes) -> None:
        try:
            block = os.read(stream.read_end, _BLOCK_BYTES)
        except BlockingIOError:
            block = b""
            if not stream.ending:
                return
        except OSError:
            block = b""  # a pseudo-terminal reports with EIO that no process has its other end open
        if block:
            self._forward_block(stream, block, timestamp)
            stream.drain_bytes -= len(block) if stream.ending else 0
            if stream.ending and stream.drain_bytes > 0:
                self._ready.append(stream.read_end)
        if not block or stream.drain_bytes <= 0:
            if not self._writer_lost:
                self.writer.put(stream.prefixer.finish(add_timestamp(stream.prefixes, timestamp)))
            self._close(stream)

    def _forward_block(self, stream: RankStream, block: bytes, timestamp: bytes) -> None:
        if stream.tail is not None:
            stream.tail = (stream.tail + block[-TAIL_BYTES:])[-TAIL_BYTES:]
        if stream.log >= 0:
            try:
                write_all(stream.log, block)
            except OSError as error:
                self._errors.append(f"rank {stream.rank}: cannot write to {stream.path}: {error.strerror}")
                os.close(stream.log)  # forward on without it
                stream.log = -1
        if self._writer_lost:
            self._reject(stream)
        else:
            self.writer.put(stream.prefixer.add(block, add_timestamp(stream.prefixes, timestamp)))

    def _reject(self, stream: RankStream) -> None:
        """Close a stream whose output is not read any more, unless a log file still gets it.

        The next write of the rank to a closed pipe causes SIGPIPE, to a closed pseudo-terminal an error.
        """
        if stream.log < 0:
            self._close(stream)

    def _close(self, stream: RankStream) -> None:
        if self.streams.get(stream.read_end) is not stream:
            return
        del self.streams[stream.read_end]
        self.readers.unregister(stream.read_end)
        os.close(stream.read_end)
        if stream.log >= 0:
            os.close(stream.log)
            stream.log = -1
