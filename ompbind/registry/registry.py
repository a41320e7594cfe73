"""Claims: every run publishes its CPUs for as long as it lives, even if it is killed.

A *claim* is a file in a directory that all users share. The run keeps the file locked (`flock`). The kernel
releases the lock when the last process that has the file open is gone, so a claim without a lock is stale:
the next reader removes it.

    read claims → plan → create, lock and write x.new → rename to x.run → read claims that are new

    x.run, locked        a live run that uses its CPUs
    x.run, not locked    its run exited or was killed: removed
    x.new, locked        a claim that is being written: ignored
    x.new, not locked    as x.run; a run whose new file was removed before it was locked writes another

Of two runs that start at the same moment, at least one finds the claim of the other after it has written its
own: it plans again. Runs that avoid others (--avoid, --exclusive), or prefer free cores (--cores), also lock
the directory while they plan: they never plan on the same free CPUs. Other runs do not, because any user can
keep a lock. Runs with --share read no claims.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import ceil

from ompbind.commands.rank_variables import OMPBIND_RUN_ID
from ompbind.cpuset import EMPTY, CpuSet, count, union
from ompbind.errors import ClaimError
from ompbind.machine.model import Machine
from ompbind.machine.read.linux import LIVE
from ompbind.planning.other_runs import NAMED_RUNS, LiveRun, find_other_runs
from ompbind.planning.plan import Plan
from ompbind.planning.request import Request, Sharing
from ompbind.procfs import reader
from ompbind.record import Record
from ompbind.registry.claims import (
    CLAIM_SUFFIX,
    CLAIM_SUFFIXES,
    WAITING_SUFFIX,
    Claim,
    ClaimList,
    list_claims,
    read_claims,
    try_lock,
    write_claim,
)
from ompbind.text import clean_name

DIRECTORY_VARIABLE = "OMPBIND_RUNTIME_DIR"  # the variable that names another directory for claims

DIRECTORIES = ("/dev/shm", "/run/lock", "/tmp")
"""Claims are in the first of these directories that all users can write to: all users choose the same."""

LOCK_TIMEOUT_S, SHORT_LOCK_TIMEOUT_S = 10.0, 1.0  # for strict runs, and others that lock the directory

_STRICT = (Sharing.AVOID, Sharing.EXCLUSIVE)
"""The *strict* modes: a run fails if it cannot read the claims of others or write its own claim."""


def make_own_run(run_id: str, grace_s: float = 0.0) -> LiveRun:
    """Return the run that this process is about to start, before it has a plan."""
    return LiveRun(
        run_id=clean_name(run_id),
        pid=os.getpid(),
        uid=os.geteuid(),
        started=int(time.time()),
        claimed=EMPTY,
        parent_run_id=clean_name(os.environ.get(OMPBIND_RUN_ID, "")),
        pid_space=reader.read_pid_namespace(),
        grace_s=ceil(grace_s),
    )


def make_live_run(plan: Plan, own: LiveRun) -> LiveRun:
    """Return the run that is about to start with a plan, as other runs will see it."""
    index = own.placement_index
    ranks = tuple((placement.rank, placement.cpuset) for placement in plan.placements)
    if index is not None:
        ranks = ((own.rank, ranks[index][1]),)
    return own.replace(
        ranks=ranks,
        claimed=plan.used | plan.reserved,
        avoided=plan.avoided,
        bind=str(plan.request.effective_bind),
        hold=plan.parts[0].request.hold,
        configuration=plan.request.configuration.digest,
        division="" if index is None else make_division(plan),
        groups=", ".join(f"{part.request.group} {len(part.placements)}" for part in plan.groups),
    )


def make_division(plan: Plan) -> str:
    """Return a short hash of the CPUs and devices of all ranks of a plan; "" if it has not several ranks.

    Also "" if a launcher has bound ranks outside of the plan: groups of ranks then have plans of their own.
    """
    if len(plan.placements) <= 1 or plan.request.outside_ranks:
        return ""
    shares = tuple(
        (placement.cpus, tuple(placement.service_cpus), tuple(device.index for device in placement.devices))
        for placement in plan.placements
    )
    return f"{hash(shares) & 0xFFFF_FFFF_FFFF_FFFF:x}"  # the hash of numbers is equal in all processes


class Registry:
    """The claims of this machine, while a run plans and registers its plan.

    `occupied` are the other live runs. `sharing` is as given, but WARN if a run that prefers free cores could
    not lock the directory. `failure` says why claims could not be read or written, and `ignored`
    names the claims that do not count. Both are usually "".
    """

    def __init__(self, sharing: Sharing, own: LiveRun) -> None:
        self.occupied: tuple[LiveRun, ...] = ()
        self.failure = self.ignored = ""
        self._live: tuple[LiveRun, ...] = ()
        self.sharing = sharing
        self._own = own
        self._directory = find_claims_directory(os.environ)
        self._handle = -1
        self._names = frozenset[str]()

    @property
    def job_runs(self) -> tuple[LiveRun, ...]:
        """The live ranks of the same launcher's job."""
        return tuple(filter(self._own.is_same_job, self._live))

    @property
    def sibling_runs(self) -> tuple[LiveRun, ...]:
        """The live ranks of the same job, without those in which ranks of the job were started again."""
        parent = self._own.parent_run_id
        return tuple(run for run in self.job_runs if run.parent_run_id == parent)

    def __enter__(self) -> Registry:
        """Read the claims, unless `sharing` is SHARE, and lock their directory if it is strict.

        Raises ClaimError if this fails and `sharing` is strict.
        """
        try:
            self._handle = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
            if self.sharing in (*_STRICT, Sharing.PREFER_FREE):
                self._lock()
            if self.sharing is not Sharing.SHARE:
                names = list_claims(self._handle, (*CLAIM_SUFFIXES, WAITING_SUFFIX))
                tickets = {name for name in names if name.endswith(WAITING_SUFFIX)}
                read_claims(self._handle, tickets, with_ranks=False)  # removes tickets of killed runs
                self._names = names - tickets
                if self._names:
                    self._read_claims()
        except ClaimError:
            self.__exit__()
            raise
        except OSError as error:
            self.__exit__()
            verb = "open" if self.sharing is Sharing.SHARE else "read live runs in"
            failure = _raise_or_describe(self.sharing, f"cannot {verb} {self._directory}", error)
            if error.errno == errno.EOVERFLOW:  # every user should know, not only readers of -v
                self.ignored = failure
            else:
                self.failure = failure
        return self

    def __exit__(self, *_: object) -> None:
        """Unlock the directory, so that other runs can plan."""
        if self._handle >= 0:
            os.close(self._handle)  # which unlocks it
            self._handle = -1

    def register(self, plan: Plan) -> Claim | None:
        """Write the claim of a plan; None if this fails. Raises ClaimError instead if `sharing` is strict."""
        return self._write(make_live_run(plan, self._own))

    def register_session(self, plans: Iterable[Plan], configuration: str) -> Claim | None:
        """Write the claim of a session of bench, for the CPUs of all its plans; else as `register`."""
        claimed = union(plan.used | plan.reserved for plan in plans)
        return self._write(self._own.replace(claimed=claimed, configuration=configuration, is_session=True))

    def register_waiting(self, wanted: CpuSet) -> Claim | None:
        """Write that this run waits for some CPUs, which `ps` then shows; else as `register`."""
        return self._write(self._own.replace(wanted=wanted), WAITING_SUFFIX)

    def _write(self, run: LiveRun, suffix: str = CLAIM_SUFFIX) -> Claim | None:
        if self._handle < 0:
            return None
        try:
            return write_claim(run, self._handle, self._directory, suffix)
        except OSError as error:
            what = f"cannot register this run in {self._directory}"
            self.failure = _raise_or_describe(self.sharing, what, error)
            return None

    def find_new_runs(self, claim: Claim) -> bool:
        """Read the claims again if there are new ones beside this claim; return whether there are.

        Raises ClaimError if this fails and `sharing` is strict.
        """
        if self.sharing is Sharing.SHARE:
            return False
        before = self._names
        try:
            self._names = list_claims(self._handle) - {claim.name}
        except OSError as error:
            self.failure = _raise_or_describe(self.sharing, f"cannot list {self._directory}", error)
        if self._names <= before:
            return False
        self._read_claims()
        return True

    def _lock(self) -> None:
        """Wait until no other run that locks plans; after a limit, raise ClaimError if strict, or warn."""
        give_up_at = time.monotonic() + (LOCK_TIMEOUT_S if self.sharing in _STRICT else SHORT_LOCK_TIMEOUT_S)
        while not try_lock(self._handle, fcntl.LOCK_EX):
            if time.monotonic() >= give_up_at:
                if self.sharing not in _STRICT:
                    self.sharing = Sharing.WARN
                    return
                text = f"another process has kept {self._directory} locked for {LOCK_TIMEOUT_S:g} s"
                hint = f"'lslocks' names it: ask its user to stop it and try again, or omit --{self.sharing}"
                raise ClaimError(f"--{self.sharing} is not possible: {text}", hint=hint)
            time.sleep(0.002)

    def _read_claims(self) -> None:
        """Read the claims; if `sharing` is strict, as the job's first rank found them.

        All ranks of a job must make one plan. CPUs that the job has claimed do not count for runs that
        started later. CPUs that the first rank avoided are still avoided, even if their run has exited: they
        count as a run without a name.
        """
        found = read_claims(self._handle, self._names, with_ranks=False)
        self._live, self.ignored = found.runs, render_ignored(found.ignored, self._directory)
        self.occupied = find_other_runs(found.runs, self._own)
        if self.job_runs and self.sharing in _STRICT:
            claimed = union(run.claimed for run in self.job_runs)
            others = tuple(run.replace(claimed=run.claimed - claimed) for run in self.occupied)
            free_now = union(run.avoided for run in self.job_runs) - union(run.claimed for run in others)
            exited = self.job_runs[0].replace(run_id="", claimed=free_now)
            self.occupied = (*others, exited) if free_now else others


