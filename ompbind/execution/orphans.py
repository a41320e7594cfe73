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
--keep-descendants only process groups are stopped: not B, C, D. When all ranks are killed, all descendants of
the supervisor are killed at once, without attribution.
"""

import os
import signal
import time
from collections.abc import Collection, Mapping, Set

from ompbind.commands.rank_variables import find_attempt, find_rank
from ompbind.execution.processes import (
    become_subreaper,
    has_children,
    kill_descendants,
    order_by_start,
    read_descendants,
    read_group,
    render_left,
    signal_group,
    signal_listed,
    signal_process,
)
from ompbind.procfs.parsers import Stat, find_descendants
from ompbind.procfs.reader import is_proc_of_pid_namespace, read_children, read_environ, read_processes

_POLL_S = 0.05
"""Seconds between two checks on systems without subreapers, where orphans cause no SIGCHLD."""

_UNKILLABLE_AFTER_S = 2.0
"""Seconds after SIGKILL until a process counts as unkillable: freeing its memory takes time."""

_SEARCH_S = 0.05  # seconds to search for processes that fork and exit faster than /proc can be read
_EXEC_WAIT_S = 0.02
"""Seconds to wait for the environment of a process, which is empty for a moment during `execve`."""

Owner = tuple[int, int]
"""A rank and its attempt, counted from 1: to which of its starts a process belongs."""

_UNATTRIBUTED: Owner = (-1, 0)
"""Stands for the owner of processes that cannot be attributed to a rank."""


class OrphanTracker:
    """Orphans of exited ranks, and when they are killed; times are seconds of a monotonic clock.

    With `groups_only` orphans that have left the process group of their rank are not stopped.
    """

    def __init__(self, run_id: str, grace_s: float, *, groups_only: bool) -> None:
        self.run_id = run_id
        self.grace_s = grace_s
        self.groups_only = groups_only
        self.is_subreaper = False
        self.groups: dict[int, Owner] = {}  # process groups of exited ranks that were not empty
        self.kill_at: dict[Owner, float] = {}  # when the orphans of an owner get SIGKILL, or first got it
        self.owners_sent_sigkill: Set[Owner] = frozenset()  # whose orphans got SIGKILL at the last check
        self.pids_sent_sigterm: Collection[int] = ()  # processes that have had SIGTERM
        self.unkillable: set[int] = set()
        self.without_environment: set[int] = set()
        self.all_killed = False  # all ranks were killed: so are all their descendants
        self.check_requested = False  # a child has exited since the last check, and may have left orphans
        self._listed: Mapping[int, Stat] = {}  # the processes of the last check that can be orphans

    @property
    def any_left(self) -> bool:
        """Return whether the last check has found orphans."""
        return bool(self.kill_at)

    def become_parent(self) -> None:
        """Have the kernel make this process the parent of all orphans of ranks."""
        self.is_subreaper = become_subreaper()

    def has_left(self, owner: Owner) -> bool:
        """Return whether the last check has found orphans that are, or may be, of a rank that has exited."""
        return owner in self.kill_at or _UNATTRIBUTED in self.kill_at

    def note_exit(self, pid: int, owner: Owner) -> None:
        """Note that a rank has exited."""
        if signal_group(pid, 0):
            self.groups[pid] = owner

    def next_check_at(self, now: float) -> float | None:
        """Return when `stop` is due even if no child exits; None if no orphan is left."""
        if not self.kill_at:
            return None
        at = min(at if at > now else at + _UNKILLABLE_AFTER_S for at in self.kill_at.values())
        return at if self.is_subreaper else min(at, now + _POLL_S)

    def stop(self, live: Mapping[int, Owner], *, kill: bool = False) -> str:
        """Find orphans; send SIGTERM to new ones, SIGKILL after the grace period.

        `live` are the running ranks, by pid. If `kill`, all of them were killed, and all descendants get
        SIGKILL at once. Returns a message to report, "" for none.
        """
        now = time.monotonic()
        self.check_requested = False
        self.all_killed = kill and self.is_subreaper and not self.groups_only
        orphans = self._find(live)
        if not orphans:
            self.groups = {}  # all are empty, and the kernel may reuse their numbers for other processes
        self._update_deadlines(set(orphans.values()), now, now if kill else now + self.grace_s)
        for pid in order_by_start(orphans, self._listed):
            if self.kill_at[orphans[pid]] <= now:
                self._signal(pid, signal.SIGKILL)
            elif pid not in self.pids_sent_sigterm:
                self._signal(pid, signal.SIGTERM)
                self._signal(pid, signal.SIGCONT)
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

    def _signal(self, pid: int, number: int) -> None:
        """Signal an orphan of the last check; a negative pid is a process group."""
        if pid in self._listed:
            signal_listed(pid, self._listed[pid], number)
        else:
            signal_process(pid, number)

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

        Looking again goes on while children exit that may have left others, or cannot be found, for a limited
        time: processes may fork and exit faster than /proc can be read. Daemons of running ranks are children
        for days, so they are no reason to read all processes.
        """
        until = time.monotonic() + _SEARCH_S
        while True:
            self.groups = {group: owner for group, owner in self.groups.items() if signal_group(group, 0)}
            if not is_proc_of_pid_namespace():
                # A group without a child of this process may have become empty, and the kernel may have given
                # its number to another group.
                return {
                    -group: owner
                    for group, owner in self.groups.items()
                    if has_children(group) or not self.is_subreaper
                }
            children = read_children() if self.is_subreaper else set()
            others = (children or set()) - live.keys() - self.unkillable
            left = {pid for pid in others if not _has_exited(pid)}
            owners = {pid: self._attribute(pid, read_group(pid), live) for pid in left}
            roots = {pid: owner for pid, owner in owners.items() if owner is not None}
            found = roots
            if roots or self.groups or self.all_killed or children is None:
                found = self._add_descendants(roots, live)
            is_over = time.monotonic() > until or (left and not self.all_killed)
            if found or is_over or not (others or self._has_hidden_child(live)):
                return found

    def _add_descendants(self, roots: dict[int, Owner], live: Mapping[int, Owner]) -> dict[int, Owner]:
        """Return the orphans among the children of this process with all their descendants.

        Members of the groups of exited ranks are orphans too; if all ranks were killed, so are all processes.
        """
        self._listed = read_descendants() if self.is_subreaper else read_processes()
        if self.all_killed:
            return roots | dict.fromkeys(self._listed.keys() - live.keys() - self.unkillable, _UNATTRIBUTED)
        for pid, process in self._listed.items():
            owner = self._attribute(pid, process.group, live) if process.group in self.groups else None
            if owner is not None:
                roots[pid] = owner
        found = dict(roots)
        for pid, owner in roots.items() if not self.groups_only else ():
            found |= dict.fromkeys(find_descendants(self._listed, (pid,)) - self.unkillable, owner)
        return found

    def _has_hidden_child(self, live: Mapping[int, Owner]) -> bool:
        """Return whether there is a child that /proc does not list, although none should be left."""
        return self.is_subreaper and not (live or self.unkillable or self.groups_only) and has_children()

    def _attribute(self, pid: int, group: int, live: Mapping[int, Owner]) -> Owner | None:
        """Return the exited attempt that a process is attributed to; None if it is not to be stopped."""
        if pid in live or pid in self.unkillable:
            return None
        if self.all_killed:
            return _UNATTRIBUTED
        if group in self.groups:
            return self.groups[group]
        if self.groups_only:
            return None
        owner = self._read_owner(pid, wait=bool(live))  # without a running rank, any process is an orphan
        if owner == _UNATTRIBUTED and (live or _has_exited(pid)):  # a zombie has no environment
            return None
        return None if owner in live.values() else owner

    def _read_owner(self, pid: int, *, wait: bool) -> Owner:
        """Return the rank and the attempt in the environment of a process of this run."""
        give_up_at = time.monotonic() + _EXEC_WAIT_S
        while (variables := read_environ(pid)) is None and wait and pid not in self.without_environment:
            time.sleep(_EXEC_WAIT_S / 20)
            if time.monotonic() > give_up_at:
                self.without_environment.add(pid)
        rank = find_rank(variables or {}, self.run_id)
        return _UNATTRIBUTED if rank is None else (rank, find_attempt(variables or {}))


def _has_exited(child: int) -> bool:
    """Return whether a child that is no rank has exited, and reap it then."""
    try:
        return os.waitpid(child, os.WNOHANG)[0] == child
    except ChildProcessError:
        return True
