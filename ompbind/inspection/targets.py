"""Find and read the processes to inspect: by PID, by run, or all live runs."""

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from ompbind.commands.rank_variables import OMPBIND_RUN_ID
from ompbind.cpuset import EMPTY, union
from ompbind.errors import InspectError
from ompbind.inspection.diagnosis import is_library, is_relevant
from ompbind.inspection.rank_processes import Inspection, MaskOrigin, ObservedProcesses, make_inspection
from ompbind.machine.read.linux_cgroup import CgroupLimits, read_limits_of
from ompbind.machine.read.linux_topology import NODE
from ompbind.machine.read.root import DirectoryRoot, read_list
from ompbind.planning.other_runs import LiveRun
from ompbind.procfs import reader
from ompbind.procfs.parsers import EXITED_STATES, Stat, find_descendants, status_value
from ompbind.procfs.process_state import ProcessState, read_process
from ompbind.record import Record
from ompbind.registry.claims import CLAIM_SUFFIXES, ClaimList
from ompbind.registry.registry import DIRECTORY_VARIABLE, find_claims_directory, read_claim_list
from ompbind.text import clean_name, whole_number

_ELSEWHERE = "it is in another container: its processes have no PIDs here"
_HIDDEN = "/proc does not show it"
_LIST_HINT = "'ps -e' lists processes, 'ompbind ps' live runs"


class Target(Record):
    """What to inspect: processes with all their descendants, and runs with all their ranks.

    `unseen` are processes and runs that cannot be read, each with the reason.
    """

    pids: tuple[int, ...] = ()
    runs: tuple[LiveRun, ...] = ()
    unseen: tuple[tuple[str, str], ...] = ()


def find_target(words: Sequence[str]) -> Target:
    """Find the processes and runs that words name: PIDs, or names of runs or how they begin.

    Raises InspectError for a word that matches nothing, or several runs.
    """
    live, pids, runs, unseen = read_visible_runs(), list[int](), list[LiveRun](), list[tuple[str, str]]()
    for word in words:
        found = match_runs(word, live)
        pid, reason = _find_process(word, named_run=bool(found))
        if reason:
            unseen.append((f"process {pid}", reason))
        elif pid:
            pids.append(pid)
        elif found:
            runs.extend(found)
        elif word and any(run.run_id.startswith(word) for run in read_claims()[1].runs):
            unseen.append((f"run {word}", _ELSEWHERE))
        else:
            raise make_unnamed(word, live, _LIST_HINT)
    return Target(pids=tuple(pids), runs=tuple(runs), unseen=tuple(unseen))


def read_visible_runs() -> tuple[LiveRun, ...]:
    """Read the live runs whose PIDs are valid in this PID namespace; none if the registry is not readable."""
    try:
        return tuple(read_visible_claims())
    except InspectError:
        return ()


def read_visible_claims(suffixes: tuple[str, ...] = CLAIM_SUFFIXES) -> Mapping[LiveRun, str]:
    """Read the live runs whose PIDs are valid in this PID namespace, with the paths of their claims.

    Raises InspectError if the registry is not readable.
    """
    directory, found, own_namespace = *read_claims(suffixes), reader.read_pid_namespace()
    pairs = zip(found.runs, found.names, strict=True)
    return {run: os.path.join(directory, name) for run, name in pairs if run.pid_space in (0, own_namespace)}


def find_all_runs() -> Target:
    """Find all live runs; raises InspectError if the registry is not readable."""
    visible = tuple(read_visible_claims())
    others = {run.run_id for run in read_claims()[1].runs} - {run.run_id for run in visible}
    return Target(runs=visible, unseen=tuple((f"run {name}", _ELSEWHERE) for name in sorted(others)))


def read_claims(suffixes: tuple[str, ...] = CLAIM_SUFFIXES) -> tuple[str, ClaimList]:
    """Return the directory of the claims, and the claims with these suffixes; raises InspectError."""
    directory = find_claims_directory(os.environ)
    try:
        return directory, read_claim_list(directory, suffixes)
    except OSError as error:
        hint = f"live runs are registered there; {DIRECTORY_VARIABLE} selects another directory"
        raise InspectError(f"cannot read {directory}: {error.strerror}", hint=hint) from error


def make_unnamed(word: str, live: Iterable[LiveRun], hint: str) -> InspectError:
    """Return the error for a word that names no live run, with the run if it is the name of a group."""
    runs = (run.run_id for run in live if f", {word} " in f", {run.groups}")
    own = (f"it is a group of run {run_id}: name the run (--run-id names a run)" for run_id in runs)
    return InspectError(f"no live run is named {word!r}", hint=next(own, hint))