def _raise_or_describe(sharing: Sharing, what: str, error: OSError) -> str:
    """Return what failed and why; raises ClaimError instead if `sharing` is strict."""
    failure = f"{what}: {error.strerror}"
    if sharing in _STRICT:
        hint = f"omit --{sharing}, or set {DIRECTORY_VARIABLE} for all runs to another directory of this"
        hint += " machine, for example one made with 'mkdir -m 1777'"
        raise ClaimError(f"--{sharing} is not possible: {failure}", hint=hint) from error
    return failure


def find_claims_directory(env: Mapping[str, str]) -> str:
    """Return the directory of the claims of this machine, even if it cannot be used."""
    if chosen := env.get(DIRECTORY_VARIABLE):
        with suppress(OSError):  # a relative path, and the current directory was removed
            return os.path.abspath(chosen)
        return chosen
    for path in DIRECTORIES:
        with suppress(OSError):
            mode = os.stat(path).st_mode  # root may write everywhere
            if stat.S_ISDIR(mode) and mode & stat.S_IWOTH and os.access(path, os.W_OK | os.X_OK):
                return path
    return DIRECTORIES[-1]


def read_occupied(machine: Machine, request: Request) -> tuple[LiveRun, ...]:
    """Return the other live runs of this machine; none for a recorded machine or a request that shares CPUs.

    Raises ClaimError if claims cannot be read and `sharing` is strict.
    """
    return try_read_occupied(machine, request)[0]


