"""The `ompbind` command: plain command lines are read quickly, others by click; errors are printed here."""

from __future__ import annotations

import gc
import os
import sys

from ompbind.cli.verbs import LAUNCHING
from ompbind.errors import OmpbindError

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
        code = _print_error(error, launching=verb in LAUNCHING)
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


_PYTHON_HINT = "install all of Python; on Debian and Ubuntu, python3-minimal lacks modules that python3 has"


def _exit_at_once(code: int) -> NoReturn:
    """Exit without taking down the interpreter, which takes longer than planning."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        pass  # the reader of the output has exited; that was reported before
    os._exit(code)


def _print_error(error: Exception, *, launching: bool) -> int:
    """Print an error to standard error and return the exit code for it."""
    from ompbind.cli.console import read_message_width, write_stderr  # late: most commands succeed
    from ompbind.report.text import render_error, render_paragraph

    code = OmpbindError.launch_code if launching else OmpbindError.exit_code
    width = read_message_width()
    if isinstance(error, OmpbindError):
        write_stderr(render_error(error, width))
        return error.launch_code if launching else error.exit_code
    if isinstance(error, ModuleNotFoundError) and error.name in sys.stdlib_module_names:
        text = f"the standard library of this Python has no module '{error.name}'"
        write_stderr(render_error(OmpbindError(text, hint=_PYTHON_HINT), width))
    elif isinstance(error, OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # text that is still buffered cannot be written either
        write_stderr(render_error(OmpbindError(f"{error.filename or 'output'}: {error.strerror}"), width))
    else:
        import traceback  # late: only for a bug in ompbind

        write_stderr("".join(traceback.format_exception(error)))
        text = "this is a bug in ompbind; please report the lines above"
        write_stderr(render_paragraph("ompbind: error", text, width))
    return code
