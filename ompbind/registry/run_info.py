"""The processes of live runs: whose they are, and what they execute."""

import pwd
import time
from collections.abc import Iterable

from ompbind.planning.occupancy import LiveRun
from ompbind.procfs.reader import read_age_s, read_command, read_owner, read_pid_space
from ompbind.registry.run_sight import RunSight

_SLACK_S = 2  # by which clocks may seem to disagree on when a process started


def see_runs(runs: Iterable[LiveRun]) -> tuple[RunSight, ...]:
    """Add to every run what this system tells of its user and its process."""
    return tuple(RunSight(run=run, user=_user(run.uid), command=_command(run)) for run in runs)


def _user(uid: int) -> str:
    """Return the name of a user, the number of one that has no name here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _command(run: LiveRun) -> tuple[str, ...] | None:
    """Return the command line of a run's process.

    None when it is gone, or in another container, or when its number belongs to another process by now.
    """
    if run.pid_space != read_pid_space():
        return None
    age_s, words, owner = read_age_s(run.pid), read_command(run.pid), read_owner(run.pid)
    if age_s is None or owner != run.uid or not words or age_s + _SLACK_S < time.time() - run.started:
        return None
    return words
