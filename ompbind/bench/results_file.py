"""Results files: the events of a session, one line each, appended when they happen.

A killed process leaves at most one incomplete line, which is dropped and overwritten when the session is
resumed. The file stays locked, so that two sessions cannot use it at the same time. Forked children of the
session share the lock: the file is free once all of them have exited.
"""

import errno
import fcntl
import os
import shlex
import stat
import time
from contextlib import suppress

from ompbind.bench.compare_sessions import find_candidate_differences, find_differences
from ompbind.bench.events import (
    SCHEMA,
    Event,
    make_header,
    make_rules_event,
    parse_session,
    render_event,
)
from ompbind.bench.records import Session
from ompbind.cpuset import count
from ompbind.errors import LaunchError, RequestError
from ompbind.execution.safe_files import is_same, open_parent
from ompbind.registry.claims import try_lock

LOCK_TIMEOUT_S = 2.0  # seconds that the processes of a killed session get to exit
_START = f'{{"schema": "{SCHEMA}"'.encode()  # how every results file starts
_ANOTHER = "choose another file for --results"


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
        line = left = render_event(event).encode() + b"\n"
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


def open_results(path: str, session: Session, *, any_seed: bool) -> tuple[ResultsFile, Session]:
    """Open or create the results file of a session; return it, and the session with all earlier runs.

    The session may have more rounds than before; the file has them then too. `any_seed` is whether the seed
    of the file counts, because the user has not chosen a seed. Raises RequestError for a file that is no
    results file, of another session, or in use; it is unchanged then.
    """
    file = -1
    try:
        file = _open_file(path)
        _lock(path, file)
        data = _read_all(path, file)
        size = data.rfind(b"\n") + 1
        if not size:
            if not (data.startswith(_START) or _START.startswith(data)):
                raise RequestError(
                    f"--results {path}: the file exists and is not a results file", hint=_ANOTHER
                )
            results = ResultsFile(path, file, 0)
            results.append(make_header(session))
            return results, session
        saved = _parse(path, data[:size])
        found = [*find_differences(saved, session), *find_candidate_differences(saved, session)]
        texts = [difference.text for difference in found]
        if not any_seed and saved.rules.seed != session.rules.seed:
            texts.append(f"--seed: {saved.rules.seed}, now {session.rules.seed}")
        if saved.rules.max_rounds > session.rules.max_rounds:
            texts.append(f"--max-rounds: {saved.rules.max_rounds}, now only {session.rules.max_rounds}")
        if texts:
            more = f", and {count(len(texts) - 3, 'more difference')}" if len(texts) > 3 else ""
            message = f"--results {path} has another session: {'; '.join(texts[:3])}{more}"
            hint = f"{_ANOTHER}, or show its results: ompbind bench --show {shlex.quote(path)}"
            raise RequestError(message, hint=hint)
        results = ResultsFile(path, file, size)
        rules = saved.rules.replace(max_rounds=session.rules.max_rounds)
        if rules != saved.rules:
            results.append(make_rules_event(rules))
        return results, saved.replace(rules=rules)
    except BaseException as error:
        if file >= 0:
            os.close(file)
        if isinstance(error, OSError):
            raise RequestError(
                f"--results {path}: cannot be written: {error.strerror}", hint=_ANOTHER
            ) from error
        raise


def read_results(path: str) -> Session:
    """Read a results file of any machine, also of a session that still runs; raises RequestError."""
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except OSError as error:
        raise RequestError(
            f"cannot read {path}: {error.strerror}", hint="give a file of --results"
        ) from error
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


def _lock(path: str, file: int) -> None:
    """Lock a file; raises RequestError if another session uses it."""
    give_up_at = time.monotonic() + LOCK_TIMEOUT_S
    while not try_lock(file, fcntl.LOCK_EX):
        if time.monotonic() >= give_up_at:
            raise RequestError(f"--results {path}: another session writes to this file", hint=_ANOTHER)
        time.sleep(0.02)


def _read_all(path: str, file: int) -> bytes:
    """Return the content of a file that is open for writing; raises OSError if `path` is another file."""
    with open(path, "rb") as stream:
        if not is_same(os.fstat(file), os.fstat(stream.fileno())):
            raise PermissionError(errno.EPERM, "another file was put there meanwhile")
        return stream.read()


def _parse(path: str, data: bytes) -> Session:
    """Return the session of complete lines."""
    try:
        return parse_session(data.decode().split("\n")[:-1])
    except ValueError as error:
        raise RequestError(
            f"{path} is not a results file: {error}", hint="give a file of --results"
        ) from error
