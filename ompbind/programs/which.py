"""Find the file of a command, as `execvp` does."""

import os
from collections.abc import Mapping

from ompbind.programs.command_errors import explain_failure


def find_command(name: str, env: Mapping[str, str]) -> str:
    """Return the path of the file that a command `name` executes, by the PATH of `env`.

    Raises CommandNotFoundError if there is no file, CommandNotExecutableError if it cannot be executed.
    """
    path = find_file(name, env)
    if path is not None:
        return path
    raise explain_failure(name, _list_paths(name, env), lambda word: find_file(word, env) is not None)


def find_file(name: str, env: Mapping[str, str]) -> str | None:
    """Return the path of a command; None if it is missing, a pipe or a device (to read these may block)."""
    paths = _list_paths(name, env)
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def _list_paths(name: str, env: Mapping[str, str]) -> list[str]:
    """Return the files that a command may name, in order."""
    if "/" in name:
        return [name]
    directories = env.get("PATH", os.defpath).split(os.pathsep)
    return [os.path.join(directory or ".", name) for directory in directories]
