"""Live runs for people (a table) and for programs (JSON, schema ompbind-ps/1)."""

import json
import shlex
from collections.abc import Sequence

from ompbind.cpuset import named, union
from ompbind.planning.other_runs import NAMED_RUNS, LiveRun
from ompbind.registry.registry import RunInfo
from ompbind.report.text import PIPE, Column, Screen, clip, render_cpus, render_rows, wrap_indented
from ompbind.text import clean_line

COMMAND_LIMIT = 200  # characters of a command line in the table

NONE_LIVE = "no ompbind runs on this machine"


def render_ps(infos: Sequence[RunInfo], now: float, screen: Screen = PIPE) -> str:
    """Render a table of live runs; `now` is in seconds of the epoch.

    If the lines are too short for the commands, each command is below its run.
    """
    if not infos:
        return NONE_LIVE
    runs = [info.run for info in infos]
    ranks = ["waits" if run.wanted else _count_ranks(run) for run in runs]
    groups = Column(title="groups", cells=[run.groups or "-" for run in runs], grows=True)
    restarts = Column(title="restarts", cells=[str(run.restarts) for run in runs], right=True)
    columns = [
        Column(title="run", cells=[run.run_id for run in runs], grows=True),
        Column(title="user", cells=[info.user for info in infos]),
        Column(title="pid", cells=[str(run.pid) for run in runs], right=True),
        Column(title="age", cells=[render_age(now - run.started) for run in runs], right=True),
        Column(title="ranks", cells=ranks, right=True),
        *([groups] if any(run.groups for run in runs) else []),
        *([restarts] if any(run.restarts for run in runs) else []),
        Column(title="CPUs", cells=[_cpus(info) for info in infos], grows=True),
    ]
    width, commands = screen.text_width, [_command(info.command) for info in infos]
    rows = [*render_rows([*columns, Column(title="command", cells=commands, grows=True)], width)]
    if any("\n" in row for row in rows):
        title, *rows = render_rows(columns, width)
        below = (wrap_indented(f"    {command}", width) for command in commands)
        rows = [title, *(line for pair in zip(rows, below, strict=True) for line in pair)]
    return "\n".join(rows)


def _count_ranks(run: LiveRun) -> str:
    """Return the number of ranks; a session lists none, and a claim with too many ranks neither."""
    return "bench" if run.is_session else str(len(run.ranks) or "many")


def _cpus(info: RunInfo) -> str:
    """Return the CPUs of a run's ranks, or all its CPUs if its claim does not list them by rank.

    If the run waits, the CPUs that it may get.
    """
    run = info.run
    return render_cpus(union(cpus for _, cpus in run.ranks) or run.claimed or run.wanted) or "-"


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
    """Render live runs, and the runs that wait, as JSON, schema ompbind-ps/1."""
    record = {
        "schema": "ompbind-ps/1",
        "runs": [_make_record(info) for info in infos if not info.run.wanted],
        "waiting": [_make_record(info) for info in infos if info.run.wanted],
    }
    return json.dumps(record, indent=2)


def _make_record(info: RunInfo) -> dict[str, object]:
    """Return the facts about a run and its process, and about its CPUs, or the CPUs that it waits for."""
    run = info.run
    cpus: dict[str, object] = {"wanted": str(run.wanted)}
    if not run.wanted:
        ranks = [{"rank": rank, "cpus": str(own)} for rank, own in run.ranks]
        pairs = (group.rpartition(" ") for group in run.groups.split(", "))
        sizes = {name: int(size) for name, _, size in pairs if size.isdecimal()}
        named_groups = {"groups": sizes} if sizes else {}
        cpus = {"ranks": ranks, **named_groups, "restarts": run.restarts, "held": str(run.claimed)}
    return {
        "run_id": run.run_id,
        "inside": run.parent_run_id or None,
        "pid": run.pid,
        "uid": run.uid,
        "user": info.user,
        "started": run.started,
        **cpus,
        "configuration": run.configuration or None,
        "command": None if info.command is None else list(info.command),
    }


def render_blockers(infos: Sequence[RunInfo]) -> str:
    """Return which runs use CPUs, or wait for them; ranks of one job are named once.

    Example: "run serve (pid 4711, user alice) uses CPUs 0-3; run job (pid 4712, user bob) waits for CPUs 0-7"
    """
    jobs = list({(info.run.run_id, info.user): info for info in reversed(infos)}.values())[::-1]
    texts = []
    for run, user in ((info.run, info.user) for info in jobs[:NAMED_RUNS]):
        what = f"waits for {named('CPU', run.wanted)}" if run.wanted else f"uses {named('CPU', run.claimed)}"
        texts.append(f"run {run.run_id} (pid {run.pid}, user {user}) {what}")
    more = [f"{len(jobs) - NAMED_RUNS} more"] if len(jobs) > NAMED_RUNS else []
    return "; ".join(texts + more)
