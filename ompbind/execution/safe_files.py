"""Open and create output files, also in directories that other users may write to.

In a *shared* directory another user can put a file, a link or a pipe at any name, at any time. Therefore:

- A path is followed from directory to directory. The last directory stays open, so it cannot be exchanged.
- A link in a shared directory is followed only if it belongs to this user or to root.
- A file in a shared directory is used only if it belongs to this user or to root and has a single name.
- New files are created with O_EXCL and O_NOFOLLOW. The owner of a directory cannot widen their permissions.
"""

import errno
import os
import stat
from collections.abc import Collection
from contextlib import suppress
from functools import cache

_PATH = getattr(os, "O_PATH", 0)  # other systems than Linux have no O_PATH
_DIRECTORY = _PATH | os.O_NOFOLLOW | os.O_DIRECTORY
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_EXISTING = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_ALL_USERS = 0xFFFFFFFF
_UNKNOWN_USER = 65534
"""The usual number of users whom a user namespace does not know."""


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
    return (
        before is not None
        and os.path.samestat(before, now)
        and before.st_uid == now.st_uid
        and stat.S_IFMT(before.st_mode) == stat.S_IFMT(now.st_mode)
    )


class OpenDirectory:
    """A directory that stays open: its descriptor, and what can be done safely with its entries.

    In a `shared` directory other users can exchange entries. A `foreign` directory belongs to another user,
    who decides about the group and the access control list of new files. All methods raise OSError.
    """

    def __init__(self, fd: int) -> None:
        """Take the descriptor of a directory."""
        status, trusted = os.fstat(fd), read_trusted_users()
        self.fd = fd
        self.shared = is_shared(status, trusted)
        self.foreign = status.st_uid not in trusted

    def close(self) -> None:
        """Close the directory."""
        os.close(self.fd)

    def has_descriptors(self) -> bool:
        """Return whether this is /proc/self/fd, whose entries are links to the open files of this process."""
        own = {os.path.realpath(f"/proc/{which}/fd") for which in ("self", "thread-self")}
        return os.path.realpath(f"/proc/self/fd/{self.fd}") in own

    def read_entry(self, name: str) -> os.stat_result | None:
        """Return the status of an entry, of a link itself; None if there is no such entry."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def find_risk(self, entry: os.stat_result | None) -> str:
        """Return why an entry must not be used; "" if there is no risk, or no entry."""
        return find_risk(entry, read_trusted_users()) if entry and self.shared else ""

    def read_link(self, name: str) -> str:
        """Return the target of a symbolic link that is safe to follow."""
        link = os.open(name, _PATH | os.O_NOFOLLOW, dir_fd=self.fd)
        try:
            if risk := self.find_risk(os.fstat(link)):
                raise PermissionError(errno.EPERM, f"a symbolic link on its path is not safe: {risk}")
            return os.readlink("", dir_fd=link)
        finally:
            os.close(link)

    def make_directory(self, name: str) -> None:
        """Make a directory with the mode of umask, unless another process has just made it."""
        with suppress(FileExistsError):
            os.mkdir(name, 0o700 if self.foreign else 0o777, dir_fd=self.fd)
            if self.foreign:
                file = os.open(name, os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=self.fd)
                try:
                    _set_permissions(file, 0o777)
                finally:
                    os.close(file)

    def create(self, name: str, flags: int = 0, mode: int = 0o666) -> int:
        """Create a file for writing, with a mode that umask limits, and return its descriptor."""
        file = os.open(name, _NEW | flags, 0o600 if self.foreign else mode, dir_fd=self.fd)
        if self.foreign:
            _set_permissions(file, mode)
        return file

    def open_existing(self, name: str, expected: os.stat_result | None, flags: int = 0) -> int:
        """Open a file for writing without waiting, unchanged, if it is the expected one and safe."""
        file = os.open(name, _EXISTING | flags, dir_fd=self.fd)
        status = os.fstat(file)
        risk = self.find_risk(status)
        if risk or not is_same(expected, status):
            os.close(file)
            raise PermissionError(errno.EPERM, risk or "another file was put there meanwhile")
        return file

    def replace(self, name: str, old: os.stat_result | None, data: bytes, mode: int = 0o666) -> None:
        """Replace or create a file: readers see the old or the new content, also after an error or crash.

        The new file gets the mode of the `old` one and, if permitted, its owner. Without an old file that
        counts it gets `mode`, which umask limits.
        """
        temporary = f".ompbind-{os.urandom(8).hex()}.tmp"
        try:
            with open(self.create(temporary, mode=mode), "wb") as file:
                if old and stat.S_ISREG(old.st_mode):
                    # A file with another owner is better than no file; a namespace may not know the owner.
                    with suppress(OSError):
                        os.fchown(file.fileno(), old.st_uid, old.st_gid)
                    os.fchmod(file.fileno(), old.st_mode & 0o777)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except BaseException:
            with suppress(OSError):  # it was not created, or is renamed already
                os.unlink(temporary, dir_fd=self.fd)
            raise


def _set_permissions(file: int, mode: int) -> None:
    """Give a new file of a foreign directory the group of this process and the mode of umask.

    The directory can impose its group (set-group-ID) and an access control list, which overrides umask.
    """
    for acl in ("system.posix_acl_access", "system.posix_acl_default"):
        with suppress(OSError, AttributeError):  # there is none, or the file system has none
            os.removexattr(file, acl)
    os.fchown(file, -1, os.getegid())
    umask = os.umask(0o077)
    os.umask(umask)
    os.fchmod(file, mode & ~umask)


def open_parent(path: str, *, make: bool = False) -> tuple[OpenDirectory, str]:
    """Open the directory of a path through all links; return it and the last name, which is no link.

    Only links of /proc/self/fd are not followed there: they are open files. With `make` missing directories
    are made. Raises OSError if a directory is missing, or if a link of another user leads there.
    """
    path = path if _PATH else os.path.realpath(path)
    names, links = path.split("/")[::-1], 0
    directory = OpenDirectory(os.open("/" if path.startswith("/") else ".", _DIRECTORY))
    try:
        while True:
            name = names.pop() or "."
            entry = directory.read_entry(name)
            if entry and stat.S_ISLNK(entry.st_mode) and (names or not directory.has_descriptors()):
                links += 1
                if links > 40:  # the kernel follows at most 40 links too
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                target = directory.read_link(name)
                names += target.split("/")[::-1]
                if not target.startswith("/"):
                    continue
                file = os.open("/", _DIRECTORY)
            elif names:
                if make and entry is None:
                    directory.make_directory(name)
                file = os.open(name, _DIRECTORY, dir_fd=directory.fd)
            else:
                return directory, name
            directory.close()
            directory = OpenDirectory(file)
    except BaseException:
        directory.close()
        raise
