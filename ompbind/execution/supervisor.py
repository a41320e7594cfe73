"""Running all ranks to their end: signals on, one short ladder to stop, nothing left behind.

Everything happens in one loop that sleeps until a signal comes, a rank ends or a deadline passes.
A second signal that asks to stop takes the next rung of the ladder at once.
"""

import os
import signal
import time
from collections.abc import Sequence
from resource import RUSAGE_SELF, getrusage
from typing import TYPE_CHECKING

from ompbind.cpuset import CpuSet
from ompbind.errors import LaunchError
from ompbind.execution.outcome import KIB, Exited, Outcome
from ompbind.execution.poller import READABLE
from ompbind.execution.process_pair import let_go_of_files
from ompbind.execution.processes import end_children, signal_rank
from ompbind.execution.reaper import reap, reap_ended
from ompbind.execution.rlimits import WHAT_HELPS, limit_as_before
from ompbind.execution.run_state import ERROR, LiveRank, Run, Watch
from ompbind.execution.signal_pipe import end_noting, note_signals, read_noted
from ompbind.execution.signals import ask_to_stop, handle_signal, send_rung
from ompbind.execution.spawn import Wiring, start_rank
from ompbind.machine.sources.filesystem import FolderRoot
from ompbind.machine.sources.linux.cgroup import read_oom_kills
from ompbind.planning.rank_command import RankCommand
from ompbind.programs.which import find_command

if TYPE_CHECKING:  # most runs have nothing to say
    from ompbind.execution.output.multiplexer import Outlet

LONGEST_SLEEP_S = 86400.0
"""Seconds after which the loop looks at its deadlines again, since `epoll` cannot sleep for ever long."""

LEAST_PATIENCE_S = 1.0
"""Seconds that a reader has to take something in before it is given up, however short `--grace` is."""

_AT_ONCE = 64
"""Events that one turn of the loop deals with."""


def run_ranks(commands: Sequence[RankCommand], watch: Watch) -> Outcome:
    """Start all commands, stay until all have ended, and return how they did.

    The outcome has an error when a rank could not be started or bound; nothing is left running then.
    """
    try:
        found = [(one, find_command(one.argv[0], one.env)) for one in _in_turns(commands)]
        return _see_through(Run(found, watch))
    except LaunchError as error:
        return Outcome(exits=(), error=error)
    except OSError as error:
        hint = WHAT_HELPS.get(error.errno or 0, "")
        return Outcome(
            exits=(), error=LaunchError(f"the run could not be watched: {error.strerror}", hint=hint)
        )
    finally:
        end_noting(watch.front.mask)
        os.close(watch.front.pipe)


def _in_turns(commands: Sequence[RankCommand]) -> list[RankCommand]:
    """Order ranks such that those on the same CPUs do not start one after the other, but while others run."""
    turns: dict[CpuSet | None, int] = {}

    def turn(command: RankCommand) -> int:
        turns[command.cpus] = turns.get(command.cpus, 0) + 1
        return turns[command.cpus]

    return sorted(commands, key=turn)


def _see_through(run: Run) -> Outcome:
    try:
        _listen(run)
        _start(run)
        while run.live or run.leavings.due:
            _turn(run, _patience_s(run))
        return _close(run)
    except BaseException:
        end_children()  # whatever it is, nobody watches over the ranks any more
        raise


def _close(run: Run) -> Outcome:
    """All ranks have ended: write what is left to be written, and what there is to say of the whole run."""
    _drain(run)
    _conclude(run)
    exits = tuple(exited.replace(last_words=_last_words(run, exited)) for exited in run.exits)
    outcome = Outcome(
        exits=exits,
        timed_out=run.timed_out,
        cut_short=run.cut_short,
        oom_kills=_count_oom_kills(run),
        error=run.failures[0] if run.failures else run.unverified,
        troubles=run.outlet.troubles if run.outlet else (),
        verified=run.verified,
    )
    if not (run.unread or run.front_is_gone):
        run.write(run.watch.close(outcome))
        _drain(run)
    return outcome


