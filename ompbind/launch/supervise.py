"""Running all ranks to their end: signals on, one short ladder to stop, nothing left behind.

Everything happens in one loop that sleeps until a signal comes, a rank ends or a deadline passes.
A second signal that asks to stop takes the next rung of the ladder at once.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Sequence

from ompbind.command import RankCommand
from ompbind.cpuset import named
from ompbind.errors import LaunchError
from ompbind.events import Exited, Outcome, describe
from ompbind.launch.claims import Claim
from ompbind.launch.groups import living, signal_group
from ompbind.launch.guard import Guard, dismiss, start_guard, withdraw
from ompbind.launch.ladder import Ladder
from ompbind.launch.spawn import Wiring, fork_rank, read_failures
from ompbind.launch.terminal import ASKING, Terminal, can_be_stopped, stop_group
from ompbind.launch.wakeup import Wakeup, noted_signals, unblock
from ompbind.launch.which import find_command
from ompbind.record import Record

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
"""Signals that ask a run to end: they are passed on, and begin the ladder."""

_OWN = "KILL STOP CHLD PIPE TTIN TTOU SEGV BUS FPE ILL TRAP ABRT SYS XFSZ"
"""Signals that nobody can catch, or that tell ompbind of itself."""

PASSED_ON = tuple(
    sorted(signal.valid_signals() - {signal.Signals[f"SIG{name}"] for name in _OWN.split()} - set(STOPPING))
)
"""All other signals that can be caught are only passed on to every rank: HUP, USR1, WINCH and so on."""

LONGEST_SLEEP_S = 86400.0
"""Seconds after which the loop looks at its deadlines again, since `poll` cannot sleep for ever long."""

LINGER_STEPS_S = (0.02, 0.5)
"""Seconds between two looks at groups whose rank has ended but which are not empty: at first, at most."""

KILLED_S = 2.0
"""Seconds that a killed process is given to be gone: freeing much memory takes a while."""


class Watch(Record):
    """How to watch over a run: seconds, None for no limit; `say` gets a line on each thing worth telling.

    `claim` is what others know of the run; it must not end before the last rank does.
    """

    say: Callable[[str], None]
    grace_s: float = 10.0
    timeout_s: float | None = None
    stop_on_failure: bool = True
    stdin_first: bool = True
    claim: Claim | None = None


class _Run:
    """The state of one run.

    `live` are the ranks by pid, which is their process group; `lingering` are groups whose rank has
    ended, with the time at which what is left of them is killed. With `alone` the only rank may have
    the terminal. `status_pipe` is -1 once every rank runs or has failed to, `told` what it has said.
    """

    def __init__(self, watch: Watch, guard: Guard, alone: bool) -> None:
        self.watch = watch
        self.guard = guard
        self.alone = alone
        self.terminal = Terminal()
        self.ladder = Ladder(watch.grace_s)
        self.status_pipe = -1
        self.told = b""
        self.timeout_at = None if watch.timeout_s is None else time.monotonic() + watch.timeout_s
        self.timed_out = False
        self.live: dict[int, int] = {}
        self.lingering: dict[int, float] = {}
        self.linger_step_s = LINGER_STEPS_S[0]
        self.exits: list[Exited] = []
        self.failures: list[LaunchError] = []


def run_ranks(commands: Sequence[RankCommand], watch: Watch) -> Outcome:
    """Start all commands, stay until all have ended, and return how they did.

    Raises LaunchError when a rank could not be started or bound; nothing is left running then.
    """
    paths = [find_command(command.argv[0], command.env) for command in commands]
    try:
        _open_standard_files()
        with noted_signals((*STOPPING, *PASSED_ON), always=signal.SIGCHLD) as wakeup:
            run = _Run(watch, start_guard(watch.claim), alone=len(commands) == 1)
            try:
                _start(run, list(zip(commands, paths, strict=True)), wakeup)
                unblock(wakeup)
                _loop(run, wakeup)
            finally:
                dismiss(run.guard, in_peace=not (run.live or run.lingering))
    except OSError as error:
        raise LaunchError(f"the run could not be started or watched: {error.strerror}") from error
    if run.failures:
        raise run.failures[0]
    return Outcome(exits=tuple(run.exits), timed_out=run.timed_out)


def _open_standard_files() -> None:
    """Open what is closed of the standard files, so that no pipe takes their place."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _start(run: _Run, commands: list[tuple[RankCommand, str]], wakeup: Wakeup) -> None:
    """Start every rank; a fork that fails is noted, and begins the ladder."""
    run.status_pipe, status_write = os.pipe()
    for position, (command, path) in enumerate(commands):
        first = position == 0 and run.watch.stdin_first
        wiring = Wiring(
            guard=run.guard,
            status=status_write,
            wakeup=wakeup,
            reads_stdin=first and (run.alone or not os.isatty(0)),
        )
        try:
            run.live[fork_rank(command, path, wiring)] = command.rank
        except OSError as error:
            run.failures.append(_fork_error(command.rank, error))
            break
    os.close(status_write)
    if run.failures:
        _ask_to_stop(run, signal.SIGTERM)


def _fork_error(rank: int, error: OSError) -> LaunchError:
    return LaunchError(
        f"rank {rank} could not be started: {error.strerror}",
        hint="the system allows no more processes: look at 'ulimit -u' and the pids limit of the cgroup",
    )


