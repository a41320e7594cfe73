"""Orphans: processes that ranks leave behind. They get SIGTERM, and SIGKILL after the grace period.

When a process exits, the kernel gives its children a new parent: the nearest ancestor that is a *subreaper*.
The supervisor is one, so a descendant of a rank that loses its parent becomes a child of the supervisor.
`OrphanTracker` attributes each such child to an attempt (one start) of a rank:

    supervisor
      ├─ rank 0                      running: it and its descendants are no orphans
      ├─ process A                   in the process group of rank 1, which has exited → rank 1
      ├─ daemon B, own group         OMPBIND_RUN_ID, OMPBIND_RANK=1, OMPBIND_ATTEMPT=1 in its environment
      │                              → rank 1
      │    └─ process C              a descendant of an orphan → as B
      └─ daemon D, own group         no such variables: cannot be attributed

A, B and C are stopped when rank 1 exits, while other ranks run. D may belong to a running rank, so it is
stopped when no rank runs: after the last rank has exited, or while a single rank waits for its restart. With
--keep-descendants only process groups are stopped: not B, C, D. Without a running rank, all descendants
of the supervisor are orphans.

The kernel gives the PID of a process that was reaped to another process. So each signal here goes to

- a child of this process, which keeps its PID until this process reaps it; or the process group that it leads
- the parent of this process, as long as it is the parent
- a process that /proc shows to be a descendant, if its PID still belongs to the same process
"""

import itertools
import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping, Set
from contextlib import suppress

from ompbind.commands.rank_variables import find_attempt, find_rank
from ompbind.cpuset import named
from ompbind.procfs import reader
from ompbind.procfs.parsers import EXITED_STATES, Stat, find_descendants, find_owners

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

REAPED_AT_ONCE = 1000
"""Children that are reaped at most before anything else: daemons may exit faster than they can be reaped."""

_SWEEPS_OF_CHILDREN = 16  # for each sweep over all processes, which takes much longer
_EXIT_WAIT_S = 0.2  # for the exit of processes that cannot be found, which the kernel may have killed
_SWEEP_PAUSE_S = 0.001  # if no process has exited since the last sweep
_POLL_S = 0.05  # between two checks on systems without subreapers, where orphans cause no SIGCHLD
_UNKILLABLE_AFTER_S = 2.0  # after SIGKILL: freeing the memory of a process takes time
_SEARCH_S = 0.05  # to search for processes that fork and exit faster than /proc can be read
_EXEC_WAIT_S = 0.02  # for the environment of a process, which is empty for a moment during `execve`

Owner = tuple[int, int]  # a rank and its attempt, counted from 1: to which of its starts a process belongs

_UNATTRIBUTED: Owner = (-1, 0)  # stands for the owner of processes that cannot be attributed to a rank


