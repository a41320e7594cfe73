"""Run a candidate once: start its ranks by the supervisor of `ompbind run`, wait, and record the run.

    bench                    measures; goes on after the run
      └─ foreground process  forwards signals; the kernel kills it with bench
           └─ supervisor     starts the ranks and reaps them; sends the outcome to bench through a pipe
                └─ ranks     standard input is empty, output goes to RANK.out and RANK.err

See `execution.process_pair` for the two processes between bench and the ranks. If bench is killed, the
foreground process is killed too, so the supervisor kills all ranks, and removes the files of the run.
The signals that stop a session come first, then what is started, and how it is measured.
"""

import os
import pickle
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import ompbind.execution.verification  # noqa: F401 - before the forks: else each supervisor imports both
from ompbind.bench.conditions import make_conditions, read_counts
from ompbind.bench.metrics import read_values, render_last_lines
from ompbind.bench.records import Candidate, Metric, Run, Status, Verification
from ompbind.commands.rank_command import RankCommand
from ompbind.errors import LaunchError, OmpbindError
from ompbind.execution.orphans import exit_with_parent, signal_process
from ompbind.execution.outcome import Outcome, find_decisive, render_exit_status
from ompbind.execution.output.log_files import make_log_name
from ompbind.execution.process_pair import become_supervisor
from ompbind.execution.readiness import check_commands
from ompbind.execution.run_options import ONE_GROUP, Output, RankGroup, Reporter, RunOptions
from ompbind.execution.shutdown import REPEAT_S
from ompbind.execution.spawn import find_starts, make_limit_error
from ompbind.execution.supervisor import supervise
from ompbind.inspection.diagnosis import expect_ranks
from ompbind.inspection.verdict import VerificationResult
from ompbind.machine.read.root import DirectoryRoot
from ompbind.planning.plan import Plan
from ompbind.procfs.reader import read_affinity
from ompbind.record import Record
from ompbind.report.run_summary import find_hint

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

VERIFIED_ROUNDS = 10
"""Rounds whose number is a multiple of this are verified, also the warm-up with the number 0.

All candidates of these rounds are verified, except those without a plan. A sample takes some 10 ms of CPU
time, also from ranks if they have all CPUs. As that is one round of ten, it hardly changes a median.
"""


class TimeIsUp(KeyboardInterrupt):
    """The session has used all its time."""


@contextmanager
def catch_interrupts() -> Iterator[list[int]]:
    """Let signals that stop a session raise KeyboardInterrupt; yield the list of signals that arrive.

    The signal of a timer raises TimeIsUp. As in `run`, a signal that repeats another within REPEAT_S seconds
    has no effect. Signals that this process ignores stay ignored, as after nohup. A write to a closed pipe
    raises BrokenPipeError and does not kill the session. Afterwards all signals that are not ignored by then
    do what they did before. A forked child that has no handlers of its own yet exits: it must not save and
    show the session too.
    """
    arrived: list[int] = []
    owner, ignored_until = os.getpid(), 0.0

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal ignored_until
        if os.getpid() != owner:
            os._exit(128 + number)
        if number == signal.SIGALRM:
            raise TimeIsUp
        now = time.monotonic()
        if now < ignored_until:
            return
        ignored_until = now + REPEAT_S
        arrived.append(number)
        raise KeyboardInterrupt

    def stay_alive(number: int, frame: FrameType | None) -> None:
        """Do nothing: unlike an ignored signal, a handled signal is not inherited by ranks."""

    handlers = {**dict.fromkeys((*INTERRUPTS, signal.SIGALRM), interrupt), signal.SIGPIPE: stay_alive}
    before = {number: signal.getsignal(number) for number in handlers}
    try:
        for number, handler in handlers.items():
            if before[number] != signal.SIG_IGN or number == signal.SIGALRM:
                signal.signal(number, handler)
        yield arrived
    finally:
        for number, earlier in before.items():
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, earlier)


@contextmanager
def limit_time(limit_s: float | None) -> Iterator[None]:
    """Raise TimeIsUp in the block after `limit_s` seconds, None for never; within `catch_interrupts`."""
    try:
        signal.setitimer(signal.ITIMER_REAL, limit_s or 0)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class SignalMask:
    """Changes the signal mask for a block, as `signal.pthread_sigmask` does; the block gets the mask before.

    A signal at any moment leaves the mask of an outer block as it was. A generator would not: one that a
    signal stops before its end restores its mask when it is deleted, after the outer block.
    """

    def __init__(self, how: int, numbers: Iterable[int]) -> None:
        self._how = how
        self._numbers = numbers
        self._before = frozenset[int]()

    def __enter__(self) -> frozenset[int]:
        self._before = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        try:
            signal.pthread_sigmask(self._how, self._numbers)
        except KeyboardInterrupt:  # a signal that has come before; the mask has changed nevertheless
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
            raise
        return self._before

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


