"""Service CPUs that are counted in CPUs, not in cores: which CPUs of each rank they are.

`service_total` CPUs of all ranks are divided evenly; the last ranks have one more if they do not divide.
Each rank gives its CPUs with the highest numbers. Example: 3 service CPUs, 2 ranks:

    rank   its CPUs   compute   service
    0      0-3        0-2       3
    1      4-7        4-5       6-7
"""

from collections.abc import Sequence

from ompbind.cpuset import CpuSet, count
from ompbind.errors import PlanError
from ompbind.planning.plan import Placement
from ompbind.planning.request import Request


def divide_service(request: Request, ranks: int) -> list[int]:
    """Return how many service CPUs each rank should have, besides its service cores."""
    share, remainder = divmod(request.service_total, ranks)
    return [request.service_each + share + (rank >= ranks - remainder) for rank in range(ranks)]


def use_whole_service_cores(request: Request) -> Request:
    """Return a request with service cores instead of service CPUs, for ranks that request a number of cores.

    Service cores come on top of these cores: each rank gets as many as it would have service CPUs.
    """
    cores = request.service_cores + divide_service(request, request.ranks or 1)[-1]
    return request.replace(service_cores=cores, service_total=0, service_each=0)


def take_service_cpus(
    request: Request, placements: Sequence[Placement], *, overlapping: bool
) -> list[Placement]:
    """Return the placements with the highest CPUs of each rank as its service CPUs.

    If ranks are `overlapping`, all have the same CPUs, and so the same service CPUs. Raises PlanError if a
    rank would have no CPU that computes, unless service CPUs are optional.
    """
    shares = divide_service(request, len(placements))
    if not shares[-1]:
        return [*placements]
    if overlapping:
        shares = [sum(shares)] * len(shares)
    taken: dict[tuple[int, int], Placement] = {}  # many ranks can share one tuple of CPUs
    for placement, number in zip(placements, shares, strict=True):
        key = (id(placement.cpus), number)
        taken[key] = taken.get(key) or _take(request, placement, number)
    return [
        taken[id(placement.cpus), number].replace(rank=placement.rank)
        for placement, number in zip(placements, shares, strict=True)
    ]


def _take(request: Request, placement: Placement, number: int) -> Placement:
    """Return the placement of a rank with its highest CPUs as service CPUs."""
    cpus = len(placement.cpus)
    if number >= cpus and not request.service_optional:
        raise PlanError(
            f"rank {placement.rank} would have no CPU left: it gets {count(cpus, 'CPU')} and has "
            f"{count(number, 'service CPU')}",
            hint="use fewer service CPUs (--service-total), or give the rank more CPUs",
        )
    service = CpuSet(sorted(placement.cpus)[max(1, cpus - number) :])
    return placement.replace(
        cpus=tuple(cpu for cpu in placement.cpus if cpu not in service),
        service_cpus=placement.service_cpus | service,
    )
