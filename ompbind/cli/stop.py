"""`ompbind stop`: stop live runs, as Ctrl-C does, and wait until they have exited."""

import os
import signal
import sys
import time
from collections.abc import Sequence

import click

from ompbind.cli.console import print_message, read_message_width, write_stderr, write_stdout
from ompbind.cli.verb import Verb
from ompbind.commands.rank_variables import SUPERVISOR_NAME
from ompbind.errors import InspectError
from ompbind.execution.orphans import has_exited, signal_listed
from ompbind.inspection.targets import match_runs, read_visible_claims, read_visible_runs
from ompbind.planning.other_runs import LiveRun
from ompbind.procfs.parsers import Stat
from ompbind.procfs.reader import read_processes, read_stat
from ompbind.registry.claims import CLAIM_SUFFIX, WAITING_SUFFIX, open_claim, read_exit
from ompbind.registry.registry import read_user
from ompbind.report.text import render_error

EXAMPLES = (("Stop a run", "ompbind stop nightly"), ("The names of live runs", "ompbind ps"))

_HINT = "'ompbind ps' lists live runs"

_START_S = 0.5  # until a run that has just started has a supervisor that other processes find
_POLL_S = 0.02  # between two looks at the processes of runs: a pidfd is not possible in each container


def stop(ctx: click.Context) -> int:
    """Stop live runs: send SIGTERM to the supervisor of each, and wait until all processes have exited.

    Ranks get SIGTERM, and SIGKILL after the --grace of their run. A run is named as 'ompbind ps' shows it, or
    by how its name begins. The exit code is 1 if a run could not be stopped.
    """
    words: Sequence[str] = ctx.params["words"]
    if not words:
        raise InspectError("no run is given", hint=_HINT)
    live = read_visible_claims((CLAIM_SUFFIX, WAITING_SUFFIX))
    named, stopped = dict[LiveRun, None](), []
    for word in words:
        if not (found := match_runs(word, tuple(live))):
            raise InspectError(f"no live run is named {word!r}", hint=_HINT)
        named |= dict.fromkeys(found)
    for run in named:
        try:
            stopped.append((run, *_send(run, live[run])))
        except InspectError as error:
            write_stderr(render_error(error, read_message_width()))
    failed, begun = len(stopped) < len(named), time.monotonic()
    while stopped:
        for run, claim, process in list(stopped):
            if has_exited(run.pid, process):
                stopped.remove((run, claim, process))
                code = read_exit(claim)
                how = "has exited" if code is None else f"exited with code {code}"
                write_stdout(f"run {run.run_id} {how}, {time.monotonic() - begun:.1f} s after SIGTERM")
        time.sleep(_POLL_S if stopped else 0)
    return int(failed)


def _send(run: LiveRun, path: str) -> tuple[int, Stat]:
    """Send SIGTERM to the supervisor of a run, or to a run that waits, or to a session of bench.

    Return its open claim, which has its exit code in the end, and its process. Raises InspectError.
    """
    name = f"run {run.run_id} (pid {run.pid})"
    if run.uid != os.geteuid():  # also for root: another user may write any pid into a claim
        user = read_user(run.uid)
        raise InspectError(f"{name} belongs to user {user}", hint=f"'kill {run.pid}' stops it, as {user}")
    if sys.platform != "linux":
        raise InspectError(f"{name}: ompbind cannot wait for it on this system", hint=f"use 'kill {run.pid}'")
    process = read_stat(run.pid)
    try:
        claim = open_claim(path)
    except FileNotFoundError:
        process = None
    if process is None:
        raise InspectError(f"{name} has just exited")
    give_up_at = time.monotonic() + _START_S
    while time.monotonic() < give_up_at:
        stats = read_processes()
        pids = [run.pid]
        if not (run.wanted or run.is_session):  # the supervisor is a child of the process of the run
            children = ((pid, stat) for pid, stat in stats.items() if stat.parent == run.pid)
            pids = [pid for pid, stat in children if stat.name == SUPERVISOR_NAME]
        for pid in pids:
            if pid in stats and signal_listed(pid, stats[pid], signal.SIGTERM):
                print_message(f"stopping {name}")
                return claim, process
        time.sleep(_POLL_S)
    hint = "stop its launcher, as with scancel or Ctrl-C, or the process itself"
    raise InspectError(f"{name} has no supervisor: 'ompbind exec' has started it", hint=hint)


VERB = Verb(
    "stop",
    stop,
    summary="Stop live runs, and wait until they have exited.",
    page="sharing.md",
    examples=EXAMPLES,
    words="runs",
    complete_word=lambda _: sorted({run.run_id for run in read_visible_runs()}),
)
