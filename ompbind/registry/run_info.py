"""A live run as `ompbind ps` shows it."""

from ompbind.planning.occupancy import LiveRun
from ompbind.record import Record


class RunInfo(Record):
    """One live run, the name of its user, and the command line of its process (None if unknown)."""

    run: LiveRun
    user: str
    command: tuple[str, ...] | None
