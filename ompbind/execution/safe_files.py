"""Open and create output files, also in directories that other users may write to.

In a *shared* directory another user can put a file, a link or a pipe at any name, at any time. Therefore:

- A path is followed from directory to directory. The last directory stays open, so it cannot be exchanged.
- A link in a shared directory is followed only if it belongs to this user or to root.
- A file in a shared directory is used only if it belongs to this user or to root and has a single name.
- New files are created with O_EXCL and O_NOFOLLOW. The owner of a directory cannot widen their permissions.

`find_risk` and `is_same` decide, on results of stat. The other functions act on the decisions.
"""

import errno
import os
import stat
from collections.abc import Collection
from contextlib import suppress

from ompbind.record import Record

_PATH = getattr(os, "O_PATH", 0)  # other systems than Linux have no O_PATH
_DIRECTORY = _PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_EXISTING = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LINK_LIMIT = 40  # the kernel follows at most 40 links too
_ACLS = ("system.posix_acl_access", "system.posix_acl_default")


def find_risk(entry: os.stat_result, trusted: Collection[int]) -> str:
    """Return why an entry of a shared directory must not be used; "" if there is no risk."""
    if entry.st_uid not in trusted:
        it = "this symbolic link" if stat.S_ISLNK(entry.st_mode) else "it"
        return f"{it} belongs to user {entry.st_uid}, in a directory that others may write to"
    if entry.st_nlink > 1 and not stat.S_ISDIR(entry.st_mode):
        return "it has several names (hard links), in a directory that others may write to"
    return ""


def is_same(before: os.stat_result | None, now: os.stat_result) -> bool:
    """Return whether two results of stat are about one file that has not changed its owner or type."""
    return before is not None and _identify(before) == _identify(now)


