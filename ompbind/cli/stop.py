"""`ompbind stop`: stop live runs, as Ctrl-C does, and wait until they have exited."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from ompbind.cli.console import print_message, read_message_width, write_stderr, write_stdout
from ompbind.cli.option import VerbContext
from ompbind.cli.verb import Verb
from ompbind.commands.rank_variables import SUPERVISOR_NAME
from ompbind.errors import InspectError
from ompbind.execution.orphans import has_exited, signal_listed
from ompbind.inspection.targets import make_unnamed, match_runs, read_visible_claims, read_visible_runs
from ompbind.planning.other_runs import LiveRun
from ompbind.procfs.parsers import Stat, find_descendants
from ompbind.procfs.reader import read_processes, read_stat
from ompbind.registry.claims import CLAIM_SUFFIX, WAITING_SUFFIX, open_claim, read_exit
from ompbind.registry.registry import read_user
from ompbind.report.text import render_error
from ompbind.text import whole_number

EXAMPLES = (("Stop a run", "ompbind stop nightly"), ("The names of live runs", "ompbind ps"))

_STOPPED, _TRACED = "T", "t"
"""States of processes: stopped by a signal, or by a debugger, where SIGCONT has no effect."""

_HINT = "'ompbind ps' lists live runs"

_LIMIT_S = 5.0  # for the exit of a run, besides three times its --grace: for ranks, what they leave, output
_START_S = 0.5  # until a run that has just started has a supervisor that other processes find
_POLL_S = 0.02  # between two looks at the processes of runs: a pidfd is not possible in each container


def stop(ctx: VerbContext) -> int:
    """Stop live runs: send SIGTERM to the supervisor of each, and wait until all processes have exited.

    Ranks get SIGTERM, and SIGKILL after the --grace of their run. A run that Ctrl-Z has paused is continued
    first. A run is named by the name or PID that 'ompbind ps' shows, or by how its name begins. The exit code
    is 1 if a run could not be stopped, or has not exited five seconds after three times its --grace.
    """
    words: Sequence[str] = ctx.params["words"]
    if not words:
        raise InspectError("no run is given", hint=_HINT)
    live = read_visible_claims((CLAIM_SUFFIX, WAITING_SUFFIX))
    named, stopping = dict[LiveRun, None](), []
    for word in words:
        stat = read_stat(whole_number(word) or 0)
        shown = str(stat.parent) if stat and stat.name == SUPERVISOR_NAME else word  # as ompbind ps shows it
        if not (found := match_runs(shown, tuple(live))):
            raise make_unnamed(word, live, f"no run was stopped; {_HINT}")
        named |= dict.fromkeys(found)
    for run in named:
        try:
            stopping.append((run, *_send(run, live[run])))
        except InspectError as error:
            write_stderr(render_error(error, read_message_width()))
    exited, begun = 0, time.monotonic()
    while stopping:
        for run, claim, process, supervisor in list(stopping):
            after_s, limit_s = time.monotonic() - begun, 3 * run.grace_s + _LIMIT_S
            if has_exited(run.pid, process):
                code = read_exit(claim)
                how = "has exited" if code is None else f"exited with code {code}"
                write_stdout(f"run {run.run_id} {how}, {after_s:.1f} s after SIGTERM")
                exited += 1
            elif after_s > limit_s:
                stuck = supervisor if _read_state(supervisor) == _TRACED else run.pid
                hint = f"'kill -KILL {stuck}' kills it and its ranks"
                late = InspectError(f"{_name(run)} has not exited {limit_s:g} s after SIGTERM", hint=hint)
                write_stderr(render_error(late, read_message_width()))
            else:
                _continue(run, supervisor)  # Ctrl-Z may come late, too
                continue
            stopping.remove((run, claim, process, supervisor))
        time.sleep(_POLL_S if stopping else 0)
    return int(exited < len(named))


def _name(run: LiveRun) -> str:
    return f"run {run.run_id} (pid {run.pid})"


def _read_state(pid: int) -> str:
    stat = read_stat(pid)
    return stat.state if stat else ""


def _continue(run: LiveRun, supervisor: int) -> bool:
    """Continue all processes of a run if it is paused, as Ctrl-Z or SIGSTOP does; return whether it was."""
    if _STOPPED not in map(_read_state, (run.pid, supervisor)):
        return False
    stats = read_processes()
    for pid in find_descendants(stats, (run.pid,)) & stats.keys():
        if stats[pid].state == _STOPPED:
            signal_listed(pid, stats[pid], signal.SIGCONT)
    return True


def _send(run: LiveRun, path: str) -> tuple[int, Stat, int]:
    """Send SIGTERM to the supervisor of a run, or to a run that waits, or to a session of bench.

    Return its open claim, which has its exit code in the end, its process, and the pid that got SIGTERM.
    Raises InspectError.
    """
    name = _name(run)
    if run.uid != os.geteuid():  # also for root: another user may write any pid into a claim
        user = read_user(run.uid)
        raise InspectError(f"{name} belongs to user {user}", hint=f"'kill {run.pid}' stops it, as {user}")
    if sys.platform != "linux":
        raise InspectError(f"{name}: ompbind cannot wait for it on this system", hint=f"use 'kill {run.pid}'")
    process, claim = read_stat(run.pid), -1
    with suppress(FileNotFoundError):
        claim = open_claim(path)
    if process is None or claim < 0:
        raise InspectError(f"{name} has just exited")
    give_up_at = time.monotonic() + _START_S
    while time.monotonic() < give_up_at:
        stats = read_processes()
        pids = [run.pid]
        if not (run.wanted or run.is_session):  # the supervisor is a child of the process of the run
            children = ((pid, stat) for pid, stat in stats.items() if stat.parent == run.pid)
            pids = [pid for pid, stat in children if stat.name == SUPERVISOR_NAME]
        for pid in pids:
            is_paused = _continue(run, pid)
            if pid in stats and signal_listed(pid, stats[pid], signal.SIGTERM):
                how = "is paused: continuing and stopping it"
                print_message(f"{name} {how}" if is_paused else f"stopping {name}")
                return claim, process, pid
        time.sleep(_POLL_S)
    hint = f"stop its launcher, as with scancel or Ctrl-C, or use 'kill {run.pid}'"
    raise InspectError(f"{name} has no supervisor: 'ompbind exec' has started it", hint=hint)


VERB = Verb(
    "stop",
    stop,
    summary="Stop live runs, and wait until they have exited.",
    page="queue",
    examples=EXAMPLES,
    words="runs",
    complete_word=lambda _: sorted({run.run_id for run in read_visible_runs()}),
)