def match_runs(word: str, live: Sequence[LiveRun]) -> tuple[LiveRun, ...]:
    """Return the run with this name or PID, or the only run whose name begins with the word, () for none.

    A job of a launcher is several live runs with one name. Raises InspectError if the names of several runs
    begin with the word.
    """
    exact = tuple(run for run in live if word in (run.run_id, str(run.pid)))
    matching = exact or tuple(run for run in live if word and run.run_id.startswith(word))
    names = dict.fromkeys(run.run_id for run in matching)
    if len(names) > 1:
        hint = f"use one of {', '.join(names)}"
        raise InspectError(f"the names of several live runs begin with {word!r}", hint=hint)
    return matching


def _find_process(word: str, *, named_run: bool) -> tuple[int | None, str]:
    """Return the PID for the ID of a process or thread, and why it cannot be read, "" if it can.

    None if the word can only be the name of a run.
    """
    if (number := whole_number(word, 10**9)) is None:
        return None, ""
    try:
        status = reader.read_status(number)
    except FileNotFoundError as error:
        if named_run:
            return None, ""
        if _exists(number):
            return number, _HIDDEN
        raise InspectError(f"process {word} does not exist", hint=_LIST_HINT) from error
    except OSError as error:
        return number, f"/proc cannot be read: {error.strerror}"
    keys = ("State", "Threads", "PPid", "Tgid")
    state, threads, parent, pid = (status_value(status, key) or "" for key in keys)
    if state.startswith(EXITED_STATES) and threads == "1":
        raise InspectError(f"process {word} has exited, and its parent ({parent}) has not reaped it yet")
    return int(pid), ""


def _exists(pid: int) -> bool:
    """Return whether a process exists, also if /proc does not show it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid > 0


def inspect(target: Target, *, memory: bool = True) -> Inspection:
    """Read all processes of a target that have not exited, and compare them with their plans.

    `memory` also reads the NUMA nodes of their memory; that is slow: the kernel visits each page.
    """
    stats = reader.read_processes()
    pids = find_descendants(stats, [*target.pids, *(run.pid for run in target.runs)])
    run_ids = {run.run_id for run in target.runs}
    if run_ids:  # processes of a run that are no longer its descendants, if readable
        envs = ((pid, reader.read_environ(pid) or {}) for pid in stats.keys() - pids)
        own = {pid for pid, env in envs if clean_name(env.get(OMPBIND_RUN_ID, "")) in run_ids}
        pids |= find_descendants(stats, own)
    states = ((pid, read_process(pid, is_library, is_relevant)) for pid in sorted(pids))
    found = {pid: state for pid, state in states if state}
    limits = read_limits_of(DirectoryRoot("/"), found)
    observed = ObservedProcesses(
        processes=found, runs=read_visible_runs(), origins=_read_origins(found, stats, limits), limits=limits
    )
    gone = [(f"process {pid}", pid) for pid in target.pids if pid not in found]
    gone += [(f"run {run.run_id}", run.pid) for run in target.runs if run.pid not in stats]
    unseen = [(who, _HIDDEN if _exists(pid) else "it has exited") for who, pid in gone]
    inspection = make_inspection(observed)
    if not (inspection.groups or unseen):
        unseen = [(f"run {run.run_id}", "none of its ranks runs now") for run in target.runs]
    inspection = inspection.replace(unseen=(*target.unseen, *unseen))
    if not (memory and has_several_nodes()):
        return inspection
    groups = []
    for group in inspection.groups:
        maps = ((process.pid, reader.read_memory_map(process.pid)) for process in group.processes)
        groups.append(group.replace(memory=tuple((pid, found) for pid, found in maps if found)))
    return inspection.replace(groups=tuple(groups))


def _read_origins(
    found: Mapping[int, ProcessState], stats: Mapping[int, Stat], limits: Mapping[int, CgroupLimits]
) -> dict[int, MaskOrigin]:
    read_mask = cache(reader.read_affinity)
    states, origins = dict(found), {}
    for pid, state in found.items():
        cpus, chain, parent = union(thread.cpus for thread in state.threads), [pid], state.parent
        while parent in stats and parent not in chain and read_mask(parent) <= cpus:
            chain.append(parent)
            parent = stats[parent].parent
        origin, allowed = chain[-1], read_mask(parent) if parent in stats else EMPTY
        if cpus < allowed:
            allowed &= limits[pid].cpuset or allowed
        if origin not in states:
            states[origin] = read_process(origin, is_library, is_relevant) or state
        origins[pid] = MaskOrigin(process=states[origin], allowed=allowed)
    return origins


def has_several_nodes() -> bool:
    """Return whether this machine has memory in several NUMA nodes."""
    return len(read_list(DirectoryRoot("/"), f"{NODE}/has_memory") or EMPTY) > 1
