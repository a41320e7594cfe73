"""What happens to ranks, as values, and what the exit code of a run follows from.

A supervisor only notes events; the functions here decide what they mean.
"""

from collections.abc import Sequence
from signal import Signals
from typing import TYPE_CHECKING

from ompbind.errors import OmpbindError
from ompbind.record import Record

if TYPE_CHECKING:  # values need no more than the names
    from resource import struct_rusage

    from ompbind.inspection.verdict import Verified

KIB = 1024
"""Bytes in a unit of `ru_maxrss`, as Linux counts it."""


class Usage(Record):
    """What one rank used, with all those of its descendants that it waited for, as the kernel counts.

    Times are seconds. `max_rss_bytes` is the most memory that any one process of them had at once; None
    where that is less than what the process had before it executed the command, and so is not known.
    """

    wall_s: float = 0.0
    user_s: float = 0.0
    system_s: float = 0.0
    max_rss_bytes: int | None = None
    voluntary_switches: int = 0
    involuntary_switches: int = 0


def make_usage(used: "struct_rusage", wall_s: float, floor_bytes: int) -> Usage:
    """Say what a rank used, by what the kernel counted and the time from its start to its end.

    `floor_bytes` is the most memory that the process which started the rank had at once until then: a
    process takes this number along when it executes a command, so what is not more says nothing.
    """
    peak = used.ru_maxrss * KIB
    return Usage(
        wall_s=wall_s,
        user_s=used.ru_utime,
        system_s=used.ru_stime,
        max_rss_bytes=peak if peak > floor_bytes else None,
        voluntary_switches=used.ru_nvcsw,
        involuntary_switches=used.ru_nivcsw,
    )


class Exited(Record):
    """One rank has ended: with an exit code, or by a signal (then the code is None).

    `stopped` tells that ompbind had asked it to end before. `last_words` are the last lines of its
    standard error, where these went through ompbind or to a file.
    """

    rank: int
    pid: int
    code: int | None
    signal: int | None = None
    usage: Usage = Usage()
    stopped: bool = False
    last_words: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        """The exit code as shells tell it: 128 + signal for a rank that a signal ended."""
        return self.code if self.code is not None else 128 + (self.signal or 0)

    @property
    def failed(self) -> bool:
        """Tell whether it failed by itself: how a rank ends that was asked to says nothing of the run."""
        return self.status != 0 and not self.stopped


class Outcome(Record):
    """How a run ended: the ends of its ranks in the order in which they came, and why it was stopped.

    `cut_short` is the signal that ended the run before all ranks were started.
    `oom_kills` is how many processes of its cgroup the kernel has killed meanwhile because memory ran out.
    With `error` ompbind itself had to give up; `troubles` are what it could not do and went on without.
    `verified` is what was seen of the threads of ranks, None where nobody asked for it.
    """

    exits: tuple[Exited, ...]
    timed_out: bool = False
    cut_short: int | None = None
    oom_kills: int = 0
    error: OmpbindError | None = None
    troubles: tuple[str, ...] = ()
    verified: "Verified | None" = None


TIMED_OUT = 124
"""The exit code of a run that took longer than --timeout."""


def first_failure(exits: Sequence[Exited]) -> Exited | None:
    """Return the end of the first rank that did not end well, None when all did."""
    return next((one for one in exits if one.status != 0), None)


def exit_code(outcome: Outcome) -> int:
    """Return the exit code of a whole run: 124 on timeout, else that of the first failing rank, else 0.

    A run that a signal has ended before every rank was started ends as by that signal. What ompbind itself
    could not do comes first where nothing could be started, and last where ranks ran without it.
    """
    if outcome.error:
        return outcome.error.launch_code
    if outcome.timed_out:
        return TIMED_OUT
    failure = first_failure(outcome.exits)
    if failure is None and outcome.cut_short:
        return 128 + outcome.cut_short
    if failure is None and outcome.troubles:
        return OmpbindError.launch_code
    return failure.status if failure else 0


def was_interrupted(outcome: Outcome) -> bool:
    """Tell whether what ended the run is that its first failing rank died of SIGINT."""
    failure = first_failure(outcome.exits)
    return failure is not None and failure.signal == Signals.SIGINT and not outcome.timed_out


def signal_name(number: int) -> str:
    """Return the name of a signal, "signal 37" for one that has none."""
    named = number in {one.value for one in Signals}
    return Signals(number).name if named else f"signal {number}"


def describe_end(exited: Exited, *, several: bool = False) -> str:
    """Say how a rank ended, or `several` that ended alike, as what follows their name in a sentence."""
    if exited.signal is None:
        return f"exited with {exited.code}"
    return f"{'were' if several else 'was'} ended by {signal_name(exited.signal)}"


def describe(exited: Exited) -> str:
    """Say in one line how a rank ended."""
    return f"rank {exited.rank} (pid {exited.pid}) {describe_end(exited)}"
