"""Find and read the configuration files that apply, and refuse files that other users can write.

A project file is in the working directory or above it, in the home of the user or in a repository. The search
stops at the first directory that other users own or may write to.

Each file is opened without waiting and without following a link, in a directory that stays open, and is
checked on its descriptor.
"""

import errno
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum

from ompbind.errors import ConfigurationError
from ompbind.execution.safe_files import is_shared, read_trusted_users
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


_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


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


_TOO_LONG = "it has more than 256 KiB"
_OPEN_DIRECTORY = "other users own its directory or may write to it ('chmod go-w DIRECTORY' if it is yours)"


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


def find_project_file(working: str, home: str, trusted: Collection[int]) -> str:
    """Return the path of the nearest project file; "" if there is none, or no working directory.

    Whether the file may be used is not checked.
    """
    for directory in _list_searched(working, home, trusted) if working else ():
        for name in PROJECT_NAMES:
            path = os.path.join(directory, name)
            if _has_table(path) if name == PYPROJECT else os.path.lexists(path):
                return path
    return ""


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


def _list_searched(working: str, home: str, trusted: Collection[int]) -> Iterator[str]:
    """Yield the directories to search, the working directory first.

    A directory that others own or may write to is the last: if it has a file, a warning names the file.
    """
    above: list[str] = []
    directory = working
    while directory not in above:  # the root directory is its own parent
        above.append(directory)
        try:
            if is_shared(os.stat(directory), trusted):
                break
        except OSError:
            break
        directory = os.path.dirname(directory)
    home = os.path.realpath(home) if home else ""
    if home and os.path.commonpath((home, working)) == home:
        yield from above[: above.index(home) + 1] if home in above else above
        return
    for at, directory in enumerate(above):
        if any(os.path.lexists(os.path.join(directory, name)) for name in _REPOSITORIES):
            yield from above[: at + 1]
            return


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
        raise ConfigurationError(f"{source}: {path}: {_explain(error)}", hint=hint) from error


def read_found_files(env: Mapping[str, str], system_file: str = SYSTEM_FILE) -> FoundFiles:
    """Read the system's file, the user's file and the nearest project file, as far as each exists."""
    trusted = read_trusted_users()
    try:
        working = os.getcwd()
    except OSError:
        working = ""  # it was removed
    project_file = find_project_file(working, find_home(env), trusted)
    found = (
        _read_found(FileKind.SYSTEM, system_file, trusted),
        _read_found(FileKind.USER, find_user_file(env), trusted),
        _read_found(FileKind.PROJECT, project_file, trusted),
    )
    read: dict[str, FileContent] = {}
    for file in found:
        if isinstance(file, FileContent):
            read.setdefault(os.path.realpath(file.path), file)  # the user's file may be above this directory
    ignored = {file.path: file for file in found if isinstance(file, IgnoredFile)}
    return FoundFiles(read=tuple(read.values()), ignored=tuple(ignored.values()))


def _read_found(kind: FileKind, path: str, trusted: Collection[int]) -> FileContent | IgnoredFile | None:
    """Read a file in a directory that only trusted users may write to; None if there is no file or path."""
    if not (path and os.path.lexists(path)):
        return None
    try:
        directory = os.open(os.path.dirname(path), _DIRECTORY)
        try:
            if is_shared(os.fstat(directory), trusted):
                raise PermissionError(errno.EPERM, _OPEN_DIRECTORY)
            data = _read_trusted(os.path.basename(path), trusted, directory)
        finally:
            os.close(directory)
    except OSError as error:
        return IgnoredFile(kind=kind, path=path, reason=_explain(error))
    return FileContent(kind=kind, path=path, data=data)


def _read_trusted(path: str, trusted: Collection[int], directory: int | None = None) -> bytes:
    """Return the bytes of a file; raises OSError if it cannot be read, or must not be used."""
    file = os.open(path, FILE, dir_fd=directory)
    try:
        risk = find_file_risk(os.fstat(file), trusted)
        if risk:
            raise PermissionError(errno.EPERM, risk)
        data = read_start(file)
    finally:
        os.close(file)
    if len(data) > SIZE_LIMIT:  # it has grown since it was opened
        raise OSError(errno.EFBIG, _TOO_LONG)
    return data


def find_file_risk(status: os.stat_result, trusted: Collection[int]) -> str:
    """Return why an open file must not be used as configuration; "" if it may be used."""
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if status.st_uid not in trusted:
        return f"it belongs to user {status.st_uid}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"other users may write to it (mode {stat.S_IMODE(status.st_mode):04o}, use 'chmod go-w FILE')"
    return _TOO_LONG if status.st_size > SIZE_LIMIT else ""


def _explain(error: OSError) -> str:
    """Return why a file could not be read, in words."""
    if error.errno == errno.ELOOP:
        return "it is a symbolic link"
    if error.errno == errno.ENXIO:
        return "it is not a regular file"
    return error.strerror or str(error)
