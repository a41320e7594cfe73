"""`ompbind probe`: run a real parallel region in every OpenMP runtime of this machine."""

import json
import os
from collections.abc import Mapping
from itertools import groupby
from textwrap import indent

from ompbind.cli.console import print_message
from ompbind.cli.option import FILES, Option, VerbContext
from ompbind.cli.verb import Verb, make_format_option
from ompbind.cpuset import CpuSet, count, named
from ompbind.errors import RequestError
from ompbind.probe.region import ProbedThread, ProbeResult, run_probe
from ompbind.programs.command import read_workload
from ompbind.programs.python_packages import find_default_python
from ompbind.report.text import Column, render_table

EXAMPLES = (
    ("The CPUs of the threads of two ranks", "ompbind run -n 2 -- ompbind probe"),
    ("The same as JSON, a line for each thread", "ompbind run -n 2 -- ompbind probe --format json"),
    ("The runtimes in the packages of another Python", "ompbind probe --python .venv/bin/python"),
)

OPTIONS = (
    Option("--python", verbs=("probe",), metavar="PATH", complete=FILES,
           help="The Python whose packages are searched", default_help="of VIRTUAL_ENV, else of ompbind"),
    make_format_option("probe", "table", "json"),
)  # fmt: skip


def probe(ctx: VerbContext) -> int:
    """Run a real parallel region in every OpenMP runtime found, and show the place and CPU of each thread.

    Runtimes are found by name, in the Python environment, in torch and in the libraries of wheels. If none
    is found, the binding of the process itself is shown. The exit code is 1 if a runtime crashed or hung.
    """
    python: str | None = ctx.params["python"]
    chosen = "" if python is None else _find_python(python)
    directory, default = os.environ.get("VIRTUAL_ENV"), find_default_python(os.environ)
    if python is None and directory and default != os.path.join(directory, "bin", "python"):
        print_message(f"VIRTUAL_ENV={directory} has no bin/python: the packages of {default} are searched")
    result = run_probe(os.environ, chosen)
    text = render_probe(result, os.environ) if ctx.params["format"] == "table" else render_probe_json(result)
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


def render_probe(result: ProbeResult, env: Mapping[str, str]) -> str:
    """Render a probe as text: the process, its OpenMP variables, and the threads of each runtime."""
    who = "this process" if result.rank is None else f"rank {result.rank}"
    cpus = CpuSet.from_list(result.cpus_allowed)
    lines = [f"{who} (pid {result.pid}): allowed on {named('CPU', cpus) if cpus else 'all CPUs'}"]
    if env.get("OMP_PLACES"):
        lines.append(f"  OMP_PLACES={env['OMP_PLACES']} OMP_PROC_BIND={env.get('OMP_PROC_BIND', '')}")
    for path, threads in groupby(result.threads, key=lambda thread: thread.path):
        lines.append(_render_runtime(path, list(threads)))
    lines.extend(f"  {path}: no result, it crashed or hung" for path in result.failed)
    if not result.threads:
        lines.append(f"  no OpenMP runtime found; this process runs on CPU {result.cpu}")
    return "\n".join(lines)


def _render_runtime(path: str, threads: list[ProbedThread]) -> str:
    places = ["-" if thread.place is None else str(thread.place) for thread in threads]
    columns = [
        Column(title="thread", cells=[str(thread.thread) for thread in threads], right=True),
        Column(title="place", cells=places, right=True),
        Column(title="affinity mask", cells=[thread.cpus_allowed for thread in threads]),
        Column(title="CPU", cells=[str(thread.cpu) for thread in threads], right=True),
    ]
    title = f"  {threads[0].runtime}: {count(len(threads), 'thread')} ({path})"
    return f"{title}\n{indent(render_table(columns), '    ')}"


def render_probe_json(result: ProbeResult) -> str:
    """Render a probe as a JSON line for each thread; without a runtime, one line with runtime null."""
    head = {"rank": result.rank, "pid": result.pid}
    no_runtime = {
        "runtime": None, "path": None, "thread": 0, "threads": 1, "place": None, "places": list[str](),
        "cpus_allowed": result.cpus_allowed, "cpu": result.cpu,
    }  # fmt: skip
    lines = [thread.as_dict() for thread in result.threads] or [no_runtime]
    return "\n".join(json.dumps({**head, **line}) for line in lines)


VERB = Verb(
    "probe",
    probe,
    summary="Run real OpenMP threads and show their CPUs.",
    page="explanation",
    examples=EXAMPLES,
)
