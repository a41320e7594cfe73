"""Plans for a job that may use a number of CPUs, where no affinity mask says which CPUs these are.

Batch systems without cpusets let a job run on all CPUs of a machine, also on the CPUs of other jobs. So ranks
that are bound to some CPUs could share them with another job while others are idle: such ranks are not bound,
and have as many threads as the job may use CPUs. A mask, or --avoid, says that the user knows better.
"""

from collections.abc import Iterator

from ompbind.cpuset import count, join_words, named
from ompbind.errors import PlanError
from ompbind.machine.model import Level, Machine
from ompbind.masks.mask import parse_mask
from ompbind.planning.plan import Note, Plan
from ompbind.planning.request import JobCpus, Request, Sharing


def apply_job_cpus(machine: Machine, request: Request) -> Request:
    """Return the request with its number of CPUs of the job only if that limits the plan.

    Ranks are not bound unless a mask or --avoid chooses CPUs. Raises PlanError for more ranks than CPUs.
    """
    job = request.job_cpus
    if job is None:
        return request
    allowed = machine.allowed
    is_narrowed = allowed != machine.online
    cores = len(machine.at(Level.CORE, allowed))
    if len(allowed) <= job.count or (is_narrowed and cores <= job.count):
        return request.replace(job_cpus=None)
    if request.names_cpus or request.is_unbound or request.sharing is Sharing.AVOID:
        return request
    ranks = (request.ranks or 1) + request.outside_ranks
    if ranks > job.count and not request.share:
        raise PlanError(
            f"{ranks} ranks do not fit on the {_render(job)}",
            hint=f"start at most {count(job.count, 'rank')}, or let ranks share CPUs with --share",
        )
    cores_each = request.cores and min(request.cores, max(1, job.count // ranks))
    unused = {
        "--cores": request.cores and request.cores > (cores_each or 0),
        "--reserve": request.reserve or request.reserve_total,
        "--service-cores": request.has_service,
    }
    return request.replace(
        job_cpus=job.replace(unused=tuple(name for name, given in unused.items() if given)),
        mask=parse_mask("none"),
        threads=request.threads or cores_each,
        cores=None,
        reserve=0,
        reserve_total=0,
        service_cores=0,
        service_total=0,
        service_each=0,
    )


def explain_job_cpus(plan: Plan) -> Iterator[Note]:
    """Yield the note on a number of CPUs of the job; apply_job_cpus has removed a number without effect."""
    job = plan.request.job_cpus
    if job is None:
        return
    text = f"this job may use the {_render(job)}, but is not bound"
    if plan.request.is_unbound:
        threads = count(sum(placement.threads for placement in plan.placements), "thread")
        text += f" to any: its ranks have {threads} and may run on {named('CPU', plan.machine.allowed)}"
        text += " (-m names CPUs, --avoid takes CPUs of no other run)"
        text += f"; {join_words(job.unused)} cannot be fulfilled" if job.unused else ""
    else:
        text += " to these: other jobs may run on the CPUs of its ranks"
    yield Note(code="job-cpus", text=text, warning=True)


def _render(job: JobCpus) -> str:
    return f"{count(job.count, 'CPU')} that {job.system} allows ({job.variable})"
