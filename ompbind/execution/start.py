"""Start the ranks of a run: the first time, and again after a failure."""

import os
import signal
import time

from ompbind.errors import LaunchError
from ompbind.execution.children import Child
from ompbind.execution.outcome import RankExit, render_exit_status
from ompbind.execution.run_state import RunState
from ompbind.execution.spawn import spawn
from ompbind.planning.rank_command import make_attempt


def start_rank(run: RunState, rank: int, last: RankExit | None = None) -> None:
    """Start a rank, or start it again if `last` is its exit; a failed start stops the run."""
    command, path = run.starts[rank]
    attempt, heading = 1, ""
    if last:
        attempt = last.attempt + 1
        command = make_attempt(command, attempt)
        heading = (  # a line of the log files before the output of the attempt
            f"--- ompbind: {command.name}, attempt {attempt}, {time.strftime('%Y-%m-%d %H:%M:%S')};"
            f" attempt {last.attempt} {render_exit_status(last)} ---"
        )
    multiplexer = run.output.multiplexer
    try:
        out, err = multiplexer.open_streams(rank, heading) if multiplexer else (-1, -1)
        files = (-1 if rank == run.input_rank and not last else run.empty_input.file, out, err)
        terminal = run.terminal if _gets_terminal(run) else None
        started_at = time.monotonic()
        try:
            with run.limit.original_limit():
                pid = spawn(command, path, run.foreground, files=files, terminal=terminal)
        finally:
            if multiplexer:
                multiplexer.close_streams(out, err)
    except LaunchError as error:
        run.shutdown.note_error(error)
        run.stop(signal.SIGTERM)
        return
    run.accounting.note_start()
    run.children.add(pid, Child(rank, attempt, started_at))


def _gets_terminal(run: RunState) -> bool:
    """Return whether the only rank gets the terminal from its start.

    It does if it reads the terminal and writes to no pipe, so that no other process of the job needs it. It
    also does if it could not request the terminal later, as within `$(...)` of an interactive shell.
    """
    if not (run.children.is_single and run.options.stdin_first and run.terminal.is_ours()):
        return False
    inherits = run.options.output is None and not run.output.goes_to_pipe
    return not run.foreground.can_request_terminal or (os.isatty(0) and inherits)


def restart_due_ranks(run: RunState) -> None:
    """Start each failed rank again whose wait is over, and of whose last attempt nothing is left."""
    due = run.restarts.take_due(time.monotonic())
    if not due or run.is_paused:
        return
    if not run.orphans.any_left:  # else they were just looked for
        run.stop_orphans()  # the check after the exit may have missed some
    for rank in due:
        last = run.children.find_exit(rank)
        has_output = run.output.multiplexer is not None and not run.output.multiplexer.end_streams(rank)
        if not (has_output or run.orphans.has_left((rank, last.attempt))):
            start_rank(run, rank, last)  # else its output, or the exit of an orphan, wakes up the loop
            leave_rank_cpus(run)
            if not run.shutdown.begun:
                run.restarts.note_start(last)
                if run.sampler and not run.group_starts.pending:
                    run.sampler.begin_again(rank, time.monotonic())
                if run.options.publish_restarts:
                    run.options.publish_restarts(run.restarts.count)
        if run.shutdown.begun:
            return


def leave_rank_cpus(run: RunState) -> None:
    """Leave the CPUs of the last started rank: return to the CPUs that ompbind was started with."""
    if run.cpus is not None:
        try:
            os.sched_setaffinity(0, run.cpus)
        except OSError:
            pass  # all of them went offline: this process stays on the CPUs of that rank
