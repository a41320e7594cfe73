"""Messages about CPUs that other live runs occupy: which runs these are, and what to do."""

from collections.abc import Sequence

from ompbind.cpuset import CpuSet, named, union
from ompbind.planning.occupancy import NAMED_RUNS, AvailableCpus, LiveRun, occupied_cores

OCCUPIED_HINT = "wait until other runs finish ('ompbind ps' lists them), or share their CPUs with --share"


def render_occupancy(available: AvailableCpus, cpus: CpuSet) -> str:
    """Return the text that says which runs use some CPUs, or other hardware threads of their cores."""
    runs = [run for run in available.runs if not occupied_cores(available.machine, run).isdisjoint(cpus)]
    where = "in use" if not union(run.claimed for run in runs).isdisjoint(cpus) else "on cores in use"
    return f"{named('CPU', cpus)} {'is' if len(cpus) == 1 else 'are'} {where} by {_render_names(runs)}"


def _render_names(runs: Sequence[LiveRun]) -> str:
    """Return the names of runs; ranks of one job are named once, and a run without a name has exited."""
    names = list(dict.fromkeys(run.run_id for run in runs if run.run_id))
    if not names:
        return "a run that has exited since the first rank of this job was planned"
    pids = {run.run_id: run.pid for run in reversed(runs)}
    first = [f"run {name} (pid {pids[name]})" for name in names[:NAMED_RUNS]]
    more = [f"{len(names) - NAMED_RUNS} more"] if len(names) > NAMED_RUNS else []
    *some, last = first + more
    return f"{', '.join(some)} and {last}" if some else last
