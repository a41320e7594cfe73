"""Signals that somebody sends to ompbind: what each asks a run to do."""

import signal
import time

from ompbind.execution.run_state import Run
from ompbind.execution.signal_pipe import PASSED_ON, STOPPING
from ompbind.procfs.process_tree import signal_process


def handle_signal(run: Run, number: int) -> None:
    """Do what a signal asks for that somebody has sent to ompbind."""
    if number in STOPPING:
        idle = not (run.children.are_left or run.leavings.due)
        run.shutdown.note_request(time.monotonic(), idle=idle)
        run.stop(signal.Signals(number))
    elif number == signal.SIGTSTP and not run.terminal.can_be_stopped():
        return  # nobody could continue what is stopped here, so nothing is, as with a direct start
    elif number in PASSED_ON:
        if number == signal.SIGWINCH and run.output.outlet:
            run.output.outlet.set_size()
        run.children.signal(number)
        if number == signal.SIGHUP:
            run.children.signal(signal.SIGCONT)  # the kernel does so too: what is stopped must hear it
        if number == signal.SIGTSTP:
            signal_process(run.foreground.pid, signal.SIGSTOP)
