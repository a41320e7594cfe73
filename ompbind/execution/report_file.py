"""Write the report of a run: atomically, and with most errors found before ranks start.

A file is replaced by a new one, written in the same directory. Pipes, devices and open files are written
directly. `safe_files` decides what is safe in a directory that other users may write to.
"""

import errno
import fcntl
import os
import select
import shlex
import stat
import time
from contextlib import suppress

from ompbind.errors import LaunchError, RequestError
from ompbind.execution.output.log_files import is_log
from ompbind.execution.safe_files import (
    OpenDirectory,
    UnsafeFileError,
    find_entry_risk,
    find_risk,
    is_same,
    is_shared,
    open_directory,
    open_existing,
    open_parent,
    read_entry,
    read_trusted_users,
    replace_file,
)
from ompbind.record import Record

READER_WAIT_S = 60.0
"""Seconds that a named pipe is given to be opened by a reader, and then between two reads."""

_POLL_S = 0.02  # between two tries to open a pipe: the kernel reports no reader that arrives
_OWN_DIRECTORY = "choose a file in a directory that only you can write to"

_IRREPLACEABLE = (errno.EBUSY, errno.EPERM, errno.EACCES, errno.EROFS)
"""Errors of replacing a mount point, as in containers, or a file in a directory of another user."""


class NoReaderError(TimeoutError):
    """No process has opened a named pipe for reading."""


class ReportFile(Record):
    """The target of a report, until it is written: an open file, or a name in an open directory.

    `descriptor` is the open file, -1 for a name. `last` is the name in `directory`, `path` its path before
    the start, and `before` the status of the file there, None if there was none.
    """

    name: str
    descriptor: int = -1
    path: str = ""
    last: str = ""
    directory: OpenDirectory | None = None
    before: os.stat_result | None = None

    @property
    def can_be_taken(self) -> bool:
        """Return whether another user could create a file of this name before the report is written."""
        return self.directory is not None and self.directory.shared and self.before is None


def prepare_report(name: str, logs: str = "") -> ReportFile:
    """Check before ranks start that a report can be written to a file; "-" is standard output.

    `logs` is the directory for log files, which is created if the report is in it. Raises RequestError if the
    report cannot be written.
    """
    number = 1 if name == "-" else _find_descriptor(name)
    if number is not None:
        return ReportFile(name=name, descriptor=_duplicate(name, number))
    try:
        path = os.path.realpath(name)
        in_logs = bool(logs) and os.path.dirname(path) == os.path.realpath(logs)
        if in_logs and not is_log(os.path.basename(path)):
            with suppress(OSError):  # the checks below report what is wrong
                open_directory(logs).close()
        _check_path(name, path, logs if in_logs else "")
        directory, last = open_parent(name)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        is_unsafe = isinstance(error, UnsafeFileError)
        hint = _OWN_DIRECTORY if is_unsafe else "choose a file in a writable directory"
        raise _make_error(name, why, hint) from error
    before = read_entry(directory, last)
    risk = find_entry_risk(directory, before)
    if risk:
        raise _make_error(name, risk, _OWN_DIRECTORY)
    return ReportFile(name=name, path=path, last=last, directory=directory, before=before)


def read_head(file: ReportFile, size: int) -> bytes | None:
    """Return the first bytes of the regular file that a report would replace; None if there is no such file.

    Raises OSError if the file cannot be read.
    """
    if file.directory is None or file.before is None or not stat.S_ISREG(file.before.st_mode):
        return None
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(file.last, flags, dir_fd=file.directory.fd), "rb") as stream:
        return stream.read(size)


