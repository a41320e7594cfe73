"""A live run as `ompbind ps` shows it."""

import pwd
import time
from collections.abc import Iterable

from ompbind.planning.other_runs import LiveRun
from ompbind.procfs.reader import read_age_s, read_command_line, read_owner, read_pid_namespace
from ompbind.record import Record


class RunInfo(Record):
    """One live run, the name of its user, and the command line of its process (None if unknown)."""

    run: LiveRun
    user: str
    command: tuple[str, ...] | None


_TOLERANCE_S = 2  # of the start time of a process: kernel ticks and the clock differ a little


def read_run_info(runs: Iterable[LiveRun]) -> tuple[RunInfo, ...]:
    """Return each run with the name of its user and the command line of its process."""
    return tuple(RunInfo(run=run, user=read_user(run.uid), command=_read_command_of_run(run)) for run in runs)


def read_user(uid: int) -> str:
    """Return the name of a user, or the number if the user has no name here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _read_command_of_run(run: LiveRun) -> tuple[str, ...] | None:
    """Return the command line of a run's process.

    None if the process has exited, is in another PID namespace, or if its pid now belongs to another process.
    """
    if run.pid_space != read_pid_namespace():
        return None
    age_s, words, owner = read_age_s(run.pid), read_command_line(run.pid), read_owner(run.pid)
    if age_s is None or owner != run.uid or not words or age_s + _TOLERANCE_S < time.time() - run.started:
        return None
    return words
