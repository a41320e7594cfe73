"""Find the file of a command, as `execvp` does, or explain why it cannot be executed."""

import os
from collections.abc import Mapping, Sequence

from ompbind.errors import CommandNotExecutableError, CommandNotFoundError, OmpbindError


def find_command(name: str, env: Mapping[str, str]) -> str:
    """Return the path of the file that a command `name` executes, by the PATH of `env`.

    Raises CommandNotFoundError if there is no file, CommandNotExecutableError if it cannot be executed.
    """
    if "/" in name:
        return _checked(name)
    refused = ""
    for directory in env.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(directory or ".", name)
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return path
            refused = refused or path
    if refused:
        raise _not_executable(refused)
    hint = (
        f"to run the file in this directory, write ./{name}"
        if os.path.exists(name)
        else "install it, or add its directory to PATH"
    )
    raise CommandNotFoundError(f"command not found: {name or repr(name)}", hint=hint)


def find_file(name: str, env: Mapping[str, str]) -> str | None:
    """Return the path of a command; None if it is missing, a pipe or a device (to read these may block)."""
    try:
        path = find_command(name, env)
    except OmpbindError:
        return None
    return path if os.path.isfile(path) else None


def find_command_word(words: Sequence[str], env: Mapping[str, str], first: int = 0) -> int:
    """Return the position of the word that is a command, from `first` on; the number of words if none is.

    An option or a NAME=VALUE is no command, nor is a word that names no executable file.
    """
    found = (
        position
        for position in range(first, len(words))
        if words[position][:1] != "-" and "=" not in words[position] and find_file(words[position], env)
    )
    return next(found, len(words))


def _checked(path: str) -> str:
    if not os.path.exists(path):
        raise CommandNotFoundError(f"command not found: {path}", hint="there is no such file")
    if os.path.isdir(path):
        raise CommandNotExecutableError(f"cannot execute {path}: it is a directory")
    if not os.path.isfile(path):
        raise CommandNotExecutableError(f"cannot execute {path}: it is not a regular file")
    if not os.access(path, os.X_OK):
        raise _not_executable(path)
    return path


def _not_executable(path: str) -> CommandNotExecutableError:
    return CommandNotExecutableError(f"cannot execute {path}: permission denied", hint=f"chmod +x {path}")
