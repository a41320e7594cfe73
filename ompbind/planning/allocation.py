"""Who gets which CPUs: the ground of a request, divided into one share for each rank.

A mask of several parts divides itself; otherwise the strategy divides a line of *units*, which are the
usable CPUs of each core (see `strategies`).
"""

from collections.abc import Sequence
from itertools import cycle

from ompbind.cpuset import EMPTY, CpuSet, count, named, union
from ompbind.errors import OmpbindError, PlanError
from ompbind.machine.model import Level, touched
from ompbind.masks.mask import part_fault
from ompbind.planning.cpu_pool import CpuPool, make_cpu_pool
from ompbind.planning.occupancy import WAYS_OUT, AvailableCpus
from ompbind.planning.oversubscription import fill, split_core
from ompbind.planning.plan import Placement
from ompbind.planning.strategies.core_sequence import make_core_sequence
from ompbind.planning.strategies.table import STRATEGIES, check_strategy

SMT_SUGGESTED = 4
"""Hardware threads of a core that `--smt auto` uses where a core has eight or more (POWER); else 1."""


def make_placements(pool: CpuPool) -> list[Placement]:
    """Give every rank its CPUs, and what is reserved; PlanError for nothing, or for what another rank has."""
    if not pool.request.share:
        _check_overlap(pool)
    placements = _given(pool) if pool.parts else _divided(pool)
    _check_reserve(pool, placements)
    if pool.parts and isinstance(pool.request.smt, int):
        _check_smt(pool, placements, pool.request.smt)
    return placements


def _given(pool: CpuPool) -> list[Placement]:
    """Take the parts of the mask as they are, pruned and reserved from only as asked."""
    more, extra = divmod(pool.request.reserve_total, len(pool.parts))
    placements = []
    for rank, part in enumerate(pool.parts):
        first = {cpu: at for at, cpu in reversed(list(enumerate(part)))}
        units = _units(pool.replace(cpus=part))
        in_order = sorted(units, key=lambda unit: min(first[cpu] for cpu in unit))
        placements.append(_share(pool, rank, in_order, pool.request.reserve + more + (rank < extra)))
    return placements


