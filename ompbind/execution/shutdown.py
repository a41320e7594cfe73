"""How a run is stopped: by signals of increasing force, and how long it still waits for a slow reader."""

import signal

from ompbind.errors import LaunchError

REPEAT_S = 0.5
"""Seconds within which two requests count as one: some programs signal a child, then its process group."""

MIN_READER_TIMEOUT_S = 1.0
"""Seconds that a reader of output always has for its next read, however short `--grace` is."""


class Shutdown:
    """Why a run stops, and the signals that stop it, each sent once.

        request → first signal → wait grace_s → SIGTERM → wait grace_s → SIGKILL

    A second request skips a wait. Times are seconds of a monotonic clock. `begun` is set when ranks were sent
    the first signal; `due_at` is when the next one is to be sent, None if never.

    `error` is the failure of ompbind itself that stops the run. `start_interrupted_by` is the signal that
    came before all ranks were started. After `kill_sent` or `foreground_exited` orphans are killed without
    a grace period; without a foreground process nothing is reported either. With `output_abandoned` the run
    does not wait until its remaining output is written. `until_reached` is set when the group of --until has
    exited before the run was stopped. `reader_give_up_at` is when output is abandoned unless some of it is
    read.
    """

    def __init__(self, grace_s: float) -> None:
        self.grace_s = grace_s
        self.begun = False
        self.due_at: float | None = None
        self.error: LaunchError | None = None
        self.start_interrupted_by: int | None = None
        self.timed_out = self.kill_sent = self.foreground_exited = self.output_abandoned = False
        self.until_reached = False
        self.reader_give_up_at: float | None = None
        self._sent_at = 0.0
        self._remaining: list[int] = []
        self.requested_at: float | None = None  # time of the last request by signal, or of the timeout
        self._written = -1  # bytes, when `reader_give_up_at` was set

    def request(self, first: int, now: float) -> int | None:
        """Return the signal to send after a request to stop: `first`, later the next signal.

        None if all were sent, or if the last was sent so recently that this is the same request.
        """
        if not self.begun:
            self.begun = True
            self._remaining = list(dict.fromkeys((first, signal.SIGTERM, signal.SIGKILL)))
        elif now - self._sent_at < REPEAT_S:
            return None
        return self.take_next(now)

    def take_next(self, now: float) -> int | None:
        """Return the next signal and start the wait after it; None when all were sent."""
        number = self._remaining.pop(0) if self._remaining else None
        self._sent_at = now
        self.due_at = now + self.grace_s if self._remaining else None
        return number

    def note_request(self, now: float, *, idle: bool) -> None:
        """Note that a signal requests the end; with `idle` (no rank or orphan is left), abandon output."""
        is_repeated = self.requested_at is not None and now - self.requested_at < REPEAT_S
        self.requested_at = now
        self.output_abandoned = self.output_abandoned or (idle and not is_repeated)

    def note_timeout(self, now: float) -> bool:
        """Note that the timeout is over; returns whether nothing has stopped the run before."""
        self.requested_at = now
        self.timed_out = not self.begun
        return self.timed_out

    def check_reader(self, written: int, now: float) -> None:
        """Abandon output whose reader reads nothing after a request to stop; `written` counts bytes."""
        if self.requested_at is not None and written != self._written:
            self._written = written
            self.reader_give_up_at = now + max(self.grace_s, MIN_READER_TIMEOUT_S)
        elif self.reader_give_up_at is not None and now >= self.reader_give_up_at:
            self.output_abandoned = True
