"""The `ompbind` command: verbs that are imported when they are used, and the only place to print errors."""

import gc
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import NoReturn

import click

from ompbind import __version__
from ompbind.cli.console import read_message_width, write_stderr
from ompbind.errors import OmpbindError

VERBS = {
    "run": "ompbind.cli.run:run",
    "exec": "ompbind.cli.exec:exec_",
    "plan": "ompbind.cli.plan:plan",
    "topo": "ompbind.cli.topo:topo",
    "probe": "ompbind.cli.probe:probe",
    "doctor": "ompbind.cli.doctor:doctor",
    "ps": "ompbind.cli.ps:ps",
    "inspect": "ompbind.cli.inspect:inspect",
}
"""Every verb and the module and name of its command."""

LAUNCHING = ("run", "exec")  # verbs that exit with the code of the command that they start


class Verbs(click.Group):
    """The group of all verbs; a verb is imported only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all verbs."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of a verb; return None if there is no such verb."""
        if cmd_name not in VERBS:
            return None
        module, _, name = VERBS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


@click.group("ompbind", cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="ompbind %(version)s")
def cli() -> None:
    """Start copies (ranks) of a command, each bound to well-chosen CPUs of its own.

    ompbind reads the CPUs, caches and NUMA nodes of the machine, plans which CPUs each rank gets, and starts
    each rank on exactly these CPUs. OpenMP and other common thread pools are configured to use only them.

    \b
      ompbind run -n 4 -- python serve.py
    """


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code.

    The garbage collector is off: verbs make hardly any reference cycles, and two searches for them (while
    modules load, and when the interpreter exits) take as long as planning and starting a rank.
    """
    gc.disable()
    args = list(sys.argv[1:] if argv is None else argv)
    verb = next((word for word in args if not word.startswith("-")), "")
    if verb not in LAUNCHING:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # killed when its reader exits, like cat
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # it is None if it was closed when ompbind started
            stream.reconfigure(errors="replace")
    try:
        code = cli.main(args=args, prog_name="ompbind", standalone_mode=False) or 0
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
    from ompbind.report.text import render_error, render_paragraph  # late: most commands succeed

    code = OmpbindError.launch_code if launching else OmpbindError.exit_code
    if isinstance(error, click.Abort):
        return 130
    width = read_message_width()
    if isinstance(error, OmpbindError):
        write_stderr(render_error(error, width))
        return error.launch_code if launching else error.exit_code
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # click 8.2 and later
        write_stderr(str(error))
        return code
    if isinstance(error, click.UsageError):
        from ompbind.cli.usage_errors import explain_usage_error

        usage = f"{error.ctx.get_usage()}\n" if error.ctx else ""
        write_stderr(usage + render_error(explain_usage_error(error), width))
    elif isinstance(error, OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # text that is still buffered cannot be written either
        write_stderr(render_error(OmpbindError(f"{error.filename or 'output'}: {error.strerror}"), width))
    else:
        import traceback  # late: only for a bug in ompbind

        write_stderr("".join(traceback.format_exception(error)))
        text = "this is a bug in ompbind; please report the lines above"
        write_stderr(render_paragraph("ompbind: error", text, width))
    return code
