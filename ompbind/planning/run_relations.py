"""Which live runs belong to the job of a new run, which runs contend with it, and for which runs it waits."""

from collections.abc import Iterable, Iterator

from ompbind.planning.occupancy import LiveRun, RunIdentity
from ompbind.text import clean_name


def find_other_runs(runs: Iterable[LiveRun], identity: RunIdentity) -> tuple[LiveRun, ...]:
    """Return the runs that could contend with a new run: all but the runs it starts in and its own job."""
    runs = tuple(runs)
    ancestors = set(_find_ancestors(runs, identity))
    own = (
        run
        for run in runs
        if (run.run_id in ancestors and run.uid == identity.uid) or _is_same_job(run, identity)
    )
    own_ids = set(map(id, own))
    return tuple(run for run in runs if id(run) not in own_ids)


def find_job_runs(runs: Iterable[LiveRun], identity: RunIdentity) -> tuple[LiveRun, ...]:
    """Return the live ranks of the same launcher's job; none if the new run is no rank of a job."""
    return tuple(run for run in runs if _is_same_job(run, identity))


def _is_same_job(run: LiveRun, identity: RunIdentity) -> bool:
    is_job_rank = identity.placement_index is not None
    return is_job_rank and (run.run_id, run.uid) == (clean_name(identity.run_id), identity.uid)


def must_wait_for(other: LiveRun, run: LiveRun, identity: RunIdentity, live: tuple[LiveRun, ...]) -> bool:
    """Return whether a new `run` gets its CPUs after `other`, which waits already.

    `live` are the runs that have their CPUs. A run that wants other cores does not count, nor a rank of the
    same job: the first rank that gets CPUs gets them for all ranks. A run that starts in a rank waits only
    for runs in the same outer run: a run outside may wait until the outer run has exited.
    """
    if other.wanted.isdisjoint(run.wanted) or _is_same_job(other, identity):
        return False
    return set(_find_ancestors(live, run)) <= set(_find_ancestors(live, other))


def _find_ancestors(runs: tuple[LiveRun, ...], run: RunIdentity | LiveRun) -> Iterator[str]:
    """Yield the run id of the parent run, of its parent run, and so on; all of them of one user."""
    known, new = set[str](), {clean_name(run.parent_run_id)} - {""}
    while new:
        yield from new
        known |= new
        new = (
            {found.parent_run_id for found in runs if found.run_id in new and found.uid == run.uid}
            - known
            - {""}
        )
