"""The errors about cores and CPUs that a request needs, but cannot get."""

from ompbind.cpuset import CpuSet, count, named
from ompbind.errors import PlanError
from ompbind.machine.model import Machine
from ompbind.planning.occupancy import AvailableCpus
from ompbind.planning.request import Request


def no_core_error(available: AvailableCpus, request: Request) -> PlanError:
    """Return the error about a request without a mask for which no CPU is left."""
    kind = "" if request.core_kind == "all" else f"{request.core_kind} "
    state = "free" if available.avoided else "allowed"
    where = f" near {', '.join(request.near)}" if request.near else ""
    return PlanError(f"no {kind}core{where} is {state}", hint=render_core_kinds(available.machine))


def no_core_left_error(request: Request, rank: int, cores: int, reserve: int) -> PlanError:
    """Return the error about a rank whose cores are all service cores or reserved."""
    has, service = count(cores, "core") if cores else "no core", request.service_cores
    uses = [f"reserves {reserve}"] if reserve else []
    uses += [f"has {count(service, 'service core')}"] if service else []
    fewer = "reserve fewer cores" if reserve else "use fewer service cores"
    return PlanError(
        f"rank {rank} would have no core left: it gets {has}{', ' if len(uses) > 1 else ' and '}"
        f"{' and '.join(uses)}",
        hint=f"{fewer}, or give the rank more cores",
    )


def too_many_ranks_error(available: AvailableCpus, ranks: int, cpus: CpuSet) -> PlanError:
    """Return the error about ranks that would have to share CPUs."""
    allowed = named("CPU", available.free)
    word = "free" if available.avoided else "allowed"
    usable = f", usable with these options: {named('CPU', cpus)}" if cpus != available.free else ""
    return PlanError(
        f"{ranks} ranks do not fit on {count(len(cpus), 'CPU')} ({word}: {allowed}{usable})",
        hint=f"start at most {count(len(cpus), 'rank')}, or let ranks share CPUs with --share",
    )


def render_core_kinds(machine: Machine) -> str:
    """Return the hint that names the kinds of cores and their CPUs."""
    kinds = ", ".join(f"{kind.name}: {named('CPU', kind.cpus)}" for kind in machine.kinds)
    return (
        f"the core kinds of this machine are {kinds}"
        if kinds
        else "all cores of this machine are of one kind"
    )
