"""Find and read the configuration files that apply, and refuse files that other users can write.

The user's file and the file of the working directory are read if they exist; --config names the only file.

Each file is opened without waiting and without following a link, and is checked on its descriptor: it must be
a regular file of this user or of root that other users cannot write to. A found file that cannot be used is
ignored with a warning; a named file is an error.
"""

import errno
import os
import shlex
import stat
from collections.abc import Mapping
from enum import StrEnum

from ompbind.errors import ConfigurationError
from ompbind.execution.safe_files import read_trusted_users, render_owner
from ompbind.planning.request import IgnoredFile
from ompbind.record import Record

FILE_NAME = "ompbind.toml"  # of the user's file and of project files
SIZE_LIMIT = 256 << 10  # bytes

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class FileKind(StrEnum):
    """Where a configuration file comes from, lowest precedence first; a named file is the only file."""

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


def read_named_file(path: str, source: str) -> FoundFiles:
    """Read the file that `source` (--config or its variable) names.

    Raises ConfigurationError if the file cannot be used.
    """
    try:
        return FoundFiles(read=(FileContent(kind=FileKind.NAMED, path=path, data=_read_trusted(path)),))
    except OSError as error:
        hint = f"{source} needs a regular file of at most 256 KiB that only you or root can write"
        raise ConfigurationError(f"{source}: {path}: {_explain(error, path)}", hint=hint) from error


def read_found_files(env: Mapping[str, str]) -> FoundFiles:
    """Read the user's file and the file of the working directory, as far as they exist."""
    try:
        working = os.getcwd()
    except OSError:  # it was removed
        working = ""
    read: dict[str, FileContent] = {}
    ignored: list[IgnoredFile] = []
    base, home = env.get("XDG_CONFIG_HOME", ""), env.get("HOME") or os.path.expanduser("~")
    if not os.path.isabs(base):
        base = os.path.join(home, ".config") if os.path.isabs(home) else ""
    user, project = base and os.path.join(base, "ompbind"), working
    for kind, directory in ((FileKind.USER, user), (FileKind.PROJECT, project)):
        path = directory and os.path.join(directory, FILE_NAME)
        if path and os.path.lexists(path):
            try:
                content = FileContent(kind=kind, path=path, data=_read_trusted(path))
                read.setdefault(os.path.realpath(path), content)  # this may be the user's file again
            except OSError as error:
                ignored.append(IgnoredFile(kind=kind, path=path, reason=_explain(error, path)))
    return FoundFiles(read=tuple(read.values()), ignored=tuple(ignored))


def _read_trusted(path: str) -> bytes:
    """Return the bytes of a file; raises OSError if it cannot be read, or must not be used."""
    file = os.open(path, _FLAGS)
    try:
        status, data = os.fstat(file), b""
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.ENXIO, "")
        if status.st_uid not in read_trusted_users():
            owner = render_owner(status.st_uid)
            raise PermissionError(errno.EPERM, f"it {owner} (copy it, and use --config COPY)")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            remedy = f"mode {stat.S_IMODE(status.st_mode):04o}, use chmod go-w {shlex.quote(path)}"
            raise PermissionError(errno.EPERM, f"other users may write to it ({remedy})")
        while len(data) <= SIZE_LIMIT and (piece := os.read(file, SIZE_LIMIT + 1 - len(data))):
            data += piece
        if len(data) > SIZE_LIMIT:
            raise OSError(errno.EFBIG, "it has more than 256 KiB")
        return data
    finally:
        os.close(file)


def _explain(error: OSError, path: str) -> str:
    if error.errno == errno.ELOOP:
        return f"it is a symbolic link (use --config {shlex.quote(os.path.realpath(path))})"
    if error.errno == errno.ENXIO:  # also for a pipe, which cannot be opened
        return "it is not a regular file"
    return error.strerror or str(error)
