"""The ladder by which a run is stopped: a signal, wait, SIGTERM, wait, SIGKILL; each rung once."""

import signal

REPEAT_S = 0.5
"""Seconds within which a second request to stop is the same one: some signal a child, then its group."""


class Ladder:
    """How far a run is down the ladder; `due_at` is when the next rung is to be taken, None if never.

    Times are seconds of a monotonic clock, which the caller reads.
    """

    __slots__ = ("begun", "due_at", "grace_s", "rungs", "taken_at")

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
        elif now - self.taken_at < REPEAT_S:
            return None
        return self.step(now)

    def step(self, now: float) -> signal.Signals | None:
        """Take the next rung, None at the end."""
        taken = self.rungs.pop(0) if self.rungs else None
        self.taken_at = now
        self.due_at = now + self.grace_s if self.rungs else None
        return taken
