"""A run that has ended, for programs: JSON, schema ompbind-run/1."""

import json

from ompbind.execution.failure_hints import find_hint
from ompbind.execution.outcome import Exited, Outcome, exit_code, signal_name
from ompbind.planning.plan import Plan
from ompbind.planning.rank_command import Job, make_local_identities, make_variables
from ompbind.report.plan_json import plan_record
from ompbind.report.verification import verified_record


def render_run(plan: Plan, job: Job, outcome: Outcome, started: float) -> str:
    """Render a run as JSON, schema ompbind-run/1, with its ranks in order; `started` is in s of the epoch."""
    variables = [make_variables(plan, identity, job) for identity in make_local_identities(plan)]
    ranks = sorted(outcome.exits, key=lambda one: one.rank)
    record = {
        "schema": "ompbind-run/1",
        "run_id": job.run_id,
        "command": list(job.argv),
        "started": started,
        "plan": plan_record(plan, variables),
        "ranks": [_rank_record(one, outcome) for one in ranks],
        "exit_code": exit_code(outcome),
        "timed_out": outcome.timed_out,
        "oom_kills": outcome.oom_kills,
        "error": outcome.error.message if outcome.error else None,
        "troubles": list(outcome.troubles),
        "verified": verified_record(outcome.verified),
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
