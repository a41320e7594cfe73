"""Find the file of a command, as `execvp` does, or explain why it cannot be executed.

Hints are for words that work in a shell, and not as a command: `cd /tmp`, `PORT=8000 app`, `'app arg'`.
"""

from __future__ import annotations

import os

from ompbind.errors import CommandNotExecutableError, CommandNotFoundError, OmpbindError

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def find_command(name: str, env: Mapping[str, str]) -> str:
    """Return the path of the file that a command `name` executes, by the PATH of `env`.

    Raises CommandNotFoundError if there is no file, CommandNotExecutableError if it cannot be executed.
    """
    if "/" in name:
        return _checked(name, env)
    refused = ""
    for directory in env.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(directory or ".", name)
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return path
            refused = refused or path
    if refused:
        raise _not_executable(refused)
    raise _not_found(name, env, "install it, or add its directory to PATH")


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


def find_script_error(path: str) -> CommandNotFoundError | None:
    """Return why the first line (#!) of a script does not work; None for a correct line and other files."""
    line = _read_first_line(path)
    if not line.startswith("#!"):
        return None
    # Linux splits the line at spaces and tabs; a carriage return is a part of the name
    name = line[2:].replace("\t", " ").strip(" ").partition(" ")[0]
    if line.endswith("\r"):
        problem = "its first line (#!) ends with a carriage return"
        hint = f"it has Windows line ends; remove them: sed -i 's/\\r$//' {path}"
    elif not os.path.exists(name):
        problem, hint = f"its interpreter {name!r} does not exist", "correct its first line (#!)"
    else:
        return None
    return CommandNotFoundError(f"cannot execute {path}: {problem}", hint=hint)


def _read_first_line(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.readline(256).removesuffix(b"\n"))  # Linux reads as many bytes
    except OSError:
        return ""


_SHELL_COMMANDS = (".", "alias", "eval", "exec", "export", "source", "trap", "ulimit", "umask", "unset")
"""Commands of shells that are no files."""

_OPTION_HINT = "write options of ompbind before --, and the command after it"
_ENTRY_POINT_HINT = (
    "; if -- belongs to the entry point of this container, set variables such as OMPBIND_RANKS, or use"
    " --entrypoint ompbind"
)


def _not_found(name: str, env: Mapping[str, str], hint: str) -> CommandNotFoundError:
    return CommandNotFoundError(
        f"command not found: {name or repr(name)}", hint=_find_hint(name, env) or hint
    )


def _find_hint(name: str, env: Mapping[str, str]) -> str:
    """Return what to write in place of a word that is no command; "" if it looks like one."""
    import shlex  # late: most commands exist

    variable, equals, _ = name.partition("=")
    first = name.split(" ")[0]
    if "/" not in name and os.path.exists(name):
        return f"to run the file in this directory, write ./{name}"
    if equals and variable.isidentifier():
        return f"set a variable with an option: --env {shlex.quote(name)}"
    if name.startswith("-") and name.strip("-"):
        is_entry_point = 1 in (os.getpid(), os.getppid())  # of `exec`, of `run`
        return _OPTION_HINT + (_ENTRY_POINT_HINT if is_entry_point else "")
    if first != name and find_file(first, env):
        return f"write the command without quotes around all of it: -- {name}"
    if first == "cd":
        return "cd is a command of shells; use --chdir DIR"
    return f"{first} is a command of shells; use sh -c '{first} ...'" if first in _SHELL_COMMANDS else ""


def _checked(path: str, env: Mapping[str, str]) -> str:
    if not os.path.exists(path):
        raise _not_found(path, env, "there is no such file")
    if os.path.isdir(path):
        raise CommandNotExecutableError(f"cannot execute {path}: it is a directory")
    if not os.path.isfile(path):
        raise CommandNotExecutableError(f"cannot execute {path}: it is not a regular file")
    if not os.access(path, os.X_OK):
        raise _not_executable(path)
    return path


def _not_executable(path: str) -> CommandNotExecutableError:
    return CommandNotExecutableError(f"cannot execute {path}: permission denied", hint=f"chmod +x {path}")
