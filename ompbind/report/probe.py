"""What a probe saw, for people and for programs (a JSON line for each thread)."""

import json
from collections.abc import Mapping
from itertools import groupby
from textwrap import indent

from ompbind.cpuset import count
from ompbind.probe.result import ProbeResult, ThreadSight
from ompbind.report.text import Column, render_table


def render_probe(result: ProbeResult, env: Mapping[str, str]) -> str:
    """Render a probe for people: the process first, then the threads of every runtime."""
    who = "this process" if result.rank is None else f"rank {result.rank}"
    allowed = f"may run on CPUs {result.cpus_allowed}" if result.cpus_allowed else "may run anywhere"
    lines = [f"{who} (pid {result.pid}) {allowed}"]
    if env.get("OMP_PLACES"):
        lines.append(f"  OMP_PLACES={env['OMP_PLACES']} OMP_PROC_BIND={env.get('OMP_PROC_BIND', '')}")
    for path, run in groupby(result.threads, key=lambda sight: sight.path):
        lines.append(_runtime(path, list(run)))
    lines.extend(f"  {path}: gave no answer" for path in result.failed)
    if not result.threads:
        lines.append(f"  no OpenMP runtime found; the process ran on CPU {result.cpu}")
    return "\n".join(lines)


def _runtime(path: str, sights: list[ThreadSight]) -> str:
    places = ["-" if one.place is None else str(one.place) for one in sights]
    columns = [
        Column(title="thread", cells=[str(one.thread) for one in sights], right=True),
        Column(title="place", cells=places, right=True),
        Column(title="may run on", cells=[one.cpus_allowed for one in sights]),
        Column(title="ran on CPU", cells=[str(one.cpu) for one in sights], right=True),
    ]
    head = f"  {sights[0].runtime}: {count(len(sights), 'thread')} ({path})"
    return f"{head}\n{indent(render_table(columns), '    ')}"


def render_probe_json(result: ProbeResult) -> str:
    """Render a probe as a JSON line for each thread; one with runtime null when there is no runtime."""
    head = {"rank": result.rank, "pid": result.pid}
    alone = {"runtime": None, "path": None, "thread": 0, "threads": 1, "place": None, "places": list[str]()}
    own = {"cpus_allowed": result.cpus_allowed, "cpu": result.cpu}
    lines = [one.as_dict() for one in result.threads] or [{**alone, **own}]
    return "\n".join(json.dumps({**head, **line}) for line in lines)
