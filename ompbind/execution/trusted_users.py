"""The users whose files are used, and the directories in which other users can put files."""

import os
import stat
from collections.abc import Collection


def read_trusted_users() -> frozenset[int]:
    """Return the users whose files are used: this user, root, and the owner of the root directory.

    In a user namespace root can have another number, which is then the owner of the root directory.
    """
    return frozenset((os.geteuid(), 0, os.stat("/").st_uid))


def is_shared(directory: os.stat_result, trusted: Collection[int]) -> bool:
    """Return whether users who are not trusted can create files in a directory, or remove files."""
    return directory.st_uid not in trusted or bool(directory.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
