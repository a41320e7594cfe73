"""The loop of a supervisor, which sleeps nowhere else.

It waits for readable descriptors (signals, exits of children, output) and for deadlines. Each has a function
that is called when its descriptor is readable, or when its time has come. A deadline belongs to its function:
to set it again moves it, None cancels it, and a time that is over calls the function in the same turn. There
are few deadlines, so they are a table.
"""

import select
import time
from collections.abc import Callable

from ompbind.errors import LaunchError

LONGEST_SLEEP_S = 86400.0  # seconds that a call of epoll waits at most, as its argument is limited
NOW = 0.0  # a deadline that is over


class Loop:
    """The descriptors and deadlines of a run; deadlines are seconds of the clock `now`, the monotonic one.

    Raises LaunchError on systems without epoll, and OSError for too many open files.
    """

    def __init__(
        self, epoll: "select.epoll | None" = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        if not hasattr(select, "epoll"):
            raise LaunchError("only Linux can supervise ranks", hint="use 'ompbind exec' for one rank")
        self._epoll = epoll or select.epoll()
        self.now = now
        self._readers: dict[int, Callable[[], object]] = {}
        self._deadlines: dict[Callable[[], object], float] = {}

    def listen(self, file: int, handle: Callable[[], object], *, writable: bool = False) -> None:
        """Call a function in each turn in which a descriptor is readable or at its end, or `writable`."""
        self._epoll.register(file, select.EPOLLOUT if writable else select.EPOLLIN)
        self._readers[file] = handle

    def ignore(self, file: int) -> None:
        """Listen no more. A descriptor that is only closed may have a copy in a child, and stay readable."""
        del self._readers[file]
        self._epoll.unregister(file)

    def call_at(self, at: float | None, handle: Callable[[], object]) -> None:
        """Call a function once, when its time has come: set or move its deadline, or cancel it with None."""
        if at is None:
            self._deadlines.pop(handle, None)
        else:
            self._deadlines[handle] = at

    def turn(self, limit_s: float = LONGEST_SLEEP_S) -> None:
        """Sleep until a descriptor is readable or a deadline is over, and call the functions of both."""
        if self._deadlines:
            left_s = min(self._deadlines.values()) - self.now()
            limit_s = min(limit_s, max(0.0, left_s))
        for file, _ in self._epoll.poll(limit_s):
            if handle := self._readers.get(file):  # None if another function has closed it in this turn
                handle()
        now = self.now()
        for handle in sorted(self._deadlines, key=self._deadlines.__getitem__):
            if self._deadlines.get(handle, now + 1) <= now:
                del self._deadlines[handle]
                handle()
