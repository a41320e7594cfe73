"""Bind a process to the CPUs of a rank and execute its command: this process itself, or a child.

A process inherits the affinity mask, the memory policy and the working directory of the thread that starts
it. So the supervisor

1. sets its own affinity mask to the CPUs of the rank, and reads it back
2. changes to the working directory of the rank, and sets its memory policy, until the rank has started
3. calls `posix_spawn`, which copies no memory, as fork does, and returns when the command runs or has failed

A rank that has the terminal from its start is forked instead, because `posix_spawn` cannot pass the terminal.
The kernel kills a forked rank with the supervisor. `posix_spawn` cannot request this, and forking each of 64
ranks takes four times as long for the whole run. Without /proc the foreground process could not find the
ranks of a killed supervisor, so there each rank is forked.

ompbind raises its own limit on open files; ranks start with the original limit.
"""

import errno
import os
import resource
import select
import shlex
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from itertools import count
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from ompbind.commands.rank_command import RankCommand
from ompbind.cpuset import CpuSet, named
from ompbind.errors import REFUSED, REFUSED_HINT, CommandNotExecutableError, CommandNotFoundError, LaunchError
from ompbind.execution.orphans import exit_with_parent, signal_process
from ompbind.execution.signals import Foreground, block_signals
from ompbind.planning.request import Hold
from ompbind.procfs.reader import is_proc_of_pid_namespace
from ompbind.programs.find_command import find_command, find_script_error

if TYPE_CHECKING:  # `exec` and workers bind themselves, and need no supervisor
    from ompbind.execution.job_control import Terminal

IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores from its start; a command expects their default action."""

_TO_RETURN = getattr(os, "O_PATH", os.O_RDONLY)
"""How a directory is opened to return to it: on Linux without permission to list its files."""

_STOPPED_CHECK_S = 0.1  # between two looks whether a rank was stopped before it runs its command

_RETRY_HINT = "the allowed CPUs have changed since they were read: run the command again"
_REFUSED_HINT = "sched_setaffinity is refused here, as by a seccomp profile: allow it, or use --mask none"

LIMIT_HINTS = {
    errno.EAGAIN: "no more processes are allowed: check 'ulimit -u' and the pids limit of the cgroup",
    errno.ENOMEM: "not enough memory for another process: start fewer ranks",
    errno.ENFILE: "too many files are open on the whole system: check /proc/sys/fs/file-max",
    errno.EMFILE: "too many files are open: raise 'ulimit -n'",
}
"""A hint for each error number that means a limit of the system."""


def make_limit_error(what: str, error: OSError) -> LaunchError:
    """Return the error that something cannot be done, with a hint if a limit of the system is the cause."""
    hint = REFUSED_HINT if error.errno in REFUSED else LIMIT_HINTS.get(error.errno or 0, "")
    return LaunchError(f"{what}: {error.strerror}", hint=hint)


_UNLIMITED = resource.RLIM_INFINITY
_SPARE = 40  # open files in addition to those per rank
_NEEDED = 5  # open files that are needed at least to find processes and to write messages


class FileLimit:
    """The limit on open files, raised for `needed` files of ranks as far as the hard limit allows.

    Within `with` it has its original value, which processes that are started there inherit.
    """

    def __init__(self, needed: int, *, required: bool) -> None:
        """Raise the limit; raises LaunchError if all files are `required` and the hard limit is too low."""
        self._before, self._hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._now, wanted = self._before, needed + _SPARE
        if self._before == _UNLIMITED or self._before >= wanted:
            return
        self._now = wanted if self._hard == _UNLIMITED else max(self._before, min(wanted, self._hard))
        if required and self._now < wanted:
            message = f"forwarding the output of all ranks needs {wanted} open files, {self._now} are allowed"
            hint = "raise 'ulimit -Hn', or use --log-dir alone: ranks then write their files directly"
            raise LaunchError(message, hint=hint)
        self._set(self._now)

    def check_free_files(self) -> None:
        """Raise OSError unless a few more files can be opened, without which processes cannot be found."""
        with ExitStack() as opened:
            for _ in range(_NEEDED):
                opened.callback(os.close, os.dup(0))

    def is_near_limit(self, number: int) -> bool:
        """Return whether few numbers above `number` are left; a new file gets the lowest free number."""
        return self._now != _UNLIMITED and number >= self._now - _SPARE

    def __enter__(self) -> None:
        self._set(self._before)

    def __exit__(self, *_: object) -> None:
        self._set(self._now)

    def _set(self, soft: int) -> None:
        if self._now != self._before:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, self._hard))


SetMask: TypeAlias = Callable[[int, CpuSet], None]
"""Sets the affinity mask of a thread, 0 for the caller, as os.sched_setaffinity."""


def set_affinity(cpus: CpuSet, tid: int = 0, set_mask: SetMask = os.sched_setaffinity) -> None:
    """Set the affinity mask of a thread (0: the caller) to `cpus` and read it back; raises LaunchError.

    Reading back is needed: if only some CPUs are allowed, the kernel uses these and reports no error. A mask
    that is already set is not set again, because some containers refuse that. Raises ProcessLookupError if
    the thread has exited.
    """
    if CpuSet(os.sched_getaffinity(tid)) == cpus:
        return
    try:
        set_mask(tid, cpus)
    except ProcessLookupError:
        raise
    except OSError as error:
        is_unusable = error.errno == errno.EINVAL
        why = "offline or no longer allowed" if is_unusable else error.strerror
        hint = _REFUSED_HINT if error.errno in REFUSED else _RETRY_HINT
        raise LaunchError(f"cannot bind to {named('CPU', cpus)}: {why}", hint=hint) from error
    current = CpuSet(os.sched_getaffinity(tid))
    if current != cpus:
        message = f"requested {named('CPU', cpus)}, the kernel allows only {current}"
        raise LaunchError(message, hint=f"{_RETRY_HINT}, unless an enclosing run has --hold=fixed")


def enter_cpus(command: RankCommand, set_mask: SetMask = os.sched_setaffinity) -> None:
    """Set the affinity mask of this process to the CPUs of a rank, from its first CPU on; raises LaunchError.

    On isolated CPUs the kernel does not move the initial thread again: on another CPU of the rank, it would
    share this CPU with an OpenMP thread that is bound there.
    """
    if command.first is not None:
        set_affinity(CpuSet((command.first,)), 0, set_mask)
    if command.cpus is not None:
        set_affinity(command.cpus, 0, set_mask)


def exec_command(command: RankCommand, *, hold: bool = False) -> NoReturn:
    """Bind this process and replace it with the command of a rank; raises LaunchError.

    With `hold`, no thread of it can change its CPUs.
    """
    if command.directory:
        change_directory(command.directory)
    path = find_command(command.argv[0], command.env)
    enter_cpus(command)
    if command.memory is not None:
        from ompbind.execution.memory_policy import set_policy  # noqa: PLC0415 - door: --memory

        set_policy(command.memory)
    if hold:
        from ompbind.execution.seccomp import install  # noqa: PLC0415 - door: --hold

        install(Hold.FIXED)
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


@contextmanager
def working_directory(path: str) -> Iterator[None]:
    """Change the working directory for a while; "" changes nothing. Raises LaunchError.

    The previous directory is restored even if it was removed, or if only its owner may search it.
    """
    if not path:
        yield
        return
    before = os.open(".", _TO_RETURN)
    try:
        change_directory(path)
        yield
    finally:
        os.fchdir(before)
        os.close(before)


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
    """Return the path of the file that a rank executes, from its working directory; raises LaunchError."""
    try:
        with working_directory(command.directory):
            return find_command(command.argv[0], command.env)
    except LaunchError as error:
        raise (error.of_rank(command.name) if command.directory else error) from error
    except OSError as error:
        raise make_limit_error("cannot supervise the run", error) from error


def spawn(
    command: RankCommand, path: str, foreground: Foreground, files: Sequence[int],
    terminal: "Terminal | None", set_mask: SetMask = os.sched_setaffinity,
) -> int:  # fmt: skip
    """Spawn a rank in a process group of its own and return its pid; this process stays on the rank's CPUs.

    `files` become its standard files 0, 1, 2; for -1 it inherits the file of ompbind. With a `terminal` it is
    the foreground process group from its start. Raises LaunchError, which names the rank.
    """
    redirections = [(file, number) for number, file in enumerate(files) if file >= 0]
    # signals that ompbind or Python ignores, whose default a rank gets
    ignored = (*IGNORED_BY_PYTHON, *foreground.default_tty_signals)

    def execute() -> NoReturn:
        if terminal:
            terminal.give(os.getpid())
        for pair in redirections:
            os.dup2(*pair)
        for number in ignored:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, foreground.signal_mask)
        os.execve(path, command.argv, command.env)

    try:
        enter_cpus(command, set_mask)
        policy: AbstractContextManager[None] = nullcontext()
        if command.memory is not None:
            from ompbind.execution.memory_policy import temporary_policy  # noqa: PLC0415 - door: --memory

            policy = temporary_policy(command.memory)
        with working_directory(command.directory), policy:
            if terminal is None and is_proc_of_pid_namespace():
                actions = [(os.POSIX_SPAWN_DUP2, *pair) for pair in redirections]
                with suppress(PermissionError):  # old container filters refuse clone3, but not fork
                    return os.posix_spawn(
                        path, command.argv, command.env,
                        file_actions=actions, setpgroup=0, setsigdef=ignored,
                        setsigmask=foreground.signal_mask,
                    )  # fmt: skip
            pid, pipe = fork_child(execute)
            if failure := wait_for_exec(pid, pipe):
                os.waitpid(pid, 0)
                raise OSError(int(failure), os.strerror(int(failure)))
            return pid
    except LaunchError as error:
        raise error.of_rank(command.name) from error
    except OSError as error:
        is_limit, path = error.errno in LIMIT_HINTS, os.path.join(command.directory, path)
        why = make_limit_error("cannot start", error) if is_limit else exec_error(path, error.errno or 0)
        raise why.of_rank(command.name) from error


def wait_for_exec(pid: int, pipe: int) -> bytes:
    """Wait until a forked rank runs its command; returns b"", or the number of an error, and closes the pipe.

    A rank that was stopped before, as by Ctrl-Z in its terminal, is continued: nobody else would do it.
    """
    poller = select.poll()
    poller.register(pipe)
    while not poller.poll(_STOPPED_CHECK_S * 1000):
        if os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG):
            signal_process(pid, signal.SIGCONT)
    failure = os.read(pipe, 16)  # end of file when the command runs
    os.close(pipe)
    return failure


def fork_child(act: Callable[[], bytes]) -> tuple[int, int]:
    """Fork a process with a process group of its own; returns its pid and a pipe. Raises OSError.

    All signals are blocked there. The kernel kills it with this process, even if the foreground process is
    killed too. The pipe, which closes on exec, has what `act` returns, or the number of the error it raises.
    """
    read_end, write_end = os.pipe()
    mask = block_signals()
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(read_end)
        os.close(write_end)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        raise
    if pid == 0:
        try:
            exit_with_parent(parent)
            os.setpgid(0, 0)
            os.write(write_end, act())
        except BaseException as error:  # noqa: BLE001 - after any error, a second supervisor must not continue
            os.write(write_end, b"%d" % (getattr(error, "errno", None) or errno.EINVAL))
        finally:
            os._exit(LaunchError.launch_code)
    with suppress(OSError):  # it has done this itself, or has exited
        os.setpgid(pid, pid)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.close(write_end)
    return pid, read_end