def _check_path(name: str, path: str, logs: str) -> None:
    """Raise RequestError if no report can be written to a path; `logs` is given if it is its directory."""
    try:
        mode = os.stat(name).st_mode
    except FileNotFoundError:
        mode = 0  # the report is a new file
    directory, last = os.path.split(path)
    for is_wrong, why, hint in (
        (logs and is_log(last), "a rank writes its output there",
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
            link = os.path.join(directory, last)
            trusted = read_trusted_users()
            status, above = os.lstat(link), os.stat(directory)
            is_risky = stat.S_ISLNK(status.st_mode) and is_shared(above, trusted)
            if risk := find_risk(status, trusted) if is_risky else "":
                raise _make_error(link, risk, _OWN_DIRECTORY)
            name = os.path.join(directory, os.readlink(link))
    return None


def _duplicate(name: str, number: int) -> int:
    """Return a duplicate of a descriptor, which stays open if the original is closed, and closes on exec."""
    try:
        if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise _make_error(name, "it is open for reading only", "choose a file, or redirect it: N>FILE")
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3)
    except OSError as error:
        raise _make_error(name, f"{error.strerror}", "choose a file, or redirect it: N>FILE") from error


def write_report(file: ReportFile, text: str, wait_s: float = READER_WAIT_S) -> None:
    """Write a report and a newline, once; an existing file keeps its mode, a new file gets that of umask.

    A named pipe must get a reader within `wait_s` seconds, and so must each further write to it. Raises
    LaunchError if the report cannot be written. A file is then unchanged, or empty if it had to be written in
    place.
    """
    data = text.encode("utf-8", "backslashreplace") + b"\n"
    try:
        if file.directory is None:
            with open(file.descriptor, "wb", buffering=0):
                _write(file.descriptor, data, wait_s)
        else:
            _write_entry(file, file.directory, data, wait_s)
    except OSError as error:
        hint = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = "free some disk space, or choose a file on another disk"
        elif isinstance(error, NoReaderError):
            hint = f"start the reader first, for example: cat {shlex.quote(file.name)} > run.json &"
        message = f"the report could not be written to {file.name}: {error.strerror}"
        raise LaunchError(message, hint=hint) from error


def _write_entry(file: ReportFile, directory: OpenDirectory, data: bytes, wait_s: float) -> None:
    """Write to a name in a directory, which is closed; in a shared one only the file from before is used.

    A file is replaced atomically, or overwritten if it can only be written in place.
    """
    name = file.last
    if not os.fstat(directory.fd).st_nlink:  # it was deleted, and may be there again
        directory.close()
        directory, name = open_parent(file.path)
    try:
        old = read_entry(directory, name)
        if directory.shared and old and not is_same(file.before, old):
            old = None  # another user may have put it there
        if old is None or stat.S_ISREG(old.st_mode) or stat.S_ISLNK(old.st_mode):
            try:
                replace_file(directory, name, old, data)
                return
            except OSError as error:
                if error.errno not in _IRREPLACEABLE or not read_entry(directory, name):
                    raise
            wait_s = 0.0
        _overwrite(_open_with_reader(directory, name, old, wait_s), data, wait_s)
    finally:
        directory.close()


def _overwrite(file: int, data: bytes, wait_s: float) -> None:
    """Write to an open file, pipe or device in place, and close it; after an error a file is empty."""
    try:
        _truncate(file)
        _write(file, data, wait_s)
    except BaseException:
        _truncate(file)
        raise
    finally:
        os.close(file)


def _open_with_reader(directory: OpenDirectory, name: str, old: os.stat_result | None, wait_s: float) -> int:
    """Open an existing file; a named pipe is waited for until a process reads it."""
    give_up_at = time.monotonic() + wait_s
    while True:
        try:
            return open_existing(directory, name, old)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        if time.monotonic() >= give_up_at:
            why = f"no process has opened the pipe for reading in {wait_s:g} s"
            raise NoReaderError(errno.ETIMEDOUT, why)
        time.sleep(_POLL_S)


def _truncate(file: int) -> None:
    with suppress(OSError):  # pipes and devices cannot be truncated
        os.ftruncate(file, 0)


def _write(file: int, data: bytes, wait_s: float) -> None:
    """Write all of the data, with as many system calls as needed."""
    left = memoryview(data)
    poller = select.poll()
    poller.register(file, select.POLLOUT)
    while left:
        if not poller.poll(wait_s * 1000):  # an open file that is shared may be non-blocking
            raise TimeoutError(errno.ETIMEDOUT, f"its reader has read nothing for {wait_s:g} s")
        with suppress(BlockingIOError):
            left = left[os.write(file, left) :]
    if stat.S_ISREG(os.fstat(file).st_mode):
        os.fsync(file)
