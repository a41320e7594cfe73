"""`ompbind probe`: run a real parallel region in every OpenMP runtime of this machine."""

import os

import click

from ompbind.cli.console import print_message
from ompbind.cli.settings import make_settings
from ompbind.cli.verb import Verb
from ompbind.errors import RequestError
from ompbind.probe.region import run_probe
from ompbind.programs.command import read_workload
from ompbind.programs.python_packages import find_default_python
from ompbind.record import Record
from ompbind.report.probe import render_probe, render_probe_json

EXAMPLES = (
    ("The CPUs of the threads of two ranks", "ompbind run -n 2 -- ompbind probe"),
    ("The same as JSON, a line for each thread", "ompbind run -n 2 -- ompbind probe --format json"),
    ("The runtimes in the packages of another Python", "ompbind probe --python .venv/bin/python"),
)


HELP = """Run a real parallel region in every OpenMP runtime found, and show the place and CPU of each thread.

Runtimes are found by name, in the Python environment, in torch and in the libraries of wheels. If none
is found, the binding of the process itself is shown. The exit code is 1 if a runtime crashed or hung.
"""


class ProbeSettings(Record):
    """The fields are the options of the same names."""

    python: str | None
    format: str


def probe(ctx: click.Context) -> int:
    """Run a real parallel region in every OpenMP runtime found, and show the place and CPU of each thread."""
    settings = make_settings(ProbeSettings, ctx.params)
    python = settings.python
    chosen = "" if python is None else _find_python(python)
    directory, default = os.environ.get("VIRTUAL_ENV"), find_default_python(os.environ)
    if python is None and directory and default != os.path.join(directory, "bin", "python"):
        print_message(f"VIRTUAL_ENV={directory} has no bin/python: the packages of {default} are searched")
    result = run_probe(os.environ, chosen)
    text = render_probe(result, os.environ) if settings.format == "table" else render_probe_json(result)
    os.write(1, (text + "\n").encode())  # a single write, so that lines of ranks do not mix
    return 1 if result.failed else 0


def _find_python(name: str) -> str:
    """Return the path of a Python; raises RequestError for other programs and for missing ones."""
    python = read_workload((name,), os.environ).python
    if not python:
        hint = "give the path of an interpreter, as in .venv/bin/python"
        reason = "this is not a Python interpreter"  # without a slash, it may be a command in PATH
        if os.path.isdir(name):
            reason = "it is a directory"
        elif "/" in name and not os.path.lexists(name):
            reason = "there is no such file"
        raise RequestError(f"--python {name!r}: {reason}", hint=hint)
    return python


VERB = Verb(
    "probe",
    probe,
    help=HELP,
    summary="Run real OpenMP threads and show their CPUs.",
    page="explanation.md",
    examples=EXAMPLES,
)
