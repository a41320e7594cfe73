"""The `ompbind` command: plain command lines are read quickly, others by click."""

from __future__ import annotations

import gc
import os
import sys

from ompbind.cli.verbs import LAUNCHING

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code.

    The garbage collector is off: verbs make hardly any reference cycles, and two searches for them (while
    modules load, and when the interpreter exits) take as long as planning and starting a rank.
    """
    gc.disable()
    args = list(sys.argv[1:] if argv is None else argv)
    verb = next((word for word in args if not word.startswith("-")), "")
    if verb not in LAUNCHING:
        import signal  # late: a start of ranks needs no enums of signals

        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # killed when its reader exits, like cat
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:  # a stream is None if it was closed when ompbind started
            reconfigure(errors="replace")
    try:
        code = run_words(args)
        if sys.stdout is not None:
            sys.stdout.flush()
    except Exception as error:  # noqa: BLE001 - every error: its exit code must not look like the command's
        from ompbind.cli.print_error import print_error  # late: most commands succeed

        code = print_error(error, launching=verb in LAUNCHING)
    except KeyboardInterrupt:
        code = 130
    if verb in LAUNCHING:
        _exit_at_once(code)
    gc.freeze()
    sys.exit(code)


def run_words(args: Sequence[str]) -> int:
    """Run a command line and return its exit code."""
    if args and args[0] in LAUNCHING and "_OMPBIND_COMPLETE" not in os.environ:
        from ompbind.cli.options.table import find_keys, find_options
        from ompbind.cli.quick_reader import read_quickly

        options = find_options(args[0])
        line = read_quickly(args[1:], options)
        if line:
            from ompbind.cli.options.values import Values
            from ompbind.cli.verb import call_verb

            values = Values(args[0], options, line.words, find_keys)
            module = __import__(f"ompbind.cli.{args[0]}", fromlist=["VERB"])  # importlib takes time to import
            return call_verb(module.VERB, values, line)
    from ompbind.cli.click_main import run_with_click  # late: plain command lines need no click

    return run_with_click(args)


def _exit_at_once(code: int) -> NoReturn:
    """Exit without taking down the interpreter, which takes longer than planning."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        pass  # the reader of the output has exited; that was reported before
    os._exit(code)
