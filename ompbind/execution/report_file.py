"""Writing the report of a run: whole or not at all, and refused before anything starts where it cannot be.

What is a file, or is to become one, is replaced by a file that was written beside it. Pipes, devices and
the standard files are written to as they are.
"""

import errno
import fcntl
import os
import select
import stat

from ompbind.errors import LaunchError, RequestError
from ompbind.execution.output.log_files import is_log
from ompbind.record import Record

_LINKS = 40
"""Symbolic links that are followed one after the other, as many as the kernel follows."""


_IRREPLACEABLE = (errno.EBUSY, errno.EPERM, errno.EACCES)
"""How renaming fails over a mount point, as containers have them, and over others' files in /tmp."""


class ReportFile(Record):
    """Where a report will go: a path, and how it is written.

    With `number` it is an open file, whose descriptor is kept until then. With `in_place` the file is
    written to and not replaced.
    """

    name: str
    path: str = ""
    number: int | None = None
    in_place: bool = False


def prepare_report(name: str) -> ReportFile:
    """Find out how a report can be written to a file, before ranks start; "-" is standard output.

    Symbolic links are followed to the file that they name. Raises RequestError where it cannot be written.
    """
    number = 1 if name == "-" else _find_descriptor(name)
    if number is not None:
        return ReportFile(name=name, number=_keep_open(name, number))
    found = _look_at(name)
    path = os.path.realpath(name)
    if found is None or stat.S_ISREG(found.st_mode):
        return ReportFile(name=name, path=path, in_place=_must_stay(name, path, found is not None))
    if stat.S_ISDIR(found.st_mode):
        raise _refused(name, "it is a folder", f"name a file in it: {os.path.join(name, 'run.json')}")
    if not (stat.S_ISFIFO(found.st_mode) or stat.S_ISCHR(found.st_mode)):
        raise _refused(name, "it is neither a file nor a pipe", "name a file")
    _check_access(name, path)
    return ReportFile(name=name, path=path, in_place=True)


def prepare_report_beside(name: str, folder: str) -> ReportFile:
    """Find out how a report can be written in a run that has a folder for log files, which is made for it.

    Raises RequestError where it cannot be written, and where it would be written over the log file of a rank.
    """
    path, logs = os.path.realpath(name), os.path.realpath(folder)
    if os.path.dirname(path) == logs:
        if is_log(os.path.basename(path)):
            better = os.path.join(folder, "run.json")
            raise _refused(name, "ranks have their log files there", f"name another file: {better}")
        try:
            os.makedirs(logs, exist_ok=True)
        except OSError:
            pass  # what follows tells what is wrong
    return prepare_report(name)


def _refused(name: str, why: str, hint: str) -> RequestError:
    return RequestError(f"the report cannot be written to {name or repr(name)}: {why}", hint=hint)


def _look_at(name: str) -> os.stat_result | None:
    """Return what a path leads to, None where nothing is yet but a file can be."""
    try:
        return os.stat(name)
    except FileNotFoundError:
        if name.endswith("/") or not name:
            raise _refused(name, "that is not a file", "name a file, as in run.json") from None
        return None
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise _refused(name, why, "name a file in a folder that can be written to") from error


def _check_access(name: str, path: str) -> None:
    if not os.access(path, os.W_OK):
        raise _refused(name, "no permission to write to it", "name another file, or make it writable")


def _must_stay(name: str, path: str, exists: bool) -> bool:
    """Tell whether a file can only be written to where it is, because its folder takes no other beside it."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise _refused(name, f"there is no folder {folder}", f"make it with mkdir -p {folder}")
    if exists:
        _check_access(name, path)
    elif not os.access(folder, os.W_OK | os.X_OK):
        raise _refused(name, f"no permission to write in {folder}", "name a file in another folder")
    return not os.access(folder, os.W_OK | os.X_OK)


def _find_descriptor(name: str) -> int | None:
    """Return the number of the open file that a path such as /dev/stdout or /dev/fd/3 leads to, if one.

    It cannot be opened anew by its path: that would begin at the start of what ranks wrote there.
    """
    mine = {os.path.realpath(f"/proc/{which}/fd") for which in ("self", "thread-self")}
    for _ in range(_LINKS):
        folder, last = os.path.split(name)
        folder = os.path.realpath(folder)
        if folder in mine:
            return int(last) if last.isascii() and last.isdigit() and len(last) < 10 else None
        try:
            name = os.path.join(folder, os.readlink(os.path.join(folder, last)))
        except (OSError, ValueError):
            return None
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
        if file.number is not None:
            _write_and_close(file.number, data)
        elif file.in_place:
            _write_in_place(file.path, data)
        else:
            _replace(file.path, data)
    except OSError as error:
        raise _failed(file, error) from error


def _failed(file: ReportFile, error: OSError) -> LaunchError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return LaunchError(
        f"the report could not be written to {file.name}: {error.strerror}",
        hint="make room there, or name a file elsewhere" if full else "",
    )


def _replace(path: str, data: bytes) -> None:
    """Put a new file in the place of a path; one that must not be replaced is written in place."""
    temporary, handle = _open_beside(path)
    try:
        _take_after(handle, path)
        _write_and_close(handle, data, synced=True)
        os.rename(temporary, path)
    except BaseException as error:
        _remove(temporary)
        if not (isinstance(error, OSError) and error.errno in _IRREPLACEABLE and os.path.exists(path)):
            raise
        _write_in_place(path, data)


def _open_beside(path: str) -> tuple[str, int]:
    """Make a file in the folder of a path, whose name nobody else has."""
    folder, tries = os.path.dirname(path), 0
    while True:
        temporary = os.path.join(folder, f".ompbind-{os.getpid()}-{tries}.tmp")
        try:
            return temporary, os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            tries += 1


def _take_after(handle: int, path: str) -> None:
    """Give a file the mode and the owner of the one that it will replace, as far as this is allowed."""
    try:
        before = os.stat(path)
    except FileNotFoundError:
        return
    try:
        os.fchown(handle, before.st_uid, before.st_gid)
    except PermissionError:
        pass  # the file belongs to somebody else; the report matters more
    os.fchmod(handle, stat.S_IMODE(before.st_mode) & 0o777)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # it has been moved or removed already


def _write_in_place(path: str, data: bytes) -> None:
    """Write to what is there; a file has nothing else in it then, and nothing at all when that fails."""
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY)
    regular = stat.S_ISREG(os.fstat(handle).st_mode)
    try:
        if regular:
            os.ftruncate(handle, 0)
        _write_and_close(handle, data, synced=regular)
    except BaseException:
        if regular:
            os.truncate(path, 0)
        raise


def _write_and_close(handle: int, data: bytes, *, synced: bool = False) -> None:
    """Write all of the data, however much is taken at a time."""
    try:
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(handle, left) :]
            except BlockingIOError:  # somebody who shares the open file does not want to wait; this one does
                poller = select.poll()
                poller.register(handle, select.POLLOUT)
                poller.poll()
        if synced:
            os.fsync(handle)
    finally:
        os.close(handle)
