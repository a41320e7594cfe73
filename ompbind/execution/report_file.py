"""Write the report of a run: atomically, and with most errors found before ranks start.

A file is replaced by a new one, written in the same directory. Pipes, devices and open files are written
directly.
"""

import errno
import fcntl
import os
import select
import stat
from contextlib import suppress

from ompbind.errors import LaunchError, RequestError
from ompbind.execution.output.log_files import is_log
from ompbind.record import Record

_IRREPLACEABLE = (errno.EBUSY, errno.EPERM, errno.EACCES, errno.EROFS)
"""Errors of replacing a mount point, as in containers, or a file in a directory of another user."""


class ReportFile(Record):
    """The target of a report: a path, or the number of an open file, which stays open until it is written."""

    name: str
    target: str | int


def prepare_report(name: str, logs: str = "") -> ReportFile:
    """Check before ranks start that a report can be written to a file; "-" is standard output.

    `logs` is the directory for log files, which is created if the report is in it. Raises RequestError if the
    report cannot be written.
    """
    number = 1 if name == "-" else _find_descriptor(name)
    if number is not None:
        return ReportFile(name=name, target=_duplicate(name, number))
    try:
        mode = os.stat(name).st_mode
    except FileNotFoundError:
        mode = 0  # the report is a new file
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise _make_error(name, why, "choose a file in a writable directory") from error
    path = os.path.realpath(name)
    directory, last = os.path.split(path)
    in_logs = bool(logs) and directory == os.path.realpath(logs)
    if in_logs and not is_log(last):
        with suppress(OSError):  # the checks below report what is wrong
            os.makedirs(directory, exist_ok=True)
    for is_wrong, why, hint in (
        (in_logs and is_log(last), "a rank writes its output there",
         f"choose another file: {os.path.join(logs, 'run.json')}"),
        (stat.S_ISDIR(mode), "it is a directory", f"choose a file in it: {os.path.join(name, 'run.json')}"),
        (stat.S_ISSOCK(mode) or stat.S_ISBLK(mode), "it is a socket or block device", "choose a file"),
        (mode and not os.access(path, os.W_OK), "no permission to write to it",
         "choose another file, or make it writable"),
        (not mode and (not name or name.endswith("/")), "it is not the name of a file",
         "choose a file such as run.json"),
        (not os.path.isdir(directory), f"directory {directory} does not exist",
         f"create it with mkdir -p {directory}"),
        (not mode and not os.access(directory, os.W_OK | os.X_OK), f"no permission to write in {directory}",
         "choose a file in another directory"),
    ):  # fmt: skip
        if is_wrong:
            raise _make_error(name, why, hint)
    return ReportFile(name=name, target=path)


def _make_error(name: str, why: str, hint: str) -> RequestError:
    return RequestError(f"the report cannot be written to {name or repr(name)}: {why}", hint=hint)


def _find_descriptor(name: str) -> int | None:
    """Return the number of the open file that a path such as /dev/stdout or /dev/fd/3 leads to; None if none.

    If the path were opened again, the report would overwrite the output of ranks from the start of the file.
    """
    descriptor_directories = {os.path.realpath(f"/proc/{which}/fd") for which in ("self", "thread-self")}
    with suppress(OSError, ValueError):  # not a symbolic link, or no valid path
        for _ in range(40):  # the kernel follows at most 40 links too
            directory, last = os.path.split(name)
            directory = os.path.realpath(directory)
            if directory in descriptor_directories:
                return int(last) if last.isascii() and last.isdigit() and len(last) < 10 else None
            name = os.path.join(directory, os.readlink(os.path.join(directory, last)))
    return None


def _duplicate(name: str, number: int) -> int:
    """Return a duplicate of a descriptor, which stays open if the original is closed, and closes on exec."""
    try:
        if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise _make_error(name, "it is open for reading only", "choose a file, or redirect it: N>FILE")
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3)
    except OSError as error:
        raise _make_error(name, f"{error.strerror}", "choose a file, or redirect it: N>FILE") from error


def write_report(file: ReportFile, text: str) -> None:
    """Write a report and a newline, once; an existing file keeps its mode, a new file gets that of umask.

    Raises LaunchError if it cannot be written. The file is then unchanged, or empty if it had to be written
    in place.
    """
    data = text.encode("utf-8", "backslashreplace") + b"\n"
    try:
        if isinstance(file.target, int):
            _write(file.target, data)
        elif os.path.isfile(file.target) or not os.path.exists(file.target):
            _replace(file.target, data)
        else:
            _overwrite(file.target, data)
    except OSError as error:
        message = f"the report could not be written to {file.name}: {error.strerror}"
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "free some disk space, or choose a file on another disk" if is_full else ""
        raise LaunchError(message, hint=hint) from error


def _replace(path: str, data: bytes) -> None:
    """Replace a file atomically; the new one gets the old mode and, if permitted, the old owner."""
    temporary = os.path.join(os.path.dirname(path), f".ompbind-{os.urandom(8).hex()}.tmp")
    try:
        _write(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), data)
        if os.path.exists(path):
            old = os.stat(path)
            with suppress(PermissionError):  # a report with another owner is better than no report
                os.chown(temporary, old.st_uid, old.st_gid)
            os.chmod(temporary, old.st_mode & 0o777)
        os.rename(temporary, path)
    except BaseException as error:
        with suppress(OSError):  # it was not created, or is renamed already
            os.unlink(temporary)
        if not (isinstance(error, OSError) and error.errno in _IRREPLACEABLE and os.path.exists(path)):
            raise
        _overwrite(path, data)


def _overwrite(path: str, data: bytes) -> None:
    """Write to an existing file, pipe or device in place; after an error a file is empty."""
    try:
        _write(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | os.O_NOCTTY), data)
    except BaseException:
        with suppress(OSError):  # pipes and devices cannot be truncated
            os.truncate(path, 0)
        raise


def _write(file: int, data: bytes) -> None:
    """Write all of the data, with as many system calls as needed, and close the file."""
    left = memoryview(data)
    poller = select.poll()
    poller.register(file, select.POLLOUT)
    try:
        while left:
            poller.poll()  # an open file that is shared may be non-blocking
            with suppress(BlockingIOError):
                left = left[os.write(file, left) :]
        if stat.S_ISREG(os.fstat(file).st_mode):
            os.fsync(file)
    finally:
        os.close(file)
