"""Read the claims in a directory that all users can write to: bounded work, and no file is trusted.

Only regular, locked files with a single name are read. The claims and bytes of each other user are limited,
so that no user can slow down the runs of others. Files that look like claims but do not count are named.
"""

import errno
import fcntl
import os
import pwd
import re
import stat
import time
from collections.abc import Collection, Iterable, Sequence

from ompbind.cpuset import count
from ompbind.errors import ClaimError
from ompbind.planning.other_runs import NAMED_RUNS, LiveRun
from ompbind.planning.request import Sharing
from ompbind.procfs.reader import (
    read_age_s,
    read_command_line,
    read_lock_holder,
    read_owner,
    read_pid_namespace,
)
from ompbind.record import Record
from ompbind.registry.claim_format import (
    CLAIM_SUFFIX,
    EXIT,
    HEAD,
    NEW_SUFFIX,
    PREFIX,
    RESTARTS,
    TEXT_LIMIT,
    find_field,
    make_text,
    parse_exit,
    parse_text,
    remove_claim,
    render_exit,
    render_restarts,
)
from ompbind.text import clean_name

NEW_FILE_LIMIT_S = 60.0  # seconds after which a .new file counts as old
USER_CLAIMS_LIMIT = 1024  # claims of another user that are read
USER_BYTES_LIMIT = 1 << 20  # bytes of these claims; a usual claim has a few hundred


class ClaimList(Record):
    """The live runs of a directory, oldest first, and the claims that do not count: (file name, why).

    `names` are the files of the runs, in the same order.
    """

    runs: tuple[LiveRun, ...] = ()
    names: tuple[str, ...] = ()
    ignored: tuple[tuple[str, str], ...] = ()


def read_claims(handle: int, names: Collection[str], *, with_ranks: bool = True) -> ClaimList:
    """Read claims in an open directory, and remove stale claims; `with_ranks` reads single ranks too."""
    found: list[tuple[LiveRun, str]] = []
    ignored: list[tuple[str, str]] = []
    limits = _UserLimits()
    for name in sorted(names):
        try:
            text, uid = _read_claim(name, handle, limits)
        except FileNotFoundError:
            continue  # removed meanwhile
        except OSError as error:
            ignored.append((name, error.strerror or str(error)))
            continue
        run = parse_text(text, uid, with_ranks=with_ranks)
        if run:
            found.append((run, name))
        elif uid >= 0:
            ignored.append((name, f"no valid claim, of user {uid}"))
    found.sort(key=lambda pair: (pair[0].started, pair[0].pid))
    return ClaimList(
        runs=tuple(run for run, _ in found), names=tuple(name for _, name in found), ignored=tuple(ignored)
    )


def render_ignored(ignored: Sequence[tuple[str, str]], directory: str) -> str:
    """Return one sentence that names the claims that do not count; "" if there is none."""
    if not ignored:
        return ""
    named = [f"{clean_name(name)} ({why})" for name, why in ignored[:NAMED_RUNS]]
    more = [f"{len(ignored) - NAMED_RUNS} more"] if len(ignored) > NAMED_RUNS else []
    verb = "does" if len(ignored) == 1 else "do"
    return f"{count(len(ignored), 'claim')} in {directory} {verb} not count: {', '.join(named + more)}"


class _UserLimits:
    """The number and the bytes of the claims of each user, which are limited."""

    def __init__(self) -> None:
        self._claims: dict[int, int] = {}
        self._bytes: dict[int, int] = {}

    def add(self, status: os.stat_result) -> None:
        """Add a claim; raises OSError if another user has too many, as the claim does not count then."""
        uid = status.st_uid
        self._claims[uid] = self._claims.get(uid, 0) + 1
        self._bytes[uid] = self._bytes.get(uid, 0) + status.st_size
        is_too_much = self._claims[uid] > USER_CLAIMS_LIMIT or self._bytes[uid] > USER_BYTES_LIMIT
        if is_too_much and uid != os.geteuid():  # own claims that are stale must be removed
            raise OSError(errno.EDQUOT, f"user {uid} has too many or too long claims")


_STALE = "", -1

_NEW_NAME = rf"{PREFIX}\d+-\d+-[0-9a-f]{{8}}{re.escape(NEW_SUFFIX)}"
"""The name of a claim that is being written, which may be empty; an expression that is rarely needed."""


def _read_claim(name: str, handle: int, limits: _UserLimits) -> tuple[str, int]:
    """Return the text of a claim and its owner; _STALE if it is incomplete, or stale.

    A stale claim is removed if it is this user's: other files may only have such a name. Raises OSError for a
    file that cannot be read, or that is no claim.
    """
    status = os.stat(name, dir_fd=handle, follow_symlinks=False)
    is_new = name.endswith(NEW_SUFFIX)
    if is_new and status.st_mtime > time.time() - NEW_FILE_LIMIT_S:  # may not be locked yet
        return _STALE
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, f"not a regular file, of user {status.st_uid}")
    if status.st_nlink != 1:
        raise OSError(errno.EINVAL, f"a file with several names, of user {status.st_uid}")
    if status.st_size > TEXT_LIMIT:
        raise OSError(errno.EFBIG, f"too long, of user {status.st_uid}")
    limits.add(status)
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=handle)
    except PermissionError:
        if is_new:  # others may read a claim only once it is complete
            return _STALE
        raise
    try:
        is_stale, uid = try_lock(file, fcntl.LOCK_SH), os.fstat(file).st_uid
        text = os.read(file, TEXT_LIMIT).decode("utf-8", "replace")
        if not is_stale:
            return text, uid
        if uid == os.geteuid() and (text.startswith(HEAD) or re.fullmatch(_NEW_NAME, name)):
            remove_claim(name, handle)
        return _STALE
    finally:
        os.close(file)


