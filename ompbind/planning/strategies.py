"""How cores are divided among ranks: the table of strategies, one record for each.

To add a strategy: a function, and a row in `STRATEGIES`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, TypeAlias

from ompbind.cpuset import count
from ompbind.errors import PlanError
from ompbind.machine.model import KIND, Level
from ompbind.planning.placing import Cores, Rows, divide_equally
from ompbind.planning.sized import RequestedCores, place_sized
from ompbind.record import Record

Divide: TypeAlias = Callable[[Cores, int, RequestedCores | None], list[Rows]]
"""Divides cores among a number of ranks, which may request a number of cores each."""


def balanced(cores: Cores, ranks: int, requested: RequestedCores | None = None) -> list[Rows]:
    """Return an equal share of all cores for every rank, with the fewest ranks across domain boundaries.

    Shares differ by at most one core. Ranks that request cores get these, as far apart as possible.
    """
    return place_sized(cores, ranks, requested, apart=True) if requested else divide_equally(cores, ranks)


def find_numa_parts(cores: Cores) -> list[Rows]:
    """Return the NUMA nodes; if a node has several drawers, books or packages, these parts of all nodes.

    Cores in no node are a domain of their own. "Packages" of different core kinds are no parts: Linux on Arm
    without ACPI reports the clusters of one chip as packages.
    """
    nodes, kinds = cores.numbers(Level.NODE), cores.numbers(KIND)
    whole = list(cores.group(nodes).values())
    for level in (Level.DRAWER, Level.BOOK, Level.PACKAGE):
        numbers = cores.numbers(level)
        parts = list(cores.group(zip(nodes, numbers, strict=True)).values())
        kinds_of = {
            frozenset(kind for other, kind in zip(numbers, kinds, strict=True) if other == number)
            for number in set(numbers)
        }
        if len(parts) > len(whole) and not (level is Level.PACKAGE and len(kinds_of) > 1):
            return parts
    return whole


def divide_domains(
    cores: Cores, ranks: int, requested: RequestedCores | None, domains: list[Rows], label: str
) -> list[Rows]:
    """Give every rank one domain, or an equal share of one; ranks that request cores get these from one.

    Each domain gets one rank, then every further rank goes to the domain where its share is largest. Among
    equal domains, those with the nearest memory are first. `label` names a domain in messages.
    """
    cores_per_rank = requested.total if requested else 1
    far = [sum(cores.distances.get(row, 0) for row in rows) / len(rows) for rows in domains]
    shares = sorted(
        (sharing > 1, -len(rows) / sharing if sharing > 1 else 0, far[domain], domain)
        for domain, rows in enumerate(domains)
        for sharing in range(1, len(rows) // cores_per_rank + 1)
    )
    if requested and len(shares) < ranks:
        largest = f"the largest {label} has {count(max(map(len, domains)), 'usable core')}"
        raise PlanError(
            f"{requested.describe(ranks)} do not fit, each in one {label}: {largest}",
            hint=requested.advise(len(shares)),
        )
    chosen = [domain for *_, domain in shares[:ranks]]
    return cores.sort(
        share
        for domain in set(chosen)
        for share in balanced(cores.take(domains[domain]), chosen.count(domain), requested)
    )


def _one_per_node(cores: Cores, requested: RequestedCores | None) -> int:
    return max(1, len(cores.domains(Level.NODE)))


def _as_many_as_fit(cores: Cores, requested: RequestedCores | None) -> int:
    return max(1, len(cores.rows) // requested.total) if requested else _one_per_node(cores, requested)


class Strategy(Record):
    """One way to divide cores among ranks.

    `divide` is called with the cores, the number of ranks, and the cores that each rank requests (None if
    none are requested); it returns the cores of each rank, and ranks follow each other in the order of the
    machine, unless they overlap. With devices it is called for each group of cores near some.
    `auto_ranks` returns the number of ranks for `-n auto`, from the cores and the same request. One that
    `takes_cores` gives each rank the cores of --cores; the others fix the size of ranks themselves. A `sized`
    strategy gives every rank the cores that its threads need, and leaves the others idle. An `overlapping`
    one gives the same cores to several ranks. One with a `level` gives each rank a domain of that level. One
    `by_os_number` uses NUMA nodes in the order of their OS numbers, not in the order of the machine. One with
    `takes_devices` can divide the cores near a device; the others choose domains themselves.
    """

    divide: Divide
    auto_ranks: Callable[[Cores, RequestedCores | None], int] = _one_per_node
    takes_cores: bool = False
    sized: bool = False
    overlapping: bool = False
    level: Level | None = None
    by_os_number: bool = False
    takes_devices: bool = False


def _sized(*, apart: bool) -> Strategy:
    divide = partial(place_sized, apart=apart)
    return Strategy(
        divide=divide, auto_ranks=_as_many_as_fit, takes_cores=True, sized=True, takes_devices=True
    )


def _by_domains(find: Callable[[Cores], list[Rows]], label: str) -> Strategy:
    return Strategy(
        divide=lambda cores, ranks, requested: divide_domains(cores, ranks, requested, find(cores), label),
        auto_ranks=lambda cores, requested: len(find(cores)),
        takes_cores=True,
    )


def _by_level(level: Level) -> Strategy:
    return _by_domains(lambda cores: cores.domains(level), level.label).replace(level=level)


STRATEGIES: Mapping[str, Strategy] = {
    "balanced": Strategy(divide=balanced, auto_ranks=_as_many_as_fit, takes_cores=True, takes_devices=True),
    "compact": _sized(apart=False),
    "spread": _sized(apart=True),
    "nodes": _by_level(Level.NODE),
    "packages": _by_level(Level.PACKAGE),
    "numa": _by_domains(find_numa_parts, "NUMA node or package").replace(by_os_number=True),
    "l3": _by_level(Level.L3),
    "l2": _by_level(Level.L2),
    "books": _by_level(Level.BOOK),
    "drawers": _by_level(Level.DRAWER),
    "cores": Strategy(
        divide=lambda cores, ranks, _: place_sized(cores, ranks, RequestedCores(compute=1), apart=False),
        auto_ranks=lambda cores, requested: len(cores.rows),
    ),
    "all": Strategy(
        divide=lambda cores, ranks, _: [cores.rows] * ranks,
        auto_ranks=lambda cores, requested: 1,
        overlapping=True,
    ),
}
"""The strategies by their names on the command line."""


def list_others_that_take(option: Literal["cores", "devices"], name: str) -> str:
    """Return the strategies that take --cores or --devices if the given strategy does not, else ""."""
    usable = [known for known, strategy in STRATEGIES.items() if getattr(strategy, f"takes_{option}")]
    return "" if name in usable else ", ".join(usable)


def check_strategy(cores: Cores, name: str) -> None:
    """Raise PlanError if a strategy divides domains of a level that the machine does not have."""
    level = STRATEGIES[name].level
    if level is None or cores.domains(level):
        return
    usable = (known for known, it in STRATEGIES.items() if it.level is None or cores.domains(it.level))
    raise PlanError(f"this machine has no {level} domains", hint=f"use {', '.join(usable)}")
