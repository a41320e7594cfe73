"""Which live runs count as other runs when a run, or a rank of a job, is planned."""

from ompbind.cpuset import union
from ompbind.planning.occupancy import LiveRun, RunIdentity
from ompbind.planning.run_relations import find_job_runs, find_other_runs


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
