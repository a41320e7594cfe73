"""Find and read the configuration files that apply, and refuse files that other users can write.

A project file is in the working directory or above it, in the home of the user or in a repository. A file in
another working directory is ignored with a warning, as is a file in or above a directory that other users own
or may write to.

Each file is opened without waiting and without following a link, in a directory that stays open, and is
checked on its descriptor. Links of other users on the way to this directory are not followed.
"""

import errno
import os
import shlex
import stat
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

from ompbind.errors import ConfigurationError
from ompbind.execution.safe_files import is_shared, open_parent, read_trusted_users, render_owner
from ompbind.planning.configuration import IgnoredFile
from ompbind.record import Record

FILE_NAME, PYPROJECT = "ompbind.toml", "pyproject.toml"
PROJECT_NAMES = (FILE_NAME, PYPROJECT)
"""The names of project files; the first name that a directory has is used."""

SYSTEM_FILE = "/etc/ompbind.toml"

SIZE_LIMIT = 256 << 10
"""The largest configuration file that is read, in bytes."""

TOOL_TABLE = b"[tool.ompbind"
"""Bytes of a pyproject.toml with options of ompbind; without them it is not parsed."""

FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""How a configuration file is opened: without waiting, and without following a link."""

_REPOSITORIES = (".git", ".hg", ".jj")


class FileKind(StrEnum):
    """Where a configuration file comes from, lowest precedence first; a named file is the only file."""

    SYSTEM = "system"
    USER = "user"
    PROJECT = "project"
    NAMED = "named"


class FileContent(Record):
    """The bytes of a configuration file."""

    kind: FileKind
    path: str
    data: bytes


class FoundFiles(Record):
    """The configuration files that were read, lowest precedence first, and the ignored files."""

    read: tuple[FileContent, ...] = ()
    ignored: tuple[IgnoredFile, ...] = ()


NO_FILES = FoundFiles()


_NOT_REGULAR = "it is not a regular file"
_TOO_LONG = "it has more than 256 KiB"


def find_user_file(env: Mapping[str, str]) -> str:
    """Return the path of the user's file, even if there is no such file; "" if there is no home."""
    base = env.get("XDG_CONFIG_HOME", "")
    home = find_home(env)
    base = base if os.path.isabs(base) else home and os.path.join(home, ".config")
    return base and os.path.join(base, "ompbind", FILE_NAME)


def find_home(env: Mapping[str, str]) -> str:
    """Return the home of the user, "" if it is unknown."""
    home = env.get("HOME") or os.path.expanduser("~")
    return home if os.path.isabs(home) else ""


def find_project_file(
    working: str, home: str, trusted: Collection[int], *, everywhere: bool = False
) -> tuple[str, str]:
    """Return the path of the nearest project file, and why its place excludes it, "" if it does not.

    Both are "" without a file or a working directory. The file and its own directory are not checked. Outside
    of the home and of repositories, only with `everywhere` directories above the working directory count.
    """
    above = _list_above(working) if working else []
    searched = _find_searched(above, home)
    for at, directory in enumerate(searched or above[: None if everywhere else 1]):
        for name in PROJECT_NAMES:
            path = os.path.join(directory, name)
            if not (_has_table(path) if name == PYPROJECT else os.path.lexists(path)):
                continue
            if not searched:
                remedy = f"use --config {shlex.quote(path) if at else name}"
                return path, f"it is neither in your home directory nor in a repository ({remedy})"
            try:
                risks = [_explain_shared(below, os.stat(below), path, trusted) for below in above[:at]]
            except OSError:
                return "", ""
            return path, next(filter(None, risks), "")
    return "", ""


def _has_table(path: str) -> bool:
    """Return whether a file is a pyproject.toml with options of ompbind, whether it may be used or not."""
    try:
        file = os.open(path, FILE)
    except OSError:
        return False
    try:
        return stat.S_ISREG(os.fstat(file).st_mode) and TOOL_TABLE in read_start(file)
    finally:
        os.close(file)


def _list_above(working: str) -> list[str]:
    """Return the working directory and all directories above it."""
    above = [working]
    while (directory := os.path.dirname(above[-1])) != above[-1]:  # the root directory is its own parent
        above.append(directory)
    return above


def _find_searched(above: Sequence[str], home: str) -> Sequence[str]:
    """Return the directories in the home or in the repository; none outside of both."""
    real = os.path.realpath(home) if home else ""
    tops = [above.index(real)] if real in above else []
    for at, directory in enumerate(above):
        if not tops and any(os.path.lexists(os.path.join(directory, name)) for name in _REPOSITORIES):
            tops.append(at)
    return above[: tops[0] + 1] if tops else ()


