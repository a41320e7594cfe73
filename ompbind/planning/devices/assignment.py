"""Which rank gets which devices, and which cores near them.

Ranks get devices in device order: rank 0 the first ones, and so on. For 8 GPUs:

    2 ranks                        0 1 2 3 | 4 5 6 7
    3 ranks                        0 1 2 | 3 4 | 5 6 7
    2 ranks, 1 device per rank     0 | 1
    16 ranks that share devices    0 | 0 | 1 | 1 | 2 | 2 | …

If ranks also get network interfaces, GPUs decide the CPUs, and each rank gets the nearest interfaces.

Then cores are divided, so that the smallest share is as large as possible. Ranks with the same locality are a
*group*. Cores near several groups are the problem: a group near a NUMA node needs cores of that node, a group
near the whole package can use other cores. For a package with nodes of 4 cores:

    cores                     0 1 2 3 | 4 5 6 7
    3 ranks near node 1                 0 0 1 2
    1 rank near the package   3 3 3 3

1. Each rank in turn gets the right to one more core, until no rank can have more (`_count_cores`). Localities
   are nested, so ranks can have their cores if no locality has more rights inside it than cores. This gives
   the largest smallest share, then the largest second smallest one, and so on: the numbers of cores that are
   possible form a polymatroid, for which this greedy method is exact.
2. A group with too few cores gets the next wider domain, and step 1 is repeated.
3. The innermost groups take their cores first, so that the others use what is left outside.
4. The strategy divides the cores of each group among its ranks.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from ompbind.cpuset import CpuSet, count
from ompbind.errors import PlanError, RequestError
from ompbind.machine.devices import Device
from ompbind.machine.model import Machine
from ompbind.planning.devices.locality import (
    DeviceLocality,
    find_locality,
    find_near,
    measure_distance,
    render_reasons,
    select_devices,
)
from ompbind.planning.devices.visible import Devices
from ompbind.planning.draft import Draft
from ompbind.planning.memory import UNKNOWN_DISTANCE
from ompbind.planning.placing import Cores, Rows
from ompbind.planning.plan import Placement
from ompbind.planning.request import Request
from ompbind.planning.sized import RequestedCores
from ompbind.planning.strategies import STRATEGIES
from ompbind.record import Record


def add_devices(draft: Draft) -> None:
    """Set the devices of each rank, and the number of ranks if that was open: one for each device."""
    request = draft.request
    main, others = select_devices(draft.machine, request)
    each = request.devices_per_rank or 1
    ranks = len(draft.cpus_by_rank) or request.rank_count or max(1, len(main) // each)
    users = 1 if request.share_devices else ranks + request.outside_device_ranks
    if not main or (request.devices == "auto" and users * each > len(main)):
        return
    draft.request = request = request.replace(ranks=ranks)
    local_ranks: Sequence[int] = range(ranks)
    if request.outside_device_ranks:
        local_ranks, total = request.local_ranks, ranks + request.outside_device_ranks
        if len(set(local_ranks)) != ranks or not set(local_ranks) <= set(range(total)):
            raise RequestError(
                f"local_ranks={local_ranks} does not have {count(ranks, 'number')} below {total}",
                hint="give each rank in this plan its own local rank among all ranks",
            )
    devices = _divide(draft.machine, main, request)
    if others:
        nearest = _assign_nearest(draft.machine, others, request, devices)
        devices = [own + near for own, near in zip(devices, nearest, strict=True)]
    draft.devices = tuple(devices[rank] for rank in local_ranks)


def _divide(machine: Machine, devices: Devices, request: Request) -> list[Devices]:
    """Return the devices of each rank on this machine, also outside the plan: equal blocks, or of K."""
    ranks, each = (request.rank_count or 1) + request.outside_device_ranks, request.devices_per_rank
    blocks = min(ranks, len(devices) // (each or 1))
    if blocks < (1 if request.share_devices else ranks):
        raise _too_few_error(machine, devices, request, ranks)
    starts = (
        [block * each for block in range(blocks + 1)] if each else _choose_starts(machine, devices, blocks)
    )
    found = [devices[start:stop] for start, stop in pairwise(starts)]
    return [found[rank * blocks // ranks] for rank in range(ranks)]


def _choose_starts(machine: Machine, devices: Devices, blocks: int) -> list[int]:
    """Return the first device of each block, and the end, for blocks whose sizes differ by at most one.

    The domains around the devices of each block are as small as possible. Among equal choices, larger blocks
    are spread evenly, else first. `best` maps how many devices are used to the cost and the starts.
    """
    number, size = len(devices), len(devices) // blocks
    best: dict[int, tuple[int, int, list[int]]] = {0: (0, 0, [0])}
    for block in range(1, blocks + 1):
        found: dict[int, tuple[int, int, list[int]]] = {}
        for start, (width, offset, starts) in best.items():
            for stop in (start + size + 1, start + size):
                left = number - stop - (blocks - block) * size
                if 0 <= left <= blocks - block:  # else the other blocks could not have all other devices
                    around = find_locality(machine, devices[start:stop], machine.online).cpus
                    distance = (stop * blocks - block * number) ** 2
                    cost = (width + len(around), offset + distance, [*starts, stop])
                    if stop not in found or cost[:2] < found[stop][:2]:
                        found[stop] = cost
        best = found
    return best[number][2]


def _assign_nearest(
    machine: Machine, others: Devices, request: Request, groups: Sequence[Devices]
) -> list[Devices]:
    """Return the nearest of the other devices for each rank: K, or as many as all ranks can have.

    Without K, a rank gets no device that is farther than its nearest one. A device has one rank, or with
    --share-devices as few ranks as possible. Close pairs of ranks and devices are made first.
    """
    ranks = len(groups)
    each = request.devices_per_rank or max(1, len(others) // ranks)
    if ranks * each > len(others) and (not request.share_devices or each > len(others)):
        raise _too_few_error(machine, others, request, ranks)
    distances: dict[tuple[int, int], int] = {}
    for rank, group in enumerate(groups):
        near = list(filter(None, {find_near(machine, device) for device in group}))
        for index, other in enumerate(others):
            found = (measure_distance(machine, cpus, other) for cpus in near)
            known = (distance for distance in found if distance is not None)
            distances[rank, index] = min(known, default=UNKNOWN_DISTANCE)
    closest_first = sorted(distances, key=lambda pair: (distances[pair], pair))
    chosen: list[list[int]] = [[] for _ in range(ranks)]
    users = [0] * len(others)
    for limit in (-(-ranks * each // len(others)), ranks):  # more users than necessary only if inevitable
        for number in range(1, each + 1):
            for rank, index in closest_first:
                if len(chosen[rank]) < number and index not in chosen[rank] and users[index] < limit:
                    chosen[rank].append(index)
                    users[index] += 1
    if not request.devices_per_rank:
        for rank, own in enumerate(chosen):
            nearest = min(distances[rank, index] for index in own)
            own[:] = [index for index in own if distances[rank, index] == nearest]
    return [tuple(others[index] for index in sorted(own)) for own in chosen]


def _too_few_error(machine: Machine, devices: Devices, request: Request, ranks: int) -> PlanError:
    each, have, noun = request.devices_per_rank or 1, len(devices), devices[0].kind.label
    of_each = f" with {count(each, noun)} each" if each > 1 else ""
    need = f"{count(ranks, 'rank')}{of_each} {'needs' if ranks == 1 else 'need'} {count(ranks * each, noun)}"
    reasons = render_reasons(devices[0].kind, machine, request)
    hint = f"start at most {count(have // each, 'rank')}, or let ranks share devices with --share-devices"
    if have < each:
        hint = f"use at most {have} devices per rank"
    return PlanError(f"{need}, but {have} {'is' if have == 1 else 'are'} visible{reasons}", hint=hint)


def list_deciding(devices: Sequence[Device]) -> Devices:
    """Return the devices of a rank that decide its CPUs: its GPUs if it has some."""
    return tuple(device for device in devices if device.kind is devices[0].kind)


def _find_localities(draft: Draft) -> list[DeviceLocality]:
    """Return for each rank the CPUs that it may use near the devices that decide its CPUs."""
    cpus = CpuSet(draft.cpus)
    return [find_locality(draft.machine, list_deciding(devices), cpus) for devices in draft.devices]


def exchange_cpus(draft: Draft, placements: Sequence[Placement]) -> list[Placement]:
    """Return placements of ranks that share cores, in the order of the cores near their devices."""
    core_of = draft.machine.table.core_of
    firsts = [min(core_of[cpu] for cpu in locality.preferred) for locality in _find_localities(draft)]
    ranks = sorted(range(len(firsts)), key=firsts.__getitem__)
    exchanged = (placement.replace(rank=rank) for rank, placement in zip(ranks, placements, strict=True))
    return sorted(exchanged, key=lambda placement: placement.rank)


def divide_near(draft: Draft, cores: Cores, requested: RequestedCores | None) -> list[Rows]:
    """Return the cores of each rank, near its devices, unless a launcher has bound the rank."""
    request, near = draft.request, None

    def divide(part: Cores, ranks: int) -> list[Rows]:
        return STRATEGIES[request.strategy].divide(part, ranks, requested)

    if not request.outside_ranks:
        needed = requested.total if requested else 1 + request.other_cores
        is_exact = requested is not None
        near = divide_near_devices(cores, _find_localities(draft), needed, divide, is_exact=is_exact)
    return near or divide(cores, len(draft.devices))


class _RankGroup(Record):
    """Ranks with the same locality, and cores as rows: `usable`, and the `near` ones, which are preferred."""

    ranks: tuple[int, ...]
    near: frozenset[int]
    usable: frozenset[int]


def divide_near_devices(
    cores: Cores,
    localities: Sequence[DeviceLocality],
    needed: int,
    divide: Callable[[Cores, int], list[Rows]],
    *,
    is_exact: bool = False,
) -> list[Rows] | None:
    """Return the cores of each rank, near its devices as far as the cores suffice; None if they are too few.

    `needed` is the fewest cores of a rank; if it `is_exact`, no rank gets more.
    """
    domains = [rows for level in cores.table.levels for rows in cores.domains(level)]
    around = [frozenset(rows) for rows in (*domains, cores.rows)]
    groups = _make_groups(cores, localities)
    while True:
        nested = _separate(groups)
        counts = _count_cores(nested)
        short = [group for group in nested if min(counts[rank] for rank in group.ranks) < needed]
        if not short:
            break
        ranks = max(short, key=lambda group: len(group.usable)).ranks
        at = next(index for index, group in enumerate(groups) if group.ranks == ranks)
        wider = [rows for rows in around if groups[at].usable < rows]
        if not wider:
            return None
        groups[at] = groups[at].replace(usable=min(wider, key=len))
    shares: dict[int, Rows] = {}
    taken: set[int] = set()
    for group in nested:
        number = sum(counts[rank] for rank in group.ranks)
        if is_exact and group.near != group.usable:  # else the strategy could choose distant cores
            number = needed * len(group.ranks)
        free = group.usable - taken
        users = {core: sum(core in other.near for other in nested) for core in free}
        in_order = sorted(free, key=lambda core: (core not in group.near, users[core], core))
        rows = tuple(sorted(in_order[:number]))
        taken.update(rows)
        shares |= dict(zip(group.ranks, divide(cores.take(rows), len(group.ranks)), strict=True))
    return [shares[rank] for rank in range(len(localities))]


def _make_groups(cores: Cores, localities: Sequence[DeviceLocality]) -> list[_RankGroup]:
    everything, rows = frozenset(cores.rows), cores.table.rows
    found: dict[tuple[frozenset[int], frozenset[int]], list[int]] = {}
    for locality in dict.fromkeys(localities):
        usable = everything.intersection(rows(locality.cpus)) or everything
        near = everything.intersection(rows(locality.preferred)) or usable
        ranks = [rank for rank, other in enumerate(localities) if other == locality]
        found.setdefault((near, usable), []).extend(ranks)
    sets = found.items()
    return [
        _RankGroup(ranks=tuple(sorted(ranks)), near=near, usable=usable) for (near, usable), ranks in sets
    ]


def _separate(groups: Sequence[_RankGroup]) -> list[_RankGroup]:
    """Return the groups, narrow ones first, without the cores that partially overlap a narrower group."""
    kept: list[_RankGroup] = []
    for group in sorted(groups, key=lambda group: (len(group.usable), group.ranks)):
        usable = group.usable
        for other in kept:
            if not (other.usable <= usable or other.usable.isdisjoint(usable)):
                usable -= other.usable
        kept.append(group.replace(usable=usable))
    return kept


def _count_cores(groups: Sequence[_RankGroup]) -> dict[int, int]:
    """Return how many cores each rank gets: the smallest number is the largest possible, and so on.

    `groups` are nested. A set of cores is full if the ranks inside it have the right to all of its cores.
    """
    left = {group.usable: len(group.usable) for group in groups}
    around = {
        rank: [cores for cores in left if group.usable <= cores] for group in groups for rank in group.ranks
    }
    active = sorted(around)
    counts = dict.fromkeys(active, 0)
    while active:
        can_grow = []
        for rank in active:
            if all(left[cores] for cores in around[rank]):
                counts[rank] += 1
                can_grow.append(rank)
                for cores in around[rank]:
                    left[cores] -= 1
        active = can_grow
    return counts
