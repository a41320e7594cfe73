"""Open and create output files, also in directories that other users may write to.

In a *shared* directory another user can put a file, a link or a pipe at any name, at any time. Therefore:

- A link in a shared directory is followed only if it belongs to this user or to root.
- The directory stays open, so it cannot be exchanged.
- A file in a shared directory is used only if it belongs to this user or to root and has a single name.
- New files are created with O_EXCL and O_NOFOLLOW.
"""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Collection
from contextlib import suppress
from functools import cache

from ompbind.registry.claims import keep_locked, try_lock
from ompbind.text import whole_number

_DIRECTORY = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_DIRECTORY  # other systems have no O_PATH
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_EXISTING = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_ALL_USERS = 0xFFFFFFFF
_OWN = ("self", "thread-self")  # directories of /proc about this process
_UNKNOWN_USER = 65534  # the usual number of users whom a user namespace does not know


def read_trusted_users() -> frozenset[int]:
    """Return the users whose files are used: this user, root, and the owner of the root directory.

    In a user namespace root can have another number, which is then the owner of the root directory. The
    number of users that the namespace does not know is never trusted: it may be any user.
    """
    return frozenset((os.geteuid(), 0, os.stat("/").st_uid)) - {read_unknown_user()}


@cache
def read_unknown_user() -> int | None:
    """Return the number that the kernel shows for users whom this user namespace does not know.

    None in the namespace of the machine, which knows all users. Source: user_namespaces(7).
    """
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            if file.read().split() == ["0", "0", str(_ALL_USERS)]:
                return None
        with open("/proc/sys/kernel/overflowuid", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return _UNKNOWN_USER


def render_owner(uid: int) -> str:
    """Return "belongs to user 1000", or what is known of a user whom this namespace does not know."""
    is_known = uid != read_unknown_user()
    return f"belongs to {f'user {uid}' if is_known else f'a user whom this container does not know ({uid})'}"


def is_shared(directory: os.stat_result, trusted: Collection[int]) -> bool:
    """Return whether users who are not trusted can create files in a directory, or remove files."""
    return directory.st_uid not in trusted or bool(directory.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def find_risk(entry: os.stat_result, trusted: Collection[int]) -> str:
    """Return why an entry of a shared directory must not be used; "" if there is no risk."""
    if entry.st_uid not in trusted:
        it = "this symbolic link" if stat.S_ISLNK(entry.st_mode) else "it"
        return f"{it} {render_owner(entry.st_uid)}, in a directory that others may write to"
    if entry.st_nlink > 1 and not stat.S_ISDIR(entry.st_mode):
        return "it has several names (hard links), in a directory that others may write to"
    return ""


def is_same(before: os.stat_result | None, now: os.stat_result) -> bool:
    """Return whether two results of stat are about one file that has not changed its owner or type."""
    if before is None or not os.path.samestat(before, now):
        return False
    return (before.st_uid, stat.S_IFMT(before.st_mode)) == (now.st_uid, stat.S_IFMT(now.st_mode))


def is_kept(file: int) -> bool:
    """Lock a new file while it is open; False if `remove_abandoned` of another run came first.

    Without locks, no file of the file system counts as abandoned.
    """
    try:
        return keep_locked(file)
    except OSError:
        return True


class OpenDirectory:
    """A directory that stays open, and what can be done safely with its entries; methods raise OSError.

    `shared` is whether other users can exchange its entries.
    """

    def __init__(self, path: str) -> None:
        """Open a directory at a path without links."""
        self.fd = os.open(path, _DIRECTORY)
        with suppress(FileNotFoundError):  # without /proc
            if os.readlink(f"/proc/self/fd/{self.fd}") != path:
                os.close(self.fd)
                raise PermissionError(errno.EPERM, "a directory on its path was exchanged meanwhile")
        self.shared = is_shared(os.fstat(self.fd), read_trusted_users())

    def close(self) -> None:
        """Close the directory."""
        os.close(self.fd)

    def read_entry(self, name: str) -> os.stat_result | None:
        """Return the status of an entry, of a link itself; None if there is no such entry."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def find_risk(self, entry: os.stat_result | None) -> str:
        """Return why an entry must not be used; "" if there is no risk, or no entry."""
        return find_risk(entry, read_trusted_users()) if entry and self.shared else ""

    def create(self, name: str, flags: int = 0) -> int:
        """Create a file for writing, with the mode of umask, and return its descriptor."""
        return os.open(name, _NEW | flags, 0o666, dir_fd=self.fd)

    def open_existing(self, name: str, expected: os.stat_result | None, flags: int = 0) -> int:
        """Open a file for writing without waiting, unchanged, if it is the expected one and safe."""
        file = os.open(name, _EXISTING | flags, dir_fd=self.fd)
        risk = self.find_risk(os.fstat(file))
        if risk or not is_same(expected, os.fstat(file)):
            os.close(file)
            raise PermissionError(errno.EPERM, risk or "another file was put there meanwhile")
        return file

    def remove_abandoned(self, names_pattern: str) -> None:
        """Remove files of this user with such names that no process has locked.

        Their processes were killed: `is_kept` locks such a file as soon as it is made.
        """
        names: list[str] = []
        with suppress(OSError):  # this user may not list the directory
            listed = os.listdir(f"/proc/self/fd/{self.fd}")
            names = [name for name in listed if re.fullmatch(names_pattern, name)]
        for name in names:
            with suppress(OSError):  # removed meanwhile, or the file system has no locks
                entry = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
                if entry.st_uid == os.geteuid():
                    self._remove_unlocked(name, entry)

    def _remove_unlocked(self, name: str, entry: os.stat_result) -> None:
        file = self.open_existing(name, entry)
        try:
            if try_lock(file, fcntl.LOCK_EX):
                os.unlink(name, dir_fd=self.fd)
        finally:
            os.close(file)


def resolve(path: str) -> str:
    """Return an absolute path without links; the last name may be missing, and so may directories before it.

    Links to open files, in /proc/self/fd, stay. Raises OSError if a link of another user leads there.
    """
    if not path:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    names, links, trusted = path.split("/")[::-1], 0, read_trusted_users()
    real = "/" if path.startswith("/") else os.getcwd()
    while names:
        name = names.pop()
        entry_path = os.path.normpath(os.path.join(real, name))
        if find_descriptor(entry_path) is not None or not os.path.islink(entry_path):
            real = entry_path
            continue
        links += 1
        if links > 40:  # the kernel follows at most 40 links too
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        link = os.open(entry_path, getattr(os, "O_PATH", 0) | os.O_NOFOLLOW)
        try:
            if is_shared(os.stat(real), trusted) and (risk := find_risk(os.fstat(link), trusted)):
                raise PermissionError(errno.EPERM, f"a symbolic link on its path is not safe: {risk}")
            target = os.readlink("", dir_fd=link)
        finally:
            os.close(link)
        names += target.split("/")[::-1]
        real = "/" if target.startswith("/") else real
    return real


def open_parent(path: str) -> tuple[OpenDirectory, str]:
    """Open the directory of a path through all links; return it and the last name. Raises OSError."""
    directory, name = os.path.split(resolve(path))
    return OpenDirectory(directory), name or "."


def find_descriptor(path: str) -> int | None:
    """Return the number of the open file that a path of /proc/self/fd names; None for other paths."""
    directory, name = os.path.split(path)
    number = whole_number(name)
    if number is not None and directory in {os.path.realpath(f"/proc/{which}/fd") for which in _OWN}:
        return min(number, 0x7FFF_FFFF)  # the highest possible one is not open either
    return None