def _explain_shared(directory: str, status: os.stat_result, path: str, trusted: Collection[int]) -> str:
    """Return why a directory in or below that of a file excludes the file, "" if it does not."""
    if not is_shared(status, trusted):
        return ""
    is_own = status.st_uid == os.geteuid() and not status.st_mode & stat.S_ISVTX  # /tmp must stay as it is
    remedy = f"use chmod go-w {shlex.quote(directory)}" if is_own else f"use --config {shlex.quote(path)}"
    return f"other users own {directory} or may write to it ({remedy})"


def read_start(file: int) -> bytes:
    """Return the bytes of an open file, at most one more than SIZE_LIMIT."""
    data = b""
    while len(data) <= SIZE_LIMIT and (piece := os.read(file, SIZE_LIMIT + 1 - len(data))):
        data += piece
    return data


def read_named_file(path: str, source: str) -> FoundFiles:
    """Read the file that `source` (--config or its variable) names.

    Raises ConfigurationError if the file cannot be used.
    """
    try:
        data = _read_trusted(path, read_trusted_users())
        return FoundFiles(read=(FileContent(kind=FileKind.NAMED, path=path, data=data),))
    except OSError as error:
        hint = f"{source} needs a regular file of at most 256 KiB that only you or root can write"
        raise ConfigurationError(f"{source}: {path}: {_explain(error, path)}", hint=hint) from error


def read_found_files(env: Mapping[str, str], system_file: str = SYSTEM_FILE) -> FoundFiles:
    """Read the system's file, the user's file and the nearest project file, as far as each exists."""
    trusted = read_trusted_users()
    project_file, excluded = find_project_file(_read_working(), find_home(env), trusted)
    found = (
        _read_found(FileKind.SYSTEM, system_file, trusted),
        _read_found(FileKind.USER, find_user_file(env), trusted),
        _read_found(FileKind.PROJECT, project_file, trusted, excluded),
    )
    read: dict[str, FileContent] = {}
    for file in found:
        if isinstance(file, FileContent):
            read.setdefault(os.path.realpath(file.path), file)  # the user's file may be above this directory
    ignored = {file.path: file for file in found if isinstance(file, IgnoredFile)}
    return FoundFiles(read=tuple(read.values()), ignored=tuple(ignored.values()))


def find_file_above(env: Mapping[str, str]) -> tuple[IgnoredFile, ...]:
    """Return the project file above the working directory that its place excludes, if there is one.

    It is for the hint of an error: `read_found_files` does not search there.
    """
    path, excluded = find_project_file(_read_working(), find_home(env), (), everywhere=True)
    return (IgnoredFile(kind=FileKind.PROJECT, path=path, reason=excluded),) if excluded else ()


def _read_working() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""  # it was removed


def _read_found(
    kind: FileKind, path: str, trusted: Collection[int], excluded: str = ""
) -> FileContent | IgnoredFile | None:
    """Read a file in a directory that only trusted users may write to; None if there is no file or path.

    `excluded` is why the place of the file excludes it, if it does.
    """
    if not (path and os.path.lexists(path)):
        return None
    directory, data = os.path.dirname(path), b""
    reasons = [excluded]
    try:
        opened, _ = open_parent(f"{directory}/.")  # a link of another user on the way is an error
        try:
            reasons.append(_explain_shared(directory, os.fstat(opened.fd), path, trusted))
            data = _read_trusted(path, trusted, opened.fd)
        finally:
            opened.close()
    except OSError as error:
        others = reasons if error.errno == errno.EACCES else []  # else another file is needed
        reasons = [_explain(error, path), *others]
    reason = "; ".join(filter(None, reasons))
    return (
        IgnoredFile(kind=kind, path=path, reason=reason)
        if reason
        else FileContent(kind=kind, path=path, data=data)
    )


def _read_trusted(path: str, trusted: Collection[int], directory: int | None = None) -> bytes:
    """Return the bytes of a file, which is in `directory` if that is given.

    Raises OSError if the file cannot be read, or must not be used; EACCES for wrong permissions.
    """
    file = os.open(path if directory is None else os.path.basename(path), FILE, dir_fd=directory)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.ENXIO, _NOT_REGULAR)
        if status.st_uid not in trusted:
            text = f"it {render_owner(status.st_uid)} (copy it, and use --config COPY)"
            raise PermissionError(errno.EPERM, text)
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            mode = f"mode {stat.S_IMODE(status.st_mode):04o}"
            text = f"other users may write to it ({mode}, use chmod go-w {shlex.quote(path)})"
            raise PermissionError(errno.EACCES, text)
        data = read_start(file)
    finally:
        os.close(file)
    if len(data) > SIZE_LIMIT:
        raise OSError(errno.EFBIG, _TOO_LONG)
    return data


def _explain(error: OSError, path: str) -> str:
    """Return why a file could not be read, in words."""
    if error.errno == errno.ELOOP:
        return f"it is a symbolic link (use --config {shlex.quote(os.path.realpath(path))})"
    if error.errno == errno.ENXIO:  # a pipe cannot be opened
        return _NOT_REGULAR
    return error.strerror or str(error)
