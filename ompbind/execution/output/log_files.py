"""Log files: a folder with RANK.out and RANK.err, never over anything that was there unless asked to."""

import os
import stat
from collections.abc import Sequence

from ompbind.cpuset import count
from ompbind.errors import LaunchError

OUT, ERR = "out", "err"

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NOCTTY
_ANOTHER = "--log-dir names another one"
_NOT_REGULAR = "only regular files are written over: remove it, or choose another --log-dir"


def log_path(folder: str, rank: int, kind: str) -> str:
    """Return the path of a log file, `kind` is "out" or "err"."""
    return os.path.join(folder, f"{rank}.{kind}")


def is_log(name: str) -> bool:
    """Tell whether a file in a folder for log files has a name that is meant for one."""
    rank, _, kind = name.partition(".")
    return rank.isascii() and rank.isdigit() and kind in (OUT, ERR)


def make_folder(folder: str, ranks: Sequence[int], *, force: bool) -> None:
    """Make a folder for log files, with its parents, where there is none.

    Raises LaunchError when it cannot be made or written, or when files are there already that the ranks
    will need; with `force`, when one of these cannot be written over.
    """
    try:
        os.makedirs(folder, exist_ok=True)
        there = set(os.listdir(folder))
    except FileExistsError as error:
        raise LaunchError(f"{folder} is no folder for log files", hint="--log-dir names a folder") from error
    except OSError as error:
        wrong = f"the folder {folder} for log files cannot be made or read: {error.strerror}"
        raise LaunchError(wrong, hint=_ANOTHER) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise LaunchError(f"the folder {folder} cannot be written", hint=_ANOTHER)
    names = [f"{rank}.{kind}" for rank in ranks for kind in (OUT, ERR)]
    found = [os.path.join(folder, name) for name in names if name in there]
    if found and not force:
        more = f" and {count(len(found) - 1, 'more log file')} exist" if len(found) > 1 else " exists"
        hint = "--force writes over what is there; or name another --log-dir"
        raise LaunchError(f"{found[0]}{more} already", hint=hint)
    for path in found:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise LaunchError(f"{path} is no regular file", hint=_NOT_REGULAR)


def open_log(path: str, rank: int, *, force: bool) -> int:
    """Open a log file for appending and return its descriptor; raises LaunchError."""
    try:
        return _open_over(path) if force else os.open(path, _FLAGS | os.O_EXCL, 0o666)
    except OSError as error:
        wrong = f"rank {rank}: {path} cannot be opened: {error.strerror}"
        raise LaunchError(wrong, hint="--log-dir names another folder") from error


def _open_over(path: str) -> int:
    """Open a file and empty it, but nothing else: a pipe would wait for readers, a link lead anywhere."""
    file = os.open(path, _FLAGS | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise LaunchError(f"{path} is no regular file", hint=_NOT_REGULAR)
    os.set_blocking(file, True)
    os.ftruncate(file, 0)
    return file


def read_tail(path: str, count: int) -> tuple[bytes, bool]:
    """Return the last bytes of a file, and whether they are all of it; none where it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return b"", True
    try:
        start = max(0, os.fstat(file).st_size - count)
        return os.pread(file, count, start), not start
    except OSError:
        return b"", True
    finally:
        os.close(file)


def write_whole(file: int, block: bytes) -> None:
    """Write all of a block to a file; raises OSError when it cannot take everything."""
    written = os.write(file, block)
    while written < len(block):
        written += os.write(file, memoryview(block)[written:])