def _identify(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_uid, stat.S_IFMT(status.st_mode)


class OpenDirectory(Record):
    """A directory that stays open: its descriptor, and its status when it was opened.

    In a `shared` directory other users can exchange entries. A `foreign` directory belongs to another user,
    who decides about the group and the access control list of new files.
    """

    fd: int
    shared: bool
    foreign: bool

    def close(self) -> None:
        """Close the directory."""
        os.close(self.fd)


def open_parent(path: str) -> tuple[OpenDirectory, str]:
    """Open the directory of a path through all links; return it and the last name, which is no link.

    Raises OSError if a directory is missing, or if a link of another user leads there.
    """
    return _follow(path, make=False)


def open_directory(path: str) -> OpenDirectory:
    """Open a directory through all links, and make it with its parents if it is missing; raises OSError."""
    return _follow(os.path.join(path, "."), make=True)[0]


def read_entry(directory: OpenDirectory, name: str) -> os.stat_result | None:
    """Return the status of an entry of a directory, of a link itself; None if there is no such entry."""
    try:
        return os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def find_entry_risk(directory: OpenDirectory, entry: os.stat_result | None) -> str:
    """Return why an entry of a directory must not be used; "" if there is no risk, or no entry."""
    return find_risk(entry, read_trusted_users()) if entry and directory.shared else ""


def find_link_risk(path: str) -> str:
    """Return why a symbolic link must not be followed; "" if there is no risk. Raises OSError."""
    trusted = read_trusted_users()
    status, directory = os.lstat(path), os.stat(os.path.dirname(path))
    is_link = stat.S_ISLNK(status.st_mode)
    return find_risk(status, trusted) if is_link and is_shared(directory, trusted) else ""


def create_file(directory: OpenDirectory, name: str, flags: int = 0) -> int:
    """Create a file for writing, with the mode of umask, and return its descriptor; raises OSError."""
    if not directory.foreign:
        return os.open(name, _NEW | flags, 0o666, dir_fd=directory.fd)
    file = os.open(name, _NEW | flags, 0o600, dir_fd=directory.fd)
    _set_permissions(file, 0o666)
    return file


def open_existing(
    directory: OpenDirectory, name: str, expected: os.stat_result | None, flags: int = 0
) -> int:
    """Open an existing file for writing without waiting, unchanged; return its descriptor.

    Raises OSError if it is not the file that is expected, or if other users may have put it there.
    """
    file = os.open(name, _EXISTING | flags, dir_fd=directory.fd)
    status = os.fstat(file)
    risk = find_entry_risk(directory, status)
    if risk or not is_same(expected, status):
        os.close(file)
        raise UnsafeFileError(errno.EPERM, risk or "another file was put there meanwhile")
    return file


def _follow(path: str, *, make: bool) -> tuple[OpenDirectory, str]:
    """Return the open directory of the last name of a path, and that name; `make` makes directories."""
    path = path if _PATH else os.path.realpath(path)
    names, links = path.split("/")[::-1], 0
    directory = _start(path)
    try:
        while len(names) > 1 or _is_link(directory, names[-1]):
            name = names.pop()
            if name in ("", "."):
                continue
            file = _open_step(directory, name, make=make)
            if not stat.S_ISLNK(os.fstat(file).st_mode):
                directory = _enter(file, directory)
                continue
            links += 1
            target = _read_link(directory, file, links)
            names += target.split("/")[::-1]
            if target.startswith("/"):
                directory = _enter(os.open("/", _DIRECTORY), directory)
    except BaseException:
        directory.close()
        raise
    return directory, names[-1]


def _start(path: str) -> OpenDirectory:
    return _describe(os.open("/" if path.startswith("/") else ".", _DIRECTORY))


def _describe(file: int) -> OpenDirectory:
    status, trusted = os.fstat(file), read_trusted_users()
    return OpenDirectory(fd=file, shared=is_shared(status, trusted), foreign=status.st_uid not in trusted)


def _is_link(directory: OpenDirectory, name: str) -> bool:
    entry = read_entry(directory, name) if name else None
    return entry is not None and stat.S_ISLNK(entry.st_mode)


def _open_step(directory: OpenDirectory, name: str, *, make: bool) -> int:
    """Open a directory or a link, without following it."""
    flags = _DIRECTORY & ~os.O_DIRECTORY
    try:
        return os.open(name, flags, dir_fd=directory.fd)
    except FileNotFoundError:
        if not make:
            raise
    try:
        _make_directory(directory, name)
    except FileExistsError:
        pass  # another process has just made it
    return os.open(name, flags, dir_fd=directory.fd)


def _make_directory(directory: OpenDirectory, name: str) -> None:
    os.mkdir(name, 0o700 if directory.foreign else 0o777, dir_fd=directory.fd)
    if directory.foreign:
        file = os.open(name, _DIRECTORY & ~_PATH, dir_fd=directory.fd)
        try:
            _set_permissions(file, 0o777)
        finally:
            os.close(file)


def _enter(file: int, directory: OpenDirectory) -> OpenDirectory:
    """Return a directory that was opened in another, which is closed."""
    if not stat.S_ISDIR(os.fstat(file).st_mode):
        os.close(file)
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    directory.close()
    return _describe(file)


def _read_link(directory: OpenDirectory, file: int, links: int) -> str:
    """Return the target of an open link, and close it; raises OSError for the link of another user."""
    try:
        risk = find_entry_risk(directory, os.fstat(file))
        if risk:
            raise UnsafeFileError(errno.EPERM, f"a symbolic link on its path is not safe: {risk}")
        if links > _LINK_LIMIT:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return os.readlink("", dir_fd=file)
    finally:
        os.close(file)


def _set_permissions(file: int, mode: int) -> None:
    """Give a new file of a foreign directory the group of this process and the mode of umask.

    The directory can impose its group (set-group-ID) and an access control list, which overrides umask.
    """
    for acl in _ACLS:
        try:
            os.removexattr(file, acl)
        except (OSError, AttributeError):
            pass  # there is none, or the file system has none
    os.fchown(file, -1, os.getegid())
    umask = os.umask(0o077)
    os.umask(umask)
    os.fchmod(file, mode & ~umask)


class UnsafeFileError(PermissionError):
    """A file or link must not be used, because another user may have put it there."""


def read_trusted_users() -> frozenset[int]:
    """Return the users whose files are used: this user, root, and the owner of the root directory.

    In a user namespace root can have another number, which is then the owner of the root directory.
    """
    return frozenset((os.geteuid(), 0, os.stat("/").st_uid))


def is_shared(directory: os.stat_result, trusted: Collection[int]) -> bool:
    """Return whether users who are not trusted can create files in a directory, or remove files."""
    return directory.st_uid not in trusted or bool(directory.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


class DirectoryEntry(Record):
    """A name in a directory, and the status of the old file there, None if no file there counts."""

    directory: OpenDirectory
    name: str
    old: os.stat_result | None


def replace_file(entry: DirectoryEntry, data: bytes, *, private: bool = False) -> None:
    """Replace a file, or create it; raises OSError, and the old file is unchanged then.

    The new file gets the mode of the old one and, if permitted, its owner. Without an old file it gets the
    mode of umask; a `private` file only the permissions of its owner.
    """
    temporary, directory = f".ompbind-{os.urandom(8).hex()}.tmp", entry.directory.fd
    try:
        with open(create_file(entry.directory, temporary), "wb") as file:
            _set_owner_and_mode(file.fileno(), entry.old, private=private)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, entry.name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(OSError):  # it was not created, or is renamed already
            os.unlink(temporary, dir_fd=directory)
        raise


def _set_owner_and_mode(file: int, old: os.stat_result | None, *, private: bool) -> None:
    if old and stat.S_ISREG(old.st_mode):
        with suppress(PermissionError):  # a file with another owner is better than no file
            os.fchown(file, old.st_uid, old.st_gid)
        os.fchmod(file, old.st_mode & 0o777)
    elif private:
        os.fchmod(file, os.fstat(file).st_mode & 0o700)
