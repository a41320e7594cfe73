"""Non-blocking writers for standard output and standard error of ompbind.

O_NONBLOCK is a flag of the open file description, which other processes may share. To set it would change
their writes too. So a pipe or terminal is opened again, through /proc/self/fd, for ompbind alone. If that is
not possible, poll(2) is called before each write, and little enough is written that it does not block.
"""

import os
import select
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from ompbind.execution.output.line_prefix import Buffer

_BUFFERS_PER_WRITE = 512  # the kernel accepts twice as many

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
