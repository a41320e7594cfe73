"""Finding and reading the processes that somebody asks for: by number, by run, or all runs there are."""

import os
from collections.abc import Sequence

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.errors import InspectError
from ompbind.inspection.expectation import is_relevant
from ompbind.inspection.processes import is_library
from ompbind.inspection.rank_processes import Inspection, RankProcesses, Seen, make_inspection
from ompbind.planning.occupancy import LiveRun
from ompbind.planning.rank_variables import OMPBIND_RUN_ID
from ompbind.procfs.process import GONE, Stat, find_descendants, status_value
from ompbind.procfs.process_state import read_process
from ompbind.procfs.reader import (
    read_mask,
    read_memory,
    read_pid_space,
    read_processes,
    read_status,
    read_variables,
)
from ompbind.record import Record
from ompbind.registry.claims import VARIABLE, find_folder, read_live_runs
from ompbind.text import tidy

_NO_SUCH = "'ps -e' lists processes, 'ompbind ps' live runs"


class Target(Record):
    """What to look at: processes with all that descends from them, and runs with all their ranks."""

    pids: tuple[int, ...] = ()
    runs: tuple[LiveRun, ...] = ()


def find_target(words: Sequence[str]) -> Target:
    """Find the processes and runs that words name: numbers of processes, names of runs or their beginnings.

    Raises InspectError for a word that names nothing, or several runs.
    """
    live = read_runs_here()
    pids: list[int] = []
    runs: list[LiveRun] = []
    for word in words:
        found = find_runs(word, live)
        pid = _find_process(word, named_run=bool(found))
        if pid:
            pids.append(pid)
        elif found:
            runs.extend(found)
        elif word and any(run.run_id.startswith(word) for run in _read_runs()):
            raise InspectError(f"run {word} is in another container: its processes have no numbers here")
        else:
            raise InspectError(f"no live run is called {word!r}", hint=_NO_SUCH)
    return Target(pids=tuple(pids), runs=tuple(runs))


def read_runs_here() -> tuple[LiveRun, ...]:
    """Read the live runs whose processes have numbers that mean something here; none where that fails."""
    here = read_pid_space()
    try:
        return tuple(run for run in _read_runs() if run.pid_space in (0, here))
    except InspectError:
        return ()


def find_all() -> Target:
    """Find all live runs whose processes can be told; raises InspectError when none can."""
    _read_runs()
    return Target(runs=read_runs_here())


def _read_runs() -> tuple[LiveRun, ...]:
    folder = find_folder(os.environ)
    try:
        return read_live_runs(folder)
    except OSError as error:
        hint = f"it is where runs register; {VARIABLE} names another one"
        raise InspectError(f"cannot read {folder}: {error.strerror}", hint=hint) from error


def find_runs(word: str, live: Sequence[LiveRun]) -> tuple[LiveRun, ...]:
    """Return the run of a name, or the only one whose name begins so; an engine's job has several ranks.

    Raises InspectError when several runs have names that begin so.
    """
    exact = tuple(run for run in live if run.run_id == word)
    begun = exact or tuple(run for run in live if word and run.run_id.startswith(word))
    names = dict.fromkeys(run.run_id for run in begun)
    if len(names) > 1:
        raise InspectError(f"several runs begin with {word!r}", hint=f"one of {', '.join(names)}")
    return begun


def _find_process(word: str, *, named_run: bool) -> int | None:
    """Return the process of a number, also of one of its threads; None where only a run can be meant."""
    if not (word.isascii() and word.isdigit() and len(word) < 10):
        return None
    try:
        status = read_status(int(word))
    except FileNotFoundError as error:
        if named_run:
            return None
        raise InspectError(f"there is no process {word}, or it is hidden from you", hint=_NO_SUCH) from error
    except OSError as error:
        raise InspectError(f"process {word} cannot be read: {error.strerror}") from error
    keys = ("State", "Threads", "PPid", "Tgid")
    state, threads, parent, pid = (status_value(status, key) or "" for key in keys)
    if state.startswith(GONE) and threads == "1":
        raise InspectError(f"process {word} has ended, and waits for its parent ({parent}) to take notice")
    return int(pid)


def inspect(target: Target, *, memory: bool = True) -> Inspection:
    """Read and judge all processes of a target, as far as they still live; `memory` adds where theirs lies.

    The kernel looks at every page for that, so it is read only where there are several NUMA nodes.
    """
    everybody = read_processes()
    pids = find_descendants(everybody, [*target.pids, *(run.pid for run in target.runs)])
    pids |= find_descendants(everybody, _find_strays(everybody, {run.run_id for run in target.runs}))
    found = {pid: state for pid in sorted(pids) if (state := read_process(pid, is_library, is_relevant))}
    around = {pid: read_mask(state.parent) if state.parent else EMPTY for pid, state in found.items()}
    inspection = make_inspection(Seen(processes=found, runs=read_runs_here(), around=around))
    if not (memory and _has_nodes()):
        return inspection
    return inspection.replace(crews=tuple(map(_with_memory, inspection.crews)))


def _find_strays(everybody: dict[int, Stat], run_ids: set[str]) -> list[int]:
    """Find processes of runs that descend from them no more, as far as their variables may be read."""
    if not run_ids:
        return []
    told = ((pid, (read_variables(pid) or {}).get(OMPBIND_RUN_ID, "")) for pid in everybody)
    return [pid for pid, run_id in told if tidy(run_id) in run_ids]


def _has_nodes() -> bool:
    try:
        with open("/sys/devices/system/node/has_memory", encoding="ascii") as file:
            return len(CpuSet.from_list(file.read())) > 1
    except (OSError, ValueError):
        return False


def _with_memory(crew: RankProcesses) -> RankProcesses:
    read = ((process.pid, read_memory(process.pid)) for process in crew.processes)
    return crew.replace(memory=tuple((pid, memory) for pid, memory in read if memory))
