"""Sinks: standard output and standard error of ompbind itself, written to without ever waiting.

A pipe or a terminal is shared with other processes, and so is a flag such as O_NONBLOCK: it belongs to what
is open, not to who has it open. So these are opened once more, for ompbind alone. What cannot be opened again
is asked before each write whether it would wait.
"""

import os
import select
import stat
from collections.abc import Callable, Sequence
from functools import partial

from ompbind.execution.output.line_prefix import Buffer

_AT_ONCE = 512  # buffers in one write; the kernel takes twice as many
_PIPE_BUF = select.PIPE_BUF

Write = Callable[[Sequence[Buffer]], int]
"""Writes the beginning of some buffers, returns how many bytes; raises BlockingIOError instead of waiting."""


class NonBlockingWriter:
    """Where lines go: what is put there and not yet written, and how it is written.

    `size` is the number of bytes that wait, `written` that of all that do no more. Once `broken`, nothing is
    written any more and nothing waits; `trouble` tells why, and is "" when the reader has gone.
    """

    def __init__(self, name: str, file: int, write: Write) -> None:
        self.name = name
        self.file = file
        self.size = 0
        self.written = 0
        self.broken = False
        self.trouble = ""
        self._write = write
        self._waiting: list[Buffer] = []

    def put(self, buffers: Sequence[Buffer]) -> None:
        """Have buffers written after all that wait already; they must not change any more."""
        if self.broken:
            return
        self._waiting += buffers
        self.size += sum(map(len, buffers))

    def flush(self) -> bool:
        """Write what can be written without waiting, and tell whether nothing is left."""
        while self.size:
            try:
                self._drop(self._write(self._waiting[:_AT_ONCE]))
            except BlockingIOError:
                return False
            except BrokenPipeError:
                self._break("")
            except OSError as error:
                self._break(f"{self.name} cannot be written any more: {error.strerror}")
        return True

    def _drop(self, written: int) -> None:
        self.size -= written
        self.written += written
        if not self.size:
            self._waiting.clear()
            return
        count = 0
        while written >= len(self._waiting[count]):
            written -= len(self._waiting[count])
            count += 1
        del self._waiting[:count]
        self._waiting[0] = memoryview(self._waiting[0])[written:]

    def _break(self, trouble: str) -> None:
        self.broken = True
        self.trouble = trouble
        self.size = 0
        self._waiting.clear()


def open_writer(number: int, name: str) -> NonBlockingWriter:
    """Return a sink for an open file, by number; one that is not open swallows everything."""
    try:
        mode = os.fstat(number).st_mode
    except OSError:
        file = os.open(os.devnull, os.O_WRONLY)
        return NonBlockingWriter(name, file, partial(os.writev, file))
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(number)):
        # Files and most devices take what they get; offsets are shared, as they must be.
        file = os.dup(number)
        return NonBlockingWriter(name, file, partial(os.writev, file))
    try:
        file = os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        return NonBlockingWriter(name, file, partial(os.writev, file))
    except OSError:  # a socket, or it belongs to another user, or /proc is not there
        file = os.dup(number)
        return NonBlockingWriter(name, file, _asking(file))


def same_file(one: int, other: int) -> bool:
    """Tell whether two open files lead to the same place."""
    try:
        return os.path.samestat(os.fstat(one), os.fstat(other))
    except OSError:
        return False


def _asking(file: int) -> Write:
    """Write little enough that what has room for anything takes it without waiting."""
    poller = select.poll()
    poller.register(file, select.POLLOUT)

    def write(buffers: Sequence[Buffer]) -> int:
        if not poller.poll(0):
            raise BlockingIOError
        start, left = [], _PIPE_BUF
        for buffer in buffers:
            start.append(memoryview(buffer)[:left])
            left -= len(start[-1])
            if not left:
                break
        return os.writev(file, start)

    return write
