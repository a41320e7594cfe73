"""`ompbind probe`: run a real parallel region in every OpenMP runtime of this machine."""

import os

import click

from ompbind.cli.click_base import TABLE_OR_JSON, Verb
from ompbind.report.probe import render_probe, render_probe_json

EXAMPLES = (
    ("The CPUs of the threads of two ranks", "ompbind run -n 2 -- ompbind probe"),
    ("The same as JSON, a line for each thread", "ompbind run -n 2 -- ompbind probe --format json"),
)


@click.command(
    "probe", cls=Verb, examples=EXAMPLES, short_help="Run real OpenMP threads and show their CPUs."
)
@TABLE_OR_JSON
def probe(format_: str) -> int:
    """Run a real parallel region in every OpenMP runtime found, and show the place and CPU of each thread.

    Runtimes are found by name, in the Python environment, in torch and in the libraries of wheels. If none
    is found, the binding of the process itself is shown. The exit code is 1 if a runtime crashed or hung.
    """
    from ompbind.probe.openmp_region import run_probe  # late: ctypes and threads, for this verb alone

    result = run_probe(os.environ)
    text = render_probe(result, os.environ) if format_ == "table" else render_probe_json(result)
    os.write(1, (text + "\n").encode())  # a single write, so that lines of ranks do not mix
    return 1 if result.failed else 0
