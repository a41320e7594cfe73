"""Poll files: an epoll, which reports them in the order in which they became readable, or a `select.poll`."""

from __future__ import annotations

import errno
import math
import os
import select
import stat
from typing import TypeAlias


def open_pipe_path(number: int) -> int:
    """Return an O_PATH descriptor of a pipe, which does not keep it open; -1 if `number` is no pipe."""
    try:
        is_pipe = stat.S_ISFIFO(os.fstat(number).st_mode)
        return os.open(f"/proc/self/fd/{number}", os.O_PATH | os.O_CLOEXEC) if is_pipe else -1
    except (OSError, AttributeError):
        return -1


def has_reader(path_fd: int) -> bool:
    """Return whether a pipe has a reader, given a result of `open_pipe_path`; True if that is unknown."""
    try:
        file = os.open(f"/proc/self/fd/{path_fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return error.errno != errno.ENXIO
    poller = select.poll()
    poller.register(file, 0)
    events = poller.poll(0)  # POLLERR if the pipe has no reader
    os.close(file)
    return not events


READABLE = select.POLLIN
"""The event of files that can be read, or are at end of file."""


def has_epoll() -> bool:
    """Return whether this system has epoll, as Linux does."""
    return hasattr(select, "epoll")


def make_poller() -> Poller:
    """Return an epoll if the system has it, or a `select.poll` with the same methods."""
    return select.epoll() if has_epoll() else _Poll()


class _Poll:
    """A `select.poll` with the methods of an epoll."""

    def __init__(self) -> None:
        self._poll = select.poll()

    def register(self, file: int, events: int, /) -> None:
        self._poll.register(file, events)

    def unregister(self, file: int, /) -> None:
        self._poll.unregister(file)

    def poll(self, timeout: float | None) -> list[tuple[int, int]]:
        return self._poll.poll(None if timeout is None else math.ceil(timeout * 1000))


Poller: TypeAlias = "select.epoll | _Poll"  # quoted: other systems have no epoll
