"""Becoming a rank: confine this process to CPUs, give back what Python took, execute the command."""

import errno
import os
import signal
from typing import NoReturn

from ompbind.cpuset import CpuSet, named
from ompbind.errors import CommandNotExecutableError, CommandNotFoundError, LaunchError
from ompbind.planning.rank_command import RankCommand
from ompbind.programs.which import find_command

TAKEN_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores from its start on; a command expects their default."""

_CHANGED = "the allowed CPUs have changed since they were read; run it again"


def confine(cpus: CpuSet) -> None:
    """Confine the calling thread to `cpus` and read back that it holds; raises LaunchError.

    The kernel takes a mask of which only some CPUs can be used, and uses fewer without a word.
    """
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        gone = error.errno == errno.EINVAL
        why = "offline by now, or not allowed any more" if gone else error.strerror
        raise LaunchError(f"cannot bind to {named('CPU', cpus)}: {why}", hint=_CHANGED) from error
    now = CpuSet(os.sched_getaffinity(0))
    if now != cpus:
        raise LaunchError(f"asked for {named('CPU', cpus)}, the kernel gave only {now}", hint=_CHANGED)


def exec_command(command: RankCommand) -> NoReturn:
    """Replace this process by the command of a rank, bound; returns only by raising LaunchError."""
    path = find_command(command.argv[0], command.env)
    if command.cpus is not None:
        confine(command.cpus)
    if command.memory is not None:
        from ompbind.execution.mempolicy import take_policy  # late: few ranks have memory policies

        take_policy(command.memory)
    for number in TAKEN_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(path, command.argv, command.env)
    except OSError as error:
        raise exec_error(path, error.errno or 0) from error


def exec_error(path: str, number: int) -> LaunchError:
    """Return what `execve` of `path` failing with an errno means to a user."""
    if number == errno.ENOENT:
        if not os.path.exists(path):
            return CommandNotFoundError(f"command not found: {path}")
        why = f"cannot execute {path}: its interpreter does not exist"
        return CommandNotFoundError(why, hint="look at its first line (#!)")
    if number == errno.ENOEXEC:
        why = f"cannot execute {path}: not a program of this machine"
        return CommandNotExecutableError(why, hint="a script needs a first line such as #!/bin/sh")
    why = "arguments and environment are too long" if number == errno.E2BIG else os.strerror(number)
    return CommandNotExecutableError(f"cannot execute {path}: {why}")
