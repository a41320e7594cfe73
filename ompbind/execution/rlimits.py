"""Limits of the system: a hint for each, and the limit on open files.

ompbind raises its own limit on open files; ranks start with the original limit.
"""

from __future__ import annotations

import errno
import os
import resource

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
    """The limit on open files, raised for `needed` files of ranks as far as the hard limit allows."""

    def __init__(self, needed: int) -> None:
        self._before = self._now = os.sysconf("SC_OPEN_MAX")
        wanted = needed + _SPARE
        if self._before == _UNLIMITED or self._before >= wanted:
            return
        _, self._hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._now = wanted if self._hard == _UNLIMITED else max(self._before, min(wanted, self._hard))
        self._set(self._now)

    def check_free_files(self) -> None:
        """Raise OSError unless a few more files can be opened, without which processes cannot be found."""
        files: list[int] = []
        try:
            while len(files) < _NEEDED:
                files.append(os.dup(0))
        finally:
            for file in files:
                os.close(file)

    def is_near_limit(self, number: int) -> bool:
        """Return whether few numbers above `number` are left; a new file gets the lowest free number."""
        return self._now != _UNLIMITED and number >= self._now - _SPARE

    def original_limit(self) -> FileLimit:
        """Restore the original limit within `with`: processes that are started there inherit it."""
        return self

    def __enter__(self) -> None:
        self._set(self._before)

    def __exit__(self, *_: object) -> None:
        self._set(self._now)

    def _set(self, soft: int) -> None:
        if self._now != self._before:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, self._hard))


def check_file_limit(count: int) -> None:
    """Raise LaunchError unless `count` files of ranks may be open here; the limit was raised before."""
    needed = count + _SPARE
    limit = os.sysconf("SC_OPEN_MAX")
    if limit != _UNLIMITED and needed > limit:
        message = f"forwarding the output of all ranks needs {needed} open files, {limit} are allowed"
        hint = "raise 'ulimit -Hn', or use --log-dir alone: ranks then write their files directly"
        raise LaunchError(message, hint=hint)
