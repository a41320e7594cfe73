"""How ranks and runs exit, the exit code that follows, and what ranks used.

The supervisor only records events; the functions here decide what they mean.
"""

from __future__ import annotations

import signal
from resource import struct_rusage

from ompbind.errors import OmpbindError
from ompbind.execution.signals import signal_name
from ompbind.inspection.verdict import VerificationResult
from ompbind.machine.read.linux_cgroup import Throttling
from ompbind.record import Record

KIB = 1024  # bytes per unit of `ru_maxrss` on Linux


class Usage(Record):
    """Resources used by a rank and the descendants that it has waited for; source: wait4.

    Times are seconds. `max_rss_bytes` is the peak memory of the largest process; None if unknown, because it
    is no more than the peak that the rank inherited from ompbind.
    """

    wall_s: float = 0.0
    user_s: float = 0.0
    system_s: float = 0.0
    max_rss_bytes: int | None = None
    voluntary_switches: int = 0
    involuntary_switches: int = 0


def make_usage(used: struct_rusage, wall_s: float, inherited_rss_bytes: int) -> Usage:
    """Return what a rank used, from the kernel's counters and the seconds from its start to its exit.

    `inherited_rss_bytes` is the peak memory of the process that started the rank. `execve` does not reset the
    peak of a process, so a peak that is not higher says nothing about the rank.
    """
    peak = used.ru_maxrss * KIB
    return Usage(
        wall_s=wall_s,
        user_s=used.ru_utime,
        system_s=used.ru_stime,
        max_rss_bytes=peak if peak > inherited_rss_bytes else None,
        voluntary_switches=used.ru_nvcsw,
        involuntary_switches=used.ru_nivcsw,
    )


class RankExit(Record):
    """How one rank exited: with an exit code, or killed by a signal (then `code` is None).

    `stopped` is true if ompbind was already stopping the run. `last_lines` are the last lines of its standard
    error, empty unless that went through ompbind or to a file. `attempt` counts the starts of the rank from
    1; this attempt began at `started`, in seconds of the epoch. `earlier` are the attempts before it, at most
    the latest 100. `label` is its group and its number there, "load 2"; "" in a run without groups. `delay_s`
    is how long its initial thread was runnable and waited for a CPU, None if unknown.
    """

    rank: int
    pid: int
    code: int | None
    signal: int | None = None
    usage: Usage = Usage()
    stopped: bool = False
    last_lines: tuple[str, ...] = ()
    attempt: int = 1
    started: float = 0.0
    earlier: tuple[RankExit, ...] = ()
    label: str = ""
    delay_s: float | None = None

    @property
    def status(self) -> int:
        """The exit code as shells report it: 128 + signal for a rank that was killed by a signal."""
        return self.code if self.code is not None else 128 + (self.signal or 0)

    @property
    def failed(self) -> bool:
        """Return whether the rank failed by itself; the status of a stopped rank does not count."""
        return self.status != 0 and not self.stopped


class HeldCalls(Record):
    """The calls of sched_setaffinity that a run with --hold has answered.

    `outside` are those for CPUs outside of their rank: (rank, program, number of calls).
    """

    calls: int = 0
    outside: tuple[tuple[int, str, int], ...] = ()


class Outcome(Record):
    """How a run finished: the exits of its ranks in the order in which they came, and why it was stopped.

    `start_interrupted_by` is the signal that stopped the run before all ranks had started. `oom_kills` is the
    number of processes in its cgroup that the kernel killed because memory ran out. `throttling` is how the
    CPU quota throttled this cgroup during the run, None without a quota. `error` is the failure of ompbind
    itself that stopped the run. `write_errors` say which output could not be written; they do not stop the
    run. `verified` is the result of --verify, None without it. `held` are the calls that --hold has answered,
    None without it and for `fixed`. `stop_requested` is true after a termination
    signal or a timeout. If the exit of a group stopped the run (--until), `until` are its ranks, which
    decide the exit code.
    """

    exits: tuple[RankExit, ...]
    timed_out: bool = False
    start_interrupted_by: int | None = None
    oom_kills: int = 0
    throttling: Throttling | None = None
    error: OmpbindError | None = None
    write_errors: tuple[str, ...] = ()
    verified: VerificationResult | None = None
    held: HeldCalls | None = None
    stop_requested: bool = False
    until: frozenset[int] | None = None


def find_decisive(outcome: Outcome) -> list[RankExit]:
    """Return the exits that decide the exit code: of all ranks, or with --until of the ranks of a group."""
    return [each for each in outcome.exits if outcome.until is None or each.rank in outcome.until]


def first_failure(outcome: Outcome) -> RankExit | None:
    """Return the exit of the first decisive rank whose status is not 0, None if all succeeded.

    If --verify=strict has stopped the run, the status of ranks that it stopped does not count.
    """
    stopped = bool(outcome.verified and outcome.verified.stopped)
    exits = (each for each in find_decisive(outcome) if not (each.stopped and stopped))
    return next((rank_exit for rank_exit in exits if rank_exit.status != 0), None)


def exit_code(outcome: Outcome) -> int:
    """Return the exit code of a run; the first that applies:

    1. `error`: the code of that error
    2. timeout: 124
    3. the status of the first failing rank; if a group has ended the run, of this group
    4. 128 + signal, if a signal came before all ranks were started
    5. with --verify=strict an error was seen, or a rank was not seen: 125
    6. `write_errors`: 125
    7. 0
    """
    if error := find_error(outcome):
        return error.launch_code
    return _find_status(outcome) or (OmpbindError.launch_code if outcome.write_errors else 0)


def find_error(outcome: Outcome) -> OmpbindError | None:
    """Return the error that decides the exit code: of ompbind itself, or of --verify=strict; or None."""
    if outcome.error or outcome.verified is None or _find_status(outcome):
        return outcome.error
    return outcome.verified.violation


def _find_status(outcome: Outcome) -> int:
    if outcome.timed_out:
        return 124  # as `timeout` does
    if failure := first_failure(outcome):
        return failure.status
    interrupted = outcome.until is None and outcome.start_interrupted_by
    return 128 + interrupted if interrupted else 0


def was_interrupted(outcome: Outcome) -> bool:
    """Return whether the run stopped because SIGINT killed its first failing rank."""
    failure = first_failure(outcome)
    return failure is not None and failure.signal == signal.SIGINT and not outcome.timed_out


def render_exit_status(rank_exit: RankExit, *, several: bool = False) -> str:
    """Return the predicate of "rank 0 …" for one rank, or for `several` that exited in the same way."""
    if rank_exit.signal is None:
        return f"exited with code {rank_exit.code}"
    return f"{'were' if several else 'was'} killed by {signal_name(rank_exit.signal)}"


def render_exit(rank_exit: RankExit) -> str:
    """Return one line that says how a rank exited."""
    details = f"{rank_exit.label}, pid {rank_exit.pid}" if rank_exit.label else f"pid {rank_exit.pid}"
    return f"rank {rank_exit.rank} ({details}) {render_exit_status(rank_exit)}"
