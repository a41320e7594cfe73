"""Where configuration files are: of the system, of the user, and of the project of the working directory.

A project file is in the working directory or above it, in the home of the user or in a repository. The
search stops at the first directory that other users own or may write to. It reads only a pyproject.toml,
which may have no options of ompbind.
"""

import os
import stat
from collections.abc import Collection, Iterator, Mapping

from ompbind.execution.safe_files import is_shared

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


def list_directories(directory: str) -> Iterator[str]:
    """Yield an absolute directory and its parents, the root directory last."""
    yield directory
    while (parent := os.path.dirname(directory)) != directory:
        directory = parent
        yield directory


def read_working_directory() -> str:
    """Return the working directory without symbolic links; "" if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


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
    above = []
    for directory in list_directories(working):
        above.append(directory)
        if _may_others_write(directory, trusted):
            break
    home = os.path.realpath(home) if home else ""
    if home and os.path.commonpath((home, working)) == home:
        yield from above[: above.index(home) + 1] if home in above else above
        return
    root = next((at for at, directory in enumerate(above) if _is_repository(directory)), -1)
    yield from above[: root + 1]


def _may_others_write(directory: str, trusted: Collection[int]) -> bool:
    try:
        return is_shared(os.stat(directory), trusted)
    except OSError:
        return True


def _is_repository(directory: str) -> bool:
    return any(os.path.lexists(os.path.join(directory, name)) for name in _REPOSITORIES)


def read_start(file: int) -> bytes:
    """Return the bytes of an open file, at most one more than SIZE_LIMIT."""
    data = b""
    while len(data) <= SIZE_LIMIT and (piece := os.read(file, SIZE_LIMIT + 1 - len(data))):
        data += piece
    return data
