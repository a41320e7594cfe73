"""A finished run for programs: JSON, schema ompbind-run/1."""

import json

from ompbind.execution.outcome import Outcome, RankExit, exit_code, find_hint
from ompbind.execution.signals import signal_name
from ompbind.planning.plan import Plan
from ompbind.planning.rank_command import RunSpec, make_all_variables, make_commands
from ompbind.report.plan_json import plan_record
from ompbind.report.verification import verified_record

SCHEMA = "ompbind-run/1"


def render_run(plan: Plan | None, spec: RunSpec, outcome: Outcome, started: float) -> str:
    """Render a run as JSON, schema ompbind-run/1, with its ranks in order.

    `plan` is None for a run that failed before it had a plan. `started` is the time of the start in seconds
    of the epoch.
    """
    exits = sorted(outcome.exits, key=lambda rank_exit: rank_exit.rank)
    started_as = {command.rank: command for command in make_commands(plan, spec)} if plan else {}
    planned = plan_record(plan, make_all_variables(plan, spec)) if plan else None
    argv = {own.name: own.argv for own in spec.parts}
    ranks = []
    for rank_exit in exits:
        command = started_as.get(rank_exit.rank)
        own = list(command.argv) if command and command.argv != argv[command.group] else None
        directory = command.directory or None if command else None
        group = (
            {"group": command.group, "group_rank": command.group_rank} if command and command.group else {}
        )
        ranks.append({**_rank_record(rank_exit, outcome), "command": own, "directory": directory, **group})
    throttling = outcome.throttling
    record = {
        "schema": SCHEMA,
        "run_id": spec.run_id,
        **_command_record(spec, plan),
        "started": started,
        "plan": planned,
        "ranks": ranks,
        "exit_code": exit_code(outcome),
        "timed_out": outcome.timed_out,
        "oom_kills": outcome.oom_kills,
        "throttling": throttling
        and {
            "periods": throttling.periods,
            "throttled_periods": throttling.throttled_periods,
            "throttled_s": throttling.throttled_s,
        },
        "error": outcome.error.message if outcome.error else None,
        "troubles": list(outcome.write_errors),
        "verified": verified_record(outcome.verified),
    }
    return json.dumps(record, indent=2)


def _command_record(spec: RunSpec, plan: Plan | None) -> dict[str, object]:
    """Return the command of the run, or the commands of its groups."""
    if not (plan and plan.groups):
        return {"command": list(spec.argv)}
    return {"command": None, "commands": {own.name: list(own.argv) for own in spec.groups}}


def _rank_record(rank_exit: RankExit, outcome: Outcome) -> dict[str, object]:
    return {
        "rank": rank_exit.rank,
        "pid": rank_exit.pid,
        "exit_code": rank_exit.code,
        "signal": rank_exit.signal,
        "signal_name": None if rank_exit.signal is None else signal_name(rank_exit.signal),
        "stopped": rank_exit.stopped,
        **rank_exit.usage.as_dict(),
        "hint": find_hint(rank_exit, outcome) or None,
        "last_words": list(rank_exit.last_lines),
        "attempts": [
            {
                "attempt": attempt.attempt,
                "pid": attempt.pid,
                "exit_code": attempt.code,
                "signal": attempt.signal,
                "started": attempt.started,
                "wall_s": attempt.usage.wall_s,
            }
            for attempt in (*rank_exit.earlier, rank_exit)
        ],
    }
