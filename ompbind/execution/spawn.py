"""Starting one rank: this process takes what the rank is to inherit, and spawns it.

A process is born with the CPUs and the memory policy of the thread that starts it. So the keeper confines
itself to the CPUs of a rank, reads back that it holds, takes its memory policy for a moment, and spawns the
rank by `posix_spawn`: that copies no memory, as a fork does, and returns when the command runs, or with the
reason why it cannot. Only a rank that is to have the terminal from its first moment on is forked.
"""

import errno
import os
import signal
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from ompbind.errors import LaunchError
from ompbind.execution.affinity import TAKEN_BY_PYTHON, confine, exec_error
from ompbind.execution.job_control import Terminal
from ompbind.execution.process_pair import Foreground
from ompbind.execution.rlimits import WHAT_HELPS
from ompbind.execution.signal_pipe import block_signals
from ompbind.planning.rank_command import RankCommand

Connections = Sequence[tuple[int, int]]
"""Open files, each with the number that a rank knows it by."""


def start_rank(
    command: RankCommand,
    path: str,
    foreground: Foreground,
    *,
    files: Sequence[int] = (),
    terminal: Terminal | None = None,
) -> int:
    """Start a rank in a process group of its own and return its pid; leaves this process on the rank's CPUs.

    `files` are what it gets as its standard files 0, 1, 2; -1 is ompbind's own. With a terminal it is the
    foreground of that from its first moment on. Raises LaunchError, which names the rank.
    """
    connections = [(file, number) for number, file in enumerate(files) if file >= 0]
    start = partial(_fork, terminal=terminal) if terminal else _spawn
    try:
        if command.cpus is not None:
            confine(command.cpus)
        if command.memory is None:
            return start(command, path, foreground, connections)
        from ompbind.execution.mempolicy import having_policy  # late: few runs have memory policies

        with having_policy(command.memory):
            return start(command, path, foreground, connections)
    except LaunchError as error:
        raise _of_rank(command.rank, error) from error
    except OSError as error:
        number = error.errno or 0
        limited = LaunchError(f"could not be started: {os.strerror(number)}", hint=WHAT_HELPS.get(number, ""))
        refused = limited if limited.hint else exec_error(path, number)
        raise _of_rank(command.rank, refused) from error


def _spawn(command: RankCommand, path: str, foreground: Foreground, connections: Connections) -> int:
    return os.posix_spawn(
        path,
        command.argv,
        command.env,
        file_actions=[(os.POSIX_SPAWN_DUP2, *pair) for pair in connections],
        setpgroup=0,
        setsigmask=foreground.mask,
        setsigdef=_find_ignored(foreground),
    )


def _find_ignored(foreground: Foreground) -> tuple[int, ...]:
    """Return the signals that ompbind or Python ignores; a command started directly has their default."""
    return (*TAKEN_BY_PYTHON, *foreground.unchanged)


def _fork(
    command: RankCommand, path: str, foreground: Foreground, connections: Connections, *, terminal: Terminal
) -> int:
    """Start a rank that takes the terminal before it executes its command, which spawning cannot do.

    A pipe that closes on exec tells when the command runs; else the number of the error comes through it.
    """
    reading, writing = os.pipe()
    mask = block_signals()
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            terminal.give(os.getpid())
            _become(command, path, foreground, connections)
        except BaseException as error:  # noqa: BLE001 - whatever it is, a second supervisor must not go on
            os.write(writing, b"%d" % (getattr(error, "errno", None) or errno.EINVAL))
        finally:
            os._exit(LaunchError.launch_code)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.close(writing)
    number = os.read(reading, 16)
    os.close(reading)
    if number:
        os.waitpid(pid, 0)
        raise OSError(int(number), os.strerror(int(number)))
    return pid


def _become(command: RankCommand, path: str, foreground: Foreground, connections: Connections) -> NoReturn:
    for file, number in connections:
        os.dup2(file, number)
    for number in _find_ignored(foreground):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, foreground.mask)
    os.execve(path, command.argv, command.env)


def _of_rank(rank: int, error: LaunchError) -> LaunchError:
    return type(error)(f"rank {rank}: {error.message}", hint=error.hint)