class OrphanTracker:
    """Orphans of exited ranks, and when they are killed; times are seconds of a monotonic clock.

    With `groups_only` orphans that have left the process group of their rank are not stopped.
    """

    def __init__(self, run_id: str, grace_s: float, *, groups_only: bool) -> None:
        self.run_id = run_id
        self.grace_s = grace_s
        self.groups_only = groups_only
        self.is_subreaper = False
        self.groups: dict[int, Owner] = {}  # process groups of exited ranks
        self.kill_at: dict[Owner, float] = {}  # when the orphans of an owner get SIGKILL, or first got it
        self.owners_sent_sigkill: Set[Owner] = frozenset()  # whose orphans got SIGKILL at the last check
        self.pids_sent_sigterm: Collection[int] = ()  # processes that have had SIGTERM
        self.unkillable: set[int] = set()
        self.without_environment: set[int] = set()
        self.check_requested = False  # a child has exited since the last check, and may have left orphans
        self._listed: Mapping[int, Stat] = {}  # the processes of the last check that can be orphans

    @property
    def any_left(self) -> bool:
        """Return whether the last check has found orphans."""
        return bool(self.kill_at)

    def has_left(self, owner: Owner) -> bool:
        """Return whether the last check has found orphans that are, or may be, of a rank that has exited."""
        return owner in self.kill_at or _UNATTRIBUTED in self.kill_at

    def next_check_at(self, now: float) -> float | None:
        """Return when `stop` is due even if no child exits; None if no orphan is left."""
        times = [at if at > now else at + _UNKILLABLE_AFTER_S for at in self.kill_at.values()]
        if times and not self.is_subreaper:
            times.append(now + _POLL_S)
        return min(times, default=None)

    def stop(self, live: Mapping[int, Owner], *, kill: bool = False) -> str:
        """Find orphans; send SIGTERM to new ones, SIGKILL after the grace period.

        `live` are the running ranks, by pid. If `kill`, all of them were killed, and orphans get SIGKILL at
        once. Returns a message to report, "" for none.
        """
        now = time.monotonic()
        self.check_requested = False
        orphans = self._find(live)
        if not orphans:
            self.groups = {}  # all are empty, and the kernel may reuse their numbers for other processes
        self._update_deadlines(set(orphans.values()), now, now if kill else now + self.grace_s)
        for pid in order_by_start(orphans, self._listed):
            numbers = (signal.SIGTERM, signal.SIGCONT) if pid not in self.pids_sent_sigterm else ()
            for number in (signal.SIGKILL,) if self.kill_at[orphans[pid]] <= now else numbers:
                if pid in self._listed:
                    signal_listed(pid, self._listed[pid], number)
                else:  # a negative pid is a process group
                    signal_process(pid, number)
        self.pids_sent_sigterm = orphans.keys()
        latest = now - _UNKILLABLE_AFTER_S
        surviving = {pid for pid, owner in orphans.items() if self.kill_at[owner] <= latest}
        self.unkillable |= surviving
        self.kill_at = {owner: at for owner, at in self.kill_at.items() if at > latest}
        return render_left(surviving)

    def kill_rest(self) -> str:
        """Kill what the last check has missed, for up to `grace_s` seconds; returns a message or ""."""
        if self.groups_only or not self.is_subreaper:
            return ""
        left = kill_descendants(self.grace_s, self.unkillable)
        return render_left(left if left is None else left - self.unkillable)

    def _update_deadlines(self, owners: Set[Owner], now: float, latest: float) -> None:
        """Set `kill_at` for the owners of all orphans: as before, but not after `latest`."""
        # The environment of an exiting orphan is empty, so its child may be attributed to another rank. The
        # deadline stays the same; otherwise a chain of short-lived processes would never be killed.
        inherited = min([latest, *(at for owner, at in self.kill_at.items() if owner not in owners)])
        self.kill_at = {owner: min(self.kill_at.get(owner, inherited), latest) for owner in owners}
        owners_sent_sigkill = {owner for owner, at in self.kill_at.items() if at <= now}
        # SIGKILL is sent now, however long ago it was due: this process may have been stopped meanwhile.
        self.kill_at |= dict.fromkeys(owners_sent_sigkill - self.owners_sent_sigkill, now)
        self.owners_sent_sigkill = owners_sent_sigkill

    def _find(self, live: Mapping[int, Owner]) -> dict[int, Owner]:
        """Return the owners of all orphans to be stopped, by pid; without /proc by negative process group.

        It looks again, for a limited time, while children exit that may have left others, or cannot be found.
        Daemons of running ranks are children for days, so they are no reason to read all processes.
        """
        until = time.monotonic() + _SEARCH_S
        while True:
            self.groups = {group: owner for group, owner in self.groups.items() if signal_process(-group, 0)}
            if not reader.is_proc_of_pid_namespace():
                # The kernel may have given the number of a group without a child of this process to another.
                groups = {group for group in self.groups if has_children(group) or not self.is_subreaper}
                return {-group: self.groups[group] for group in groups}
            children = reader.read_children() if self.is_subreaper else set()
            others = (children or set()) - live.keys() - self.unkillable
            left = {pid for pid in others if not _has_exited(pid)}
            found = {pid: owner for pid in left if (owner := self._attribute(pid, live))}
            if found or self.groups or children is None:
                found = self._add_descendants(found, live)
            if found or left or time.monotonic() > until:
                return found
            none_expected = self.is_subreaper and not (live or self.unkillable or self.groups_only)
            if not others and not (none_expected and has_children()):  # /proc may miss some for a moment
                return found

    def _add_descendants(self, roots: dict[int, Owner], live: Mapping[int, Owner]) -> dict[int, Owner]:
        """Return the orphans among the children of this process and in groups, and descendants."""
        self._listed = read_descendants() if self.is_subreaper else reader.read_processes()
        for pid, process in self._listed.items():
            if process.group in self.groups and pid not in live and pid not in self.unkillable:
                roots[pid] = self.groups[process.group]
        found = roots if self.groups_only else find_owners(self._listed, roots)
        return {pid: owner for pid, owner in found.items() if pid not in self.unkillable}

    def _attribute(self, pid: int, live: Mapping[int, Owner]) -> Owner | None:
        """Return the exited attempt that a child is attributed to; None if it is not to be stopped."""
        group = read_group(pid)
        if self.groups_only or group in self.groups:
            return self.groups.get(group)
        give_up_at = time.monotonic() + _EXEC_WAIT_S  # without a running rank, any process is an orphan
        while (
            (variables := reader.read_environ(pid)) is None and live and pid not in self.without_environment
        ):
            time.sleep(_EXEC_WAIT_S / 20)
            if time.monotonic() > give_up_at:
                self.without_environment.add(pid)
        rank = find_rank(variables or {}, self.run_id)
        if rank is None:
            return None if live or _has_exited(pid) else _UNATTRIBUTED  # a zombie has no environment
        owner = (rank, find_attempt(variables or {}))
        return None if owner in live.values() else owner


def _has_exited(child: int) -> bool:
    """Return whether a child that is no rank has exited, and reap it then."""
    try:
        return os.waitpid(child, os.WNOHANG)[0] == child
    except ChildProcessError:
        return True


