"""`ompbind doctor`: what on this machine or in this environment would break a binding."""

import os

import click

from ompbind.cli.config_files import read_found_files
from ompbind.cli.console import read_screen, write_stdout
from ompbind.cli.options import find_unknown_variables, find_variables
from ompbind.cli.settings import make_settings
from ompbind.cli.verb import Verb
from ompbind.doctor.all_checks import run_checks
from ompbind.doctor.read import read_host
from ompbind.record import Record
from ompbind.report.doctor import render_issues, render_issues_json
from ompbind.text import Severity

EXAMPLES = (
    ("This machine and this environment", "ompbind doctor"),
    ("The same, and what a server would run", "ompbind doctor -- python serve.py"),
    ("The same, as JSON", "ompbind doctor --format json -- python serve.py"),
)


HELP = """Find what on this machine or in this environment would break a binding, each with its remedy.

With a command, its Python, its OpenMP runtimes and its thread pools are checked too; the command is not
started. The exit code is 1 if there is an error, not for notes.
"""


class DoctorSettings(Record):
    """The fields are the options of the same names, and the command."""

    format: str
    words: tuple[str, ...]


def doctor(ctx: click.Context) -> int:
    """Find what on this machine or in this environment would break a binding, each with its remedy."""
    settings = make_settings(DoctorSettings, ctx.params)
    env = dict(os.environ)
    files = (f"{file.kind} file {file.path}" for file in read_found_files(env).read)
    host = read_host(settings.words, env, find_variables(), tuple(find_unknown_variables(env)), files)
    issues = run_checks(host)
    is_json = settings.format == "json"
    write_stdout(render_issues_json(issues, host) if is_json else render_issues(issues, read_screen()))
    return 1 if any(issue.severity is Severity.ERROR for issue in issues) else 0


VERB = Verb(
    "doctor",
    doctor,
    help=HELP,
    summary="Find what would break a binding on this machine.",
    page="doctor.md",
    examples=EXAMPLES,
    words="optional command",
)
