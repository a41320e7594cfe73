"""Spawn a rank: set in this process what the rank is to inherit, then spawn it.

A process inherits the affinity mask, the memory policy and the working directory of the thread that starts
it. So the supervisor

1. sets its own affinity mask to the CPUs of the rank, and reads it back
2. changes to the working directory of the rank, and sets its memory policy, until the rank has started
3. calls `posix_spawn`, which copies no memory, as fork does, and returns when the command runs or has failed

A rank that has the terminal from its start is forked instead, because `posix_spawn` cannot pass the terminal.
The kernel kills a forked rank with the supervisor. `posix_spawn` cannot request this, and forking each of 64
ranks takes four times as long for the whole run. Without /proc the foreground process could not find the
ranks of a killed supervisor, so there each rank is forked.
"""

import errno
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import TypeAlias

from ompbind.cpuset import CpuSet
from ompbind.errors import LaunchError
from ompbind.execution.affinity import IGNORED_BY_PYTHON, WorkingDirectory, enter_cpus, exec_error
from ompbind.execution.job_control import Terminal
from ompbind.execution.mempolicy import temporary_policy
from ompbind.execution.process_pair import Foreground
from ompbind.execution.processes import exit_with_parent
from ompbind.execution.rlimits import LIMIT_HINTS, make_limit_error
from ompbind.execution.signals import block_signals
from ompbind.planning.rank_command import RankCommand
from ompbind.procfs.reader import is_proc_of_pid_namespace
from ompbind.programs.find_command import find_command

StartCommands: TypeAlias = Mapping[int, tuple[RankCommand, str]]
"""For each rank number the command and the path of its executable; in the order of start."""


def find_starts(commands: Sequence[RankCommand]) -> StartCommands:
    """Return the commands in the order in which they start, each with the path of its file.

    Ranks with the same CPUs do not start directly after each other. Equal names are searched once. Raises
    LaunchError if a file or a working directory is missing, or if a limit of the system prevents the search.
    """
    turns: dict[CpuSet | None, Iterator[int]] = {}
    paths: dict[tuple[str | None, ...], str] = {}
    starts = {}
    for command in sorted(commands, key=lambda command: next(turns.setdefault(command.cpus, count()))):
        key = (command.argv[0], command.directory, command.env.get("PATH"))
        if key not in paths:
            paths[key] = find_executable(command)
        starts[command.rank] = (command, paths[key])
    return starts


def find_executable(command: RankCommand) -> str:
    """Return the path of the file that a rank executes, as its working directory sees it.

    Raises LaunchError if the directory or the file is missing, or cannot be used.
    """
    try:
        with WorkingDirectory(command.directory):
            return find_command(command.argv[0], command.env)
    except LaunchError as error:
        raise (error.of_rank(command.name) if command.directory else error) from error
    except OSError as error:
        raise make_limit_error("cannot supervise the run", error) from error


Redirections: TypeAlias = Sequence[tuple[int, int]]
"""Pairs of an open file here and its number in the rank."""


def spawn(
    command: RankCommand,
    path: str,
    foreground: Foreground,
    *,
    files: Sequence[int] = (),
    terminal: Terminal | None = None,
) -> int:
    """Spawn a rank in a process group of its own and return its pid; this process stays on the rank's CPUs.

    `files` become its standard files 0, 1, 2; for -1 it inherits the file of ompbind. With a `terminal` it is
    the foreground process group from its start. Raises LaunchError, which names the rank.
    """
    redirections = [(file, number) for number, file in enumerate(files) if file >= 0]
    try:
        enter_cpus(command)
        with WorkingDirectory(command.directory), temporary_policy(command.memory):
            if terminal is not None or not is_proc_of_pid_namespace():
                return _fork(command, path, foreground, redirections, terminal=terminal)
            return os.posix_spawn(
                path,
                command.argv,
                command.env,
                file_actions=[(os.POSIX_SPAWN_DUP2, *pair) for pair in redirections],
                setpgroup=0,
                setsigmask=foreground.signal_mask,
                setsigdef=_find_ignored(foreground),
            )
    except LaunchError as error:
        raise error.of_rank(command.name) from error
    except OSError as error:
        number = error.errno or 0
        limited = LaunchError(f"cannot start: {os.strerror(number)}", hint=LIMIT_HINTS.get(number, ""))
        launch_error = limited if limited.hint else exec_error(os.path.join(command.directory, path), number)
        raise launch_error.of_rank(command.name) from error


def _find_ignored(foreground: Foreground) -> tuple[int, ...]:
    """Return the signals that ompbind or Python ignores, whose default a rank gets."""
    return (*IGNORED_BY_PYTHON, *foreground.default_tty_signals)


def _fork(
    command: RankCommand,
    path: str,
    foreground: Foreground,
    redirections: Redirections,
    *,
    terminal: Terminal | None,
) -> int:
    """Fork a rank, which makes itself the foreground of the terminal, if any, and executes its command.

    The kernel kills it if the supervisor is killed, even if the foreground process is killed too. A pipe that
    closes on exec reports the result: end of file when the command runs, else an errno.
    """
    read_end, write_end = os.pipe()
    mask = block_signals()
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            exit_with_parent(supervisor)
            os.setpgid(0, 0)
            if terminal:
                terminal.give(os.getpid())
            for file, number in redirections:
                os.dup2(file, number)
            for ignored in _find_ignored(foreground):
                signal.signal(ignored, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, foreground.signal_mask)
            os.execve(path, command.argv, command.env)
        except BaseException as error:  # noqa: BLE001 - after any error, a second supervisor must not continue
            os.write(write_end, b"%d" % (getattr(error, "errno", None) or errno.EINVAL))
        finally:
            os._exit(LaunchError.launch_code)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.close(write_end)
    failure = os.read(read_end, 16)
    os.close(read_end)
    if failure:
        os.waitpid(pid, 0)
        raise OSError(int(failure), os.strerror(int(failure)))
    return pid