def become_subreaper() -> bool:
    """Become the parent of all orphans of ranks; returns whether the system supports that."""
    return call_prctl(_PR_SET_CHILD_SUBREAPER, 1)


def exit_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that forked it exits; exit now if it has exited."""
    call_prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def call_prctl(option: int, value: int) -> bool:
    """Set an attribute of this process; returns whether the system supports that."""
    try:
        import ctypes  # noqa: PLC0415 - door: loads libffi, which some Pythons lack

        prctl = ctypes.CDLL(None).prctl  # None: this program itself
        return bool(prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0))) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def read_group(pid: int) -> int:
    """Return the process group of a process; 0 if the process does not exist."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def signal_process(pid: int, number: int) -> bool:
    """Signal a process, or a group by its negative number; False if none exists that may be signalled."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def signal_rank(pid: int, number: int) -> bool:
    """Signal a rank and its process group, each process once: the rank may have moved to another group.

    Returns whether this user may signal the rank itself.
    """
    if read_group(pid) not in (pid, 0):  # 0: the rank has exited, but its group may have members
        signal_process(pid, number)
    signal_process(-pid, number)
    return signal_process(pid, 0)


def signal_parent(pid: int, number: int, *, group: int = 0) -> bool:
    """Signal the parent of this process, `pid`, or its process group; False if the parent has exited."""
    return os.getppid() == pid and signal_process(-group if group else pid, number)


def signal_listed(pid: int, listed: Stat, number: int) -> bool:
    """Signal the process that /proc has listed as `listed`; False if it has exited since."""
    pidfd = -1
    with suppress(OSError, AttributeError):  # it has exited, or this system or a limit permits no pidfd
        pidfd = os.pidfd_open(pid)
    try:
        stat = reader.read_stat(pid)
        if stat is None or stat.start_ticks != listed.start_ticks:
            return False
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    except (OSError, AttributeError):  # no pidfd, or refused, as by old container filters
        return signal_process(pid, number)
    finally:
        if pidfd >= 0:
            os.close(pidfd)
    return True


def has_exited(pid: int, listed: Stat) -> bool:
    """Return whether the process that /proc has listed as `listed` has exited, even unreaped."""
    stat = reader.read_stat(pid)
    return stat is None or stat.start_ticks != listed.start_ticks or stat.state in EXITED_STATES


def has_children(group: int = 0) -> bool:
    """Return whether this process has any child, zombies included, or any in a process group."""
    try:
        os.waitid(os.P_PGID if group else os.P_ALL, group, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except OSError:  # refused, as by a container filter
        return reader.read_children() != set()
    return True


def read_descendants() -> dict[int, Stat]:
    """Read /proc/PID/stat of all descendants of this process that have not exited; {} without /proc."""
    processes, me = reader.read_processes(), os.getpid()
    return {pid: processes[pid] for pid in find_descendants(processes, (me,)) - {me} if pid in processes}


def order_by_start(pids: Iterable[int], listed: Mapping[int, Stat]) -> list[int]:
    """Return PIDs in order of start: a shell that is killed first cannot print that its child was killed."""
    return sorted(pids, key=lambda pid: (listed[pid].start_ticks if pid in listed else 0, pid))


def kill_descendants(limit_s: float, spared: Collection[int] = ()) -> set[int] | None:
    """Kill and reap all descendants of this process, until none is left or `limit_s` seconds are over.

    `spared` are children that are left alone, with their descendants. Returns the PIDs of processes that are
    left; None if there are some that /proc does not show.
    """
    can_find = reader.is_proc_of_pid_namespace()
    until = time.monotonic() + (limit_s if can_find else _EXIT_WAIT_S)
    _reap_zombies()
    for sweep in itertools.count():
        if not has_children():
            break
        # Ranks are children: they are killed first, before reading /proc takes a few milliseconds.
        children = reader.read_children()
        is_full = children is None or sweep % _SWEEPS_OF_CHILDREN == 1
        descendants = read_descendants() if is_full else {}
        left = (descendants.keys() | (children or set())) - find_descendants(descendants, spared)
        for pid in order_by_start(left, descendants):
            if pid in descendants:
                signal_listed(pid, descendants[pid], signal.SIGKILL)
            else:  # a child, also one whose initial thread has exited before the others
                signal_process(pid, signal.SIGKILL)
        if time.monotonic() >= until or (spared and not left):
            return left if can_find else None
        if not _reap_zombies():
            time.sleep(_SWEEP_PAUSE_S)
    return set()


def render_left(left: Collection[int] | None) -> str:
    """Render a result of `kill_descendants`: which processes are left; "" for none."""
    if left is None:
        return "processes of ranks may be left: /proc does not show them"
    return f"cannot kill {named('pid', left)}, left behind by a rank" if left else ""


def _reap_zombies() -> bool:
    """Reap up to REAPED_AT_ONCE children that have exited; returns whether there was any."""
    reaped = 0
    try:
        while reaped < REAPED_AT_ONCE and os.waitpid(-1, os.WNOHANG)[0]:
            reaped += 1
    except ChildProcessError:
        pass
    return reaped > 0