def delay_interrupts() -> SignalMask:
    """Deliver signals that stop a session only at the end of the block, so that it is done or not begun."""
    return SignalMask(signal.SIG_BLOCK, (*INTERRUPTS, signal.SIGALRM))


class CandidateStart(Record):
    """A candidate and the commands of its ranks; `plan` is None for the command without ompbind.

    Of a run with several commands, `groups` are the options of the groups, and `until` is the group whose
    ranks are measured and end the run, "" for all groups.
    """

    candidate: Candidate
    plan: Plan | None
    commands: Sequence[RankCommand]
    groups: Mapping[str, RankGroup] = ONE_GROUP
    until: str = ""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of ranks of each group; of a run without groups, of the run."""
        return tuple(len(part.placements) for part in self.plan.parts) if self.plan else ()


def run_candidate(
    options: RunOptions, metrics: Sequence[Metric], start: CandidateStart, number: int, round_number: int
) -> Run:
    """Run a candidate once, and return what was measured; `number` counts the runs of the session.

    `options` are what all candidates share. A run that fails is no error: its status says so. Raises
    KeyboardInterrupt if a signal stops the run, after all ranks have exited.
    """
    system, started = DirectoryRoot("/"), time.time()
    before = read_counts(system, options.run_id)
    with (
        delay_interrupts() as signal_mask,  # while the directory is made, and while it is removed
        tempfile.TemporaryDirectory(prefix="ompbind-bench-", ignore_cleanup_errors=True) as directory,
        SignalMask(signal.SIG_SETMASK, signal_mask),
    ):
        verify = round_number % VERIFIED_ROUNDS == 0
        outcome, values = _measure(start, options, metrics, directory, verify=verify)
    after = read_counts(system, options.run_id)
    cpus = start.plan.used if start.plan else read_affinity(0)
    run = Run(
        candidate=start.candidate.name,
        number=number,
        round=round_number,
        started=started,
        values=values,
        conditions=make_conditions(before, after, cpus),
    )
    return add_outcome(run, outcome, options.timeout)


def _measure(
    start: CandidateStart, options: RunOptions, metrics: Sequence[Metric], directory: str, *, verify: bool
) -> tuple[Outcome, tuple[float, ...]]:
    """Run the ranks; return how they exited, and the value of each metric, () if they have failed."""
    outcome = Outcome(exits=())
    try:
        check_commands(start.commands)
        outcome = run_ranks(start, options, directory, verify=verify)
        if outcome.stop_requested and not outcome.timed_out:
            raise KeyboardInterrupt  # the signal has reached the run, but not yet this process
        if find_failure(outcome, options.timeout):
            return outcome, ()
        if not metrics[0].pattern:  # the wall time
            return outcome, (max(rank_exit.usage.wall_s for rank_exit in find_decisive(outcome)),)
        measured = (each for each in start.commands if not start.until or each.group == start.until)
        names = [make_log_name(command.label or str(command.rank)) for command in measured]
        return outcome, read_values(metrics, directory, names)
    except OmpbindError as error:
        return outcome.replace(error=error), ()


def add_outcome(run: Run, outcome: Outcome, timeout_s: float | None) -> Run:
    """Add to the record of a run what its ranks used, how they exited, and whether the run counts."""
    conditions = run.conditions
    if throttling := outcome.throttling:
        periods, throttled_s = throttling.throttled_periods, throttling.throttled_s
        conditions = conditions.replace(throttled_periods=periods, throttled_s=throttled_s)
    exits = sorted(outcome.exits, key=lambda rank_exit: rank_exit.rank)
    usages = [rank_exit.usage for rank_exit in exits]
    peaks = [usage.max_rss_bytes for usage in usages if usage.max_rss_bytes is not None]
    verification, violation = find_verification(outcome.verified)
    failure = find_failure(outcome, timeout_s)
    return run.replace(
        wall_s=tuple(usage.wall_s for usage in usages),
        user_s=sum((usage.user_s for usage in usages), 0.0),
        system_s=sum((usage.system_s for usage in usages), 0.0),
        max_rss_bytes=sum(peaks) if usages and len(peaks) == len(usages) else None,
        forced_switches=sum(usage.involuntary_switches for usage in usages),
        conditions=conditions,
        exit_codes=tuple(0 if rank_exit.stopped and not failure else rank_exit.status for rank_exit in exits),
        verification=verification,
        status=Status.FAILED if failure else Status.INVALID if violation else Status.OK,
        reason=failure or violation,
    )


def find_failure(outcome: Outcome, timeout_s: float | None) -> str:
    """Return why a run has failed, with the last words of the first rank that failed; "" if it has not."""
    failed = next((rank_exit for rank_exit in outcome.exits if rank_exit.failed), None)
    if outcome.error:
        return outcome.error.message
    if outcome.timed_out:
        return f"timeout after {timeout_s:g} s"
    if failed is None:
        return ""
    exited = f"rank {failed.rank} {render_exit_status(failed)}"
    return "; ".join(filter(None, (exited, render_last_lines(failed.last_lines), find_hint(failed, outcome))))


def find_verification(verified: VerificationResult | None) -> tuple[Verification, str]:
    """Return the result of the verification of a run, and its first error, "" for none."""
    if verified is None:
        return Verification.NOT_CHECKED, ""
    for checked in verified.ranks:
        for issue in (*checked.errors, *(issue for _, issue in checked.past)):
            return Verification.VIOLATED, f"rank {checked.rank}: {issue.text}"
    is_seen = all(checked.verdict and not checked.unseen for checked in verified.ranks)
    return Verification.VERIFIED if is_seen else Verification.UNSEEN, ""


def run_ranks(start: CandidateStart, options: RunOptions, directory: str, *, verify: bool = False) -> Outcome:
    """Run the ranks of a candidate, and return how they exited.

    Their output goes to RANK.out and RANK.err in `directory`, which is for this run alone: it is removed if
    bench is killed while ranks run. The thread that calls this must live until the ranks have exited: they
    are killed with it. Signals are blocked, but not while it waits for the run: so a signal at any moment
    leaves no rank. A signal that raises KeyboardInterrupt stops the ranks as `run` does at SIGTERM: a further
    one leads to the next signal, and ranks that exit after it have not failed. KeyboardInterrupt is raised
    at the end. Raises LaunchError if no process can be started.
    """
    plan = start.plan
    is_verified = verify and plan is not None and plan.machine.bindable
    options = options.replace(
        output=Output(directory=directory),
        groups=start.groups,
        until=start.until,
        hold=plan.parts[0].request.hold if plan else None,
        expected=expect_ranks(plan, options.run_id, start.commands) if plan and is_verified else None,
    )
    with SignalMask(signal.SIG_BLOCK, signal.valid_signals()) as signal_mask:
        pid, pipe = _fork_supervisor(start, options, signal_mask)
        received, interrupt, is_over = b"", None, False
        while not is_over:
            try:
                with SignalMask(signal.SIG_SETMASK, signal_mask):  # in this block signals are handled
                    select.select((pipe,), (), ())
            except KeyboardInterrupt as raised:
                interrupt = raised
                signal_process(pid, signal.SIGTERM)
            else:
                block = os.read(pipe, 1 << 16)
                received, is_over = received + block, not block
        os.waitpid(pid, 0)
        os.close(pipe)
        if interrupt:
            raise interrupt
    failure = Outcome(exits=(), error=LaunchError("the supervisor was killed"))
    return pickle.loads(received) if received else failure


def _fork_supervisor(
    start: CandidateStart, options: RunOptions, signal_mask: frozenset[int]
) -> tuple[int, int]:
    """Fork the process that starts the ranks, and return its pid and a pipe; signals are blocked."""
    pid = -1
    try:
        read_end, write_end = os.pipe()
        bench = os.getpid()
        try:
            pid = os.fork()
            if pid == 0:
                _run_child(start, options, bench, write_end, signal_mask)
        finally:
            os.close(write_end)
            if pid < 0:
                os.close(read_end)
    except OSError as error:
        raise make_limit_error("cannot start the run", error) from error
    return pid, read_end


def _run_child(
    start: CandidateStart, options: RunOptions, bench: int, pipe: int, signal_mask: frozenset[int]
) -> NoReturn:
    """Supervise the ranks in a forked process, and send the outcome to bench.

    `bench` is its PID, `signal_mask` its mask: all signals are blocked here until this process handles them.
    """
    try:
        try:
            exit_with_parent(bench)
            foreground = become_supervisor(lambda: None, options.grace, signal_mask)
            outcome = supervise(find_starts(start.commands), options, foreground, Reporter())
            is_killed = os.getppid() != foreground.pid  # as bench was
            if is_killed and options.output and options.output.directory:
                shutil.rmtree(options.output.directory, ignore_errors=True)
        except OmpbindError as error:
            outcome = Outcome(exits=(), error=error)
        except Exception as error:  # noqa: BLE001 - bench reports it: this process has no reader of tracebacks
            text = f"the supervisor failed: {type(error).__name__}: {error}"
            outcome = Outcome(exits=(), error=LaunchError(text))
        with open(pipe, "wb", closefd=False) as file:
            pickle.dump(outcome, file)
    finally:
        os._exit(0)
