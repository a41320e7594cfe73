"""Write the report of a run: atomically, and with most errors found before ranks start.

A file is replaced by a new one, written in the same directory. Pipes, devices and open files are written
directly. `safe_files` decides what is safe in a directory that other users may write to.
"""

import errno
import fcntl
import os
import select
import shlex
import signal
import stat
from contextlib import suppress

from ompbind.errors import REFUSED, LaunchError, RequestError
from ompbind.execution import safe_files
from ompbind.execution.output.log_files import is_log
from ompbind.execution.signals import block_signals
from ompbind.record import Record

READ_WAIT_S = 5.0  # for the reader of a pipe that is full

_TEMPORARY = r"\.ompbind-[0-9a-f]{16}\.tmp"  # the names of files that replace others
HEAD_BYTES = 100  # from the start of a file: they show of what kind it is
_TO_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_HINTS = {
    errno.EBADF: "choose a file, or redirect it: N>FILE",
    errno.EEXIST: "choose another file, or replace the file with --force",
    errno.EDQUOT: "free some disk space, or choose a file on another disk",
    errno.ENOENT: "choose a file in a directory that exists; mkdir -p {directory} creates one",
    errno.ENOSPC: "free some disk space, or choose a file on another disk",
    errno.ENXIO: "start the reader first, for example: cat {path} > run.json &",
    errno.EPERM: "choose a file in a directory that only you can write to",
}


class ReportFile(Record):
    """The target of a report, until it is written: an open file, or a name in an open directory.

    `descriptor` is the open file, -1 for a name. `path` is the path of the name before the start, and
    `before` the status of the file there, None if there was none.
    """

    name: str
    descriptor: int = -1
    path: str = ""
    directory: safe_files.OpenDirectory | None = None
    before: os.stat_result | None = None


def prepare_report(name: str, logs: str = "", mark: bytes = b"") -> ReportFile:
    """Check before ranks start that a report can be written to a file; "-" is standard output.

    `logs` is the directory for log files, which is created if the report is in it. A file is
    only replaced if its beginning has the `mark` of such reports, or if it is empty and not executable.
    Raises RequestError if the report cannot be written.
    """
    path = name
    try:
        path = "/dev/stdout" if name == "-" else name
        path = os.path.join(safe_files.resolve(path), "") if path.endswith("/") else safe_files.resolve(path)
        descriptor = safe_files.find_descriptor(path)
        if descriptor is not None:
            if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
                raise OSError(errno.EBADF, "it is open for reading only")
            # If its path were opened again, the report would overwrite the output of ranks from the start.
            return ReportFile(name=name, descriptor=fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3))
        parent, last = os.path.split(path)
        if logs and parent == safe_files.resolve(logs):
            if is_log(last):
                raise OSError(errno.EBUSY, "a rank writes its output there")
            os.makedirs(parent, exist_ok=True)
        directory = safe_files.OpenDirectory(parent)
        before = _check_entry(directory, parent, last or ".")
        is_file = before is not None and stat.S_ISREG(before.st_mode)
        if before and is_file and mark and (before.st_size or before.st_mode & 0o111):
            with open(os.open(last, _TO_READ, dir_fd=directory.fd), "rb") as file:
                if mark not in file.read(HEAD_BYTES):
                    raise FileExistsError(errno.EEXIST, "the file exists, and is not an earlier report")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        message = f"the report cannot be written to {name or repr(name)}: {why}"
        hint = _find_hint(error, path) or "choose a file that you can write to, such as run.json"
        raise RequestError(message, hint=hint) from error
    return ReportFile(name=name, path=path, directory=directory, before=before)


