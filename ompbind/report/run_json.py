"""A run that has ended, for programs: JSON, schema ompbind-run/1."""

import json
from collections.abc import Sequence

from ompbind.execution.failure_hints import find_hint
from ompbind.execution.outcome import Exited, Outcome, exit_code, signal_name
from ompbind.planning.plan import Plan
from ompbind.planning.rank_variables import Variables
from ompbind.record import Record
from ompbind.report.plan_json import plan_record
from ompbind.report.verification import verified_record


class Run(Record):
    """All that is told of a run: what was planned, for each rank with its variables, and how it ended.

    `started` is in seconds of the epoch, None where it is not known.
    """

    run_id: str
    command: tuple[str, ...]
    plan: Plan
    variables: Sequence[Variables]
    outcome: Outcome = Outcome(exits=())
    started: float | None = None


def render_run(run: Run) -> str:
    """Render a run as JSON, schema ompbind-run/1, with its ranks in order."""
    ranks = sorted(run.outcome.exits, key=lambda one: one.rank)
    record = {
        "schema": "ompbind-run/1",
        "run_id": run.run_id,
        "command": list(run.command),
        "started": run.started,
        "plan": plan_record(run.plan, run.variables),
        "ranks": [_rank_record(one, run.outcome) for one in ranks],
        "exit_code": exit_code(run.outcome),
        "timed_out": run.outcome.timed_out,
        "oom_kills": run.outcome.oom_kills,
        "error": run.outcome.error.message if run.outcome.error else None,
        "troubles": list(run.outcome.troubles),
        "verified": verified_record(run.outcome.verified),
    }
    return json.dumps(record, indent=2)


def _rank_record(one: Exited, outcome: Outcome) -> dict[str, object]:
    return {
        "rank": one.rank,
        "pid": one.pid,
        "exit_code": one.code,
        "signal": one.signal,
        "signal_name": None if one.signal is None else signal_name(one.signal),
        "stopped": one.stopped,
        **one.usage.as_dict(),
        "hint": find_hint(one, outcome) or None,
        "last_words": list(one.last_words),
    }
