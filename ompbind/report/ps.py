"""Live runs for people (a table) and for programs (JSON, schema ompbind-ps/1)."""

import json
import shlex
from collections.abc import Sequence

from ompbind.cpuset import union
from ompbind.registry.run_info import RunInfo
from ompbind.report.text import PIPE, Column, Screen, clip, render_cpus, render_table
from ompbind.text import clean_line

COMMAND_LIMIT = 200  # characters of a command line in the table

NONE_LIVE = "no ompbind runs on this machine"


def render_ps(infos: Sequence[RunInfo], now: float, screen: Screen = PIPE) -> str:
    """Render a table of live runs; `now` is in seconds of the epoch."""
    if not infos:
        return NONE_LIVE
    runs = [info.run for info in infos]
    restarts = Column(title="restarts", cells=[str(run.restarts) for run in runs], right=True)
    columns = [
        Column(title="run", cells=[run.run_id for run in runs], grows=True),
        Column(title="user", cells=[info.user for info in infos]),
        Column(title="pid", cells=[str(run.pid) for run in runs], right=True),
        Column(title="age", cells=[render_age(now - run.started) for run in runs], right=True),
        Column(title="ranks", cells=[str(len(run.ranks) or "many") for run in runs], right=True),
        *([restarts] if any(run.restarts for run in runs) else []),
        Column(title="CPUs", cells=[_cpus(info) for info in infos], grows=True),
        Column(title="command", cells=[_command(info.command) for info in infos], grows=True),
    ]
    return render_table(columns, screen.text_width)


def _cpus(info: RunInfo) -> str:
    """Return the CPUs of a run's ranks, or all its CPUs if its claim does not list them by rank."""
    return render_cpus(union(cpus for _, cpus in info.run.ranks) or info.run.claimed) or "-"


def _command(words: tuple[str, ...] | None) -> str:
    """Return a command on one line, without the Python interpreter and the directory of ompbind itself."""
    if words is None:
        return "-"
    if len(words) > 1 and words[1].rpartition("/")[2] == "ompbind":
        words = ("ompbind", *words[2:])
    return clip(clean_line(" ".join(shlex.join(words).split())), COMMAND_LIMIT)


def render_age(seconds: float) -> str:
    """Return a time span in its largest whole unit: "45 s", "3 min", "2 h", "5 d"."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds) // size} {unit}"
    return f"{max(0, int(seconds))} s"


def render_ps_json(infos: Sequence[RunInfo]) -> str:
    """Render live runs as JSON, schema ompbind-ps/1."""
    return json.dumps({"schema": "ompbind-ps/1", "runs": [_record(info) for info in infos]}, indent=2)


def _record(info: RunInfo) -> dict[str, object]:
    run = info.run
    return {
        "run_id": run.run_id,
        "inside": run.parent_run_id or None,
        "pid": run.pid,
        "uid": run.uid,
        "user": info.user,
        "started": run.started,
        "ranks": [{"rank": rank, "cpus": str(cpus)} for rank, cpus in run.ranks],
        "restarts": run.restarts,
        "held": str(run.claimed),
        "configuration": run.configuration or None,
        "command": None if info.command is None else list(info.command),
    }
