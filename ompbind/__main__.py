"""`ompbind` and `python -m ompbind`."""

# What signal is made of: an interrupt while that makes its enumerations would be told at length.
import _signal  # type: ignore[import-not-found]
import gc


def start() -> None:
    """Run the command line; modules load without anybody looking for garbage in them, which takes a while.

    An interrupt ends it on the spot, as it ends cat, and not with Python's traceback. What starts ranks
    deals with it from then on.
    """
    gc.disable()
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # else it is ignored, and stays so
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    from ompbind.cli.main import main  # late: after that

    main()


if __name__ == "__main__":
    start()
