"""`ompbind` and `python -m ompbind`."""

import gc


def start() -> None:
    """Run the command line.

    Garbage collection is off, because it would only slow down imports. An interrupt kills the process at
    once and without a traceback, as it kills `cat`, until code that starts ranks handles it.
    """
    gc.disable()
    try:
        import signal  # not at the top: an interrupt during this import must be caught too

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it stays ignored (nohup)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    except (KeyboardInterrupt, RuntimeError):  # Python 3.11 raises RuntimeError for an interrupt in an enum
        raise SystemExit(130) from None
    from ompbind.cli.main import main  # late: only now an interrupt is handled

    main()


if __name__ == "__main__":
    start()
