"""A session as events, one JSON object each: the lines of results files, and of `--format jsonl`.

The first event is the session without its runs. An event follows for each run, for each candidate that is
dropped, and for the end of the session. A resumed session adds events; an end before them does not count.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from ompbind.bench.record_json import make_json, make_record
from ompbind.bench.records import Conclusion, Rules, Run, Session
from ompbind.record import Record

Event: TypeAlias = "Mapping[str, object]"
"""One event as a JSON object; `event` is its type."""

SCHEMA = "ompbind-bench/1"
SESSION, RULES, RUN, DROP, ENDED = "session", "rules", "run", "drop", "ended"
CONCLUSION = "conclusion"


def make_header(session: Session) -> Event:
    """Return the first event: what is compared, on which machine."""
    fields = _make_fields(session)
    return {
        "schema": SCHEMA,
        "event": SESSION,
        **{n: fields[n] for n in fields if n not in ("runs", "ended")},
    }


def make_rules_event(rules: Rules) -> Event:
    """Return the event of rules that replace those before: the session was resumed with more rounds."""
    return {"event": RULES, **_make_fields(rules)}


def make_run_event(run: Run) -> Event:
    """Return the event of a run."""
    return {"event": RUN, **_make_fields(run)}


def make_drop_event(candidate: str, reason: str) -> Event:
    """Return the event of a candidate that does not run any more."""
    return {"event": DROP, "candidate": candidate, "reason": reason}


def make_end_event(reason: str) -> Event:
    """Return the event of the end of a session."""
    return {"event": ENDED, "reason": reason}


def make_conclusion_event(conclusion: Conclusion) -> Event:
    """Return the last event of a stream: what is concluded from the runs. Results files do not contain it."""
    return {"event": CONCLUSION, **_make_fields(conclusion)}


def _make_fields(record: Record) -> dict[str, Any]:
    return {name: make_json(value) for name, value in record.as_dict().items()}


def render_event(event: Event) -> str:
    """Return an event as one line, without the end of the line."""
    return json.dumps(event)


def parse_session(lines: Iterable[str]) -> Session:
    """Return the session of the lines of a results file; raises ValueError that names the wrong line.

    Events of unknown types are ignored: a newer version may have written them.
    """
    session: Session | None = None
    runs: list[Run] = []
    ended = ""
    for number, line in enumerate(lines, 1):
        try:
            event = _parse_event(line)
            if session is None:
                session = _parse_header(event)
            elif event.get("event") == RULES:
                session = session.replace(rules=make_record(Rules, event))
            elif event.get("event") == RUN:
                runs.append(make_record(Run, event))
                ended = ""
            elif event.get("event") == ENDED:
                ended = str(event.get("reason"))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
    if session is None:
        raise ValueError("it has no lines")
    return session.replace(runs=tuple(runs), ended=ended)


def _parse_event(line: str) -> dict[str, object]:
    try:
        event = json.loads(line)
    except ValueError:
        raise ValueError("not JSON") from None
    if not isinstance(event, dict):
        raise ValueError("not a JSON object")
    return event


def _parse_header(event: dict[str, object]) -> Session:
    if event.get("schema") != SCHEMA:
        raise ValueError(f"the schema is not {SCHEMA}")
    return make_record(Session, event)
