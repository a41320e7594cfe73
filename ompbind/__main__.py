#!python
"""`python -m ompbind`, and the script that is installed as `ompbind`: both start here."""

# Not `signal`: it imports other modules, and an interrupt meanwhile would print a traceback.
import _signal  # type: ignore[import-not-found]
import gc
import os


def start() -> None:
    """Run the command line.

    An interrupt kills the process at once and without a traceback, as it kills `cat`, until code that starts
    ranks handles it. Garbage collection is off, because it would only slow down imports.
    """
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # else it stays ignored (nohup)
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    if os.getpid() == 1:
        _exit_by_signals()
    gc.disable()
    from ompbind.cli.main import main  # late: only now an interrupt is handled

    main()


def _exit_by_signals() -> None:
    """Handle signals that stop a process: for process 1 of a container the kernel has no default actions."""
    for number in (_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGTERM):
        if _signal.getsignal(number) == _signal.SIG_DFL:
            _signal.signal(number, _exit_by_signal)


def _exit_by_signal(number: int, frame: object) -> None:
    os._exit(128 + number)


if __name__ == "__main__":
    start()
