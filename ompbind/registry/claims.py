"""Claims: every run publishes its CPUs for as long as it lives, even if it is killed.

A *claim* is a file in a directory that all users share. The run keeps the file locked (`flock`). The kernel
releases the lock when the last process that has the file open is gone, so a claim without a lock is stale:
the next reader removes it. Unless it shares CPUs (--share), a run also locks the directory while it plans:
while the lock is held, no other run plans on the same free CPUs. Any user can write claims. Therefore only
regular, locked files of limited size are read, and only claims whose fields are all valid count.

    lock directory → read claims → plan → create, lock and write x.new → rename to x.run → unlock directory

    x.run, locked        a live run that uses its CPUs
    x.run, not locked    its run exited or was killed: removed
    x.new, young         a claim that is being written: ignored
    x.new, old           as x.run
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ompbind.cpuset import union
from ompbind.errors import ClaimError
from ompbind.machine.model import Machine
from ompbind.machine.sources.linux.reader import LIVE
from ompbind.planning.occupancy import LiveRun, RunIdentity, find_job_runs, find_other_runs
from ompbind.planning.plan import Plan
from ompbind.planning.rank_variables import OMPBIND_RUN_ID
from ompbind.planning.request import Request, Sharing
from ompbind.procfs.reader import read_pid_namespace
from ompbind.registry.claim_format import TEXT_LIMIT, make_live_run, make_text, parse_text

DIRECTORY_VARIABLE = "OMPBIND_RUNTIME_DIR"
"""The variable that names another directory for claims."""

DIRECTORIES = ("/dev/shm", "/run/lock", "/tmp")
"""Claims are in the first of these directories that all users can write to: all users choose the same."""

NEW_FILE_LIMIT_S = 60.0  # seconds after which a .new file counts as old
FILES_LIMIT = 10_000  # claims that are read; more are an attack or a mistake
BYTES_LIMIT = 4 << 20  # bytes of all claims that are read; a usual claim has a few hundred

LOCK_TIMEOUT_S = 10.0  # seconds to wait for the lock on the directory; planning takes milliseconds
WARN_LOCK_TIMEOUT_S = 1.0  # the same if only a warning would be missing

_CLAIM_SUFFIX, _NEW_SUFFIX = ".run", ".new"
"""File name suffixes: of complete claims, and of claims that are being written."""

_DESCRIPTORS = (700, 240, 60, 20)
"""Preferred descriptors for the claim, or the next free ones: scripts use low numbers (`exec 3>log`)."""

_STRICT = (Sharing.AVOID, Sharing.EXCLUSIVE)
"""The *strict* modes: a run fails if it cannot read the claims of others or write its own claim."""


class Claim:
    """A registered claim: the open, locked file, and its path."""

    def __init__(self, file: int, path: str) -> None:
        self._file = file
        self._path = path

    def keep_across_exec(self) -> None:
        """Keep the claim across exec, so that the command holds it for as long as it lives."""
        os.set_inheritable(self._file, True)

    def release(self) -> None:
        """Remove the claim."""
        _unlink(self._path)
        try:
            os.close(self._file)
        except OSError:  # already closed
            pass


def make_run_identity(run_id: str) -> RunIdentity:
    """Return the identity of this process for other runs; a rank of a launcher's job adds its rank."""
    return RunIdentity(
        run_id=run_id,
        pid=os.getpid(),
        uid=os.geteuid(),
        started=int(time.time()),
        parent_run_id=os.environ.get(OMPBIND_RUN_ID, ""),
        pid_space=read_pid_namespace(),
    )


def find_claims_directory(env: Mapping[str, str]) -> str:
    """Return the directory of the claims of this machine, even if it cannot be used."""
    chosen = env.get(DIRECTORY_VARIABLE)
    try:
        return os.path.abspath(chosen) if chosen else next(filter(_is_public, DIRECTORIES), DIRECTORIES[-1])
    except OSError:  # a relative path, and the current directory was removed
        return chosen or DIRECTORIES[-1]


