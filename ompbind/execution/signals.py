"""Signals and the ladder: what is sent to all ranks of a run, and when."""

import signal
import time

from ompbind.cpuset import named
from ompbind.execution.processes import signal_process, signal_rank
from ompbind.execution.run_state import Run
from ompbind.execution.shutdown import REPEAT_S
from ompbind.execution.signal_pipe import PASSED_ON, STOPPING


def handle_signal(run: Run, number: int) -> None:
    """Do what a signal asks for that somebody has sent to ompbind."""
    if number in STOPPING:
        now = time.monotonic()
        repeated = run.asked_at is not None and now - run.asked_at < REPEAT_S
        run.asked_at = now
        run.given_up = run.given_up or not (repeated or run.live or run.waiting or run.leavings.due)
        ask_to_stop(run, signal.Signals(number))
    elif number == signal.SIGTSTP and not run.terminal.can_be_stopped():
        return  # nobody could continue what is stopped here, so nothing is, as with a direct start
    elif number in PASSED_ON:
        if number == signal.SIGWINCH and run.outlet:
            run.outlet.set_size()
        signal_ranks(run, number)
        if number == signal.SIGHUP:
            signal_ranks(run, signal.SIGCONT)  # the kernel does so too: what is stopped must hear it
        if number == signal.SIGTSTP:
            signal_process(run.watch.front.pid, signal.SIGSTOP)


def signal_ranks(run: Run, number: int) -> None:
    """Signal every rank and its group."""
    for pid in run.live:
        signal_rank(pid, number)


def ask_to_stop(run: Run, first: signal.Signals) -> None:
    """Begin the ladder with a signal, or take its next rung."""
    if run.waiting:
        left_out = [command.rank for command, _ in run.waiting]
        run.waiting.clear()
        run.cut_short = run.cut_short or first
        if not run.failures:
            run.say(f"not starting {named('rank', left_out)}")
    send_rung(run, run.ladder.ask(first, time.monotonic()))


def send_rung(run: Run, rung: signal.Signals | None) -> None:
    """Send a rung of the ladder to all that is left, then say so."""
    if rung is None or not (run.live or run.leavings.due):
        return
    if not run.live:
        rung = signal.SIGKILL  # what ranks left has had SIGTERM already, and is killed at the next look
    who = named("rank", run.ranks) if run.live else "what ranks left behind"
    signal_ranks(run, rung)
    signal_ranks(run, signal.SIGCONT)
    run.hurry = rung is signal.SIGKILL
    if not (run.failures or run.unread):
        run.say(f"stopping {who} with {rung.name}")
