"""`ompbind probe`: run a real parallel region in every OpenMP runtime of this machine."""

import os

import click

from ompbind.cli.click_base import TABLE_OR_JSON, Verb
from ompbind.report.probe import render_probe, render_probe_json

EXAMPLES = (
    ("Where do the threads of two ranks land", "ompbind run -n 2 -- ompbind probe"),
    ("The same for a program, a line for each thread", "ompbind run -n 2 -- ompbind probe --format json"),
)


@click.command(
    "probe", cls=Verb, examples=EXAMPLES, short_help="Run real OpenMP threads and show where they land."
)
@TABLE_OR_JSON
def probe(format_: str) -> int:
    """Run a real parallel region in every OpenMP runtime found and show where its threads land.

    Runtimes are found by name, in the Python environment, in torch and in the libraries of wheels.
    Without any, the binding of the process itself is shown. The exit code is 1 when a runtime that
    was found gave no answer.
    """
    from ompbind.probe.openmp_region import run_probe  # late: ctypes and threads, for this verb alone

    result = run_probe(os.environ)
    text = render_probe(result, os.environ) if format_ == "table" else render_probe_json(result)
    os.write(1, (text + "\n").encode())  # one write, so that ranks do not mix their lines
    return 1 if result.failed else 0
