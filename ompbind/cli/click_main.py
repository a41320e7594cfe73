"""All verbs for click, which reads the command lines that need help, completion or an error message."""

import os
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import click

from ompbind import __version__
from ompbind.cli.console import write_stderr, write_stdout
from ompbind.cli.usage_errors import explain_usage_error
from ompbind.cli.verbs import VERBS
from ompbind.errors import OmpbindError

if TYPE_CHECKING:
    from ompbind.cli.click_commands import ClickVerb
    from ompbind.cli.options.option import Option


class Verbs(click.Group):
    """The group of all verbs; a verb is imported only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all verbs."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Make the command of a verb; return None if there is no such verb."""
        return make_click_command(cmd_name) if cmd_name in VERBS else None


def _find_options(verb: str) -> "tuple[Option, ...]":
    from ompbind.cli.options.table import find_options  # late: --version needs no options

    return find_options(verb)


def make_click_command(name: str) -> "ClickVerb":
    """Import a verb and make its command."""
    from ompbind.cli.click_commands import ClickVerb  # late, as above
    from ompbind.cli.options.table import find_keys

    return ClickVerb(import_module(f"ompbind.cli.{name}").VERB, _find_options(name), find_keys)


@click.group("ompbind", cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    __version__,
    message="ompbind %(version)s",
    help="Show the version; with -v, what a report of a fault needs.",
)
def cli() -> None:
    """Start copies (ranks) of a command, each bound to well-chosen CPUs of its own.

    ompbind reads the CPUs, caches and NUMA nodes of the machine, plans which CPUs each rank gets, and starts
    each rank on exactly these CPUs. OpenMP and other common thread pools are configured to use only them.

    \b
      ompbind run -n 4 -- python serve.py
    """


_VERSION_WORDS = {"--version", "-v", "--verbose"}
"""The words of a command line that prints more than the version."""


def run_with_click(args: Sequence[str]) -> int:
    """Run a command line and return its exit code; raises OmpbindError, and OSError of the output."""
    if "_OMPBIND_COMPLETE" in os.environ:
        from ompbind.cli.completion_scripts import register

        register()
    if len(args) > 1 and "--version" in args and _VERSION_WORDS.issuperset(args):
        from ompbind.cli.version_report import render_version_report

        write_stdout(render_version_report(os.environ))
        return 0
    try:
        return cli.main(args=list(args), prog_name="ompbind", standalone_mode=False) or 0
    except click.Abort:
        return 130
    except click.UsageError as error:
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # click 8.2 and later
            write_stderr(str(error))
            return OmpbindError.exit_code
        if error.ctx:
            write_stderr(error.ctx.get_usage())
        raise explain_usage_error(error, args, _find_options) from error
