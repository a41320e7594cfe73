"""Writing the report of a run: whole or not at all, and refused before anything starts where it cannot be.

A file is replaced by one that was written beside it. Pipes, devices and open files are written as they are.
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
"""How replacing fails for a mount point, as containers have them, and for a file in others' directory."""


class ReportFile(Record):
    """Where a report will go: a path, or the number of an open file, which is kept until then."""

    name: str
    target: str | int


def prepare_report(name: str, logs: str = "") -> ReportFile:
    """Find out how a report can be written to a file, before ranks start; "-" is standard output.

    `logs` is the directory for log files, which is made if the report is to be in it. Raises RequestError.
    """
    number = 1 if name == "-" else _find_descriptor(name)
    if number is not None:
        return ReportFile(name=name, target=_keep_open(name, number))
    try:
        mode = os.stat(name).st_mode
    except FileNotFoundError:
        mode = 0  # nothing is there yet
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise _refused(name, why, "name a file in a folder that can be written to") from error
    path = os.path.realpath(name)
    folder, last = os.path.split(path)
    in_logs = bool(logs) and folder == os.path.realpath(logs)
    if in_logs and not is_log(last):
        with suppress(OSError):  # what follows tells what is wrong
            os.makedirs(folder, exist_ok=True)
    beside, inside = (os.path.join(one, "run.json") for one in (logs, name))
    for wrong, why, hint in (
        (in_logs and is_log(last), "ranks have their log files there", f"name another file: {beside}"),
        (stat.S_ISDIR(mode), "it is a folder", f"name a file in it: {inside}"),
        (stat.S_ISSOCK(mode) or stat.S_ISBLK(mode), "it is neither a file nor a pipe", "name a file"),
        (mode and not os.access(path, os.W_OK), "no permission to write to it",
         "name another file, or make it writable"),
        (not mode and (not name or name.endswith("/")), "that is not a file", "name a file, as in run.json"),
        (not os.path.isdir(folder), f"there is no folder {folder}", f"make it with mkdir -p {folder}"),
        (not mode and not os.access(folder, os.W_OK | os.X_OK), f"no permission to write in {folder}",
         "name a file in another folder"),
    ):  # fmt: skip
        if wrong:
            raise _refused(name, why, hint)
    return ReportFile(name=name, target=path)


def _refused(name: str, why: str, hint: str) -> RequestError:
    return RequestError(f"the report cannot be written to {name or repr(name)}: {why}", hint=hint)


def _find_descriptor(name: str) -> int | None:
    """Return the number of the open file that a path such as /dev/stdout or /dev/fd/3 leads to, if one.

    It cannot be opened anew by its path: that would begin at the start of what ranks wrote there.
    """
    mine = {os.path.realpath(f"/proc/{which}/fd") for which in ("self", "thread-self")}
    with suppress(OSError, ValueError):  # it leads to something else
        for _ in range(40):  # as many links as the kernel follows
            folder, last = os.path.split(name)
            folder = os.path.realpath(folder)
            if folder in mine:
                return int(last) if last.isascii() and last.isdigit() and len(last) < 10 else None
            name = os.path.join(folder, os.readlink(os.path.join(folder, last)))
    return None


def _keep_open(name: str, number: int) -> int:
    """Keep an open file for this process alone, whatever becomes of the descriptor that names it."""
    try:
        if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise _refused(name, "it is open for reading only", "name a file, or redirect it: N>FILE")
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3)
    except OSError as error:
        raise _refused(name, f"{error.strerror}", "name a file, or redirect it: N>FILE") from error


def write_report(file: ReportFile, text: str) -> None:
    """Write a report and a line end, once; a file that exists keeps its mode, a new one has that of umask.

    Raises LaunchError when it cannot be written; the file is then what it was before, and one that had to be
    written in place is empty.
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
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        helps = "make room there, or name a file elsewhere" if full else ""
        raise LaunchError(message, hint=helps) from error


def _replace(path: str, data: bytes) -> None:
    """Put a new file in the place of a path, with the mode and, where allowed, the owner of what is there."""
    temporary = os.path.join(os.path.dirname(path), f".ompbind-{os.urandom(8).hex()}.tmp")
    try:
        _write(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), data)
        if os.path.exists(path):
            before = os.stat(path)
            with suppress(PermissionError):  # it belongs to somebody else; the report matters more
                os.chown(temporary, before.st_uid, before.st_gid)
            os.chmod(temporary, before.st_mode & 0o777)
        os.rename(temporary, path)
    except BaseException as error:
        with suppress(OSError):  # it was not made, or has been moved already
            os.unlink(temporary)
        if not (isinstance(error, OSError) and error.errno in _IRREPLACEABLE and os.path.exists(path)):
            raise
        _overwrite(path, data)


def _overwrite(path: str, data: bytes) -> None:
    """Write to what stays where it is; a file is empty when that fails."""
    try:
        _write(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | os.O_NOCTTY), data)
    except BaseException:
        with suppress(OSError):  # only files can be emptied
            os.truncate(path, 0)
        raise


def _write(handle: int, data: bytes) -> None:
    """Write all of the data, however much is taken at a time, and close the file."""
    left = memoryview(data)
    poller = select.poll()
    poller.register(handle, select.POLLOUT)
    try:
        while left:
            poller.poll()  # whoever shares an open file may not want to wait, but a report does
            with suppress(BlockingIOError):
                left = left[os.write(handle, left) :]
        if stat.S_ISREG(os.fstat(handle).st_mode):
            os.fsync(handle)
    finally:
        os.close(handle)