def _last_words(run: Run, exited: Exited) -> tuple[str, ...]:
    return run.outlet.last_words(exited.rank) if exited.failed and run.outlet else ()


def _conclude(run: Run) -> None:
    if run.settling:
        from ompbind.execution.verify.evaluate import conclude  # late: few runs are verified

        conclude(run, run.settling)


def _count_oom_kills(run: Run) -> int:
    """Count what the kernel has killed for want of memory; nobody asks while all is well."""
    before = run.oom_kills
    if before is None or not any(exited.failed for exited in run.exits):
        return 0
    return max(0, (read_oom_kills(FolderRoot("/")) or 0) - before)


def _drain(run: Run) -> None:
    """Write what ranks have written before they ended, unless nobody is there to wait for it."""
    if run.outlet and not run.front_is_gone:
        run.outlet.finish()
        _tell_troubles(run, run.outlet)
        while not (run.outlet.idle or run.given_up or run.front_is_gone):
            _look_at_reader(run, run.outlet)
            _turn(run, _patience_s(run))


def _look_at_reader(run: Run, outlet: "Outlet") -> None:
    """Give up a reader that takes nothing any more, once a signal or a timeout has asked the run to end."""
    now = time.monotonic()
    if run.asked_at is not None and (run.patience is None or run.patience[0] != outlet.written):
        run.patience = (outlet.written, now + max(run.watch.grace_s, LEAST_PATIENCE_S))
    elif run.patience and now >= run.patience[1]:
        run.given_up = True


