"""A session as events, one JSON object each: the lines of results files, and of `--format jsonl`.

The first event is the session without its runs. An event follows for each run, for each candidate that is
dropped, and for the end of the session. A resumed session adds events; an end before them does not count.
"""

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Any, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from ompbind.bench.records import Conclusion, Rules, Run, Session
from ompbind.commands.rank_variables import MASKED, mask_word
from ompbind.record import Record

Event: TypeAlias = "Mapping[str, object]"
"""One event as a JSON object; `event` is its type."""

SCHEMA = "ompbind-bench/2"
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
                if event.get("schema") != SCHEMA:
                    raise ValueError(f"the schema is not {SCHEMA}")
                session = make_record(Session, event)
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


# Records to JSON values and back: fields by name, tuples as arrays, words of enums as text.
#
# The types of the fields decide how a value is read. Fields that a newer version has added are ignored, and
# fields that an older version did not have get their defaults.


R = TypeVar("R", bound=Record)


_OF_GROUPS = ("words",)
"""Fields that only sessions with groups have."""


def make_json(value: object) -> object:
    """Return what `json` writes for a record, or for a value of one of its fields."""
    if isinstance(value, Record):
        fields = value.as_dict().items()
        return {name: make_json(field) for name, field in fields if field or name not in _OF_GROUPS}
    if isinstance(value, tuple):
        return [make_json(item) for item in value]
    return value.value if isinstance(value, StrEnum) else value


def make_record(kind: type[R], value: object) -> R:
    """Return the record that was written as JSON; raises ValueError that names the wrong field."""
    if not isinstance(value, dict):
        raise ValueError(f"{kind.__name__} is no object")
    hints = _read_hints(kind)
    missing = [name for name in kind.fields if name not in value and name not in kind.defaults]
    if missing:
        raise ValueError(f"{kind.__name__} has no {', '.join(missing)}")
    return kind(
        **{name: _read_field(kind, name, hints[name], value[name]) for name in kind.fields if name in value}
    )


@cache
def _read_hints(kind: type[Record]) -> dict[str, Any]:
    return get_type_hints(kind)


def _read_field(kind: type[Record], name: str, hint: Any, value: object) -> object:
    try:
        return _read_value(hint, value)
    except ValueError as error:
        raise ValueError(f"{kind.__name__}.{name}: {error}") from None


def _read_value(hint: Any, value: object) -> object:
    """Return a value of the type that a field has; raises ValueError for a value of another type."""
    if get_origin(hint) is UnionType:
        if value is None:
            return None
        (hint,) = (choice for choice in get_args(hint) if choice is not NoneType)
    if get_origin(hint) is tuple and isinstance(value, list):
        hints = get_args(hint)
        if hints[-1] is Ellipsis:  # items of one type in any number: (X, ...)
            hints = (hints[0],) * len(value)
        if len(hints) != len(value):
            raise ValueError(f"{len(value)} values in place of {len(hints)}")
        return tuple(_read_value(hint, item) for hint, item in zip(hints, value, strict=True))
    if isinstance(hint, type) and issubclass(hint, Record):
        return make_record(hint, value)
    if isinstance(hint, type) and issubclass(hint, StrEnum) and isinstance(value, str):
        return hint(value)
    if hint is float:
        return _read_float(value)
    if type(value) is not hint:
        raise ValueError(f"unexpected value {value!r}")
    return value


def _read_float(value: object) -> float:
    """Return a number as a float; JSON of Python may have Infinity and NaN, and integers of any size."""
    if type(value) is int and abs(value) < 1 << 64:
        return float(value)
    if type(value) is not float or not isfinite(value):
        raise ValueError(f"unexpected value {value!r}")
    return value


def _mask_values(word: str) -> str:
    """Return a word of an option without secret values: NAME=VALUE, or env=NAME=VALUE,… of --vary."""
    key, equals, values = word.partition("=")
    is_secret = key == "env" and any(mask_word(value) != value for value in values.split(","))
    return f"{key}{equals}{MASKED}" if is_secret else mask_word(word)


def mask_session(session: Session) -> Session:
    """Return a session with "***" for the values of secret variables in all words, as in reports of `run`."""
    return session.replace(
        command=tuple(map(mask_word, session.command)),
        options=tuple(map(_mask_values, session.options)),
        candidates=tuple(
            candidate.replace(
                choices=tuple((key, mask_word(text)) for key, text in candidate.choices),
                options=tuple(map(mask_word, candidate.options)),
                words=tuple(map(mask_word, candidate.words)),
            )
            for candidate in session.candidates
        ),
    )
