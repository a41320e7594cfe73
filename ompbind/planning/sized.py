"""Ranks that request a number of cores, and leave other cores idle.

A rank may have other cores besides the cores that compute: for service threads, or reserved. The compute
cores decide about the boundaries that it crosses. So there are two ways, and the better one is used. Example:
NUMA nodes of 4 cores, and 3 ranks with 4 compute cores and 1 service core each:

    cores                   0–3       4–7       8–11      12–15
    whole ranks first       0 0 0 0   0 1 1 1   1 1 2 2   2 2 2     compute cores of ranks 1 and 2 cross
    compute cores first     0 0 0 0   1 1 1 1   2 2 2 2   0 1 2     no compute core crosses

Cores with remote memory are left out before, as far as the other cores are enough.
"""

from collections.abc import Sequence

from ompbind.cpuset import count, join_words
from ompbind.errors import PlanError
from ompbind.planning.placing import Cores, Rows, divide_equally, measure_costs, measure_shares, place_equal
from ompbind.record import Record


class RequestedCores(Record):
    """The cores that each rank requests: `compute` cores, and others near them.

    `remedy` is what an error recommends if they do not fit, as in "fewer threads with -t".
    """

    compute: int
    service: int = 0
    reserved: int = 0
    remedy: str = ""

    @property
    def others(self) -> int:
        """The cores of a rank that do not compute."""
        return self.service + self.reserved

    @property
    def total(self) -> int:
        """All cores of a rank."""
        return self.compute + self.others

    def describe(self, ranks: int) -> str:
        """Describe ranks of this size: "2 ranks of 4 cores and 1 service core"."""
        kinds = (("service core", self.service), ("reserved core", self.reserved))
        cores = (count(number, noun) for noun, number in (("core", self.compute), *kinds) if number)
        return f"{count(ranks, 'rank')} of {join_words(cores)}"

    def advise(self, ranks: int) -> str:
        """Return the hint if only so many ranks fit."""
        fewer_ranks = f"at most {count(ranks, 'rank')}, or " if ranks else ""
        return f"request {fewer_ranks}{self.remedy}"


def place_sized(cores: Cores, ranks: int, requested: RequestedCores | None, *, apart: bool) -> list[Rows]:
    """Return the requested cores of every rank, compute cores first, or else the largest equal share.

    Ranks are packed from the start, or with `apart` as far apart as possible; as few as possible cross domain
    boundaries. Raises PlanError if the ranks do not fit.
    """
    size, available = requested or RequestedCores(compute=len(cores.rows) // ranks), len(cores.rows)
    if size.total * ranks > available:
        need = "needs" if ranks == 1 else "need"
        usable = "1 is" if available == 1 else f"{available} are"
        raise PlanError(
            f"{size.describe(ranks)} {need} {count(size.total * ranks, 'core')}, but {usable} usable",
            hint=size.advise(available // size.total),
        )
    if size.compute * ranks == available:
        return divide_equally(cores, ranks)
    # the cores with the nearest memory; cores with remote memory only if the others are too few
    distances = [cores.distances.get(row, 0) for row in cores.rows]
    least = max(ranks * size.total, distances.count(min(distances)))
    nearest = sorted(range(len(distances)), key=distances.__getitem__)[:least]
    cores = cores.take(tuple(cores.rows[position] for position in sorted(nearest)))
    whole = place_equal(cores, ranks, size.total, apart=apart)
    if not size.others:
        return whole
    whole = [take_cores(cores.take(share), size) for share in whole]
    compute = place_equal(cores, ranks, size.compute, apart=apart)
    ways = [whole, _add_nearest(cores, compute, size.others)]
    best = min(ways, key=lambda shares: measure_shares(cores, shares, size.compute))
    return cores.sort(best)


def take_cores(share: Cores, requested: RequestedCores) -> Rows:
    """Take the requested cores out of some: compute cores in the fewest domains first, then the nearest.

    There are at least as many cores as requested.
    """
    costs = measure_costs(share, requested.compute)
    first = costs.index(min(costs))
    positions = range(first, first + requested.compute)
    columns = [share.numbers(level) for level in share.table.levels]
    near = [{numbers[position] for position in positions} for numbers in columns]
    others = sorted(
        set(range(len(share.rows))).difference(positions),
        key=lambda position: (
            [numbers[position] not in domains for numbers, domains in zip(columns, near, strict=True)],
            position,
        ),
    )
    return tuple(share.rows[position] for position in (*positions, *others[: requested.others]))


def _add_nearest(cores: Cores, ranks: Sequence[Rows], others: int) -> list[Rows]:
    """Add `others` of the free cores to each rank, from the smallest of its domains that has some."""
    shares = [list(compute) for compute in ranks]
    columns = [cores.table.column(level) for level in reversed(cores.table.levels)]
    for numbers in (*columns, (0,) * len(cores.table.cores)):  # at last, from the whole machine
        nearby: dict[int | None, list[int]] = {}
        taken = {row for share in shares for row in share}
        for row in reversed(cores.rows):
            if row not in taken:
                nearby.setdefault(numbers[row], []).append(row)
        for share, compute in zip(shares, ranks, strict=True):
            for number in dict.fromkeys(numbers[row] for row in compute):
                while number is not None and nearby.get(number) and len(share) < len(compute) + others:
                    share.append(nearby[number].pop())
    return [tuple(share) for share in shares]