def try_read_occupied(machine: Machine, request: Request) -> tuple[tuple[LiveRun, ...], str]:
    """Return what `read_occupied` returns, and why claims could not be read, "" if they could."""
    if request.sharing is Sharing.SHARE or machine.source != LIVE:
        return (), ""
    directory = find_claims_directory(os.environ)
    try:
        return find_other_runs(read_live_runs(directory), make_own_run("")), ""
    except OSError as error:
        return (), _raise_or_describe(request.sharing, f"cannot read live runs in {directory}", error)


def read_live_runs(directory: str) -> tuple[LiveRun, ...]:
    """Return the live runs of all users, oldest first; raises OSError."""
    return read_claim_list(directory).runs


def read_claim_list(directory: str, suffixes: tuple[str, ...] = CLAIM_SUFFIXES) -> ClaimList:
    """Return the live runs of all users, and the claims that do not count; raises OSError."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return read_claims(handle, list_claims(handle, suffixes))
    finally:
        os.close(handle)


def render_ignored(ignored: Sequence[tuple[str, str]], directory: str) -> str:
    """Return one sentence that names the claims that do not count; "" if there is none."""
    if not ignored:
        return ""
    named = [f"{clean_name(name)} ({why})" for name, why in ignored[:NAMED_RUNS]]
    more = [f"{len(ignored) - NAMED_RUNS} more"] if len(ignored) > NAMED_RUNS else []
    verb = "does" if len(ignored) == 1 else "do"
    return f"{count(len(ignored), 'claim')} in {directory} {verb} not count: {', '.join(named + more)}"


class RunInfo(Record):
    """One live run, the name of its user, and the command line of its process.

    `command` is None if the process has exited, is in another PID namespace, or if its pid now belongs to
    another process.
    """

    run: LiveRun
    user: str
    command: tuple[str, ...] | None


_TOLERANCE_S = 2  # of the start time of a process: kernel ticks and the clock differ a little


def read_run_info(runs: Iterable[LiveRun]) -> tuple[RunInfo, ...]:
    """Return each run with the name of its user and the command line of its process."""
    found = []
    for run in runs:
        words = None
        if run.pid_space == reader.read_pid_namespace() and reader.read_owner(run.pid) == run.uid:
            age_s = reader.read_age_s(run.pid)
            if age_s is not None and age_s + _TOLERANCE_S >= time.time() - run.started:
                words = reader.read_command_line(run.pid) or None
        found.append(RunInfo(run=run, user=read_user(run.uid), command=words))
    return tuple(found)


def read_user(uid: int) -> str:
    """Return the name of a user, or the number if the user has no name here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
