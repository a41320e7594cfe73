"""Print the error that a command line ends with, on standard error."""

from __future__ import annotations

import os
import sys

from ompbind.cli.console import read_message_width, write_stderr
from ompbind.errors import OmpbindError
from ompbind.report.text import render_error, render_paragraph

_PYTHON_HINT = "install all of Python; on Debian and Ubuntu, python3-minimal lacks modules that python3 has"


def print_error(error: Exception, *, launching: bool) -> int:
    """Print an error to standard error and return the exit code for it."""
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
