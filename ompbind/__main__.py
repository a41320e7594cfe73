#!python
"""`python -m ompbind`, and the script that is installed as `ompbind`: both start here."""

# Not `signal`: it imports other modules, and an interrupt meanwhile would print a traceback.
import _signal  # type: ignore[import-not-found]
import gc


def start() -> None:
    """Run the command line.

    An interrupt kills the process at once and without a traceback, as it kills `cat`, until code that starts
    ranks handles it. Garbage collection is off, because it would only slow down imports.
    """
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # else it stays ignored (nohup)
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    gc.disable()
    from ompbind.cli.quick_imports import start_quick_imports  # late: only now an interrupt is handled

    start_quick_imports()
    from ompbind.cli.main import main

    main()


if __name__ == "__main__":
    start()
