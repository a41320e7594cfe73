"""Find the file of a command, as `execvp` does."""

import os
import shlex
from collections.abc import Mapping

from ompbind.errors import CommandNotExecutableError, CommandNotFoundError


def find_file(name: str, env: Mapping[str, str]) -> str | None:
    """Return the path of a command; None if it is missing, a pipe or a device (to read these may block)."""
    paths = _list_paths(name, env)
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def _list_paths(name: str, env: Mapping[str, str]) -> list[str]:
    if "/" in name:
        return [name]
    directories = env.get("PATH", os.defpath).split(os.pathsep)
    return [os.path.join(directory or ".", name) for directory in directories]


# Hints are for words that work in a shell, and not as a command: `cd /tmp`, `PORT=8000 app`, `'app arg'`.

_SHELL_COMMANDS = (".", "alias", "eval", "exec", "export", "source", "trap", "ulimit", "umask", "unset")
"""Commands of shells that are no files."""

_SHELL_CHARACTERS = "$`;|&<>()*?\n"
"""Characters that have a meaning in shells; a command with them is for a shell."""


def find_command(name: str, env: Mapping[str, str]) -> str:
    """Return the path of the file that a command `name` executes, by the PATH of `env`.

    Raises CommandNotFoundError if there is no file, CommandNotExecutableError if it cannot be executed.
    """
    found = find_file(name, env)
    if found is not None:
        return found
    exists = os.path.exists if "/" in name else os.path.isfile  # PATH may have directories of this name
    refused = next(filter(exists, _list_paths(name, env)), None)
    if refused is None:
        hint = "there is no such file" if "/" in name else "install it, or add its directory to PATH"
        raise CommandNotFoundError(
            f"command not found: {name or repr(name)}", hint=_find_hint(name, env) or hint
        )
    why, hint = "permission denied", f"chmod +x {shlex.quote(refused)}"
    if not os.path.isfile(refused):
        why, hint = f"it is {'a directory' if os.path.isdir(refused) else 'not a regular file'}", ""
    raise CommandNotExecutableError(f"cannot execute {refused}: {why}", hint=hint)


def _find_hint(name: str, env: Mapping[str, str]) -> str:
    """Return what to write in place of a word that is no command; "" if it looks like one."""
    variable, equals, _ = name.partition("=")
    first, _, rest = name.partition(" ")
    if "/" not in name and os.path.exists(name):
        return f"to run the file in this directory, write {shlex.quote(f'./{name}')}"
    if name.startswith("-") and name.strip("-"):
        hint = "write options of ompbind before --, and the command after it"
        if 1 in (os.getpid(), os.getppid()):  # the entry point of a container: of `exec`, of `run`
            hint += "; if -- belongs to the entry point of this container, set variables such as"
            hint += " OMPBIND_RANKS, or use --entrypoint ompbind"
        return hint
    is_assignment = bool(equals) and variable.isidentifier()
    if any(character in name for character in _SHELL_CHARACTERS) and not (is_assignment and first == name):
        command = "'...'" if "\n" in name else shlex.quote(name)
        return f"a command with shell syntax needs a shell: -- sh -c {command}"
    if is_assignment and rest and find_file(rest.split(" ")[0], env):
        return f"write a variable as an option, and the command without quotes: --env {first} -- {rest}"
    if is_assignment:
        return f"set a variable with an option: --env {shlex.quote(name)}"
    if first != name and find_file(first, env):
        unquoted = f"write the command without quotes around all of it: -- {name}"
        return f"{unquoted}, or -- sh -c {shlex.quote(name)}"
    if first == "cd":
        return "cd is a command of shells; use --chdir DIR"
    return f"{first} is a command of shells; use sh -c '{first} ...'" if first in _SHELL_COMMANDS else ""


def find_script_error(path: str) -> CommandNotFoundError | None:
    """Return why the first line (#!) of a script does not work; None for a correct line and other files."""
    try:
        with open(path, "rb") as file:
            line = os.fsdecode(file.readline(256).removesuffix(b"\n"))  # Linux reads as many bytes
    except OSError:
        return None
    if not line.startswith("#!"):
        return None
    # Linux splits the line at spaces and tabs; a carriage return is a part of the name
    name = line[2:].replace("\t", " ").strip(" ").partition(" ")[0]
    if line.endswith("\r"):
        problem = "its first line (#!) ends with a carriage return"
        hint = f"it has Windows line ends; remove them: sed -i 's/\\r$//' {shlex.quote(path)}"
    elif not os.path.exists(name):
        problem, hint = f"its interpreter {name!r} does not exist", "correct its first line (#!)"
    else:
        return None
    return CommandNotFoundError(f"cannot execute {path}: {problem}", hint=hint)
