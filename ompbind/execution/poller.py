"""What a loop listens to: files that become readable, in their order where the system can tell."""

import errno
import math
import os
import select
import stat
from typing import TYPE_CHECKING


def keep_path(number: int) -> int:
    """Return a file that only names a pipe which is open here, without writing to it; -1 for other files."""
    try:
        is_pipe = stat.S_ISFIFO(os.fstat(number).st_mode)
        return os.open(f"/proc/self/fd/{number}", os.O_PATH | os.O_CLOEXEC) if is_pipe else -1
    except (OSError, AttributeError):
        return -1


def has_reader(path: int) -> bool:
    """Tell whether anybody can still read a pipe that was kept; True where that cannot be told."""
    try:
        file = os.open(f"/proc/self/fd/{path}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return error.errno != errno.ENXIO
    poller = select.poll()
    poller.register(file, 0)
    heard = poller.poll(0)
    os.close(file)
    return not heard


READABLE = select.POLLIN
"""The event of files that can be read, or have ended."""


def is_epoll_there() -> bool:
    """Tell whether this system has epoll; Linux has."""
    return hasattr(select, "epoll")


def make_poller() -> "Poller":
    """Return an epoll, which keeps the order in which files become ready, or what there is instead."""
    return select.epoll() if is_epoll_there() else _Poll()


class _Poll:
    """A `select.poll` that is called as an epoll is."""

    def __init__(self) -> None:
        self._poll = select.poll()

    def register(self, file: int, events: int, /) -> None:
        self._poll.register(file, events)

    def unregister(self, file: int, /) -> None:
        self._poll.unregister(file)

    def poll(self, timeout: float | None, maxevents: int) -> list[tuple[int, int]]:
        return self._poll.poll(None if timeout is None else math.ceil(timeout * 1000))[:maxevents]


if TYPE_CHECKING:
    Poller = select.epoll | _Poll
