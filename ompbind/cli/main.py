"""The `ompbind` command: verbs that are loaded when they are used, and the one door for errors."""

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
from ompbind.cli.console import tell
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
"""Every verb and where its command is."""

LAUNCHING = ("run", "exec")  # verbs whose exit codes belong to the command that they start


class Verbs(click.Group):
    """The group of all verbs, each one imported only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all verbs."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a verb's command, None when there is no such verb."""
        if cmd_name not in VERBS:
            return None
        module, _, name = VERBS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


@click.group("ompbind", cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="ompbind %(version)s")
def cli() -> None:
    """Start n copies of a command, each on well-chosen CPUs of its own.

    ompbind reads the machine, decides which CPUs every copy ("rank") gets, and starts each one
    bound to them, with OpenMP and other thread pools told to use exactly these.

    \b
      ompbind run -n 4 -- python serve.py
    """


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code.

    Garbage is not collected: a verb makes no cycles to speak of, and looking for some, while modules
    load and once more when the interpreter ends, takes as long as planning and starting a rank.
    """
    gc.disable()
    args = list(sys.argv[1:] if argv is None else argv)
    verb = next((word for word in args if not word.startswith("-")), "")
    if verb not in LAUNCHING:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that goes away ends it, as it ends cat
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # it is None when ompbind was started with it closed
            stream.reconfigure(errors="replace")
    try:
        code = cli.main(args=args, prog_name="ompbind", standalone_mode=False) or 0
        if sys.stdout is not None:
            sys.stdout.flush()
    except Exception as error:  # noqa: BLE001 - the one door: what went wrong must not look like the command
        code = _explain(error, launching=verb in LAUNCHING)
    except KeyboardInterrupt:
        code = 130
    if verb in LAUNCHING:
        _leave(code)
    gc.freeze()
    sys.exit(code)


def _leave(code: int) -> NoReturn:
    """End this process at once: to take Python down in order takes longer than to plan, and serves nobody."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        pass  # whoever read it has gone, which was told already
    os._exit(code)


def _explain(error: Exception, *, launching: bool) -> int:
    from ompbind.report.text import render_error, render_paragraph  # late: nothing went wrong, mostly

    code = OmpbindError.launch_code if launching else OmpbindError.exit_code
    if isinstance(error, click.Abort):
        return 130
    if isinstance(error, OmpbindError):
        tell(render_error(error))
        return error.launch_code if launching else error.exit_code
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # click 8.2 and later
        tell(str(error))
        return code
    if isinstance(error, click.UsageError):
        usage = f"{error.ctx.get_usage()}\n" if error.ctx else ""
        help_ = f"see '{error.ctx.command_path} --help'" if error.ctx else "see 'ompbind --help'"
        tell(usage + render_error(OmpbindError(error.format_message(), hint=help_)))
    elif isinstance(error, OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still buffered has nowhere to go
        tell(render_error(OmpbindError(f"{error.filename or 'output'}: {error.strerror}")))
    else:
        import traceback  # late: nobody should ever need it

        tell("".join(traceback.format_exception(error)))
        tell(render_paragraph("ompbind: error", "this is a fault in ompbind; please report the lines above"))
    return code
