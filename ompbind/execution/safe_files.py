"""Open and create output files, also in directories that other users may write to.

In a *shared* directory another user can put a file, a link or a pipe at any name, at any time. Therefore:

- A path is followed from directory to directory. The last directory stays open, so it cannot be exchanged.
- A link in a shared directory is followed only if it belongs to this user or to root.
- A file in a shared directory is used only if it belongs to this user or to root and has a single name.
- New files are created with O_EXCL and O_NOFOLLOW. The owner of a directory cannot widen their permissions.

`replace_file` replaces a file atomically: readers see the old or the new content, also after a crash.
"""

import errno
import os
import stat
from collections.abc import Collection
from contextlib import suppress

from ompbind.record import Record

_PATH = getattr(os, "O_PATH", 0)  # other systems than Linux have no O_PATH
_STEP = _PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = _STEP | os.O_DIRECTORY
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_EXISTING = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LINK_LIMIT = 40  # the kernel follows at most 40 links too
_ACLS = ("system.posix_acl_access", "system.posix_acl_default")


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
    return (
        before is not None
        and (before.st_dev, before.st_ino, before.st_uid) == (now.st_dev, now.st_ino, now.st_uid)
        and stat.S_IFMT(before.st_mode) == stat.S_IFMT(now.st_mode)
    )


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


def open_parent(path: str, *, make: bool = False) -> tuple[OpenDirectory, str]:
    """Open the directory of a path through all links; return it and the last name, which is no link.

    With `make` missing directories are made. Raises OSError if a directory is missing, or if a link of
    another user leads there.
    """
    path = path if _PATH else os.path.realpath(path)
    names, links = path.split("/")[::-1], 0
    directory = _describe(os.open("/" if path.startswith("/") else ".", _DIRECTORY))
    try:
        while len(names) > 1 or ((entry := read_entry(directory, names[-1])) and stat.S_ISLNK(entry.st_mode)):
            name = names.pop()
            if name in ("", "."):
                continue
            if make and read_entry(directory, name) is None:
                _make_directory(directory, name)
            file = os.open(name, _STEP, dir_fd=directory.fd)
            mode = os.fstat(file).st_mode
            if stat.S_ISLNK(mode):
                links += 1
                target = _read_link(directory, file, links)
                names += target.split("/")[::-1]
                if not target.startswith("/"):
                    continue
                file = os.open("/", _DIRECTORY)
            elif not stat.S_ISDIR(mode):
                os.close(file)
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            directory.close()
            directory = _describe(file)
    except BaseException:
        directory.close()
        raise
    return directory, names[-1]


def open_directory(path: str) -> OpenDirectory:
    """Open a directory through all links, and make it with its parents if it is missing; raises OSError."""
    return open_parent(os.path.join(path, "."), make=True)[0]


def _describe(file: int) -> OpenDirectory:
    status, trusted = os.fstat(file), read_trusted_users()
    return OpenDirectory(fd=file, shared=is_shared(status, trusted), foreign=status.st_uid not in trusted)


def _make_directory(directory: OpenDirectory, name: str) -> None:
    try:
        os.mkdir(name, 0o700 if directory.foreign else 0o777, dir_fd=directory.fd)
    except FileExistsError:
        return  # another process has just made it
    if directory.foreign:
        file = os.open(name, _DIRECTORY & ~_PATH, dir_fd=directory.fd)
        try:
            _set_permissions(file, 0o777)
        finally:
            os.close(file)


def _read_link(directory: OpenDirectory, file: int, links: int) -> str:
    """Return the target of an open link, and close it; raises OSError for the link of another user."""
    try:
        if risk := find_entry_risk(directory, os.fstat(file)):
            raise UnsafeFileError(errno.EPERM, f"a symbolic link on its path is not safe: {risk}")
        if links > _LINK_LIMIT:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return os.readlink("", dir_fd=file)
    finally:
        os.close(file)


def read_entry(directory: OpenDirectory, name: str) -> os.stat_result | None:
    """Return the status of an entry of a directory, of a link itself; None if there is no such entry."""
    try:
        return os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def find_entry_risk(directory: OpenDirectory, entry: os.stat_result | None) -> str:
    """Return why an entry of a directory must not be used; "" if there is no risk, or no entry."""
    return find_risk(entry, read_trusted_users()) if entry and directory.shared else ""


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


def _set_permissions(file: int, mode: int) -> None:
    """Give a new file of a foreign directory the group of this process and the mode of umask.

    The directory can impose its group (set-group-ID) and an access control list, which overrides umask.
    """
    for acl in _ACLS:
        with suppress(OSError, AttributeError):  # there is none, or the file system has none
            os.removexattr(file, acl)
    os.fchown(file, -1, os.getegid())
    umask = os.umask(0o077)
    os.umask(umask)
    os.fchmod(file, mode & ~umask)


def replace_file(
    directory: OpenDirectory, name: str, old: os.stat_result | None, data: bytes, *, private: bool = False
) -> None:
    """Replace a file, or create it; raises OSError, and the old file is unchanged then.

    The new file gets the mode of the `old` one and, if permitted, its owner. Without an old file that counts
    it gets the mode of umask; a `private` file only the permissions of its owner.
    """
    temporary = f".ompbind-{os.urandom(8).hex()}.tmp"
    try:
        with open(create_file(directory, temporary), "wb") as file:
            if old and stat.S_ISREG(old.st_mode):
                with suppress(PermissionError):  # a file with another owner is better than no file
                    os.fchown(file.fileno(), old.st_uid, old.st_gid)
                os.fchmod(file.fileno(), old.st_mode & 0o777)
            elif private:
                os.fchmod(file.fileno(), os.fstat(file.fileno()).st_mode & 0o700)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, name, src_dir_fd=directory.fd, dst_dir_fd=directory.fd)
    except BaseException:
        with suppress(OSError):  # it was not created, or is renamed already
            os.unlink(temporary, dir_fd=directory.fd)
        raise
