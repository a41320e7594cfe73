"""Claims: every run publishes its CPUs for as long as it lives, even if it is killed.

A *claim* is a file in a directory that all users share. The run keeps the file locked (`flock`). The kernel
releases the lock when the last process that has the file open is gone, so a claim without a lock is stale:
the next reader removes it.

    read claims → plan → create, lock and write x.new → rename to x.run → read claims that are new

    x.run, locked        a live run that uses its CPUs
    x.run, not locked    its run exited or was killed: removed
    x.new, young         a claim that is being written: ignored
    x.new, old           as x.run

Of two runs that start at the same moment, at least one finds the claim of the other after it has written its
own: it plans again. Runs that avoid others (--avoid, --exclusive) also lock the directory while they plan:
they never plan on the same free CPUs. Other runs do not, because any user can keep a lock. Runs with --share
read no claims.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterable, Mapping

from ompbind.cpuset import CpuSet, union
from ompbind.errors import ClaimError
from ompbind.machine.model import Machine
from ompbind.machine.sources.linux.reader import LIVE
from ompbind.planning.other_runs import LiveRun, RunIdentity, find_job_runs, find_other_runs
from ompbind.planning.plan import Plan
from ompbind.planning.rank_variables import OMPBIND_RUN_ID
from ompbind.planning.request import Request, Sharing
from ompbind.procfs.reader import read_pid_namespace
from ompbind.registry.claim_files import (
    Claim,
    ClaimList,
    lock_directory,
    read_claims,
    render_ignored,
    write_claim,
)
from ompbind.registry.claim_format import (
    CLAIM_SUFFIX,
    CLAIM_SUFFIXES,
    TICKET_SUFFIX,
    list_claims,
    make_live_run,
    make_waiting_run,
)

DIRECTORY_VARIABLE = "OMPBIND_RUNTIME_DIR"
"""The variable that names another directory for claims."""

DIRECTORIES = ("/dev/shm", "/run/lock", "/tmp")
"""Claims are in the first of these directories that all users can write to: all users choose the same."""

_STRICT = (Sharing.AVOID, Sharing.EXCLUSIVE)
"""The *strict* modes: a run fails if it cannot read the claims of others or write its own claim."""


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

    `occupied` are the other live runs, `live` all of them. `handle` is the open directory. `failure` says why
    claims could not be read or written, and `ignored` names the claims that do not count. Both are usually
    "".
    """

    def __init__(self, sharing: Sharing, identity: RunIdentity) -> None:
        self.occupied: tuple[LiveRun, ...] = ()
        self.live: tuple[LiveRun, ...] = ()
        self.failure = self.ignored = ""
        self._sharing = sharing
        self._identity = identity
        self.directory = find_claims_directory(os.environ)
        self.handle = -1
        self._names = frozenset[str]()

    @property
    def job_runs(self) -> tuple[LiveRun, ...]:
        """The live ranks of the same launcher's job."""
        return find_job_runs(self.live, self._identity)

    def __enter__(self) -> Registry:
        """Read the claims, unless `sharing` is SHARE, and lock their directory if it is strict.

        Raises ClaimError if this fails and `sharing` is strict.
        """
        try:
            self.handle = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
            if self._sharing in _STRICT:
                lock_directory(self.handle, self.directory, self._sharing)
            if self._sharing is not Sharing.SHARE:
                self._names = list_claims(self.handle)
                if self._names:
                    self._read_claims()
        except ClaimError:
            self.close()
            raise
        except OSError as error:
            self.close()
            verb = "open" if self._sharing is Sharing.SHARE else "read live runs in"
            failure = raise_or_describe(self._sharing, f"cannot {verb} {self.directory}", error)
            if error.errno == errno.EOVERFLOW:  # every user should know, not only readers of -v
                self.ignored = failure
            else:
                self.failure = failure
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def register(self, plan: Plan) -> Claim | None:
        """Write the claim of a plan; None if this fails. Raises ClaimError instead if `sharing` is strict."""
        return self._write(make_live_run(plan, self._identity))

    def register_session(self, plans: Iterable[Plan], configuration: str) -> Claim | None:
        """Write the claim of a session of bench, for the CPUs of all its plans; else as `register`."""
        run = make_waiting_run(self._identity).replace(
            claimed=union(plan.used | plan.reserved for plan in plans),
            configuration=configuration,
            is_session=True,
        )
        return self._write(run)

    def register_waiting(self, wanted: CpuSet) -> Claim | None:
        """Write that this run waits for some CPUs, which `ps` then shows; else as `register`."""
        return self._write(make_waiting_run(self._identity, wanted), TICKET_SUFFIX)

    def _write(self, run: LiveRun, suffix: str = CLAIM_SUFFIX) -> Claim | None:
        if self.handle < 0:
            return None
        try:
            return write_claim(run, self.handle, self.directory, suffix)
        except OSError as error:
            what = f"cannot register this run in {self.directory}"
            self.failure = raise_or_describe(self._sharing, what, error)
            return None

    def find_new_runs(self, claim: Claim) -> bool:
        """Read the claims again if there are new ones beside this claim; return whether there are.

        Raises ClaimError if this fails and `sharing` is strict.
        """
        if self._sharing is Sharing.SHARE:
            return False
        before = self._names
        try:
            self._names = list_claims(self.handle) - {claim.name}
        except OSError as error:
            self.failure = raise_or_describe(self._sharing, f"cannot list {self.directory}", error)
        if self._names <= before:
            return False
        self._read_claims()
        return True

    def close(self) -> None:
        """Unlock the directory, so that other runs can plan."""
        if self.handle >= 0:
            os.close(self.handle)  # which unlocks it
            self.handle = -1

    def _read_claims(self) -> None:
        found = read_claims(self.handle, self._names, with_ranks=False)
        self.live = found.runs
        self.occupied = select_other_runs(found.runs, self._identity, strict=self._sharing in _STRICT)
        self.ignored = render_ignored(found.ignored, self.directory)


