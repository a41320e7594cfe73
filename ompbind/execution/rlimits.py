"""Limits of the system: what helps who meets one, and the one on open files.

That one is raised for ompbind itself, while ranks are born with the one that was there.
"""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from ompbind.errors import LaunchError

WHAT_HELPS = {
    errno.EAGAIN: "the system allows no more processes: look at 'ulimit -u' and the pids limit of the cgroup",
    errno.ENOMEM: "there is no memory for another process: start fewer ranks",
    errno.ENFILE: "the system has too many open files",
    errno.EMFILE: "too many files are open: 'ulimit -n' may allow more",
}
"""Errors that tell of a limit of the system, and what helps."""

_SPARE = 40  # open files besides those that grow with the number of ranks
_ROOM = 5  # open files that it takes at least to look for processes and to say something of them


class FileLimit:
    """The limit on open files, raised to what some files of ranks need as far as the hard limit allows."""

    def __init__(self, needed: int) -> None:
        self._before, self._hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        unlimited = resource.RLIM_INFINITY
        wanted = needed + _SPARE if self._hard == unlimited else min(needed + _SPARE, self._hard)
        self._now = self._before if self._before == unlimited else max(self._before, wanted)
        self._set(self._now)

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
        return self._now != resource.RLIM_INFINITY and number >= self._now - _SPARE

    @contextmanager
    def as_before(self) -> Iterator[None]:
        """Have the limit that was there for a while: what is started then inherits it."""
        self._set(self._before)
        try:
            yield
        finally:
            self._set(self._now)

    def _set(self, soft: int) -> None:
        if self._now != self._before:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, self._hard))


def check_files(count: int) -> None:
    """Raise LaunchError unless so many files of ranks may be open here, with the limit raised already."""
    needed = count + _SPARE
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and needed > limit:
        message = f"carrying the output of all ranks takes {needed} open files, and {limit} are allowed"
        hint = "'ulimit -Hn' is that limit; with --log-dir alone, ranks write to their files themselves"
        raise LaunchError(message, hint=hint)
