"""The `ompbind` command: the group of all verbs, and the only place where errors are printed."""

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import click

from ompbind import __version__
from ompbind.cli import LAUNCHING, VERB_MODULES, VERBS
from ompbind.cli.console import make_help_option, read_message_width, write_stderr
from ompbind.errors import REFUSED, REFUSED_HINT, OmpbindError
from ompbind.report.text import render_error, render_paragraph

_PYTHON_HINT = "install all of Python; on Debian and Ubuntu, python3-minimal lacks modules that python3 has"


class Verbs(click.Group):
    """The group of all verbs; a verb is imported only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all verbs."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a verb; None if there is no such verb."""
        return load_verb(cmd_name) if cmd_name in VERBS else None


def load_verb(name: str) -> Any:
    """Import a verb and return its command, a `Verb`."""
    return import_module(VERB_MODULES.get(name, f"ompbind.cli.{name}")).VERB


@click.group(
    "ompbind",
    cls=Verbs,
    add_help_option=False,
    epilog="First steps: ompbind help tutorial. All pages: ompbind help pages",
)
def cli() -> None:
    """Start copies (ranks) of a command, each bound to well-chosen CPUs of its own.

    ompbind reads the CPUs, caches and NUMA nodes of the machine, plans which CPUs each rank gets, and starts
    each rank on exactly these CPUs. OpenMP and other common thread pools are configured to use only them.

    \b
      ompbind run -n 4 -- python serve.py
    """


_VERSION = f"ompbind {__version__}"
cli.params.append(make_help_option("--version", help="Show the version and exit.", text=_VERSION))
cli.params.append(make_help_option())


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code.

    If the reader of standard output exits, the process is killed, as `cat` is, unless it starts ranks.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    is_launching = bool(args) and args[0] in LAUNCHING
    if not is_launching:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # killed when its reader exits, like cat
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # it was closed when ompbind started
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # tests replace it
    try:
        code = run_words(args)
        if sys.stdout is not None:
            sys.stdout.flush()
    except Exception as error:  # noqa: BLE001 - every error: its exit code must not look like the command's
        code = print_error(error, launching=is_launching, local_rank=_read_local_rank(args))
    except KeyboardInterrupt:
        code = 130
    if is_launching:  # exit as a forked process should: it shares its interpreter with its parent
        with suppress(
            AttributeError, OSError
        ):  # it is closed, or its reader has exited and this was reported
            sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


def run_words(args: Sequence[str]) -> int:
    """Run a command line and return its exit code; raises OmpbindError, and OSError of the output."""
    if not args and "_OMPBIND_COMPLETE" not in os.environ:  # an error with each version of click
        with click.Context(cli, info_name="ompbind", **cli.context_settings) as ctx:
            write_stderr(cli.get_help(ctx))
        return OmpbindError.exit_code
    try:
        return cli.main(args=list(args), prog_name="ompbind", standalone_mode=False) or 0
    except click.Abort:
        return 130
    except click.UsageError as error:
        from ompbind.cli.usage_errors import explain_usage_error  # noqa: PLC0415 - door: a wrong command line

        if error.ctx and not _read_local_rank(args):
            write_stderr(error.ctx.get_usage())
        raise explain_usage_error(error, args) from error


def _read_local_rank(args: Sequence[str]) -> int:
    if args[:1] != ["exec"]:
        return 0
    from ompbind.launchers.find import read_local_rank  # noqa: PLC0415 - door: an error of a rank

    return read_local_rank(os.environ)


def print_error(error: Exception, *, launching: bool, local_rank: int = 0) -> int:
    """Print an error to standard error and return the exit code for it.

    All ranks of a machine usually have the same error: the first one prints all of it, the others a line.
    """
    width = read_message_width()
    if isinstance(error, ModuleNotFoundError) and error.name in sys.stdlib_module_names:
        text = f"the standard library of this Python has no module '{error.name}'"
        error = OmpbindError(text, hint=_PYTHON_HINT)
    elif isinstance(error, OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # text that is still buffered cannot be written either
        what, hint = error.filename or "output", ""
        if error.errno in REFUSED and not error.filename:
            what, hint = "a system call failed", REFUSED_HINT
        error = OmpbindError(f"{what}: {error.strerror}", hint=hint)
    if isinstance(error, OmpbindError):
        line = f"ompbind: error: local rank {local_rank}: {error.message}"
        write_stderr(line if local_rank else render_error(error, width))
        return error.launch_code if launching else error.exit_code
    import traceback  # noqa: PLC0415 - door: an error in ompbind

    write_stderr("".join(traceback.format_exception(error)))
    text = "this is a bug in ompbind; please report the lines above"
    write_stderr(render_paragraph("ompbind: error", text, width))
    return OmpbindError.launch_code if launching else OmpbindError.exit_code
