"""The notes of a plan on service CPUs: ranks with too few, with remote ones, or with workers on them."""

from collections.abc import Iterator

from ompbind.cpuset import CpuSet, named
from ompbind.machine.model import Level, index_by_cpu
from ompbind.openmp.binding import Bind, BindingSyntax
from ompbind.planning.plan import Note, Plan
from ompbind.planning.runtime_choice import choose_syntax
from ompbind.planning.service_cpus import divide_service


def explain_service(plan: Plan) -> Iterator[Note]:
    """Yield notes on ranks without service CPUs, and on ranks that have some."""
    yield from _explain_missing(plan)
    yield from _explain_present(plan)


def _explain_missing(plan: Plan) -> Iterator[Note]:
    """List ranks without their optional service CPUs, and ranks for which a framework has none."""
    ranks = len(plan.placements)
    wanted = [*zip(plan.placements, divide_service(plan.request, ranks), strict=True)]
    fewer = CpuSet(placement.rank for placement, number in wanted if len(placement.service_cpus) < number)
    if fewer and plan.request.service_optional:
        text = f"{named('rank', fewer)} {'has' if len(fewer) == 1 else 'have'} too few CPUs for service CPUs"
        yield Note(code="service-missing", text=f"{text}: other threads use the CPUs that compute")
    unserved = [placement for placement, number in wanted if not (number or placement.service_cpus)]
    without = CpuSet(placement.rank for placement in unserved if len(placement.cpus) > 1)
    if without and plan.request.service_total and plan.request.compat:
        text = f"{named('rank', without)} {'has' if len(without) == 1 else 'have'} no service CPU"
        remedy = f"if each rank is a server, use --service-total {ranks}"
        yield Note(code="service-uneven", text=f"{text}: {remedy}")


def _explain_present(plan: Plan) -> Iterator[Note]:
    """Explain which ranks have service CPUs far away, or workers that may use their service CPUs."""
    with_service = [placement for placement in plan.placements if placement.service_cpus]
    if not with_service:
        return
    nodes = index_by_cpu(plan.machine.at(Level.NODE))
    remote = CpuSet(
        placement.rank
        for placement in with_service
        if not {nodes.get(cpu) for cpu in placement.service_cpus}
        <= {nodes.get(cpu) for cpu in placement.cpus}
    )
    if remote:
        subject = f"{named('rank', remote)} {'has' if len(remote) == 1 else 'have'}"
        text = f"{subject} service CPUs on other NUMA nodes than the CPUs that compute"
        yield Note(code="service-remote", text=text)
    unbound = CpuSet(
        placement.rank
        for placement in with_service
        if placement.threads > 1 and not any(place == placement.compute for place in placement.places)
    )
    if unbound and plan.request.bind is Bind.RANK and plan.machine.bindable:
        reason = "OMP_PLACES is too long for some runtimes"
        if choose_syntax(plan.request) is BindingSyntax.UNBOUND:
            reason = "with places, forked children crash in the OpenMP runtime of the command"
        text = f"OpenMP workers of {named('rank', unbound)} may use service CPUs: {reason}"
        yield Note(code="service-workers", text=text, warning=True)
    elif plan.request.bind is Bind.NONE:
        text = "OpenMP workers may use service CPUs too, because --bind none does not bind them"
        yield Note(code="service-unbound", text=text)
