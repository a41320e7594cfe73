"""What ranks leave behind when they end: members of their process group, and daemons that have left it.

They get SIGTERM, and SIGKILL when the grace is over. A daemon belongs to the rank whose variables it was
started with; one that has cleaned its environment is ended with the last rank.
"""

import os
import signal
import time
from collections.abc import Collection, Mapping, Set

from ompbind.cpuset import named
from ompbind.execution.processes import adopt_orphans, has_children, read_group, signal_group, signal_process
from ompbind.planning.rank_variables import find_rank
from ompbind.procfs.process import Stat, find_descendants
from ompbind.procfs.reader import read_children, read_processes, read_variables

_STEP_S = 0.05
"""Seconds between two looks where the kernel does not give orphans to this process, and so tells nothing."""

_KILLED_S = 2.0  # seconds that a killed process is given to be gone: freeing much memory takes a while
_SEARCH_S = 0.05  # seconds for which to look for what starts others and ends as fast as one can look
_EXECUTED_S = 0.02
"""Seconds that a process is given to have variables: none are there for the moment of executing a command."""

_NOBODY = -1  # the owner of processes that cannot be told to be any rank's


class OrphanTracker:
    """What ended ranks have left; times are seconds of a monotonic clock.

    With `groups_only` those that have left the group of their rank may live.
    """

    def __init__(self, run_id: str, grace_s: float, *, groups_only: bool) -> None:
        self.run_id = run_id
        self.grace_s = grace_s
        self.groups_only = groups_only
        self.adopts = False  # the kernel gives all orphans to this process
        self.groups: dict[int, int] = {}  # the groups of ended ranks that were not empty, with these ranks
        self.due: dict[int, float] = {}  # when what a rank left is to be, or was first, killed
        self.late: Set[int] = frozenset()  # the ranks for which that time had come
        self.asked: Collection[int] = ()  # the processes that have had SIGTERM
        self.spared: set[int] = set()  # those that cannot be killed
        self.nameless: set[int] = set()  # those that have no variables

    def adopt(self) -> None:
        """Have the kernel give all orphans of ranks to this process."""
        self.adopts = adopt_orphans()

    def note_end(self, pid: int, rank: int) -> None:
        """Note that a rank has ended."""
        if signal_group(pid, 0):
            self.groups[pid] = rank

    def next_look_at(self, now: float) -> float | None:
        """Return when to look without being told to; None when there is no need to."""
        if not self.due:
            return None
        kill_at = min(at if at > now else at + _KILLED_S for at in self.due.values())
        return kill_at if self.adopts else min(kill_at, now + _STEP_S)

    def look(self, live: Mapping[int, int], *, hurry: bool = False) -> str:
        """Look at what is left and signal it; `live` are the ranks that run, by pid.

        With `hurry` it is killed at once. Returns what is worth telling, "" for nothing.
        """
        now = time.monotonic()
        owners = self._find_owners(live) if self._is_any(live) else {}
        if not owners:
            self.groups = {}  # they are empty, and their numbers may become those of strangers
        kill_at = now if hurry else now + self.grace_s
        seen = set(owners.values())
        # what is about to end has no variables any more: the next one it started waits no longer than itself
        since = min([kill_at, *(at for owner, at in self.due.items() if owner not in seen)])
        self.due = {owner: min(self.due.get(owner, since), kill_at) for owner in seen}
        late = {owner for owner, at in self.due.items() if at <= now}
        self.due |= dict.fromkeys(late - self.late, now)  # this process may have been stopped meanwhile
        self.late = late
        for pid, owner in owners.items():
            if self.due[owner] <= now:
                signal_process(pid, signal.SIGKILL)
            elif pid not in self.asked:
                signal_process(pid, signal.SIGTERM)
                signal_process(pid, signal.SIGCONT)
        self.asked = owners.keys()
        stuck = {pid for pid, owner in owners.items() if self.due[owner] + _KILLED_S <= now}
        self.spared |= stuck
        self.due = {owner: at for owner, at in self.due.items() if at + _KILLED_S > now}
        return f"left behind, as it cannot be killed: {named('pid', stuck)}" if stuck else ""

    def _is_any(self, live: Mapping[int, int]) -> bool:
        """Tell whether anything may be left, which mostly nothing is, at little cost."""
        if not self.adopts:
            return bool(self.groups)
        children = read_children()
        if children is None:
            return True
        # Daemons of ranks that run may be there for days: all processes are read only where there is more.
        others = children - live.keys() - self.spared
        if not others:
            return self._is_hidden(live)
        return bool(self.groups or self._find_orphans(live, frozenset()))

    def _is_hidden(self, live: Mapping[int, int]) -> bool:
        """Tell whether there are children although no rank runs and nobody may live on, listed or not."""
        return self.adopts and not (live or self.spared or self.groups_only) and has_children()

    def _find_owners(self, live: Mapping[int, int]) -> dict[int, int]:
        """Return what is left, each process with the rank that it was left by.

        Where the system does not tell of its processes these are groups, with negative numbers.
        """
        processes = read_processes()
        self.groups = {group: rank for group, rank in self.groups.items() if signal_group(group, 0)}
        if not processes:
            return {-group: rank for group, rank in self.groups.items()}
        me = os.getpid()
        owners: dict[int, int] = {}
        for pid, process in processes.items():
            near = process.parent == me or process.group in self.groups
            owner = self._find_owner(pid, process.group, live) if near else None
            if owner is not None:
                owners.update(dict.fromkeys(self._family(processes, pid), owner))
        return self._find_orphans(live, owners.keys()) | owners

    def _find_owner(self, pid: int, group: int, live: Mapping[int, int]) -> int | None:
        """Return which ended rank has left a process; None when it may live on."""
        if pid in live or pid in self.spared:
            return None
        if group in self.groups:
            return self.groups[group]
        if self.groups_only:
            return None
        owner = self._read_owner(pid)
        if owner == _NOBODY and (live or _is_over(pid)):  # what has ended has no variables any more
            return None
        return None if owner in live.values() else owner

    def _find_orphans(self, live: Mapping[int, int], known: Set[int]) -> dict[int, int]:
        """Return what has lost its parent and is not known, such as what was born during a look at all.

        A process may start another one and end just now: nothing is left only if nothing is listed.
        """
        until = time.monotonic() + _SEARCH_S
        while time.monotonic() < until:
            new = (read_children() or set()) - live.keys() - self.spared - known
            owners = {pid: self._find_owner(pid, read_group(pid), live) for pid in new}
            found = {pid: owner for pid, owner in owners.items() if not _is_over(pid)}
            if found or not (new or self._is_hidden(live)):
                return {pid: owner for pid, owner in found.items() if owner is not None}
        return {}

    def _family(self, processes: Mapping[int, Stat], pid: int) -> Collection[int]:
        return {pid} if self.groups_only else find_descendants(processes, (pid,)) - self.spared

    def _read_owner(self, pid: int) -> int:
        give_up_at = time.monotonic() + _EXECUTED_S
        while (found := read_variables(pid)) is None and pid not in self.nameless:
            time.sleep(_EXECUTED_S / 20)
            if time.monotonic() > give_up_at:
                self.nameless.add(pid)
        rank = find_rank(found or {}, self.run_id)
        return _NOBODY if rank is None else rank


def _is_over(child: int) -> bool:
    """Tell whether a child that is no rank has ended, and have the kernel forget it."""
    try:
        return os.waitpid(child, os.WNOHANG)[0] == child
    except ChildProcessError:
        return True
