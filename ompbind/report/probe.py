"""The result of a probe as text, and as JSON (a line for each thread)."""

import json
from collections.abc import Mapping
from itertools import groupby
from textwrap import indent

from ompbind.cpuset import CpuSet, count, named
from ompbind.probe.region import ProbedThread, ProbeResult
from ompbind.report.text import Column, render_table


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
