"""Errors about allocations: ranks get CPUs of each other, too few, or more than an option allows."""

from ompbind.cpuset import EMPTY, CpuSet, count, named, union
from ompbind.errors import OmpbindError, PlanError
from ompbind.machine.model import Level
from ompbind.masks.mask import part_error
from ompbind.planning.cpu_pool import CpuPool
from ompbind.planning.other_runs import AvailableCpus
from ompbind.planning.plan import Placement
from ompbind.planning.request import Request


def check_overlap(pool: CpuPool) -> None:
    """Raise MaskError if two parts of a mask name the same CPU, unless ranks may share CPUs."""
    if pool.request.share:
        return
    parts = [CpuSet(part) for part in pool.cpus_by_rank]
    named_before = EMPTY
    for rank, part in enumerate(parts):
        if not part.isdisjoint(named_before):
            other = next(i for i, earlier in enumerate(parts) if not part.isdisjoint(earlier))
            message = f"ranks {other} and {rank} would both get {named('CPU', part & parts[other])}"
            hint = "name every CPU for one rank only, or let ranks share CPUs with --share"
            raise _error_in_part(pool, rank, message, hint)
        named_before |= part


def check_placements(pool: CpuPool, placements: list[Placement]) -> None:
    """Raise an error if placements contradict each other, --cores or --smt."""
    _check_reserve(pool, placements)
    request = pool.request
    fewest = min(placements, key=lambda placement: len(placement.cpus))
    cpus = len(fewest.cpus)
    if request.cores and request.threads and request.threads > cpus:
        cores = f"-c {request.cores} gives rank {fewest.rank} only {count(cpus, 'CPU')}"
        raise PlanError(
            f"{count(request.threads, 'thread')} per rank do not fit: {cores}",
            hint=f"use at most -t {cpus}, or request more cores with -c",
        )
    if pool.cpus_by_rank and isinstance(request.smt, int):
        _check_smt(pool, placements, request.smt)


def _check_reserve(pool: CpuPool, placements: list[Placement]) -> None:
    """Raise an error if a rank reserves a core that another rank uses or reserves."""
    if not any(placement.reserved for placement in placements):
        return
    used = union(placement.cpuset for placement in placements)
    reserved_before = EMPTY
    for rank, placement in enumerate(placements):
        conflict = placement.reserved & (used | reserved_before)
        if conflict:
            what = "reserved for" if used.isdisjoint(conflict) else "used by"
            message = f"{named('CPU', conflict)} would be reserved for rank {rank} but {what} another rank"
            hint = "name all hardware threads of a core in the same part, or reserve fewer cores"
            raise _error_in_part(pool, rank, message, hint)
        if pool.cpus_by_rank and not pool.request.share:
            reserved_before |= placement.reserved


def _check_smt(pool: CpuPool, placements: list[Placement], limit: int) -> None:
    """Raise an error if the parts together use more hardware threads of a core than --smt allows."""
    used = union(placement.compute for placement in placements)
    for core in pool.machine.at(Level.CORE, used):
        shared = core.cpus & used
        if len(shared) > limit:
            rank = max(
                i for i, placement in enumerate(placements) if not shared.isdisjoint(placement.compute)
            )
            allowed = f"--smt {limit} allows {count(limit, 'CPU')} per core"
            message = f"{named('CPU', shared)} share one core, but {allowed}"
            raise _error_in_part(pool, rank, message, "name fewer CPUs of that core, or raise --smt")


def _error_in_part(pool: CpuPool, rank: int, message: str, hint: str) -> OmpbindError:
    """Return an error about a rank; if a part of the mask names its CPUs, the part is marked."""
    mask = pool.request.mask
    if mask is None or not pool.cpus_by_rank:
        return PlanError(message, hint=hint)
    return part_error(mask, mask.parts[rank], message, hint)


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
    usable = f", usable with these options: {named('CPU', cpus)}" if cpus != available.free else ""
    return PlanError(
        f"{ranks} ranks do not fit on {count(len(cpus), 'CPU')} ({available.state}: {allowed}{usable})",
        hint=f"start at most {count(len(cpus), 'rank')}, or let ranks share CPUs with --share",
    )
