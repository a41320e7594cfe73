"""The events of a session as JSON: the lines of results files, and of `--format jsonl`.

The first event is the session without its runs. An event follows for each run, for each candidate that is
dropped, and for the end of the session. A resumed session adds events; an end before them does not count.

A killed process leaves at most one incomplete line, which is dropped and overwritten when the session is
resumed. The file stays locked, so that two sessions cannot use it at the same time. Forked children of the
session share the lock: the file is free once all of them have exited.
"""

import errno
import fcntl
import json
import os
import shlex
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Any, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from ompbind.bench.records import Rules, Run, Session
from ompbind.cpuset import count
from ompbind.errors import LaunchError, RequestError
from ompbind.execution.safe_files import is_same, open_parent
from ompbind.record import Record
from ompbind.registry.claims import try_lock
from ompbind.text import MASKED, mask_text, mask_words

Event: TypeAlias = "Mapping[str, object]"  # one event as a JSON object; `event` is its type

SCHEMA = "ompbind-bench/2"
SESSION, RULES, RUN, DROP, ENDED = "session", "rules", "run", "drop", "ended"
CONCLUSION = "conclusion"


def make_header(session: Session) -> Event:
    """Return the first event: what is compared, on which machine."""
    fields = session.as_dict().items()
    known = {name: make_json(value) for name, value in fields if name not in ("runs", "ended")}
    return {"schema": SCHEMA, "event": SESSION, **known}


def list_events(session: Session) -> Iterator[Event]:
    """Yield the events of a session until now: its header, and the runs so far."""
    yield make_header(session)
    yield from (make_event(RUN, run) for run in session.runs)


def make_event(kind: str, record: Record) -> Event:
    """Return the event of a run, of rules that replace those before, or of the conclusion of a stream."""
    return {"event": kind, **{name: make_json(value) for name, value in record.as_dict().items()}}


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

_OF_GROUPS = ("words",)  # fields that only sessions with groups have


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
    missing = [name for name in kind.fields if name not in value and name not in kind.defaults]
    if missing:
        raise ValueError(f"{kind.__name__} has no {', '.join(missing)}")
    fields = {}
    for name in kind.fields:
        if name in value:
            try:
                fields[name] = _read_value(_read_hints(kind)[name], value[name])
            except ValueError as error:
                raise ValueError(f"{kind.__name__}.{name}: {error}") from None
    return kind(**fields)


_read_hints = cache(get_type_hints)


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
    if hint is float and type(value) is int and abs(value) < 1 << 64:
        return float(value)
    # JSON of Python may have Infinity and NaN, and integers of any size
    if type(value) is not hint or (type(value) is float and not isfinite(value)):
        raise ValueError(f"unexpected value {value!r}")
    return value


def mask_session(session: Session) -> Session:
    """Return a session with "***" for the values of secret variables in all words, as in reports of `run`."""

    def mask_option(word: str) -> str:  # NAME=VALUE, or env=NAME=VALUE,… of --vary
        key, equals, values = word.partition("=")
        is_secret = key == "env" and any(mask_text(value) != value for value in values.split(","))
        return f"{key}{equals}{MASKED}" if is_secret else mask_text(word)

    return session.replace(
        command=mask_words(session.command),
        options=tuple(map(mask_option, session.options)),
        candidates=tuple(
            candidate.replace(
                choices=tuple((key, mask_text(text)) for key, text in candidate.choices),
                options=mask_words(candidate.options),
                words=mask_words(candidate.words),
            )
            for candidate in session.candidates
        ),
    )


LOCK_TIMEOUT_S = 2.0  # seconds that the processes of a killed session get to exit
_START = f'{{"schema": "{SCHEMA}"'.encode()  # how every results file starts
_ANOTHER = "choose another file for --results"


def find_differences(before: Session, now: Session) -> tuple[str, ...]:
    """Return how machine, command, metrics and candidates differ, as "allowed CPUs: 0-7, now 0-3".

    Seed, rounds and options may differ. The digest of a plan contains the command, so digests are compared
    only if the commands are equal.
    """
    facts = [*zip(_render_facts(before), _render_facts(now), strict=True)]
    old, new = ({each.name: each.digest for each in session.candidates} for session in (before, now))
    if old.keys() != new.keys():
        facts.append((("candidates", "; ".join(old)), ("candidates", "; ".join(new))))
    found = [
        f"{about}: {first or 'none'}, now {second or 'none'}"
        for (about, first), (_, second) in facts
        if first != second
    ]
    changed = [name for name in old if name in new and old[name] != new[name]]
    if changed and before.command == now.command:
        found.append(f"other plans or variables of {'; '.join(changed)}")
    return tuple(found)