def _divided(pool: CpuPool) -> list[Placement]:
    """Let the strategy divide the ground among the ranks."""
    request = pool.request
    units, reserved = _withhold(pool, _units(pool))
    sequence = make_core_sequence(pool.machine, units)
    check_strategy(sequence, request.strategy)
    each = None  # the cores that --threads asks for, with those to be reserved
    if request.threads is not None:
        each = -(-request.threads // min(len(unit) for unit in units)) + request.reserve
    strategy = STRATEGIES[request.strategy]
    ranks = request.ranks or strategy.auto_ranks(sequence, each)
    if strategy.level:
        sequence = sequence.narrowed(
            tuple(sorted(at for domain in sequence.domains(strategy.level) for at in domain))
        )
        units = sequence.units
    if strategy.overlapping:
        every = _share(pool, 0, units, request.reserve)
        placements = [every.replace(rank=rank) for rank in range(ranks)]
    elif ranks > len(units) and not (strategy.sized and (each or 1) > 1):
        _check_room(pool, ranks, len(units))
        placements = _crowded(pool, units, ranks)
    else:
        allocations = strategy.divide(sequence, ranks, each)
        mine = ([units[at] for at in indices] for indices in allocations)
        placements = [_share(pool, rank, cores, request.reserve) for rank, cores in enumerate(mine)]
    return (
        [placement.replace(reserved=placement.reserved | reserved) for placement in placements]
        if reserved
        else placements
    )


def _check_room(pool: CpuPool, ranks: int, cores: int) -> None:
    """Refuse to have ranks share cores only because other runs have the rest."""
    if not pool.available.avoided:
        return
    whole = make_cpu_pool(pool.available.replace(avoided=EMPTY), pool.request)
    if ranks <= len(_units(whole)) - pool.request.reserve_total:
        raise PlanError(
            f"{count(ranks, 'rank')} would have to share {count(cores, 'core')}",
            hint=f"start at most {count(cores, 'rank')}, or {WAYS_OUT}",
        )


def _share(pool: CpuPool, rank: int, units: Sequence[CpuSet], reserve: int) -> Placement:
    """Make a rank's share of its units: the last `reserve` of them are kept free."""
    keep = len(units) - reserve
    if keep < 1:
        raise _nothing_left(rank, len(units), reserve)
    kept = union(units[:keep])
    part = tuple(cpu for cpu in pool.parts[rank] if cpu in kept) if pool.parts else ()
    return Placement(
        rank=rank, cpus=part or _in_order(pool, kept), reserved=_whole(pool.available, units[keep:])
    )


def _in_order(pool: CpuPool, cpus: CpuSet) -> tuple[int, ...]:
    """Return CPUs in the order in which the ground names them."""
    return tuple(sorted(cpus, key=pool.position.__getitem__))


def _nothing_left(rank: int, cores: int, reserve: int) -> PlanError:
    gets = count(cores, "core") if cores else "no core"
    return PlanError(
        f"rank {rank} would have no core left: of {gets}, {reserve} would be reserved",
        hint="reserve less, or give the rank more cores",
    )


def _units(pool: CpuPool) -> tuple[CpuSet, ...]:
    """Take from every core of the ground as many CPUs as SMT allows, in machine order."""
    inside = CpuSet(pool.cpus)
    return tuple(
        _prune(core.cpus & inside, _smt_limit(pool, len(core.cpus)), pool.request.sibling)
        for core in pool.cores(inside)
    )


def _smt_limit(pool: CpuPool, siblings: int) -> int:
    """Return how many CPUs of a core with `siblings` hardware threads may be used."""
    if isinstance(pool.request.smt, int):
        return pool.request.smt
    if pool.request.smt == "all" or pool.explicit:
        return siblings
    return SMT_SUGGESTED if siblings >= 8 else 1


def _prune(cpus: CpuSet, limit: int, sibling: str) -> CpuSet:
    if len(cpus) <= limit:
        return cpus
    numbers = tuple(cpus)
    return CpuSet(numbers[:limit] if sibling == "first" else numbers[-limit:])


def _withhold(pool: CpuPool, units: tuple[CpuSet, ...]) -> tuple[tuple[CpuSet, ...], CpuSet]:
    """Take --reserve-total cores out, one from the end of each node in turn."""
    wanted = pool.request.reserve_total
    if not wanted:
        return units, EMPTY
    if wanted >= len(units):
        raise PlanError(
            f"{count(wanted, 'core')} would be reserved of {count(len(units), 'core')}",
            hint="reserve less, so that a core is left for the ranks",
        )
    sequence = make_core_sequence(pool.machine, units)
    nodes = sequence.domains(Level.NODE)
    homeless = tuple(set(range(len(units))).difference(*nodes))
    piles = cycle([[units[at] for at in sorted(node)] for node in (*nodes, homeless)])
    taken: list[CpuSet] = []
    while len(taken) < wanted:
        pile = next(piles)
        taken.extend([pile.pop()] if pile else ())
    gone = union(taken)
    return tuple(unit for unit in units if unit.isdisjoint(gone)), _whole(pool.available, taken)


def _whole(available: AvailableCpus, units: Sequence[CpuSet]) -> CpuSet:
    """Return all allowed siblings of the cores that `units` are part of."""
    if not units:
        return EMPTY
    return (
        union(core.cpus for core in touched(available.machine.at(Level.CORE), union(units))) & available.free
    )


def _crowded(pool: CpuPool, units: tuple[CpuSet, ...], ranks: int) -> list[Placement]:
    """Let ranks share cores: each core has its unit for one rank, and is divided for several."""
    if pool.request.reserve:
        raise _nothing_left(ranks - 1, 1, pool.request.reserve)
    inside = _whole(pool.available, units) & CpuSet(pool.cpus)
    limit = pool.request.smt if isinstance(pool.request.smt, int) else None
    cores = [core.cpus & inside for core in pool.cores(inside)]
    rooms = [_prune(core, limit or len(core), pool.request.sibling) for core in cores]
    cpus = [cpu for room in rooms for cpu in room]
    if ranks > len(cpus):
        if not pool.request.share:
            raise _too_many(pool, ranks, CpuSet(cpus))
        return [Placement(rank=rank, cpus=(cpus[rank * len(cpus) // ranks],)) for rank in range(ranks)]
    counts = fill([len(room) for room in rooms], ranks)
    used = [
        unit if len(unit) >= hosted else _prune(room, hosted, pool.request.sibling)
        for unit, room, hosted in zip(units, rooms, counts, strict=True)
    ]
    parts = [part for core, hosted in zip(used, counts, strict=True) for part in split_core(core, hosted)]
    return [Placement(rank=rank, cpus=_in_order(pool, part)) for rank, part in enumerate(parts)]


def _too_many(pool: CpuPool, ranks: int, cpus: CpuSet) -> PlanError:
    most = count(len(cpus), "rank")
    allowed = named("CPU", pool.available.free)
    word = "free" if pool.available.avoided else "allowed"
    less = f", usable for ranks {named('CPU', cpus)}" if cpus != pool.available.free else ""
    return PlanError(
        f"{ranks} ranks do not fit on {count(len(cpus), 'CPU')} ({word} here: {allowed}{less})",
        hint=f"start at most {most}, or let ranks share CPUs with --share",
    )


def _check_overlap(pool: CpuPool) -> None:
    """Refuse parts of a mask that name the same CPUs; what strategies give to ranks never overlaps."""
    parts = [CpuSet(part) for part in pool.parts]
    seen = EMPTY
    for rank, part in enumerate(parts):
        if not part.isdisjoint(seen):
            other = next(i for i, one in enumerate(parts) if not part.isdisjoint(one))
            message = f"ranks {other} and {rank} would both get {named('CPU', part & parts[other])}"
            hint = "name every CPU for one rank only, or let ranks share CPUs with --share"
            raise _in_part(pool, rank, message, hint)
        seen |= part


def _check_reserve(pool: CpuPool, placements: list[Placement]) -> None:
    """Refuse to reserve a core of which another rank has CPUs, or has reserved some."""
    if not any(placement.reserved for placement in placements):
        return
    used = union(placement.cpuset for placement in placements)
    earlier = EMPTY
    for rank, placement in enumerate(placements):
        again = placement.reserved & (used | earlier)
        if again:
            what = "reserved for another" if used.isdisjoint(again) else "used by another"
            message = f"{named('CPU', again)} would be reserved for rank {rank} and {what}"
            hint = "keep the hardware threads of a core in one part, or reserve less"
            raise _in_part(pool, rank, message, hint)
        if pool.parts and not pool.request.share:
            earlier |= placement.reserved


def _check_smt(pool: CpuPool, placements: list[Placement], limit: int) -> None:
    """Refuse parts that together use more hardware threads of a core than asked for."""
    used = union(placement.cpuset for placement in placements)
    for core in touched(pool.machine.at(Level.CORE), used):
        mine = core.cpus & used
        if len(mine) > limit:
            rank = max(i for i, placement in enumerate(placements) if not mine.isdisjoint(placement.cpuset))
            message = f"{named('CPU', mine)} are of one core, of which --smt {limit} allows {limit}"
            raise _in_part(pool, rank, message, "name fewer CPUs of that core, or allow more with --smt")


def _in_part(pool: CpuPool, rank: int, message: str, hint: str) -> OmpbindError:
    """Make an error about a rank, marked in the mask if one named its CPUs."""
    mask = pool.request.mask
    if mask is None or not pool.parts:
        return PlanError(message, hint=hint)
    return part_fault(mask, mask.parts[rank], message, hint)
