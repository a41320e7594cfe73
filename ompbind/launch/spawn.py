"""Starting one rank: fork, and in the child bind, restore signals and execute.

What goes wrong in the child reaches the parent through the status pipe: the pipe closes on exec, so
its end says that every rank runs, and any line on it is the failure of one rank.
"""

import os
import signal
from collections.abc import Callable, Iterator
from typing import NoReturn

from ompbind.command import RankCommand
from ompbind.errors import LaunchError
from ompbind.launch.confine import CHANGED, confine, exec_error, restore_signals
from ompbind.launch.guard import Guard, announce
from ompbind.launch.wakeup import Wakeup, restore
from ompbind.record import Record

_BIND, _EXEC, _OTHER = "bind", "exec", "other"


class Wiring(Record):
    """What a starting rank is connected to.

    `status` is the writing end of the status pipe, `wakeup` tells which signals to give back. Only with
    `reads_stdin` the rank keeps standard input.
    """

    guard: Guard
    status: int
    wakeup: Wakeup
    reads_stdin: bool


def fork_rank(command: RankCommand, path: str, wiring: Wiring) -> int:
    """Start a rank in a process group of its own and return its pid; call it with all signals blocked."""
    pid = os.fork()
    if pid == 0:
        _become(command, path, wiring)
    try:
        os.setpgid(pid, pid)
    except (PermissionError, ProcessLookupError):
        pass  # the child was faster and has executed already, or has ended
    return pid


def _become(command: RankCommand, path: str, wiring: Wiring) -> NoReturn:
    """Be the child: turn into the command or tell why not. Never returns, never raises."""
    try:
        _prepare(wiring)
        if command.cpus is not None:
            confine(command.cpus)
        os.execve(path, command.argv, command.env)
    except LaunchError as error:
        _report(wiring, (command.rank, _BIND, 0, error.message))
    except OSError as error:
        _report(wiring, (command.rank, _EXEC, error.errno or 0, path))
    except BaseException as error:  # noqa: BLE001 - whatever it is, a second ompbind must not go on
        _report(wiring, (command.rank, _OTHER, 0, repr(error)))
    finally:
        os._exit(LaunchError.launch_code)


def _prepare(wiring: Wiring) -> None:
    os.setpgid(0, 0)
    announce(wiring.guard, os.getpid())
    if not wiring.reads_stdin:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
    restore(wiring.wakeup)
    restore_signals()
    signal.pthread_sigmask(signal.SIG_SETMASK, wiring.wakeup.mask)


def _report(wiring: Wiring, words: tuple[int, str, int, str]) -> None:
    line = "\0".join(map(str, words)).replace("\n", " ")
    os.write(wiring.status, line.encode("utf-8", "surrogateescape")[:4000] + b"\n")


def read_failures(data: bytes) -> Iterator[LaunchError]:
    """Yield the error that each whole line from the status pipe tells of."""
    for line in data.split(b"\n")[:-1]:
        rank, stage, number, detail = line.decode("utf-8", "surrogateescape").split("\0", 3)
        make = _MEANINGS[stage]
        yield make(int(rank), int(number), detail)


def _bind_error(rank: int, number: int, detail: str) -> LaunchError:
    return LaunchError(f"rank {rank}: {detail}", hint=CHANGED)


def _exec_error(rank: int, number: int, detail: str) -> LaunchError:
    error = exec_error(detail, number)
    return type(error)(f"rank {rank}: {error.message}", hint=error.hint)


def _other_error(rank: int, number: int, detail: str) -> LaunchError:
    return LaunchError(f"rank {rank} could not be started: {detail}")


_MEANINGS: dict[str, Callable[[int, int, str], LaunchError]] = {
    _BIND: _bind_error,
    _EXEC: _exec_error,
    _OTHER: _other_error,
}
