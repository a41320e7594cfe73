"""`ompbind ps`: the live runs on this machine and their CPUs."""

import json
import shlex
import time
from collections.abc import Sequence

from ompbind.cli.console import print_message, read_screen, write_stdout
from ompbind.cli.option import VerbContext
from ompbind.cli.verb import Verb, make_format_option
from ompbind.cpuset import union
from ompbind.inspection.targets import read_claims
from ompbind.registry.claims import WAITING_SUFFIX
from ompbind.registry.registry import RunInfo, read_run_info, render_ignored
from ompbind.report.text import (
    PIPE,
    Column,
    Screen,
    clip,
    render_age,
    render_cpus,
    render_rows,
    wrap_indented,
)
from ompbind.text import clean_line, mask_words, whole_number

EXAMPLES = (("Which run uses which CPUs", "ompbind ps"), ("The same as JSON", "ompbind ps --format json"))

OPTIONS = (make_format_option("ps", "table", "json"),)


def ps(ctx: VerbContext) -> int:
    """List the live runs of all users on this machine and the CPUs of each, oldest first.

    Each rank that a launcher started with 'ompbind exec' has a line of its own. Runs that wait for CPUs
    (--wait) come last, with the CPUs that they may get.
    """
    directory, claims = read_claims()
    _, tickets = read_claims((WAITING_SUFFIX,))
    ignored = render_ignored((*claims.ignored, *tickets.ignored), directory)
    if ignored:
        print_message(ignored)
    infos = read_run_info((*claims.runs, *tickets.runs))
    is_json = ctx.params["format"] == "json"
    write_stdout(render_ps_json(infos) if is_json else render_ps(infos, time.time(), read_screen()))
    return 0


_COMMAND_LIMIT = 200  # characters of a command line in the table

NONE_LIVE = "no ompbind runs on this machine"


def render_ps(infos: Sequence[RunInfo], now: float, screen: Screen = PIPE) -> str:
    """Render a table of live runs; `now` is in seconds of the epoch.

    If the lines are too short for the commands, each command is below its run.
    """
    if not infos:
        return NONE_LIVE
    runs = [info.run for info in infos]
    # a session lists no ranks, and a claim with too many ranks neither
    numbers = ("bench" if run.is_session else str(len(run.ranks) or "many") for run in runs)
    ranks = ["waits" if run.wanted else number for run, number in zip(runs, numbers, strict=True)]
    cpus = [union(cpus for _, cpus in run.ranks) or run.claimed or run.wanted for run in runs]
    groups = Column(title="groups", cells=[run.groups or "-" for run in runs], grows=True)
    restarts = Column(title="restarts", cells=[str(run.restarts) for run in runs], right=True)
    held = Column(title="hold", cells=[run.hold.option if run.hold else "-" for run in runs])
    columns = [
        Column(title="run", cells=[run.run_id for run in runs], grows=True),
        Column(title="user", cells=[info.user for info in infos]),
        Column(title="pid", cells=[str(run.pid) for run in runs], right=True),
        Column(title="age", cells=[render_age(now - run.started) for run in runs], right=True),
        Column(title="ranks", cells=ranks, right=True),
        *([groups] if any(run.groups for run in runs) else []),
        *([restarts] if any(run.restarts for run in runs) else []),
        *([held] if any(run.hold for run in runs) else []),
        Column(title="CPUs", cells=[render_cpus(found) or "-" for found in cpus], grows=True),
    ]
    width, commands = screen.text_width, []
    for info in infos:
        words = mask_words(info.command or ("-",))
        if len(words) > 1 and words[1].rpartition("/")[2] == "ompbind":
            words = ("ompbind", *words[2:])  # without its Python and its directory
        commands.append(clip(clean_line(" ".join(shlex.join(words).split())), _COMMAND_LIMIT))
    rows = [*render_rows([*columns, Column(title="command", cells=commands, grows=True)], width)]
    if any("\n" in row for row in rows):
        title, *rows = render_rows(columns, width)
        below = (wrap_indented(f"    {command}", width) for command in commands)
        rows = [title, *(line for pair in zip(rows, below, strict=True) for line in pair)]
    return "\n".join(rows)


def render_ps_json(infos: Sequence[RunInfo]) -> str:
    """Render live runs, and the runs that wait, as JSON, schema ompbind-ps/1."""
    record = {
        "schema": "ompbind-ps/1",
        "runs": [_make_record(info) for info in infos if not info.run.wanted],
        "waiting": [_make_record(info) for info in infos if info.run.wanted],
    }
    return json.dumps(record, indent=2)


def _make_record(info: RunInfo) -> dict[str, object]:
    run = info.run
    cpus: dict[str, object] = {"wanted": str(run.wanted)}
    if not run.wanted:
        ranks = [{"rank": rank, "cpus": str(own)} for rank, own in run.ranks]
        pairs = (group.rpartition(" ") for group in run.groups.split(", "))
        sizes = {name: size for name, _, word in pairs if (size := whole_number(word)) is not None}
        groups = {"groups": sizes} if sizes else {}
        state = {"restarts": run.restarts, "held": str(run.claimed), "hold": run.hold}
        cpus = {"ranks": ranks, **groups, **state}
    return {
        "run_id": run.run_id,
        "inside": run.parent_run_id or None,
        "pid": run.pid,
        "uid": run.uid,
        "user": info.user,
        "started": run.started,
        **cpus,
        "configuration": run.configuration or None,
        "command": None if info.command is None else list(mask_words(info.command)),
    }


VERB = Verb(
    "ps", ps, summary="List live runs on this machine and their CPUs.", page="queue", examples=EXAMPLES
)