def raise_or_describe(sharing: Sharing, what: str, error: OSError) -> str:
    """Return what failed and why; raises ClaimError instead if `sharing` is strict."""
    failure = f"{what}: {error.strerror}"
    if sharing in _STRICT:
        hint = (
            f"omit --{sharing}, or set {DIRECTORY_VARIABLE} for all runs to another directory of this"
            " machine, for example one made with 'mkdir -m 1777'"
        )
        raise ClaimError(f"--{sharing} is not possible: {failure}", hint=hint) from error
    return failure


def select_other_runs(
    runs: tuple[LiveRun, ...], identity: RunIdentity, *, strict: bool
) -> tuple[LiveRun, ...]:
    """Return the other runs; if `strict`, as the first rank of the same job found them.

    All ranks of a job must make one plan. CPUs that the job has claimed do not count for runs that started
    later. CPUs that the first rank avoided are still avoided, even if their run has exited. They are returned
    as a run without a name.
    """
    others, job_runs = find_other_runs(runs, identity), find_job_runs(runs, identity)
    if not (job_runs and strict):
        return others
    claimed, avoided = union(run.claimed for run in job_runs), union(run.avoided for run in job_runs)
    others = tuple(run.replace(claimed=run.claimed - claimed) for run in others)
    free_now = avoided - union(run.claimed for run in others)
    return (*others, job_runs[0].replace(run_id="", claimed=free_now)) if free_now else others


def read_occupied(machine: Machine, request: Request) -> tuple[LiveRun, ...]:
    """Return the other live runs of this machine, without a lock and without a claim of its own.

    A recorded machine has no live runs, and a request that shares CPUs needs none. Raises ClaimError if
    claims cannot be read and `sharing` is strict.
    """
    return try_read_occupied(machine, request)[0]


def try_read_occupied(machine: Machine, request: Request) -> tuple[tuple[LiveRun, ...], str]:
    """Return what `read_occupied` returns, and why claims could not be read, "" if they could."""
    if request.sharing is Sharing.SHARE or machine.source != LIVE:
        return (), ""
    directory = find_claims_directory(os.environ)
    try:
        return find_other_runs(read_live_runs(directory), make_run_identity("")), ""
    except OSError as error:
        return (), raise_or_describe(request.sharing, f"cannot read live runs in {directory}", error)


def read_live_runs(directory: str) -> tuple[LiveRun, ...]:
    """Return the live runs of all users, oldest first; raises OSError if the directory cannot be read."""
    return read_claim_list(directory).runs


def read_claim_list(directory: str, suffixes: tuple[str, ...] = CLAIM_SUFFIXES) -> ClaimList:
    """Return the live runs of all users, and the claims that do not count; raises OSError as above."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return read_claims(handle, list_claims(handle, suffixes))
    finally:
        os.close(handle)
