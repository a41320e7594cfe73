"""`python -m ompbind`, and the command `ompbind` that an installer writes: both start here."""

import gc
import os
import signal


def start() -> None:
    """Run the command line.

    From here on, an interrupt kills the process without a traceback, as it kills `cat`, until code that
    starts ranks handles it. The garbage collector is off: verbs make hardly any reference cycles.
    """
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it stays ignored (nohup)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if os.getpid() == 1:  # for process 1 of a container the kernel has no default actions
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, lambda number, _: os._exit(128 + number))
    from ompbind.cli.main import main  # noqa: PLC0415 - only now an interrupt is handled

    main()


if __name__ == "__main__":
    start()