def try_lock(file: int, how: int) -> bool:
    """Lock a file if no other process has locked it; return whether it is locked now."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


LOCK_TIMEOUT_S = 10.0  # seconds to wait for the lock; planning takes milliseconds


def lock_directory(handle: int, directory: str, sharing: Sharing) -> None:
    """Wait until no other run that avoids others plans; raises ClaimError after a time limit."""
    give_up_at = time.monotonic() + LOCK_TIMEOUT_S
    while not try_lock(handle, fcntl.LOCK_EX):
        if time.monotonic() >= give_up_at:
            status = os.fstat(handle)
            pid = read_lock_holder(os.major(status.st_dev), os.minor(status.st_dev), status.st_ino)
            owner = read_owner(pid) if pid else None
            who = "another process" if owner is None else f"process {pid} of user {read_user(owner)}"
            text = f"{who} has kept {directory} locked for {LOCK_TIMEOUT_S:g} s"
            hint = f"ask its user to stop it and try again, or omit --{sharing}"
            raise ClaimError(f"--{sharing} is not possible: {text}", hint=hint)
        time.sleep(0.002)


_DESCRIPTORS = (700, 240, 60, 20)
"""Preferred descriptors for the claim, or the next free ones: scripts use low numbers (`exec 3>log`)."""


class Claim:
    """A registered claim: the open, locked file, and its path."""

    def __init__(self, file: int, path: str) -> None:
        self._file = file
        self._path = path

    @property
    def name(self) -> str:
        """The name of its file."""
        return os.path.basename(self._path)

    @property
    def directory(self) -> str:
        """The path of the directory of its file."""
        return os.path.dirname(self._path)

    def keep_across_exec(self) -> None:
        """Keep the claim across exec, so that the command holds it for as long as it lives."""
        os.set_inheritable(self._file, True)

    def publish_restarts(self, count: int) -> None:
        """Publish how often ranks of the run were restarted; does nothing on an error, as on a full disk."""
        self._publish(RESTARTS, render_restarts(count))

    def publish_exit(self, code: int) -> None:
        """Publish the exit code of the run before its release, for processes that have opened the claim."""
        self._publish(EXIT, render_exit(code))

    def _publish(self, start: str, value: str) -> None:
        try:
            text = os.pread(self._file, TEXT_LIMIT, 0).decode()
            os.pwrite(self._file, value.encode(), find_field(text, start))
        except OSError:
            pass

    def release(self) -> None:
        """Remove the claim."""
        remove_claim(self._path)
        try:
            os.close(self._file)
        except OSError:  # already closed
            pass


def write_claim(run: LiveRun, handle: int, directory: str, suffix: str = CLAIM_SUFFIX) -> Claim:
    """Lock and write the claim of a run in an open directory, then give it its final name; raises OSError."""
    stem = f"{PREFIX}{run.uid}-{run.pid}-{os.urandom(4).hex()}"
    file = os.open(stem + NEW_SUFFIX, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=handle)
    try:
        data = make_text(run).encode()
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # before other users can open it
        while data:
            data = data[os.write(file, data) :]
        os.fchmod(file, 0o644)
        os.rename(stem + NEW_SUFFIX, stem + suffix, src_dir_fd=handle, dst_dir_fd=handle)
        return Claim(_move_descriptor(file), os.path.join(directory, stem + suffix))
    except OSError:
        remove_claim(stem + NEW_SUFFIX, handle)
        raise
    finally:
        os.close(file)


def _move_descriptor(file: int) -> int:
    """Return a duplicate of a descriptor with a high number, which scripts do not use; closed on exec."""
    for lowest in _DESCRIPTORS:
        try:
            return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, lowest)
        except OSError:
            pass  # above the limit of open files
    return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 3)


class OpenClaim:
    """The claim of another run, which stays readable when it is removed."""

    def __init__(self, path: str) -> None:
        """Open a claim; raises OSError."""
        self._file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)

    def read_exit(self) -> int | None:
        """Return the exit code that the run has published; None if it has published none."""
        return parse_exit(os.pread(self._file, TEXT_LIMIT, 0).decode("utf-8", "replace"))


class RunInfo(Record):
    """One live run, the name of its user, and the command line of its process (None if unknown)."""

    run: LiveRun
    user: str
    command: tuple[str, ...] | None


_TOLERANCE_S = 2  # of the start time of a process: kernel ticks and the clock differ a little


def read_run_info(runs: Iterable[LiveRun]) -> tuple[RunInfo, ...]:
    """Return each run with the name of its user and the command line of its process."""
    return tuple(RunInfo(run=run, user=read_user(run.uid), command=_read_command_of_run(run)) for run in runs)


def read_user(uid: int) -> str:
    """Return the name of a user, or the number if the user has no name here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _read_command_of_run(run: LiveRun) -> tuple[str, ...] | None:
    """Return the command line of a run's process.

    None if the process has exited, is in another PID namespace, or if its pid now belongs to another process.
    """
    if run.pid_space != read_pid_namespace():
        return None
    age_s, words, owner = read_age_s(run.pid), read_command_line(run.pid), read_owner(run.pid)
    if age_s is None or owner != run.uid or not words or age_s + _TOLERANCE_S < time.time() - run.started:
        return None
    return words
