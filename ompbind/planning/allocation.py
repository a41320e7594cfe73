"""Place the ranks of one request: which rank gets which CPUs.

The idea: allocation works on whole cores, with the *usable CPUs of each core*: at most as many as --smt
allows. There are three ways:

1. A mask with several parts names the CPUs of each rank: rank r gets part r.
2. Otherwise the strategy divides the cores (`strategies`); --reserve-total cores are removed before.
3. With more ranks than cores, ranks share cores by hardware threads.

Then --reserve takes the last cores of each rank, with all their CPUs, and --service-cores the cores before
these. With --cores both come on top of the cores that compute, and the strategy places all of them. An
example with 2 ranks, 8 cores of 2 CPUs, --smt 1, --service-cores 1 and --reserve 1:

    core           0     1     2     3     |  4     5     6     7
    CPUs           0,8   1,9   2,10  3,11  |  4,12  5,13  6,14  7,15
    usable CPUs    0     1     2     3     |  4     5     6     7
    rank 0: CPUs   0     1                 |
    rank 1: CPUs                           |  4     5
    service CPUs               2,10        |              6,14
    reserved                         3,11  |                    7,15
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, pairwise

from ompbind.cpuset import EMPTY, CpuSet, count, join_words, named, union
from ompbind.errors import OmpbindError, PlanError
from ompbind.machine.model import Level
from ompbind.masks.mask import part_error
from ompbind.planning.draft import Draft, find_usable_cpus, limit_cpus
from ompbind.planning.memory import measure_remote_memory
from ompbind.planning.other_runs import OCCUPIED_HINT
from ompbind.planning.placing import Cores, Rows
from ompbind.planning.plan import Placement
from ompbind.planning.request import Request
from ompbind.planning.sized import RequestedCores, take_cores
from ompbind.planning.strategies import STRATEGIES, Strategy, check_strategy


def place_ranks(draft: Draft) -> Draft:
    """Add a placement for every rank, with its CPUs, its service CPUs and its reserved CPUs."""
    if draft.cpus_by_rank:
        _check_overlap(draft)
    if draft.request.devices:
        from ompbind.planning.devices.assignment import add_devices  # noqa: PLC0415 - door: devices

        add_devices(draft)
    request = draft.request
    placements = _place_parts(draft) if draft.cpus_by_rank else _place_by_strategy(draft)
    if draft.devices:
        pairs = zip(placements, draft.devices, strict=True)
        placements = [placement.replace(devices=devices) for placement, devices in pairs]
    if request.has_service_cpus:
        overlapping = not draft.cpus_by_rank and STRATEGIES[request.effective_strategy].overlapping
        placements = [*_take_service_cpus(request, placements, overlapping=overlapping)]
    draft.placements = placements
    if draft.cpus_by_rank or request.reserve or request.reserve_total:
        _check_reserve(draft)
    if draft.cpus_by_rank and isinstance(request.smt, int):
        _check_smt(draft, request.smt)
    fewest = min(placements, key=lambda placement: len(placement.cpus))
    cpus = len(fewest.cpus)
    if request.cores and request.threads and request.threads > cpus:
        cores = f"-c {request.cores} gives rank {fewest.rank} only {count(cpus, 'CPU')}"
        raise PlanError(
            f"{count(request.threads, 'thread')} per rank do not fit: {cores}",
            hint=f"use at most -t {cpus}, or request more cores with -c",
        )
    return draft


def _place_parts(draft: Draft) -> list[Placement]:
    """Give every rank its part of the mask, without cores that are reserved and CPUs that --smt excludes."""
    reserved_each, remainder = divmod(draft.request.reserve_total, len(draft.cpus_by_rank))
    placements = []
    for rank, part in enumerate(draft.cpus_by_rank):
        position = {cpu: index for index, cpu in reversed(list(enumerate(part)))}
        usable = find_usable_cpus(draft, part)
        in_order = sorted(usable, key=lambda row: min(position[cpu] for cpu in usable[row]))
        reserve = draft.request.reserve + reserved_each + (rank < remainder)
        placements.append(_make_placement(draft, rank, usable, in_order, reserve))
    return placements


def _place_by_strategy(draft: Draft) -> list[Placement]:
    """Let the strategy divide the cores among the ranks, near their devices if they have some."""
    request, table = draft.request, draft.machine.table
    strategy = STRATEGIES[request.effective_strategy]
    usable, reserved = find_usable_cpus(draft, draft.cpus), EMPTY
    rows = list(usable)
    if strategy.by_os_number and request.nodes is None:  # nodes that the request names keep its order
        node_of = {row: node.number for node in draft.machine.nodes for row in table.rows(node.cpus)}
        rows.sort(key=lambda row: node_of.get(row, 0))  # lscpu shows node 0 where there are no nodes
    if request.reserve_total:
        rows, reserved = _reserve_cores(draft, rows)
    distances = {} if request.names_cpus else measure_remote_memory(draft.machine)
    far = {row: distances.get(usable[row].first, 0) for row in rows} if distances else {}
    cores = Cores(table=table, rows=tuple(rows), distances=far)
    check_strategy(cores, request.effective_strategy)
    requested = _find_requested(request, strategy, [usable[row] for row in rows])
    ranks = request.rank_count or strategy.auto_ranks(cores, requested)
    if strategy.level:
        in_domains = {row for domain in cores.domains(strategy.level) for row in domain}
        cores = cores.take(tuple(row for row in rows if row in in_domains))
    if ranks > len(cores.rows) and not (
        strategy.overlapping or request.cores or (requested and requested.total > 1)
    ):
        placements = _place_on_shared_cores(draft, usable, cores.rows, ranks)
    else:
        if strategy.overlapping:
            shares = [cores.rows]
        elif draft.devices:
            from ompbind.planning.devices.assignment import divide_near  # noqa: PLC0415 - door: devices

            shares = divide_near(draft, cores, requested)
        else:
            shares = strategy.divide(cores, ranks, requested)
        if request.service_cores and (strategy.overlapping or not requested):  # compute cores first
            others = request.other_cores
            sizes = [RequestedCores(compute=max(1, len(share) - others), service=others) for share in shares]
            shares = [take_cores(cores.take(share), size) for share, size in zip(shares, sizes, strict=True)]
        placements = [
            _make_placement(draft, rank, usable, share, request.reserve) for rank, share in enumerate(shares)
        ]
        if strategy.overlapping:
            placements = [placements[0].replace(rank=rank) for rank in range(ranks)]
    if not reserved:
        return placements
    return [placement.replace(reserved=placement.reserved | reserved) for placement in placements]


def _make_placement(
    draft: Draft, rank: int, usable: Mapping[int, CpuSet], rows: Sequence[int], reserve: int
) -> Placement:
    """Return the placement of a rank on its cores: first its compute cores, then service and reserved cores.

    Its service CPUs are all CPUs of its service cores that the mask, or its part of the mask, names.
    """
    kept_cores = len(rows) - reserve
    used_cores = kept_cores - draft.request.service_cores
    if used_cores < 1:
        raise _no_core_left_error(draft.request, rank, len(rows), reserve)
    used = union(usable[row] for row in rows[:used_cores])
    named_cpus = draft.cpus_by_rank[rank] if draft.cpus_by_rank else draft.position
    service = draft.siblings(rows[used_cores:kept_cores])
    return Placement(
        rank=rank,
        cpus=tuple(cpu for cpu in named_cpus if cpu in used) if draft.cpus_by_rank else draft.sort(used),
        reserved=draft.siblings(rows[kept_cores:]),
        service_cpus=CpuSet(cpu for cpu in service if cpu in named_cpus),
    )


def _find_requested(
    request: Request, strategy: Strategy, core_cpus: Sequence[CpuSet]
) -> RequestedCores | None:
    """Return the cores that each rank requests with --cores, or else with --threads; None for neither."""
    service, reserved = request.service_cores, request.reserve
    if request.cores:
        compute, remedy = request.cores, "fewer cores with -c"
    elif request.threads is None or not strategy.sized:
        return None
    else:
        compute, remedy = -(-request.threads // min(map(len, core_cpus))), "fewer threads with -t"
        if not service:
            compute, reserved = compute + reserved, 0  # the last ones are reserved
    return RequestedCores(compute=compute, service=service, reserved=reserved, remedy=remedy)


def _reserve_cores(draft: Draft, rows: list[int]) -> tuple[list[int], CpuSet]:
    """Return the cores without --reserve-total cores, the last of each node in turn, and CPUs of these."""
    wanted, ranks, cores = draft.request.reserve_total, draft.request.rank_count or 1, len(rows)
    if wanted >= cores:
        reserve, usable = count(wanted, "core"), count(cores, "usable core")
        raise PlanError(
            f"cannot reserve {reserve} of {usable} and start {count(ranks, 'rank')}",
            hint=f"reserve at most {count(cores - ranks, 'core')}"
            if cores > ranks
            else "reserve fewer cores",
        )
    in_order = Cores(table=draft.machine.table, rows=tuple(rows), distances={})
    groups = in_order.group(in_order.numbers(Level.NODE))
    without_node = groups.pop(None, ())
    node_cores = cycle([list(group) for group in (*groups.values(), without_node)])
    removed: list[int] = []
    while len(removed) < wanted:
        if remaining := next(node_cores):
            removed.append(remaining.pop())
    return [row for row in rows if row not in removed], draft.siblings(removed)


# Service CPUs that are counted in CPUs, not in cores: which CPUs of each rank they are.
#
# `service_total` CPUs of all ranks, or of each replica, are divided evenly; the last ranks have one more.
# Each rank gives its CPUs with the highest numbers. Example: 3 service CPUs, 2 ranks:
#
#     rank   its CPUs   compute   service
#     0      0-3        0-2       3
#     1      4-7        4-5       6-7


def divide_service(request: Request, ranks: int) -> list[int]:
    """Return how many service CPUs each rank should have, besides its service cores."""
    size = ranks // request.replicas or ranks
    share, remainder = divmod(request.service_total, size)
    return [request.service_each + share + (rank % size >= size - remainder) for rank in range(ranks)]


def use_whole_service_cores(request: Request) -> Request:
    """Return a request with service cores on top of the requested cores, instead of service CPUs."""
    requests_cores = request.cores or (request.threads and STRATEGIES[request.effective_strategy].sized)
    if not (request.has_service_cpus and requests_cores) or request.names_each_rank:
        return request
    cores = request.service_cores + divide_service(request, request.rank_count or 1)[-1]
    return request.replace(service_cores=cores, service_total=0, service_each=0)


def _take_service_cpus(
    request: Request, placements: Sequence[Placement], *, overlapping: bool
) -> Iterator[Placement]:
    """Yield the placements with the highest CPUs of each rank as its service CPUs.

    If ranks are `overlapping`, all have the same CPUs, and so the same service CPUs.
    """
    numbers = divide_service(request, len(placements))
    if overlapping:
        numbers = [sum(numbers)] * len(numbers)
    divided: dict[tuple[int, int], tuple[tuple[int, ...], CpuSet]] = {}  # many ranks can share one tuple
    for placement, number in zip(placements, numbers, strict=True):
        cpus = len(placement.cpus)
        if number >= cpus and not request.service_optional:
            has = f"it gets {count(cpus, 'CPU')} and has {count(number, 'service CPU')}"
            raise PlanError(
                f"rank {placement.rank} would have no CPU left: {has}",
                hint="reserve fewer CPUs with the variable of the framework, or give the rank more CPUs",
            )
        key = id(placement.cpus), number
        if key not in divided:
            service = CpuSet(sorted(placement.cpus)[max(1, cpus - number) :])
            divided[key] = tuple(cpu for cpu in placement.cpus if cpu not in service), service
        compute, service = divided[key]
        yield placement.replace(cpus=compute, service_cpus=placement.service_cpus | service)


def _place_on_shared_cores(
    draft: Draft, usable: Mapping[int, CpuSet], rows: Rows, ranks: int
) -> list[Placement]:
    """Place more ranks than cores: cores with several ranks split their hardware threads evenly.

    Every core gets one rank before any core gets two, and no rank has CPUs of two cores.
    """
    request = draft.request
    if draft.avoided:  # other runs may be the only reason
        unoccupied = Draft(draft.machine, request, taken=draft.taken)
        if ranks <= len(find_usable_cpus(unoccupied, unoccupied.cpus)) - request.reserve_total:
            raise PlanError(
                f"{count(ranks, 'rank')} would have to share {count(len(rows), 'core')}",
                hint=f"start at most {count(len(rows), 'rank')}, or {OCCUPIED_HINT}",
            )
    if request.other_cores:
        raise _no_core_left_error(request, ranks - 1, 1, request.reserve)
    in_pool, cores, smt = CpuSet(draft.cpus), draft.machine.table.cores, request.effective_smt
    limit = smt if isinstance(smt, int) else max(map(len, cores))
    shareable = [limit_cpus(cores[row] & in_pool, limit, request.sibling) for row in rows]
    cpus = [cpu for core in shareable for cpu in core]
    shares: list[CpuSet] = []
    if ranks <= len(cpus):
        counts = _count_ranks_per_core([len(core) for core in shareable], ranks)
        for row, core, core_ranks in zip(rows, shareable, counts, strict=True):
            is_enough = len(usable[row]) >= core_ranks
            own = tuple(usable[row] if is_enough else limit_cpus(core, core_ranks, request.sibling))
            bounds = [i * len(own) // core_ranks for i in range(core_ranks + 1)]
            shares += [CpuSet(own[start:stop]) for start, stop in pairwise(bounds)]
    elif request.share:
        shares = [CpuSet([cpus[rank * len(cpus) // ranks]]) for rank in range(ranks)]
    else:
        free = draft.usable.free
        limited = "" if free <= CpuSet(cpus) else f", usable with these options: {named('CPU', cpus)}"
        raise PlanError(
            f"{ranks} ranks do not fit on {count(len(cpus), 'CPU')} "
            f"({draft.usable.state}: {named('CPU', free)}{limited})",
            hint=f"start at most {count(len(cpus), 'rank')}, or let ranks share CPUs with --share",
        )
    placements = [Placement(rank=rank, cpus=draft.sort(share)) for rank, share in enumerate(shares)]
    if not draft.devices:
        return placements
    from ompbind.planning.devices.assignment import exchange_cpus  # noqa: PLC0415 - door: devices

    return exchange_cpus(draft, placements)


def _count_ranks_per_core(capacities: Sequence[int], ranks: int) -> list[int]:
    """Return how many ranks each core gets: one more per round, while it has a hardware thread.

    If the last round has fewer ranks than cores, its ranks are spread evenly over the cores.
    """
    counts = [0] * len(capacities)
    while (left := ranks - sum(counts)) > 0:
        not_full = [core for core, capacity in enumerate(capacities) if counts[core] < capacity]
        chosen = min(left, len(not_full))
        for index in range(chosen):
            counts[not_full[index * len(not_full) // chosen]] += 1
    return counts


def _check_overlap(draft: Draft) -> None:
    parts = [] if draft.request.share else [CpuSet(part) for part in draft.cpus_by_rank]
    named_before = EMPTY
    for rank, part in enumerate(parts):
        if not part.isdisjoint(named_before):
            other, shared = next((index, part & known) for index, known in enumerate(parts) if part & known)
            message = f"ranks {other} and {rank} would both get {named('CPU', shared)}"
            hint = "name every CPU for one rank only, or let ranks share CPUs with --share"
            raise _error_in_part(draft, rank, message, hint)
        named_before |= part


def _check_reserve(draft: Draft) -> None:
    used, reserved_before = union(placement.cpuset for placement in draft.placements), EMPTY
    for rank, placement in enumerate(draft.placements):
        if conflict := placement.reserved & (used | reserved_before):
            what = "reserved for" if used.isdisjoint(conflict) else "used by"
            message = f"{named('CPU', conflict)} would be reserved for rank {rank} but {what} another rank"
            hint = "name all hardware threads of a core in the same part, or reserve fewer cores"
            raise _error_in_part(draft, rank, message, hint)
        if draft.cpus_by_rank and not draft.request.share:
            reserved_before |= placement.reserved


def _check_smt(draft: Draft, limit: int) -> None:
    used = union(placement.compute for placement in draft.placements)
    for core in draft.machine.table.cores:
        if len(shared := core & used) > limit:
            rank = max(rank.rank for rank in draft.placements if not shared.isdisjoint(rank.compute))
            allowed = f"--smt {limit} allows {count(limit, 'CPU')} per core"
            message = f"{named('CPU', shared)} share one core, but {allowed}"
            raise _error_in_part(draft, rank, message, "name fewer CPUs of that core, or raise --smt")


def _error_in_part(draft: Draft, rank: int, message: str, hint: str) -> OmpbindError:
    mask = draft.request.mask
    if mask is None or not draft.cpus_by_rank:
        return PlanError(message, hint=hint)
    return part_error(mask, mask.parts[rank], message, hint)


def _no_core_left_error(request: Request, rank: int, cores: int, reserve: int) -> PlanError:
    service = request.service_cores
    facts = [f"it gets {count(cores, 'core') if cores else 'no core'}"]
    facts += [f"reserves {reserve}"] if reserve else []
    facts += [f"has {count(service, 'service core')}"] if service else []
    fewer = "reserve fewer cores" if reserve else "use fewer service cores"
    text = f"rank {rank} would have no core left: {join_words(facts)}"
    return PlanError(text, hint=f"{fewer}, or give the rank more cores")
