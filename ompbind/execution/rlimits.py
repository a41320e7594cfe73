"""Limits of the system: a hint for each, and the limit on open files.

ompbind raises its own limit on open files; ranks start with the original limit.
"""

from __future__ import annotations

import errno
import os
import resource
from contextlib import ExitStack

from ompbind.errors import LaunchError

LIMIT_HINTS = {
    errno.EAGAIN: "no more processes are allowed: check 'ulimit -u' and the pids limit of the cgroup",
    errno.ENOMEM: "not enough memory for another process: start fewer ranks",
    errno.ENFILE: "too many files are open on the whole system: check /proc/sys/fs/file-max",
    errno.EMFILE: "too many files are open: raise 'ulimit -n'",
}
"""A hint for each error number that means a limit of the system."""


def make_limit_error(what: str, error: OSError) -> LaunchError:
    """Return the error that something cannot be done, with a hint if a limit of the system is the cause."""
    return LaunchError(f"{what}: {error.strerror}", hint=LIMIT_HINTS.get(error.errno or 0, ""))


_UNLIMITED = -1  # the same in os.sysconf and in resource
_SPARE = 40  # open files in addition to those per rank
_NEEDED = 5  # open files that are needed at least to find processes and to write messages


class FileLimit:
    """The limit on open files, raised for `needed` files of ranks as far as the hard limit allows.

    Within `with` it has its original value, which processes that are started there inherit.
    """

    def __init__(self, needed: int, *, required: bool) -> None:
        """Raise the limit; raises LaunchError if all files are `required` and the hard limit is too low."""
        self._before = self._now = os.sysconf("SC_OPEN_MAX")
        wanted = needed + _SPARE
        if self._before == _UNLIMITED or self._before >= wanted:
            return
        _, self._hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._now = wanted if self._hard == _UNLIMITED else max(self._before, min(wanted, self._hard))
        if required and self._now < wanted:
            message = f"forwarding the output of all ranks needs {wanted} open files, {self._now} are allowed"
            hint = "raise 'ulimit -Hn', or use --log-dir alone: ranks then write their files directly"
            raise LaunchError(message, hint=hint)
        self._set(self._now)

    def check_free_files(self) -> None:
        """Raise OSError unless a few more files can be opened, without which processes cannot be found."""
        with ExitStack() as opened:
            for _ in range(_NEEDED):
                opened.callback(os.close, os.dup(0))

    def is_near_limit(self, number: int) -> bool:
        """Return whether few numbers above `number` are left; a new file gets the lowest free number."""
        return self._now != _UNLIMITED and number >= self._now - _SPARE

    def __enter__(self) -> None:
        self._set(self._before)

    def __exit__(self, *_: object) -> None:
        self._set(self._now)

    def _set(self, soft: int) -> None:
        if self._now != self._before:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, self._hard))