def _loop(run: _Run, wakeup: Wakeup) -> None:
    poller = select.poll()
    poller.register(wakeup.pipe, select.POLLIN)
    poller.register(run.status_pipe, select.POLLIN)
    while run.live or run.lingering or run.status_pipe >= 0:
        ready = {number for number, _ in poller.poll(_patience_ms(run))}
        if run.status_pipe in ready:
            _read_status(run, poller)
        if wakeup.pipe in ready:
            for number in wakeup.read():
                _handle(run, number)
        _reap(run)
        _look_at_clock(run)


def _patience_ms(run: _Run) -> float | None:
    """Return how long the loop may sleep: to the next deadline, or until something happens."""
    deadlines = [at for at in (run.ladder.due_at, run.timeout_at) if at is not None]
    if run.lingering:
        deadlines.append(time.monotonic() + run.linger_step_s)
    if not deadlines:
        return None
    return min(max(0.0, min(deadlines) - time.monotonic()), LONGEST_SLEEP_S) * 1000 + 1


def _read_status(run: _Run, poller: select.poll) -> None:
    """Read what starting ranks tell; the end of the pipe says that all of them run or have failed."""
    data = os.read(run.status_pipe, 1 << 16)
    if not data:
        poller.unregister(run.status_pipe)
        os.close(run.status_pipe)
        run.status_pipe = -1
        _let_go_of_files()
        return
    whole, newline, run.told = (run.told + data).rpartition(b"\n")
    run.failures.extend(read_failures(whole + newline))
    if run.failures and not run.ladder.begun:
        _ask_to_stop(run, signal.SIGTERM)


def _let_go_of_files() -> None:
    """Leave standard input and output to the ranks: whoever is at the other end waits for them alone."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


def _handle(run: _Run, number: int) -> None:
    if number in STOPPING:
        _ask_to_stop(run, signal.Signals(number))
    elif number == signal.SIGTSTP and not can_be_stopped():
        return  # nobody could continue what is stopped here, so nothing is, as with a direct start
    elif number in PASSED_ON:
        _signal_groups(run, number)
        if number == signal.SIGHUP:
            _signal_groups(run, signal.SIGCONT)  # the kernel does so too: what is stopped must hear it
        if number == signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)


def _signal_groups(run: _Run, number: int) -> None:
    for group in (*run.live, *run.lingering):
        signal_group(group, number)


def _ask_to_stop(run: _Run, first: signal.Signals) -> None:
    _send(run, run.ladder.ask(first, time.monotonic()))


def _send(run: _Run, rung: signal.Signals | None) -> None:
    """Send a rung of the ladder to all that is left, then say so."""
    if rung is None or not (run.live or run.lingering):
        return
    who = named("rank", run.live.values()) if run.live else "what ranks left behind"
    _signal_groups(run, rung)
    _signal_groups(run, signal.SIGCONT)
    if not run.failures:
        run.watch.say(f"stopping {who} with {rung.name}")


def _reap(run: _Run) -> None:
    """Note every rank that has ended or was stopped."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid in run.live and os.WIFSTOPPED(status):
            _note_stop(run, pid, signal.Signals(os.WSTOPSIG(status)))
        elif pid in run.live:
            _note_end(run, pid, status)


def _note_stop(run: _Run, pid: int, number: signal.Signals) -> None:
    """Give the only rank the terminal when it asks, or stop with it, as the shell expects."""
    if not run.alone:
        if number in ASKING:
            who = f"rank {run.live[pid]} (pid {pid})"
            run.watch.say(f"{who} is stopped: only a single rank can have the terminal ({number.name})")
    elif number in ASKING and run.terminal.is_ours():
        run.terminal.give(pid)
        signal_group(pid, signal.SIGCONT)
    elif (number in ASKING and can_be_stopped()) or run.terminal.take_back(pid):
        if can_be_stopped():
            stop_group()
        signal_group(pid, signal.SIGCONT)


def _note_end(run: _Run, pid: int, status: int) -> None:
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    killer = None if code is not None else os.WTERMSIG(status)
    exited = Exited(rank=run.live.pop(pid), pid=pid, code=code, signal=killer)
    run.exits.append(exited)
    run.terminal.take_back(pid)
    if living((pid,)):
        if not run.ladder.begun:
            signal_group(pid, signal.SIGTERM)
        run.lingering[pid] = time.monotonic() + run.watch.grace_s
        run.linger_step_s = LINGER_STEPS_S[0]
    else:
        withdraw(run.guard, pid)
    if exited.status == 0 or run.failures:
        return
    if len(run.exits) > 1 or run.live:
        run.watch.say(describe(exited))
    if run.watch.stop_on_failure and run.live and not run.ladder.begun:
        _ask_to_stop(run, signal.SIGTERM)


def _look_at_clock(run: _Run) -> None:
    now = time.monotonic()
    if run.lingering:
        _look_at_lingering(run, now)
    if run.timeout_at is not None and now >= run.timeout_at:
        run.timeout_at = None
        if run.live and not run.ladder.begun:
            run.timed_out = True
            run.watch.say(f"time is up after {run.watch.timeout_s:g} s")
            _ask_to_stop(run, signal.SIGTERM)
    if run.ladder.due_at is not None and now >= run.ladder.due_at:
        _send(run, run.ladder.step(now))


def _look_at_lingering(run: _Run, now: float) -> None:
    """Let go of groups that are empty, and kill those whose time is up."""
    left = living(run.lingering)
    for group, kill_at in list(run.lingering.items()):
        if group not in left or now >= kill_at + KILLED_S:
            del run.lingering[group]
            withdraw(run.guard, group)
        elif now >= kill_at:
            signal_group(group, signal.SIGKILL)
    run.linger_step_s = min(run.linger_step_s * 1.5, LINGER_STEPS_S[1])
