"""The number of threads of each process of a rank: which variables ranks get, and notes on worker processes.

Programs that start worker processes divide the CPUs among these: joblib, scikit-learn, Dask and Ray set the
number of threads of each worker, but keep a number that their user has set. A number that ompbind sets is
such a number: each worker would then have as many threads as the whole rank. So a Python program gets no
number where its libraries count the CPUs of the affinity mask themselves (`openmp.variables.MASK_COUNTS`).
Other programs get all numbers: some take a missing OMP_NUM_THREADS for 1.
"""

from collections.abc import Iterator

from ompbind.cpuset import CpuSet, count, named
from ompbind.openmp.binding import Bind
from ompbind.planning.plan import Note, Placement, Plan


def counts_by_mask(plan: Plan, placement: Placement) -> bool:
    """Return whether libraries of a rank find its number of threads by its affinity mask.

    They do not if an option, a CPU quota or service CPUs make that number smaller than the number of CPUs,
    nor if the first place of the rank is smaller than its mask: the initial thread is then narrowed to it.
    """
    request = plan.request
    return (
        request.workload is not None
        and request.workload.is_python_program
        and request.compat is None
        and request.threads is None
        and request.smt == "auto"
        and request.effective_bind in (Bind.RANK, Bind.NONE)
        and plan.machine.bindable
        and placement.processes == 1
        and placement.threads == len(placement.cpus) == len(placement.cpuset)
    )


def explain_thread_counts(plan: Plan) -> Iterator[Note]:
    """Yield notes on numbers of threads that are not set, and on processes that divide those of a rank."""
    placements, processes = plan.placements, plan.request.processes_per_rank
    workload = None if plan.request.compat else plan.request.workload
    is_python = workload is not None and workload.is_python_program
    if any(counts_by_mask(plan, placement) for placement in placements):
        text = (
            "OMP_NUM_THREADS and similar variables are not set: libraries of Python count the CPUs of their "
            "rank, and joblib, Dask and Ray divide these among worker processes (-t sets the variables)"
        )
        yield Note(code="threads-by-mask", text=text)
    elif is_python and processes == 1 and any(placement.threads > 1 for placement in placements):
        text = "OMP_NUM_THREADS and similar variables are set: each worker of joblib, Dask and Ray will have "
        text += "as many threads (--processes-per-rank divides the threads)"
        yield Note(code="threads-set", text=text)
    if processes == 1:
        return
    each = CpuSet(placement.process_threads for placement in placements)
    threads = f"{each} threads" if each != CpuSet((1,)) else "1 thread"
    yield Note(code="processes", text=f"each rank starts {processes} processes, with {threads} each")
    if short := CpuSet(placement.rank for placement in placements if placement.threads < processes):
        has = f"{named('rank', short)} {'has' if len(short) == 1 else 'have'}"
        fewest = min(placement.threads for placement in placements)
        text = f"{has} {count(fewest, 'thread')} for {processes} processes, which will wait for each other"
        remedy = f"start {count(fewest, 'process')}, or fewer ranks"
        yield Note(code="oversubscribed", text=f"{text} ({remedy})", warning=True)
