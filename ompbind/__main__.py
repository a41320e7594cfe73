"""`ompbind` and `python -m ompbind`."""

import gc


def start() -> None:
    """Run the command line; modules load without anybody looking for garbage in them, which takes a while.

    An interrupt ends it on the spot, as it ends cat, and not with Python's traceback. What starts ranks
    deals with it from then on.
    """
    gc.disable()
    try:
        import signal  # here, as an interrupt while it loads counts too

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, and stays so
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    except (KeyboardInterrupt, RuntimeError):  # what Python 3.11 makes of an interrupt while an enum is made
        raise SystemExit(130) from None
    from ompbind.cli.main import main  # late: after that

    main()


if __name__ == "__main__":
    start()