def _is_public(path: str) -> bool:
    """Return whether all users can write to a directory: by its mode, as root may write everywhere."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) and bool(mode & stat.S_IWOTH) and os.access(path, os.W_OK | os.X_OK)


class Registry:
    """The claims of this machine, while a run plans and registers its plan.

    `occupied` are the other live runs. `lock_warning` says that `occupied` may be incomplete, because the
    directory stayed locked. `failure` says why claims could not be read or written. Both are usually "".
    """

    def __init__(self, sharing: Sharing, identity: RunIdentity) -> None:
        self.occupied: tuple[LiveRun, ...] = ()
        self.lock_warning = ""
        self.failure = ""
        self._sharing = sharing
        self._identity = identity
        self._directory = find_claims_directory(os.environ)
        self._handle = -1

    def open(self) -> None:
        """Lock the directory and read the claims; raises ClaimError if this fails and `sharing` is strict."""
        try:
            self._handle = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
            self.lock_warning = _lock_directory(self._handle, self._directory, self._sharing)
            self.occupied = _select_runs(read_runs(self._handle), self._identity, self._sharing)
        except OSError as error:
            self.close()
            what = f"cannot read live runs in {self._directory}"
            self.failure = _raise_or_describe(self._sharing, what, error)

    def register(self, plan: Plan) -> Claim | None:
        """Write the claim of a plan; None if this fails. Raises ClaimError instead if `sharing` is strict."""
        if self._handle < 0:
            return None
        try:
            return _register(make_live_run(plan, self._identity), self._handle, self._directory)
        except OSError as error:
            what = f"cannot register this run in {self._directory}"
            self.failure = _raise_or_describe(self._sharing, what, error)
            return None

    def close(self) -> None:
        """Unlock the directory, so that other runs can plan."""
        if self._handle >= 0:
            os.close(self._handle)  # which unlocks it
            self._handle = -1


@contextmanager
def lock_registry(sharing: Sharing, identity: RunIdentity) -> Iterator[Registry]:
    """Lock the directory of claims while a run plans and registers; raises ClaimError as `Registry`."""
    registry = Registry(sharing, identity)
    try:
        registry.open()
        yield registry
    finally:
        registry.close()


def read_occupied(machine: Machine, request: Request) -> tuple[LiveRun, ...]:
    """Return the other live runs, none of a recorded machine; raises ClaimError if `sharing` is strict."""
    return try_read_occupied(machine, request)[0]


def try_read_occupied(machine: Machine, request: Request) -> tuple[tuple[LiveRun, ...], str]:
    """Return what `read_occupied` returns, and why claims could not be read, "" if they could."""
    directory = find_claims_directory(os.environ)
    try:
        runs = read_live_runs(directory) if machine.source == LIVE else ()
        return find_other_runs(runs, make_run_identity("")), ""
    except OSError as error:
        return (), _raise_or_describe(request.sharing, f"cannot read live runs in {directory}", error)


def read_live_runs(directory: str) -> tuple[LiveRun, ...]:
    """Return the live runs of all users, oldest first; raises OSError if the directory cannot be read."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return read_runs(handle)
    finally:
        os.close(handle)


def _select_runs(runs: tuple[LiveRun, ...], identity: RunIdentity, sharing: Sharing) -> tuple[LiveRun, ...]:
    """Return the other runs as the first rank of the same job found them: all ranks must make one plan.

    CPUs that the job has claimed do not count for runs that started later. CPUs that the first rank avoided
    are still avoided, even if their run has exited. They are returned as a run without a name.
    """
    others, job_runs = find_other_runs(runs, identity), find_job_runs(runs, identity)
    if not job_runs or sharing not in _STRICT:
        return others
    claimed, avoided = union(run.claimed for run in job_runs), union(run.avoided for run in job_runs)
    others = tuple(run.replace(claimed=run.claimed - claimed) for run in others)
    free_now = avoided - union(run.claimed for run in others)
    return (*others, job_runs[0].replace(run_id="", claimed=free_now)) if free_now else others


def _raise_or_describe(sharing: Sharing, what: str, error: OSError) -> str:
    """Return what failed and why; raises ClaimError instead if `sharing` is strict."""
    failure = f"{what}: {error.strerror}"
    if sharing in _STRICT:
        hint = f"set {DIRECTORY_VARIABLE} to a directory on this machine that all users can write to"
        raise ClaimError(f"--{sharing} is not possible: {failure}", hint=hint) from error
    return failure


