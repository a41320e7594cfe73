"""Replace a file atomically: readers see the old content or the new content, also after a crash."""

import os
import stat
from contextlib import suppress

from ompbind.execution.safe_files import OpenDirectory, create_file
from ompbind.record import Record


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
