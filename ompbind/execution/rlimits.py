"""Limits of the system: what helps who meets one, and the one on open files.

That one is raised for ompbind itself, while ranks are born with the one that was there.
"""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from ompbind.record import Record

WHAT_HELPS = {
    errno.EAGAIN: "the system allows no more processes: look at 'ulimit -u' and the pids limit of the cgroup",
    errno.ENOMEM: "there is no memory for another process: start fewer ranks",
    errno.ENFILE: "the system has too many open files",
    errno.EMFILE: "too many files are open: 'ulimit -n' may allow more",
}
"""Errors that tell of a limit of the system, and what helps."""

SPARE = 40
"""Open files besides those that grow with the number of ranks."""


_ROOM = 5
"""Open files that it takes at least to look for processes and to say something of them."""


class FileLimit(Record):
    """The soft limit that ompbind was started with, what it has raised it to, and the hard limit."""

    before: int
    now: int
    hard: int

    def check_room(self) -> None:
        """Raise OSError unless some more files can be opened: who cannot look leaves processes behind."""
        files: list[int] = []
        try:
            while len(files) < _ROOM:
                files.append(os.dup(0))
        finally:
            for file in files:
                os.close(file)

    def is_scarce(self, number: int) -> bool:
        """Tell whether a file is among the last that can be had: numbers are given from below."""
        return self.now != resource.RLIM_INFINITY and number >= self.now - SPARE


def raise_file_limit(needed: int) -> FileLimit:
    """Let at least so many files, and some more, be open at once, as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed + SPARE if hard == resource.RLIM_INFINITY else min(needed + SPARE, hard)
    enough = soft == resource.RLIM_INFINITY or soft >= wanted
    limit = FileLimit(before=soft, now=soft if enough else wanted, hard=hard)
    _set(limit, limit.now)
    return limit


@contextmanager
def limit_as_before(limit: FileLimit) -> Iterator[None]:
    """Have the limit that was there for a while: what is started then inherits it."""
    _set(limit, limit.before)
    try:
        yield
    finally:
        _set(limit, limit.now)


def _set(limit: FileLimit, soft: int) -> None:
    if limit.now != limit.before:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, limit.hard))
