"""The ladder by which a run is stopped: a signal, wait, SIGTERM, wait, SIGKILL; each rung once."""

import signal


class Ladder:
    """How far a run is down the ladder; `due_at` is when the next rung is to be taken, None if never.

    Times are seconds of a monotonic clock, which the caller reads.
    """

    __slots__ = ("begun", "due_at", "grace_s", "rungs")

    def __init__(self, grace_s: float) -> None:
        self.grace_s = grace_s
        self.begun = False
        self.due_at: float | None = None
        self.rungs: list[signal.Signals] = []

    def step(self, first: signal.Signals, now: float) -> signal.Signals | None:
        """Return the signal to send: `first` at the beginning, then what comes next, None at the end."""
        if not self.begun:
            self.begun = True
            self.rungs = list(dict.fromkeys((first, signal.SIGTERM, signal.SIGKILL)))
        taken = self.rungs.pop(0) if self.rungs else None
        self.due_at = now + self.grace_s if self.rungs else None
        return taken
