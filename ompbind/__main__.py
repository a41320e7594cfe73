"""`ompbind` and `python -m ompbind`."""

import gc
import signal


def start() -> None:
    """Run the command line; modules load without anybody looking for garbage in them, which takes a while.

    An interrupt ends it on the spot, as it ends cat, and not with Python's traceback. What starts ranks
    deals with it from then on.
    """
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, and stays so
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ompbind.cli.main import main  # late: after that

    main()


if __name__ == "__main__":
    start()
