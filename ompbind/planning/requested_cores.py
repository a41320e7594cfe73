"""How many cores each rank requests with --cores or --threads, and which of its cores compute."""

from collections.abc import Sequence

from ompbind.cpuset import CpuSet
from ompbind.planning.request import Request
from ompbind.planning.strategies.core_sequence import CoreIndices, CoreSequence
from ompbind.planning.strategies.shares import RequestedCores, take_cores
from ompbind.planning.strategies.table import Strategy


def find_requested(
    request: Request, strategy: Strategy, core_cpus: Sequence[CpuSet]
) -> RequestedCores | None:
    """Return the cores that each rank requests with --cores, or else with --threads; None for neither."""
    service, reserved = request.service_cores, request.reserve
    if request.cores:
        return RequestedCores(
            compute=request.cores, service=service, reserved=reserved, remedy="fewer cores with -c"
        )
    if request.threads is None or not strategy.sized:
        return None
    compute = -(-request.threads // min(len(cpus) for cpus in core_cpus))
    remedy = "fewer threads with -t"
    if service:
        return RequestedCores(compute=compute, service=service, reserved=reserved, remedy=remedy)
    return RequestedCores(compute=compute + reserved, remedy=remedy)  # the last ones are reserved


def put_compute_first(sequence: CoreSequence, cores: CoreIndices, request: Request) -> CoreIndices:
    """Return the cores of a rank, those with the fewest domains first, and service cores after them."""
    others = request.other_cores
    requested = RequestedCores(compute=max(1, len(cores) - others), service=others)
    return take_cores(sequence, cores, requested)
