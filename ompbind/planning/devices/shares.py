"""Divide cores among ranks that should be near devices, so that the smallest share is as large as possible.

Ranks with the same locality are a *group*. Cores near several groups are the problem: a group near a NUMA
node needs cores of that node, a group near the whole package can use other cores. For a package with nodes of
4 cores, 3 ranks near node 1, and 1 rank near the package:

    cores                     0 1 2 3 | 4 5 6 7
    3 ranks near node 1                 0 0 1 2
    1 rank near the package   3 3 3 3

1. Each rank in turn gets the right to one more core, until no rank can have more (`_count_cores`). Localities
   are nested, so ranks can have their cores if no locality has more rights inside it than cores. This gives
   the largest smallest share, then the largest second smallest one, and so on: the numbers of cores that are
   possible form a polymatroid, for which this greedy method is exact.
2. A group with too few cores gets the next wider domain, and step 1 is repeated.
3. The innermost groups take their cores first, so that the others use what is left outside (`_take`).
4. The strategy divides the cores of each group among its ranks.

Localities that partially overlap are made disjoint first: the wider one loses the common cores.
"""

from collections.abc import Callable, Iterable, Sequence

from ompbind.planning.devices.locality import DeviceLocality
from ompbind.planning.placing import Cores, Rows
from ompbind.record import Record


class RankGroup(Record):
    """Ranks with the same locality: `usable` are the cores that they may get, `near` the preferred ones.

    Cores are rows of the table of the machine.
    """

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
    """Return the cores of each rank, near its devices as far as the cores suffice.

    `localities` have the CPUs that each rank should get, `needed` is the fewest cores of a rank; if it
    `is_exact`, no rank gets more. Returns None if there are too few cores for all ranks.
    """
    groups = _make_groups(cores, localities)
    while True:
        nested = _separate(groups)
        counts = _count_cores(nested)
        short = [group for group in nested if min(counts[rank] for rank in group.ranks) < needed]
        if not short:
            break
        ranks = max(short, key=lambda group: len(group.usable)).ranks
        widened = [_widen(cores, group) if group.ranks == ranks else group for group in groups]
        if widened == groups:
            return None
        groups = widened
    if is_exact:  # else the strategy could choose distant cores of a group that has near ones too
        for group in nested:
            if group.near != group.usable:
                counts.update(dict.fromkeys(group.ranks, needed))
    shares: dict[int, Rows] = {}
    for group, rows in _take(nested, counts):
        shares |= dict(zip(group.ranks, divide(cores.take(rows), len(group.ranks)), strict=True))
    return [shares[rank] for rank in range(len(localities))]


def _make_groups(cores: Cores, localities: Sequence[DeviceLocality]) -> list[RankGroup]:
    """Return the ranks with the same cores near their devices, in the order of their first ranks."""
    everything = frozenset(cores.rows)
    found: dict[DeviceLocality, list[int]] = {}
    for rank, locality in enumerate(localities):
        found.setdefault(locality, []).append(rank)
    by_cores: dict[tuple[frozenset[int], frozenset[int]], list[int]] = {}
    for locality, ranks in found.items():
        usable = everything.intersection(cores.table.rows(locality.cpus)) or everything
        near = everything.intersection(cores.table.rows(locality.preferred)) or usable
        by_cores.setdefault((near, usable), []).extend(ranks)
    return [
        RankGroup(ranks=tuple(sorted(ranks)), near=near, usable=usable)
        for (near, usable), ranks in by_cores.items()
    ]


def _separate(groups: Sequence[RankGroup]) -> list[RankGroup]:
    """Return the groups, narrow ones first, without the cores that partially overlap a narrower group."""
    kept: list[RankGroup] = []
    for group in sorted(groups, key=lambda group: (len(group.usable), group.ranks)):
        usable = group.usable
        for other in kept:
            if not (other.usable <= usable or other.usable.isdisjoint(usable)):
                usable -= other.usable
        kept.append(group.replace(usable=usable))
    return kept


def _count_cores(groups: Sequence[RankGroup]) -> dict[int, int]:
    """Return how many cores each rank gets: the smallest number is the largest possible, and so on.

    `groups` are nested. A set of cores is full if the ranks inside it have the right to all of its cores.
    """
    sets = {group.usable for group in groups}
    around = {group.ranks: [cores for cores in sets if group.usable <= cores] for group in groups}
    left = {cores: len(cores) for cores in sets}
    active = sorted((rank, group.ranks) for group in groups for rank in group.ranks)
    counts = dict.fromkeys((rank for rank, _ in active), 0)
    while active:
        can_grow = []
        for rank, ranks in active:
            if all(left[cores] for cores in around[ranks]):
                counts[rank] += 1
                can_grow.append((rank, ranks))
                for cores in around[ranks]:
                    left[cores] -= 1
        active = can_grow
    return counts


def _widen(cores: Cores, group: RankGroup) -> RankGroup:
    """Return a group that may use the next wider domain; the same group if it may use all cores already."""
    domains = [domain for level in cores.table.levels for domain in cores.domains(level)]
    wider = (rows for rows in map(frozenset, [*domains, cores.rows]) if group.usable < rows)
    return group.replace(usable=min(wider, key=len, default=group.usable))


def _take(groups: Sequence[RankGroup], counts: dict[int, int]) -> Iterable[tuple[RankGroup, Rows]]:
    """Yield each group with its cores, in ascending order; the innermost groups take their cores first.

    A group takes near cores first, then cores that are near the fewest of the other groups.
    """
    taken: set[int] = set()
    for group in groups:
        free = group.usable - taken
        users = {core: sum(core in other.near for other in groups) for core in free}
        in_order = sorted(free, key=lambda core: (core not in group.near, users[core], core))
        cores = tuple(sorted(in_order[: sum(counts[rank] for rank in group.ranks)]))
        taken.update(cores)
        yield group, cores
