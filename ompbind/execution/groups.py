"""The order in which the groups of a run start: a group waits until another group is ready.

When all ranks of a group run, a forked process, the *check*, looks at them until all are ready. Its result
is in a pipe. So the supervisor itself waits for nothing: it forwards signals and reaps ranks meanwhile.
It kills a check that outlasts its time limit, as one may that waits for a name server.
"""

import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from typing import NoReturn

from ompbind.errors import LaunchError, OmpbindError
from ompbind.execution.orphans import Owner, signal_process
from ompbind.execution.output.log_files import ERR, OUT, make_log_name
from ompbind.execution.run_options import RunOptions
from ompbind.execution.spawn import StartCommands, fork_child
from ompbind.text import clean_line

_POLL_S = 0.05  # seconds between two checks of ranks that are not ready

_KILL_AFTER_S = 1.0
"""Seconds after its time limit when a check is killed, which could not report the end of its time."""

_READY = b"ready"
_RESULT_BYTES = 4096


class Check:
    """The running check of a group, a child of the supervisor that leads a process group.

    `pidfd` is -1 if only SIGCHLD reports its exit. At `kill_at`, on the monotonic clock, it is overdue.
    """

    owner: Owner = (-2, 0)  # of no rank

    def __init__(self, group: str, pid: int, pipe: int, kill_at: float) -> None:
        self.group = group
        self.pid = pid
        self.pidfd = -1
        self.kill_at = kill_at
        self.pipe = pipe

    def kill(self) -> None:
        """Kill the check and the commands that it has started."""
        signal_process(-self.pid, signal.SIGKILL)


class Groups:
    """Which groups of one run have not started (`pending`, with their ranks), and which others await.

    `awaited` are groups that have started, and for which others wait; `ranks` are the ranks of each group.
    """

    def __init__(self, starts: StartCommands, options: RunOptions) -> None:
        self._starts = starts
        self._options = options
        self.ranks: dict[str, list[int]] = {group: [] for group in options.groups}
        for rank, (command, _) in starts.items():
            self.ranks[command.group].append(rank)
        self.pending = dict(self.ranks)
        self._ready = {""}
        self.awaited: set[str] = set()

    def take_due(self) -> list[int]:
        """Return the ranks of the groups that may start now; these are no longer pending."""
        due = [name for name in self.pending if self._options.groups[name].after in self._ready]
        return [rank for name in due for rank in self.pending.pop(name)]

    def take_unchecked(self) -> list[str]:
        """Return the groups to be checked now, once all ranks run of the groups that are not pending.

        A group without --ready, or for which no other waits, is ready now.
        """
        needed = {self._options.groups[name].after for name in self.pending}
        new = set(self.ranks) - set(self.pending) - self._ready - self.awaited
        checked = [
            name for name in self.ranks
            if name in new & needed and any(self._starts[rank][0].ready for rank in self.ranks[name])
        ]  # fmt: skip
        self.awaited.update(checked)
        self._ready |= new - self.awaited
        return checked

    def finish_check(self, check: Check) -> LaunchError | None:
        """Note the result of a check that has exited: the group is ready, or the error that is returned."""
        self.awaited.discard(check.group)
        os.set_blocking(check.pipe, False)  # a process that it has started may have the other end
        result = b""
        with suppress(BlockingIOError):
            result = os.read(check.pipe, _RESULT_BYTES)
        os.close(check.pipe)
        if result == _READY:
            self._ready.add(check.group)
            return None
        message = result.decode(errors="replace") or "the process that checks it was killed"
        return LaunchError(f"group {check.group} is not ready: {message}")

    def cancel(self) -> list[int]:
        """Start no more groups; returns the ranks that were pending."""
        cancelled = [rank for ranks in self.pending.values() for rank in ranks]
        self.pending = {}
        return cancelled

    def fork_check(self, group: str, signal_mask: frozenset[int]) -> Check:
        """Fork the check of a group; `signal_mask` is the mask of a command. Raises OSError."""
        pid, pipe = fork_child(partial(self._check, group, signal_mask))
        limit_s = self._options.groups[group].ready_timeout_s + _KILL_AFTER_S
        return Check(group, pid, pipe, time.monotonic() + limit_s)

    def _check(self, group: str, signal_mask: Collection[int]) -> bytes:
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE}:
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, signal_mask)
        try:
            self._wait_until_ready(group)
            return _READY
        except OmpbindError as error:
            return error.message.encode()[:_RESULT_BYTES]
        except Exception as error:  # noqa: BLE001 - the supervisor reports it
            return f"{type(error).__name__}: {error}".encode()[:_RESULT_BYTES]

    def _wait_until_ready(self, group: str) -> None:
        """Wait until all ranks of a group are ready; raises LaunchError that says why they are not."""
        from ompbind.execution.readiness import make_check  # noqa: PLC0415 - door: --ready

        why, limit_s = "", self._options.groups[group].ready_timeout_s

        def stop(number: int, frame: object) -> NoReturn:
            raise LaunchError(f"{why} (--ready-timeout {limit_s:g})")  # no check handles this error

        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, max(0.001, limit_s))
        directory = self._options.output.directory if self._options.output else None
        for rank in sorted(self.ranks[group]):
            command, _ = self._starts[rank]
            name = make_log_name(command.label or str(rank))
            paths = [os.path.join(directory, f"{name}.{kind}") for kind in (OUT, ERR)] if directory else []
            check = make_check(
                command.ready, command.name, paths, env=command.env, directory=command.directory
            )
            why = f"{clean_line(command.ready)} of {command.name}: no answer"
            while why := check():
                time.sleep(_POLL_S)
        signal.setitimer(signal.ITIMER_REAL, 0)