def _render_facts(session: Session) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of everything that must be equal."""
    hardware = session.hardware
    yield "processor", hardware.processor
    yield "topology", f"digest {hardware.digest[:12]}"
    yield "allowed CPUs", hardware.allowed
    yield "CPU quota", "none" if hardware.quota is None else f"{hardware.quota:g} CPUs"
    yield "command", shlex.join(session.command)
    metrics = []
    for metric in session.metrics:
        better = "higher" if metric.higher else "lower"
        pattern = f" {metric.pattern!r}" if metric.pattern else ""
        metrics.append(f"{metric.name}{pattern} ({better} is better)")
    yield "metrics", ", ".join(metrics)
    yield "same work in all candidates", "yes" if session.rules.same_work else "no"
    yield "--matters", f"{session.rules.matters:.2%}"


class ResultsFile:
    """An open and locked results file, to which events are appended."""

    def __init__(self, path: str, file: int, size: int) -> None:
        """Take the descriptor of a file whose complete lines have `size` bytes; the rest is dropped."""
        self._path = path
        self._file = file
        self._size = size
        os.ftruncate(file, size)

    def append(self, event: Event) -> None:
        """Write an event at once; raises LaunchError, and then the file is unchanged."""
        line = left = json.dumps(event).encode() + b"\n"
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            message = f"--results {self._path}: cannot be written: {error.strerror}"
            hint = "the runs before this are saved; use the same command to resume the session"
            raise LaunchError(message, hint=hint) from error
        self._size += len(line)

    def close(self) -> None:
        """Close the file, which unlocks it."""
        os.close(self._file)


def open_results(
    path: str, session: Session, *, any_seed: bool, keeps_rounds: bool = False
) -> tuple[ResultsFile, Session]:
    """Open or create the results file of a session; return it, and the session with all earlier runs.

    The session may have more rounds than before; the file has them then too. `any_seed` is whether the seed
    of the file counts, `keeps_rounds` whether a larger number of rounds does. Raises RequestError for a file
    that is no results file, of another session, or in use; it is unchanged then.
    """
    file = -1
    try:
        file = _open_file(path)
        data = _lock_and_read(path, file)
        size = data.rfind(b"\n") + 1
        if not size:
            if not (data.startswith(_START) or _START.startswith(data)):
                message = f"--results {path}: the file exists and is not a results file"
                raise RequestError(message, hint=_ANOTHER)
            results = ResultsFile(path, file, 0)
            results.append(make_header(session))
            return results, session
        saved = _parse(path, data[:size])
        texts = [*find_differences(saved, session)]
        if not any_seed and saved.rules.seed != session.rules.seed:
            texts.append(f"--seed: {saved.rules.seed}, now {session.rules.seed}")
        rounds = max(saved.rules.max_rounds, session.rules.max_rounds)
        if rounds > session.rules.max_rounds and not keeps_rounds:
            texts.append(f"--max-rounds: {saved.rules.max_rounds}, now only {session.rules.max_rounds}")
        if texts:
            more = f", and {count(len(texts) - 3, 'more difference')}" if len(texts) > 3 else ""
            message = f"--results {path} has another session: {'; '.join(texts[:3])}{more}"
            hint = f"{_ANOTHER}, or show its results: ompbind bench --show {shlex.quote(path)}"
            raise RequestError(message, hint=hint)
        results = ResultsFile(path, file, size)
        rules = saved.rules.replace(max_rounds=rounds)
        if rules != saved.rules:
            results.append(make_event(RULES, rules))
        return results, saved.replace(rules=rules)
    except BaseException as error:
        if file >= 0:
            os.close(file)
        if isinstance(error, OSError):
            message = f"--results {path}: cannot be written: {error.strerror}"
            raise RequestError(message, hint=_ANOTHER) from error
        raise


def read_results(path: str) -> Session:
    """Read a results file of any machine, also of a session that still runs; raises RequestError."""
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}"
        raise RequestError(message, hint="give a file of --results") from error
    return _parse(path, data[: data.rfind(b"\n") + 1])


def _open_file(path: str) -> int:
    """Open a file for appending, or create it; raises OSError and RequestError."""
    directory, name = open_parent(path)
    try:
        entry = directory.read_entry(name)
        if entry is None:
            return directory.create(name, os.O_APPEND)
        if not stat.S_ISREG(entry.st_mode):
            hint = f"{_ANOTHER}; --format jsonl writes to standard output"
            raise RequestError(f"--results {path}: not a regular file", hint=hint)
        return directory.open_existing(name, entry, os.O_APPEND)
    finally:
        directory.close()


def _lock_and_read(path: str, file: int) -> bytes:
    """Lock a file that is open for writing, and return its content.

    Raises RequestError if another session uses it, and OSError if `path` is another file by now.
    """
    give_up_at = time.monotonic() + LOCK_TIMEOUT_S
    while not try_lock(file, fcntl.LOCK_EX):
        if time.monotonic() >= give_up_at:
            raise RequestError(f"--results {path}: another session writes to this file", hint=_ANOTHER)
        time.sleep(0.02)
    with open(path, "rb") as stream:
        if not is_same(os.fstat(file), os.fstat(stream.fileno())):
            raise PermissionError(errno.EPERM, "another file was put there meanwhile")
        return stream.read()


def _parse(path: str, data: bytes) -> Session:
    try:
        return parse_session(data.decode().split("\n")[:-1])
    except ValueError as error:
        message = f"{path} is not a results file: {error}"
        raise RequestError(message, hint="give a file of --results") from error
