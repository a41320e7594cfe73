"""Where configuration files may be, and whether any file is there.

In most directories there is no such file. Then only this module is imported, and it only makes some `lstat`
calls.
"""

from __future__ import annotations

import os
from itertools import chain

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILE_NAME, PYPROJECT = "ompbind.toml", "pyproject.toml"
PROJECT_NAMES = (FILE_NAME, PYPROJECT)
"""The names of project files; the first name that a directory has is used."""

SYSTEM_FILE = "/etc/ompbind.toml"


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


def has_candidates(env: Mapping[str, str], system_file: str = SYSTEM_FILE) -> bool:
    """Return whether there is any file that may be a configuration file of this process."""
    working = read_working_directory()
    projects = (
        os.path.join(directory, name) for directory in list_directories(working) for name in PROJECT_NAMES
    )
    fixed = filter(None, (find_user_file(env), system_file))
    return any(map(os.path.lexists, chain(fixed, projects if working else ())))
