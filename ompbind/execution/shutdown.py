"""How a run is stopped: by a ladder of signals with waits between them, and when nobody waits any longer."""

import signal
import time

from ompbind.errors import LaunchError

_REPEAT_S = 0.5
"""Seconds within which a second request to stop is the same one: some signal a child, then its group."""

LEAST_PATIENCE_S = 1.0
"""Seconds that a reader has to take something in before it is given up, however short `--grace` is."""


class Escalation:
    """A signal, wait, SIGTERM, wait, SIGKILL; each rung once.

    `due_at` is when the next rung is to be taken, None if never. Times are seconds of a monotonic clock,
    which the caller reads.
    """

    def __init__(self, grace_s: float) -> None:
        self.grace_s = grace_s
        self.begun = False
        self.due_at: float | None = None
        self.taken_at = 0.0
        self.rungs: list[signal.Signals] = []

    def ask(self, first: signal.Signals, now: float) -> signal.Signals | None:
        """Return what to send when somebody asks to stop: `first` at the beginning, then the next rung.

        None at the end, and when the last rung is so fresh that this is the same request.
        """
        if not self.begun:
            self.begun = True
            self.rungs = list(dict.fromkeys((first, signal.SIGTERM, signal.SIGKILL)))
        elif now - self.taken_at < _REPEAT_S:
            return None
        return self.step(now)

    def step(self, now: float) -> signal.Signals | None:
        """Take the next rung, None at the end."""
        taken = self.rungs.pop(0) if self.rungs else None
        self.taken_at = now
        self.due_at = now + self.grace_s if self.rungs else None
        return taken


class Shutdown:
    """Why and how far a run is being stopped; times are seconds of a monotonic clock.

    `error` is why ompbind itself gives up. `cut_short` is the signal that kept ranks from being started.
    `hurries` tells that SIGKILL was sent, `foreground_is_gone` that nobody is left to tell anything: all that
    remains is to end everything. With `given_up` nobody waits for output that is still to be written.
    """

    def __init__(self, grace_s: float, timeout_s: float | None) -> None:
        self.escalation = Escalation(grace_s)
        self.error: LaunchError | None = None
        self.cut_short: int | None = None
        self.timed_out = self.hurries = self.foreground_is_gone = self.given_up = False
        self._timeout_at = None if timeout_s is None else time.monotonic() + timeout_s
        self._asked_at: float | None = None  # when somebody asked the run to end, or time was up
        self._patience: tuple[int, float] | None = None  # bytes written, and when there have to be more

    @property
    def begun(self) -> bool:
        """Tell whether ranks were asked to end."""
        return self.escalation.begun

    @property
    def deadlines(self) -> tuple[float | None, ...]:
        """When to look at the clock; None where there is no need to."""
        return self.escalation.due_at, self._timeout_at, self._patience[1] if self._patience else None

    def fail(self, error: LaunchError) -> None:
        """Note why ompbind gives up; the first reason stays."""
        self.error = self.error or error

    def note_request(self, now: float, *, idle: bool) -> None:
        """Note that a signal asks the run to end; without any process left, nobody waits for output."""
        repeated = self._asked_at is not None and now - self._asked_at < _REPEAT_S
        self._asked_at = now
        self.given_up = self.given_up or (idle and not repeated)

    def note_cut(self, number: int) -> None:
        """Note which signal keeps ranks from being started."""
        self.cut_short = self.cut_short or number

    def note_sent(self, rung: signal.Signals) -> None:
        """Note which rung all ranks have got."""
        self.hurries = rung is signal.SIGKILL

    def note_foreground_end(self) -> None:
        """Note that the foreground process has ended."""
        self.foreground_is_gone = True

    def begin_timeout(self, now: float) -> bool:
        """Tell, once, that time is up for a run that was not asked to end before."""
        if self._timeout_at is None or now < self._timeout_at:
            return False
        self._timeout_at = None
        self._asked_at = now
        self.timed_out = not self.begun
        return self.timed_out

    def take_due_rung(self, now: float) -> signal.Signals | None:
        """Take the next rung if its time has come."""
        due_at = self.escalation.due_at
        return self.escalation.step(now) if due_at is not None and now >= due_at else None

    def watch_reader(self, written: int, now: float) -> None:
        """Give up a reader that takes nothing any more, once the run was asked to end."""
        if self._asked_at is not None and (self._patience is None or self._patience[0] != written):
            self._patience = (written, now + max(self.escalation.grace_s, LEAST_PATIENCE_S))
        elif self._patience and now >= self._patience[1]:
            self.given_up = True
