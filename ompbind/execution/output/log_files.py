"""Log files: a directory with RANK.out and RANK.err; existing files are overwritten only with --force.

In a run with groups, these are GROUP.RANK.out and GROUP.RANK.err, with the number of the rank in its group.

`safe_files` decides what is safe in a directory that other users may write to.
"""

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress

from ompbind.cpuset import count
from ompbind.errors import LaunchError
from ompbind.execution.safe_files import OpenDirectory, is_same, resolve
from ompbind.text import whole_number

OUT, ERR = "out", "err"

_CHOOSE_ANOTHER = "choose another directory with --log-dir"
_NOT_REGULAR = "--force overwrites only regular files: remove it, or choose another --log-dir"


def is_log(name: str) -> bool:
    """Return whether a file name in a log directory is the name of a log file."""
    stem, _, kind = name.rpartition(".")
    rank = stem.rpartition(".")[2]
    return whole_number(rank) is not None and kind in (OUT, ERR)


def make_log_name(label: str) -> str:
    """Return the beginning of the names of the log files of a rank: "2" or "load.2"."""
    return label.replace(" ", ".")


class LogDirectory:
    """The log files of some ranks, in a directory that stays open; `ranks` are the starts of their names."""

    def __init__(self, path: str, ranks: Iterable[str], *, force: bool) -> None:
        """Make the directory, with its parents, if it does not exist.

        Raises LaunchError if it cannot be made or written, or if log files of these ranks exist. With `force`
        only existing files that are not regular files, or that are not safe, raise it.
        """
        self._path = path
        self._force = force
        try:
            real = resolve(path)
            os.makedirs(real, exist_ok=True)
            self._directory = OpenDirectory(real)
        except FileExistsError as error:
            raise LaunchError(f"{path} is not a directory", hint=_CHOOSE_ANOTHER) from error
        except OSError as error:
            wrong = f"cannot create or open the log directory {path}: {error.strerror}"
            raise LaunchError(wrong, hint=_CHOOSE_ANOTHER) from error
        if not os.access(real, os.W_OK | os.X_OK):
            raise LaunchError(f"no permission to write to the log directory {path}", hint=_CHOOSE_ANOTHER)
        self._opened: dict[str, os.stat_result] = {}
        names = [f"{rank}.{kind}" for rank in ranks for kind in (OUT, ERR)]
        found = {name: entry for name in names if (entry := self._directory.read_entry(name))}
        if found and not force:
            more = f"and {count(len(found) - 1, 'more log file')} already exist"
            text = f"{os.path.join(path, next(iter(found)))} {more if len(found) > 1 else 'already exists'}"
            raise LaunchError(text, hint="use --force to overwrite, or choose another --log-dir")
        for name, entry in found.items():
            self._check_old(name, entry)

    def make_path(self, rank: str, kind: str) -> str:
        """Return the path of a log file; `kind` is "out" or "err"."""
        return os.path.join(self._path, f"{rank}.{kind}")

    def open(self, rank: str, kind: str, heading: str = "") -> int:
        """Open a log file for appending and return its descriptor.

        With a `heading`, which is written first, an existing file keeps its content. Otherwise it is
        truncated with `force`. Raises LaunchError.
        """
        name = f"{rank}.{kind}"
        try:
            old = self._directory.read_entry(name) if self._force or heading else None
            if old:  # a pipe, which is no regular file, would block until it has a reader
                self._check_old(name, old)
                file = self._directory.open_existing(name, old, os.O_APPEND)
                os.set_blocking(file, True)
            else:
                file = self._directory.create(name, os.O_APPEND)
            if heading:
                write_all(file, f"\n{heading}\n".encode())  # the line before may be incomplete
            else:
                os.ftruncate(file, 0)
        except OSError as error:  # this ends the run, and closes the file
            wrong = f"cannot open {self.make_path(rank, kind)}: {error.strerror}"
            raise LaunchError(wrong, hint=_CHOOSE_ANOTHER) from error
        self._opened[name] = os.fstat(file)
        return file

    def _check_old(self, name: str, old: os.stat_result) -> None:
        path = os.path.join(self._path, name)
        if not stat.S_ISREG(old.st_mode):
            raise LaunchError(f"{path} is not a regular file", hint=_NOT_REGULAR)
        risk = self._directory.find_risk(old)
        if risk:
            raise LaunchError(f"{path} is not safe: {risk}", hint=_CHOOSE_ANOTHER)

    def open_again(self, rank: str, kind: str) -> int:
        """Open a log file for reading; raises LaunchError if it was removed, or another file has its name."""
        name, why = f"{rank}.{kind}", "another file was put there meanwhile"
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
        try:
            file = os.open(name, flags, dir_fd=self._directory.fd)
            if is_same(self._opened.get(name), os.fstat(file)):
                return file
            os.close(file)
        except OSError as error:
            why = why if error.errno == errno.ELOOP else error.strerror or ""
        raise LaunchError(f"cannot read {self.make_path(rank, kind)}: {why}")

    def read_tail(self, rank: str, size: int) -> tuple[bytes, bool]:
        """Return the last bytes of standard error of the last attempt, and whether these are all."""
        with suppress(OSError, LaunchError), open(self.open_again(rank, ERR), "rb") as file:
            opened, now = self._opened[f"{rank}.{ERR}"].st_size, os.fstat(file.fileno()).st_size
            began = opened if opened <= now else 0
            start = max(began, now - size)
            return os.pread(file.fileno(), size, start), start <= began
        return b"", True


def write_all(fd: int, block: bytes) -> None:
    """Write a whole block to a file; raises OSError if it cannot be written."""
    written = os.write(fd, block)
    while written < len(block):
        written += os.write(fd, memoryview(block)[written:])