def _lock_directory(handle: int, directory: str, sharing: Sharing) -> str:
    """Wait until no other run plans; return a warning, or raise ClaimError if strict, after a time limit."""
    if sharing is Sharing.SHARE:
        return ""
    timeout_s = LOCK_TIMEOUT_S if sharing in _STRICT else WARN_LOCK_TIMEOUT_S
    give_up_at = time.monotonic() + timeout_s
    while not _try_lock(handle, fcntl.LOCK_EX):
        if time.monotonic() >= give_up_at:
            text = f"another process has kept {directory} locked for {timeout_s:g} s"
            if sharing in _STRICT:
                hint = f"'fuser -v {directory}' shows which process"
                raise ClaimError(f"--{sharing} is not possible: {text}", hint=hint)
            return f"{text}: runs that start now may be missing"
        time.sleep(0.002)
    return ""


def _try_lock(file: int, how: int) -> bool:
    """Lock a file if no other process has locked it; return whether it is locked now."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _register(run: LiveRun, handle: int, directory: str) -> Claim:
    """Lock and write the claim of a run, then give it its final name; raises OSError."""
    stem = f"ompbind-{run.uid}-{run.pid}-{os.urandom(4).hex()}"
    file = os.open(stem + _NEW_SUFFIX, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=handle)
    try:
        _write_locked(file, make_text(run).encode())
        os.rename(stem + _NEW_SUFFIX, stem + _CLAIM_SUFFIX, src_dir_fd=handle, dst_dir_fd=handle)
        return Claim(_move_descriptor(file), os.path.join(directory, stem + _CLAIM_SUFFIX))
    except OSError:
        _unlink(stem + _NEW_SUFFIX, handle)
        raise
    finally:
        os.close(file)


def _write_locked(file: int, data: bytes) -> None:
    """Lock a new file before other users can open it, write it, and make it readable for all users."""
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    while data:
        data = data[os.write(file, data) :]
    os.fchmod(file, 0o644)


def _move_descriptor(file: int) -> int:
    """Return a duplicate of a descriptor with a high number, which scripts do not use; closed on exec."""
    for lowest in _DESCRIPTORS:
        try:
            return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, lowest)
        except OSError:
            pass  # above the limit of open files
    return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 3)


def read_runs(handle: int) -> tuple[LiveRun, ...]:
    """Return the live runs in an open directory, oldest first, and remove stale claims.

    Raises OSError (EOVERFLOW) if there are too many claims.
    """
    names = os.listdir(handle)
    suffixes = (_CLAIM_SUFFIX, _NEW_SUFFIX)
    names = [name for name in names if name.startswith("ompbind-") and name.endswith(suffixes)]
    found: list[LiveRun | None] = []
    remaining_bytes = BYTES_LIMIT
    for name in names:
        text, uid = _read_claim(name, handle)
        remaining_bytes -= len(text)
        found.append(parse_text(text, uid))
        if remaining_bytes < 0 or len(names) > FILES_LIMIT:
            raise OSError(errno.EOVERFLOW, "too many claims")
    return tuple(sorted(filter(None, found), key=lambda run: (run.started, run.pid)))


def _read_claim(name: str, handle: int) -> tuple[str, int]:
    """Return the text of a claim and its owner; "" if it is stale (and then removed), special or too long."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=handle)
    except OSError:
        return "", 0
    try:
        status = os.fstat(file)
        is_young = status.st_mtime > time.time() - NEW_FILE_LIMIT_S
        is_incomplete = name.endswith(_NEW_SUFFIX) and is_young  # may not be locked yet
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or is_incomplete:
            return "", 0
        if _try_lock(file, fcntl.LOCK_SH):
            _unlink(name, handle)
        elif status.st_size <= TEXT_LIMIT:
            return os.read(file, TEXT_LIMIT).decode("utf-8", "replace"), status.st_uid
    except OSError:
        pass  # counts as no claim
    finally:
        os.close(file)
    return "", 0


def _unlink(path: str, handle: int | None = None) -> None:
    try:
        os.unlink(path, dir_fd=handle)
    except OSError:
        pass  # already removed, or owned by another user
