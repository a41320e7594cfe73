"""The order in which the groups of a run start: a group waits until another group is ready.

When all ranks of a group run, a forked process, the *check*, looks at them until all are ready. So the
supervisor itself waits for nothing: it forwards signals and reaps ranks meanwhile. At the time limit it kills
the check, which may wait for a name server, or search with a slow regular expression.
"""

from collections.abc import Callable
from typing import Protocol

from ompbind.errors import LaunchError
from ompbind.execution.orphans import Owner
from ompbind.execution.run_options import RunOptions
from ompbind.execution.spawn import StartCommands


class Answer(Protocol):
    """What a check has found: why its group is not ready, "" once it is."""

    text: str


class Check:
    """The running check of a group, a child of the supervisor that leads a process group.

    `expires_at` is its time limit: of the monotonic clock, or the seconds left while the run is paused.
    `pidfd` is -1 if only SIGCHLD reports its exit.
    """

    owner: Owner = (-2, 0)  # of no rank

    def __init__(self, group: str, answer: Answer, expires_at: float, kill: Callable[[], object]) -> None:
        self.group = group
        self.answer = answer
        self.expires_at = expires_at
        self.has_expired = False
        self.kill = kill
        self.pidfd = -1

    def expire(self) -> None:
        """Kill the check and the commands that it has started, at its time limit."""
        self.has_expired = True
        self.kill()


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
        if not check.answer.text:
            self._ready.add(check.group)
            return None
        limit_s = self._options.groups[check.group].ready_timeout_s
        limit = f" (--ready-timeout {limit_s:g})" if check.has_expired else ""
        return LaunchError(f"group {check.group} is not ready: {check.answer.text}{limit}")

    def cancel(self) -> list[int]:
        """Start no more groups; returns the ranks that were pending."""
        cancelled = [rank for ranks in self.pending.values() for rank in ranks]
        self.pending = {}
        return cancelled
