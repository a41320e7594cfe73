"""OpenMP places of a rank with *service CPUs*, on which no worker runs: they are in the first place only.

Every thread has a place of its own: a second thread in the first place would be a worker on service CPUs.
Measured with libgomp, libomp 14 to 19 and libiomp5, which all accept a place several times:

    mode    places of the same rank with service CPUs 4-5
    rank    {0,1,2,3,4,5},{0,1,2,3},{0,1,2,3},{0,1,2,3}
    core    {0,1,2,3,4,5},{0,1},{2,3},{2,3}
    thread  {0,1,2,3,4,5},{1},{2},{3}
"""

from collections.abc import Sequence

from ompbind.cpuset import CpuSet, union
from ompbind.openmp.binding import Bind
from ompbind.openmp.places import Cores


def make_service_places(
    cpu_of_threads: Sequence[int], cores: Cores, bind: Bind, service_cpus: CpuSet
) -> tuple[CpuSet, ...]:
    """Return the places of a rank with service CPUs, one for each thread; none for Bind.NONE.

    `cpu_of_threads` has the CPU of each thread, in order; `cores` are the CPUs that compute.
    """
    if bind is Bind.NONE:
        return ()
    compute = union(cores)
    if bind is Bind.RANK:
        workers = [compute] * len(cpu_of_threads)
    elif bind is Bind.CORE:
        core_of = {cpu: core for core in cores for cpu in core}
        workers = [core_of[cpu] for cpu in cpu_of_threads]
    else:
        workers = [CpuSet((cpu,)) for cpu in cpu_of_threads]
    return (compute | service_cpus, *workers[1:])