def _listen(run: Run) -> None:
    """Begin to hear of signals, and of the end of the front."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    for pipe in (read_end, run.watch.front.pipe):
        run.ears.register(pipe, READABLE)
    note_signals(write_end, run.watch.front.mask)


def _start(run: Run) -> None:
    """Start every rank, looking after those that run already; a start that fails begins the ladder."""
    run.leavings.adopt()  # before any rank can end
    if not run.watch.output.inherited:
        run.open_outlet()
    run.limit.check_room()
    while run.waiting:
        command, path = run.waiting.pop()
        try:
            _start_rank(run, command, path)
        except LaunchError as error:
            run.failures.append(error)
            ask_to_stop(run, signal.SIGTERM)
        _turn(run, 0)
    _settle(run)


def _start_rank(run: Run, command: RankCommand, path: str) -> None:
    ends = run.outlet.open_ends(command.rank) if run.outlet else None
    files = (-1 if _reads_stdin(run) else run.null, ends.out if ends else -1, ends.err if ends else -1)
    terminal = run.terminal if _is_interactive(run) else None
    began_at = time.monotonic()
    try:
        with limit_as_before(run.limit):
            pid = start_rank(command, path, Wiring(front=run.watch.front, files=files, terminal=terminal))
    finally:
        if run.outlet and ends:
            run.outlet.close_ends(ends)
    _note_start(run, pid, LiveRank(command.rank, began_at))


def _reads_stdin(run: Run) -> bool:
    """Tell whether the rank to be started is the one that has standard input; several have no terminal."""
    return run.watch.stdin_first and not run.live and not run.exits and (run.alone or not os.isatty(0))


def _is_interactive(run: Run) -> bool:
    """Tell whether the only rank reads the terminal, and writes to no pipe: nobody else of the job wants it.

    One that is not to be stopped in the background could not ask for it later: what is in `$(...)` of an
    interactive shell.
    """
    if not (run.alone and run.watch.stdin_first and run.terminal.is_ours()):
        return False
    return not run.watch.front.may_ask or (os.isatty(0) and run.stdout < 0 and run.watch.output.inherited)


def _note_start(run: Run, pid: int, rank: LiveRank) -> None:
    run.floor_bytes = getrusage(RUSAGE_SELF).ru_maxrss * KIB
    run.live[pid] = rank
    try:
        file = os.pidfd_open(pid)
    except (OSError, AttributeError):
        return  # SIGCHLD tells of its end as well, only not who was first
    if run.limit.is_scarce(file):
        os.close(file)
        return
    run.ears.register(file, READABLE)
    run.by_pidfd[file] = pid
    rank.pidfd = file


def _settle(run: Run) -> None:
    """All ranks run: leave their CPUs and files to them."""
    run.oom_kills = read_oom_kills(FolderRoot("/"))
    if run.cpus is not None:
        try:
            os.sched_setaffinity(0, run.cpus)
        except OSError:
            pass  # none of them is left: any other CPU is as good
    let_go_of_files(*((0,) if run.watch.output.tag else (0, 1)))
    if run.watch.verify:
        from ompbind.execution.verify.sampler import Settling  # late: few runs are verified

        run.settling = Settling(run.watch.verify, run.watch.run_id, time.monotonic())


def _turn(run: Run, patience_s: float | None) -> None:
    """Wait until something happens, and deal with it."""
    noted: list[int] = []
    ended = 0
    for file, _ in run.ears.poll(patience_s, _AT_ONCE):
        if file in run.by_pidfd:
            ended += reap_ended(run, file)
        elif run.outlet and file == run.outlet.fileno():
            _pump(run, run.outlet)
        else:
            noted += _hear(run, file)
    for number in noted:
        handle_signal(run, number)
    if signal.SIGCHLD in noted:
        while reap(run, -1):
            ended += 1
    _look_at_clock(run)
    if ended or run.leavings.due:
        _look_at_leavings(run)


def _patience_s(run: Run) -> float | None:
    """Return how long the loop may sleep: to the next deadline, or until something happens."""
    now = time.monotonic()
    reader = run.patience[1] if run.patience else None
    threads = run.settling.due_at if run.settling else None
    times = (run.ladder.due_at, run.timeout_at, run.leavings.next_look_at(now), reader, threads)
    deadlines = [at for at in times if at is not None]
    if not deadlines:
        return None
    return min(max(0.0, min(deadlines) - now), LONGEST_SLEEP_S)


def _pump(run: Run, outlet: "Outlet") -> None:
    """Pass output on; a rank that writes to a pseudo-terminal has to be told that nobody reads it."""
    outlet.work()
    _tell_troubles(run, outlet)
    unread = outlet.broken_pty_ranks()
    for pid, one in run.live.items() if unread else ():
        if one.rank in unread:
            signal_rank(pid, signal.SIGPIPE)


def _tell_troubles(run: Run, outlet: "Outlet") -> None:
    for trouble in outlet.troubles[run.troubles :]:
        run.troubles += 1
        run.say(f"{ERROR}{trouble}")


def _hear(run: Run, pipe: int) -> list[int]:
    """Return the signals that have come; without a front everything is to end at once."""
    noted = read_noted(pipe)
    if noted is not None:
        return noted
    run.ears.unregister(pipe)  # what has ended is heard all the time
    run.front_is_gone = True
    run.waiting.clear()
    for pid in run.live:
        run.terminal.take_back(pid)
        signal_rank(pid, signal.SIGKILL)
    return []


def _look_at_clock(run: Run) -> None:
    now = time.monotonic()
    if run.timeout_at is not None and now >= run.timeout_at:
        run.timeout_at = None
        run.asked_at = now
        if not run.ladder.begun:
            run.timed_out = True
            run.say(f"time is up after {run.watch.timeout_s:g} s")
            ask_to_stop(run, signal.SIGTERM)
    if run.ladder.due_at is not None and now >= run.ladder.due_at:
        send_rung(run, run.ladder.step(now))
    if run.settling and run.settling.due_at is not None and now >= run.settling.due_at:
        from ompbind.execution.verify.evaluate import look_at_threads  # late: few runs are verified

        look_at_threads(run, run.settling)


def _look_at_leavings(run: Run) -> None:
    ranks = {pid: one.rank for pid, one in run.live.items()}
    told = run.leavings.look(ranks, hurry=run.hurry or run.front_is_gone)
    if told and not run.front_is_gone:
        run.say(told)
