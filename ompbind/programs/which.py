"""Finding the file of a command, as `execvp` does, with the reason when there is none to execute."""

import os
from collections.abc import Mapping

from ompbind.errors import CommandNotExecutableError, CommandNotFoundError


def find_command(name: str, env: Mapping[str, str]) -> str:
    """Return the path of the file that `name` stands for, by the PATH of `env`.

    Raises CommandNotFoundError when there is none, CommandNotExecutableError when it cannot be executed.
    """
    if "/" in name:
        return _checked(name)
    refused = ""
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder or ".", name)
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return path
            refused = refused or path
    if refused:
        raise _not_executable(refused)
    hint = (
        f"to run the file in this folder, write ./{name}"
        if os.path.exists(name)
        else "is it installed, and its folder in PATH?"
    )
    raise CommandNotFoundError(f"command not found: {name or repr(name)}", hint=hint)


def _checked(path: str) -> str:
    if not os.path.exists(path):
        raise CommandNotFoundError(f"command not found: {path}", hint="there is no such file")
    if os.path.isdir(path):
        raise CommandNotExecutableError(f"cannot execute {path}: it is a folder")
    if not os.path.isfile(path):
        raise CommandNotExecutableError(f"cannot execute {path}: it is no regular file")
    if not os.access(path, os.X_OK):
        raise _not_executable(path)
    return path


def _not_executable(path: str) -> CommandNotExecutableError:
    return CommandNotExecutableError(f"cannot execute {path}: permission denied", hint=f"chmod +x {path}")
