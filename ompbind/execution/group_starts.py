"""Start the groups of a run one after the other: a group waits until another one is ready (--ready).

    group "server" has started      a forked process checks its ranks until all are ready, or the time is over
    the checks have a result        it writes the result to a pipe, which the supervisor polls, and exits
    the group is ready              the groups that wait for it start

The supervisor itself waits for nothing, so it forwards signals and reaps ranks in the meantime.
"""

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NoReturn

from ompbind.errors import LaunchError, OmpbindError
from ompbind.execution.output.log_files import ERR, OUT
from ompbind.execution.output.multiplexer import make_log_name
from ompbind.execution.processes import exit_with_parent
from ompbind.execution.run_options import RankGroup, RunOptions
from ompbind.execution.signals import block_signals
from ompbind.execution.spawn import StartCommands
from ompbind.record import Record

_POLL_S = 0.05
"""Seconds between two checks of ranks that are not ready."""

_READY = b"ready"
_RESULT_BYTES = 4096

_CHECKER = (-2, 0)
"""Stands for the rank and the attempt of a process that checks a group."""


class _Check(Record):
    """The process that checks the ranks of a group."""

    group: str
    pid: int


class GroupStarts:
    """Which groups of one run have not started yet; `pending` has their ranks by the name of the group."""

    def __init__(self, starts: StartCommands, options: RunOptions) -> None:
        self._starts = starts
        self._options = options
        self._ranks: dict[str, list[int]] = {group: [] for group in options.groups}
        for rank, (command, _) in starts.items():
            self._ranks[command.group].append(rank)
        self.pending = dict(self._ranks)
        self._ready: set[str] = {""}
        self._checks: dict[int, _Check] = {}

    @property
    def owners(self) -> Mapping[int, tuple[int, int]]:
        """The processes that check groups, by pid: they are no orphans of ranks."""
        return {check.pid: _CHECKER for check in self._checks.values()}

    def ranks_of(self, group: str) -> frozenset[int]:
        """Return the ranks of a group."""
        return frozenset(self._ranks[group])

    def is_awaited(self, group: str) -> bool:
        """Return whether other groups wait until this one is ready, and it has started."""
        return any(check.group == group for check in self._checks.values())

    def has_check(self, pipe: int) -> bool:
        """Return whether the result of a check comes through this pipe."""
        return pipe in self._checks

    def take_due(self) -> list[int]:
        """Return the ranks of the groups that may start now; these are no longer pending."""
        due = [name for name in self.pending if self._options.groups[name].after in self._ready]
        return [rank for name in due for rank in self.pending.pop(name)]

    def begin_checks(self, signal_mask: frozenset[int]) -> list[int]:
        """Note that all groups that are not pending have started; returns pipes through which results come.

        A group without --ready is ready now. `signal_mask` is the mask of a command.
        """
        pipes = []
        awaited = {self._options.groups[name].after for name in self.pending}
        for name, group in self._options.groups.items():
            if name in self.pending or name in self._ready or self.is_awaited(name):
                continue
            if name in awaited and any(self._starts[rank][0].ready for rank in self._ranks[name]):
                pipes.append(self._fork_check(name, group, signal_mask))
            else:
                self._ready.add(name)
        return pipes

    def finish_check(self, pipe: int) -> LaunchError | None:
        """Read the result of a check: the group is ready, or the error that is returned."""
        check = self._checks.pop(pipe)
        result = os.read(pipe, _RESULT_BYTES)
        os.close(pipe)
        with suppress(ChildProcessError):  # reaped after SIGCHLD
            os.waitpid(check.pid, 0)
        if result == _READY:
            self._ready.add(check.group)
            return None
        message = result.decode() or "the process that checks it was killed"
        return LaunchError(f"group {check.group} is not ready: {message}")

    def cancel(self) -> list[int]:
        """Start no more groups, and stop all checks; returns the ranks that were pending."""
        cancelled = [rank for ranks in self.pending.values() for rank in ranks]
        self.pending = {}
        for check in self._checks.values():
            with suppress(ProcessLookupError):
                os.killpg(check.pid, signal.SIGKILL)  # its pipe is then at end of file
        return cancelled

    def _fork_check(self, name: str, group: RankGroup, signal_mask: frozenset[int]) -> int:
        """Fork a process that checks the ranks of a group; returns the pipe with the result."""
        read_end, write_end = os.pipe()
        before = block_signals()
        supervisor = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._run_check(name, group, write_end, (supervisor, signal_mask))
        with suppress(OSError):  # it has done this itself, or has exited
            os.setpgid(pid, pid)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(write_end)
        self._checks[read_end] = _Check(group=name, pid=pid)
        return read_end

    def _run_check(
        self, name: str, group: RankGroup, pipe: int, parent: tuple[int, frozenset[int]]
    ) -> NoReturn:
        """Check the ranks of a group in a forked process, and write the result to a pipe."""
        supervisor, signal_mask = parent
        try:
            exit_with_parent(supervisor)
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE}:
                if callable(signal.getsignal(number)):
                    signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, signal_mask)
            text = self._wait_until_ready(name, group)
            os.write(pipe, text.encode()[:_RESULT_BYTES] if text else _READY)
        except OmpbindError as error:
            os.write(pipe, error.message.encode()[:_RESULT_BYTES])
        except BaseException as error:  # noqa: BLE001 - after any error, a second supervisor must not continue
            os.write(pipe, f"{type(error).__name__}: {error}".encode()[:_RESULT_BYTES])
        finally:
            os._exit(0)

    def _wait_until_ready(self, group_name: str, group: RankGroup) -> str:
        """Wait until all ranks of a group are ready; returns why they are not, "" if they are."""
        from ompbind.execution.readiness import make_check  # noqa: PLC0415 - door: --ready

        ranks = sorted(self._ranks[group_name])
        directory = self._options.output.directory if self._options.output else None
        until = time.monotonic() + group.ready_timeout_s
        for rank in ranks:
            command, _ = self._starts[rank]
            name = make_log_name(command.label or str(rank))
            paths = [os.path.join(directory, f"{name}.{kind}") for kind in (OUT, ERR)] if directory else []
            check = make_check(command.ready, paths, env=command.env, directory=command.directory)
            while not check.is_ready():
                if time.monotonic() > until:
                    return f"{check.describe(command.name)} (--ready-timeout {group.ready_timeout_s:g})"
                time.sleep(_POLL_S)
        return ""
