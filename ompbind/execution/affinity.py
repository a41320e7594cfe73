"""Turn this process into a rank: set its affinity mask, directory and signals, execute the command."""

import errno
import os
import shlex
import signal
from typing import NoReturn

from ompbind.cpuset import CpuSet, named
from ompbind.errors import CommandNotExecutableError, CommandNotFoundError, LaunchError
from ompbind.planning.rank_command import RankCommand
from ompbind.programs.find_command import find_command, find_script_error

IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores from its start; a command expects their default action."""

_TO_RETURN = getattr(os, "O_PATH", os.O_RDONLY)
"""How a directory is opened to return to it: on Linux without permission to list its files."""

_RETRY_HINT = "the allowed CPUs have changed since they were read: run the command again"
_REFUSED_HINT = "sched_setaffinity is refused here, as by a seccomp profile: allow it, or use --mask none"


def set_affinity(cpus: CpuSet, tid: int = 0) -> None:
    """Set the affinity mask of a thread (0: the caller) to `cpus` and read it back; raises LaunchError.

    Reading back is needed: if only some CPUs are allowed, the kernel uses these and reports no error. A mask
    that is already set is not set again, because some containers refuse that. Raises ProcessLookupError if
    the thread has exited.
    """
    if CpuSet(os.sched_getaffinity(tid)) == cpus:
        return
    try:
        os.sched_setaffinity(tid, cpus)
    except ProcessLookupError:
        raise
    except OSError as error:
        is_unusable = error.errno == errno.EINVAL
        why = "offline or no longer allowed" if is_unusable else error.strerror
        hint = _REFUSED_HINT if error.errno == errno.EPERM else _RETRY_HINT
        raise LaunchError(f"cannot bind to {named('CPU', cpus)}: {why}", hint=hint) from error
    current = CpuSet(os.sched_getaffinity(tid))
    if current != cpus:
        message = f"requested {named('CPU', cpus)}, the kernel allows only {current}"
        raise LaunchError(message, hint=_RETRY_HINT)


def enter_cpus(command: RankCommand) -> None:
    """Set the affinity mask of this process to the CPUs of a rank, from its first CPU on; raises LaunchError.

    On isolated CPUs the kernel does not move the initial thread again: on another CPU of the rank, it would
    share this CPU with an OpenMP thread that is bound there.
    """
    if command.first is not None:
        set_affinity(CpuSet((command.first,)))
    if command.cpus is not None:
        set_affinity(command.cpus)


def exec_command(command: RankCommand) -> NoReturn:
    """Bind this process and replace it with the command of a rank; raises LaunchError."""
    if command.directory:
        change_directory(command.directory)
    path = find_command(command.argv[0], command.env)
    enter_cpus(command)
    if command.memory is not None:
        from ompbind.execution.mempolicy import set_policy  # noqa: PLC0415 - door: --memory

        set_policy(command.memory)
    for number in IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(path, command.argv, command.env)
    except OSError as error:
        raise exec_error(path, error.errno or 0) from error


def change_directory(path: str) -> None:
    """Change the working directory of this process; raises LaunchError."""
    try:
        os.chdir(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        hint = f"create it with mkdir -p {shlex.quote(path)}" if isinstance(error, FileNotFoundError) else ""
        raise LaunchError(f"cannot change to directory {path}: {why}", hint=hint) from error


class WorkingDirectory:
    """Change the working directory for a `with` block; "" changes nothing. Raises LaunchError.

    The previous directory is restored even if it was removed, or if only its owner may search it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._before = -1

    def __enter__(self) -> None:
        if self._path:
            self._before = os.open(".", _TO_RETURN)
            try:
                change_directory(self._path)
            except LaunchError:
                os.close(self._before)
                raise

    def __exit__(self, *_: object) -> None:
        if self._path:
            os.fchdir(self._before)
            os.close(self._before)


def exec_error(path: str, number: int) -> LaunchError:
    """Return the error for an errno of `execve` of `path`."""
    if number == errno.ENOENT:
        if not os.path.exists(path):
            return CommandNotFoundError(f"command not found: {path}")
        missing = f"cannot execute {path}: its interpreter does not exist"
        return find_script_error(path) or CommandNotFoundError(missing)
    if number == errno.ENOEXEC:
        why = f"cannot execute {path}: not a program for this machine"
        return CommandNotExecutableError(why, hint="a script needs a first line such as #!/bin/sh")
    why = "arguments and environment are too long" if number == errno.E2BIG else os.strerror(number)
    return CommandNotExecutableError(f"cannot execute {path}: {why}")
