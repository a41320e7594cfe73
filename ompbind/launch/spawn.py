"""Starting one rank: this process takes what the rank is to inherit, and spawns it.

A process is born with the CPUs of the thread that starts it. So the keeper confines itself to the CPUs of a
rank, reads back that it holds, and spawns the rank by `posix_spawn`: that copies no memory, as a fork does,
and returns when the command runs, or with the reason why it cannot.
"""

import errno
import os

from ompbind.command import RankCommand
from ompbind.errors import LaunchError
from ompbind.launch.confine import TAKEN_BY_PYTHON, confine, exec_error
from ompbind.launch.front import Front
from ompbind.record import Record

_NOT_OF_THE_COMMAND = {
    errno.EAGAIN: "the system allows no more processes: look at 'ulimit -u' and the pids limit of the cgroup",
    errno.ENOMEM: "there is no memory for another process: start fewer ranks",
    errno.ENFILE: "the system has too many open files",
    errno.EMFILE: "too many files are open: 'ulimit -n' may allow more",
}
"""Errors that say nothing of the command, and what helps."""


class Wiring(Record):
    """What a starting rank is connected to: what it gets as its standard files 0, 1, 2; -1 is ompbind's own.

    `front` knows of the signals that were blocked and ignored when ompbind was started.
    """

    front: Front
    files: tuple[int, int, int] = (-1, -1, -1)


def spawn_rank(command: RankCommand, path: str, wiring: Wiring) -> int:
    """Start a rank in a process group of its own and return its pid; leaves this process on the rank's CPUs.

    Raises LaunchError, which names the rank.
    """
    try:
        if command.cpus is not None:
            confine(command.cpus)
        return os.posix_spawn(
            path,
            command.argv,
            command.env,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, file, number) for number, file in enumerate(wiring.files) if file >= 0
            ],
            setpgroup=0,
            setsigmask=wiring.front.mask,
            setsigdef=(*TAKEN_BY_PYTHON, *wiring.front.unchanged),
        )
    except LaunchError as error:
        raise _of_rank(command.rank, error) from error
    except OSError as error:
        raise _of_rank(command.rank, _spawn_error(path, error.errno or 0)) from error


def _spawn_error(path: str, number: int) -> LaunchError:
    hint = _NOT_OF_THE_COMMAND.get(number)
    if hint is None:
        return exec_error(path, number)
    return LaunchError(f"could not be started: {os.strerror(number)}", hint=hint)


def _of_rank(rank: int, error: LaunchError) -> LaunchError:
    return type(error)(f"rank {rank}: {error.message}", hint=error.hint)