def _check_entry(directory: safe_files.OpenDirectory, parent: str, name: str) -> os.stat_result | None:
    """Return the status of a file, None if there is none; raises OSError if it cannot take a report."""
    before = directory.read_entry(name)
    if risk := directory.find_risk(before):
        raise PermissionError(errno.EPERM, risk)
    if before and stat.S_IFMT(before.st_mode) not in (stat.S_IFREG, stat.S_IFIFO, stat.S_IFCHR):
        raise IsADirectoryError(errno.EISDIR, "it is a directory, socket or block device")
    if before and stat.S_ISCHR(before.st_mode):  # /dev/tty exists without a terminal
        try:
            os.close(directory.open_existing(name, before))
        except OSError as error:
            raise OSError(errno.ENODEV, f"this device cannot be opened ({error.strerror})") from None
    if not os.access(os.path.join(parent, name if before else ""), os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return before


def _find_hint(error: Exception, path: str) -> str:
    hint = _HINTS.get(getattr(error, "errno", None) or 0, "")
    return hint.format(path=shlex.quote(path), directory=shlex.quote(os.path.dirname(path)))


def write_report(file: ReportFile, text: str) -> None:
    """Write a report and a newline, once; an existing file keeps its mode, a new file gets that of umask.

    Signals are blocked, so that the report is whole. Raises LaunchError if the report cannot be written, also
    to a pipe without a reader, or whose reader does not read for READ_WAIT_S. A file is then unchanged, or
    empty if it had to be written in place.
    """
    data = text.encode("utf-8", "backslashreplace") + b"\n"
    before, target = block_signals(), file.descriptor
    try:
        if file.directory is not None:
            target = _replace_or_open(file, file.directory, data)
        if target >= 0:
            with open(target, "wb", buffering=0):
                _write(target, data, in_place=file.directory is not None)
    except OSError as error:
        message = f"the report could not be written to {file.name}: {error.strerror}"
        raise LaunchError(message, hint=_find_hint(error, file.path)) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _replace_or_open(file: ReportFile, directory: safe_files.OpenDirectory, data: bytes) -> int:
    """Replace a file atomically, and return -1; if it can only be written in place, open and return it.

    The directory is closed. In a shared one only the file from before the start is used.
    """
    name = os.path.basename(file.path)
    if not os.fstat(directory.fd).st_nlink:  # it was deleted, and may be there again
        directory.close()
        directory, name = safe_files.open_parent(file.path)
    try:
        old = directory.read_entry(name)
        if old is None or (directory.shared and not safe_files.is_same(file.before, old)):
            _replace(directory, name, None, data)  # another user may have put it there
            return -1
        if stat.S_ISREG(old.st_mode) or stat.S_ISLNK(old.st_mode):
            try:
                _replace(directory, name, old, data)
                return -1
            except OSError as error:  # a mount point, as in containers, or in a directory of another user
                if error.errno not in (errno.EBUSY, errno.EPERM, errno.EACCES, errno.EROFS):
                    raise
        return directory.open_existing(name, old)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "no process has opened this pipe for reading") from None
        raise
    finally:
        directory.close()


def _replace(directory: safe_files.OpenDirectory, name: str, old: os.stat_result | None, data: bytes) -> None:
    """Replace or create a file: readers see the old or the new content, also after an error or crash.

    The new file gets the mode of the `old` one and, if permitted, its owner; without an old file that counts,
    the mode of umask.
    """
    directory.remove_abandoned(_TEMPORARY)
    temporary = f".ompbind-{os.urandom(8).hex()}.tmp"
    try:
        with open(directory.create(temporary), "wb") as file:
            if not safe_files.is_kept(file.fileno()):
                return _replace(directory, name, old, data)
            if old and stat.S_ISREG(old.st_mode):
                # A file with another owner is better than no file; a namespace may not know the owner.
                with suppress(OSError):
                    os.fchown(file.fileno(), old.st_uid, old.st_gid)
                os.fchmod(file.fileno(), old.st_mode & 0o777)
            file.write(data)
            file.flush()
            _write_to_disk(file.fileno())
        os.rename(temporary, name, src_dir_fd=directory.fd, dst_dir_fd=directory.fd)
    finally:
        with suppress(OSError):  # it is renamed, or was not created
            os.unlink(temporary, dir_fd=directory.fd)


def _write_to_disk(file: int) -> None:
    """Have the kernel write a file to the disk now; without an error where a filter refuses that."""
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in (*REFUSED, errno.EINVAL):
            raise


def _write(file: int, data: bytes, *, in_place: bool) -> None:
    """Write all of the data; a file `in_place` is emptied before, and after an error."""
    left = memoryview(data)
    poller = select.poll()
    poller.register(file, select.POLLOUT)
    is_file = stat.S_ISREG(os.fstat(file).st_mode)
    try:
        if in_place and is_file:
            os.ftruncate(file, 0)
        while left:
            if not poller.poll(READ_WAIT_S * 1000):
                raise OSError(errno.ETIMEDOUT, f"its reader has read nothing for {READ_WAIT_S:g} s")
            with suppress(BlockingIOError):  # an open file that is shared may be non-blocking
                left = left[os.write(file, left[: select.PIPE_BUF]) :]  # which does not block
    except BaseException:
        if in_place and is_file:
            os.ftruncate(file, 0)
        raise
    if is_file:
        _write_to_disk(file)
