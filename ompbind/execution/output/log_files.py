"""Log files: a directory with RANK.out and RANK.err; existing files are overwritten only with --force."""

import os
import stat
from collections.abc import Sequence

from ompbind.cpuset import count
from ompbind.errors import LaunchError

OUT, ERR = "out", "err"

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NOCTTY
_CHOOSE_ANOTHER = "choose another directory with --log-dir"
_NOT_REGULAR = "--force overwrites only regular files: remove it, or choose another --log-dir"


def log_path(directory: str, rank: int, kind: str) -> str:
    """Return the path of a log file; `kind` is "out" or "err"."""
    return os.path.join(directory, f"{rank}.{kind}")


def is_log(name: str) -> bool:
    """Return whether a file name in a log directory is the name of a log file."""
    rank, _, kind = name.partition(".")
    return rank.isascii() and rank.isdigit() and kind in (OUT, ERR)


def make_log_directory(directory: str, ranks: Sequence[int], *, force: bool) -> None:
    """Make a directory for log files, with its parents, if it does not exist.

    Raises LaunchError if it cannot be made or written, or if log files of these ranks exist. With `force`
    only existing files that are not regular files raise it.
    """
    try:
        os.makedirs(directory, exist_ok=True)
        existing = set(os.listdir(directory))
    except FileExistsError as error:
        raise LaunchError(f"{directory} is not a directory", hint=_CHOOSE_ANOTHER) from error
    except OSError as error:
        wrong = f"cannot create or read the log directory {directory}: {error.strerror}"
        raise LaunchError(wrong, hint=_CHOOSE_ANOTHER) from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise LaunchError(f"no permission to write to the log directory {directory}", hint=_CHOOSE_ANOTHER)
    names = [f"{rank}.{kind}" for rank in ranks for kind in (OUT, ERR)]
    found = [os.path.join(directory, name) for name in names if name in existing]
    if found and not force:
        more = f" and {count(len(found) - 1, 'more log file')} already exist"
        text = f"{found[0]}{more if len(found) > 1 else ' already exists'}"
        raise LaunchError(text, hint="use --force to overwrite, or choose another --log-dir")
    for path in found:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise LaunchError(f"{path} is not a regular file", hint=_NOT_REGULAR)


def open_log(path: str, rank: int, *, force: bool) -> int:
    """Open a log file for appending and return its descriptor; with `force` truncate an existing file.

    Raises LaunchError.
    """
    try:
        return _open_existing(path) if force else os.open(path, _FLAGS | os.O_EXCL, 0o666)
    except OSError as error:
        raise LaunchError(
            f"rank {rank}: cannot open {path}: {error.strerror}", hint=_CHOOSE_ANOTHER
        ) from error


def _open_existing(path: str) -> int:
    """Open and truncate a file if it is a regular file.

    A pipe would block until it has a reader, and a link may lead to any file.
    """
    fd = os.open(path, _FLAGS | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise LaunchError(f"{path} is not a regular file", hint=_NOT_REGULAR)
    os.set_blocking(fd, True)
    os.ftruncate(fd, 0)
    return fd


def read_tail(path: str, size: int) -> tuple[bytes, bool]:
    """Return the last bytes of a file, and whether they are the whole file; b"" if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return b"", True
    try:
        start = max(0, os.fstat(fd).st_size - size)
        return os.pread(fd, size, start), not start
    except OSError:
        return b"", True
    finally:
        os.close(fd)


def write_all(fd: int, block: bytes) -> None:
    """Write a whole block to a file; raises OSError if it cannot be written."""
    written = os.write(fd, block)
    while written < len(block):
        written += os.write(fd, memoryview(block)[written:])
