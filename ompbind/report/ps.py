"""Live runs for people (a table) and for programs (JSON, schema ompbind-ps/1)."""

import json
import shlex
from collections.abc import Sequence

from ompbind.cpuset import union
from ompbind.registry.run_sight import RunSight
from ompbind.report.text import Column, clip, render_cpus, render_table
from ompbind.text import printable

COMMAND_LIMIT = 200  # characters of a command line that people are shown

NONE_LIVE = "no run of ompbind is live on this machine"


def render_ps(sights: Sequence[RunSight], now: float) -> str:
    """Render a table of live runs; `now` is in seconds of the epoch."""
    if not sights:
        return NONE_LIVE
    runs = [one.run for one in sights]
    columns = [
        Column(title="run", cells=[run.run_id for run in runs], grows=True),
        Column(title="user", cells=[one.user for one in sights]),
        Column(title="pid", cells=[str(run.pid) for run in runs], right=True),
        Column(title="age", cells=[render_age(now - run.started) for run in runs], right=True),
        Column(title="ranks", cells=[str(len(run.ranks) or "many") for run in runs], right=True),
        Column(title="CPUs", cells=[_cpus(one) for one in sights], grows=True),
        Column(title="command", cells=[_command(one.command) for one in sights], grows=True),
    ]
    return render_table(columns)


def _cpus(sight: RunSight) -> str:
    """Write the CPUs of a run's ranks, or all that it holds where it does not tell them rank by rank."""
    return render_cpus(union(cpus for _, cpus in sight.run.ranks) or sight.run.held) or "-"


def _command(words: tuple[str, ...] | None) -> str:
    """Write a command line on one line, without the interpreter and the folder of ompbind itself."""
    if words is None:
        return "-"
    if len(words) > 1 and words[1].rpartition("/")[2] == "ompbind":
        words = ("ompbind", *words[2:])
    return clip(printable(" ".join(shlex.join(words).split())), COMMAND_LIMIT)


def render_age(seconds: float) -> str:
    """Write a time span in its largest whole unit: "45 s", "3 min", "2 h", "5 d"."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds) // size} {unit}"
    return f"{max(0, int(seconds))} s"


def render_ps_json(sights: Sequence[RunSight]) -> str:
    """Render live runs as JSON, schema ompbind-ps/1."""
    return json.dumps({"schema": "ompbind-ps/1", "runs": [_record(one) for one in sights]}, indent=2)


def _record(sight: RunSight) -> dict[str, object]:
    run = sight.run
    return {
        "run_id": run.run_id,
        "inside": run.inside or None,
        "pid": run.pid,
        "uid": run.uid,
        "user": sight.user,
        "started": run.started,
        "ranks": [{"rank": rank, "cpus": str(cpus)} for rank, cpus in run.ranks],
        "held": str(run.held),
        "command": None if sight.command is None else list(sight.command),
    }
