"""The table of strategies: one record for each."""

from collections.abc import Callable, Mapping, Sequence

from ompbind.errors import PlanError
from ompbind.machine.model import Level
from ompbind.planning.strategies.core_sequence import CoreIndices, CoreSequence
from ompbind.planning.strategies.domains import Divide, divide_domains, find_numa_parts
from ompbind.planning.strategies.packing import divide_equally
from ompbind.planning.strategies.sized import RequestedCores, balance_requested, compact, cores, spread
from ompbind.record import Record


def _one_per_node(sequence: CoreSequence, requested: RequestedCores | None) -> int:
    return max(1, len(sequence.domains(Level.NODE)))


def _as_many_as_fit(sequence: CoreSequence, requested: RequestedCores | None) -> int:
    if not requested:
        return _one_per_node(sequence, requested)
    return max(1, len(sequence.core_cpus) // requested.total)


class Strategy(Record):
    """One way to divide cores among ranks, and its texts; `summary` completes "every rank gets …".

    `divide` is called with the core sequence, the number of ranks, and the cores that each rank requests
    (None if none are requested); it returns the cores of each rank. `auto_ranks` returns the number of ranks
    for `-n auto`, from the sequence and the same request; `label` explains that number. `takes_cores` is
    where ranks are that request cores with --cores, "" if the strategy fixes their size itself. A `sized`
    strategy gives every rank the cores that its threads need, and leaves the others idle. An `overlapping`
    one gives the same cores to several ranks. One with a `level` gives each rank a domain of that level. One
    `by_os_number` uses NUMA nodes in the order of their OS numbers, not in the order of the machine.
    `fewest_crossings` is True if no other equal shares have fewer ranks across domain boundaries. One with
    `takes_devices` can divide the cores near a device; the others choose domains themselves.
    """

    divide: Divide
    summary: str
    auto_ranks: Callable[[CoreSequence, RequestedCores | None], int] = _one_per_node
    label: str = f"one per {Level.NODE.label}"
    takes_cores: str = ""
    sized: bool = False
    overlapping: bool = False
    level: Level | None = None
    by_os_number: bool = False
    fewest_crossings: bool = False
    takes_devices: bool = False


def balanced(
    sequence: CoreSequence, ranks: int, requested: RequestedCores | None = None
) -> list[CoreIndices]:
    """Return an equal share of all cores for every rank, with the fewest ranks across domain boundaries.

    Among equally good shares, ranks use the fewest domains. Shares differ by at most one core. Ranks that
    request cores get these, compute cores first, from an equal share or from positions far apart.
    """
    if requested:
        return balance_requested(sequence, ranks, requested, balanced)
    if ranks == 1:
        return all_cores(sequence, ranks, requested)
    return divide_equally(sequence, ranks)


def _divide_domains(find_domains: Callable[[CoreSequence], Sequence[CoreIndices]], label: str) -> Divide:
    """Return the strategy that gives every rank one domain, or an equal share of one."""
    return lambda sequence, ranks, requested: divide_domains(
        sequence, ranks, requested, find_domains(sequence), label=label, divide=balanced
    )


def all_cores(sequence: CoreSequence, ranks: int, requested: RequestedCores | None) -> list[CoreIndices]:
    """Give every rank all cores: the only strategy that overlaps."""
    return [tuple(range(len(sequence.core_cpus)))] * ranks


def _by_domain(level: Level) -> Strategy:
    return Strategy(
        divide=_divide_domains(lambda sequence: sequence.domains(level), level.label),
        summary=f"one {level.label}, or an equal share of one",
        auto_ranks=lambda sequence, requested: len(sequence.domains(level)),
        label=f"one per {level.label}",
        takes_cores=f"in one {level.label}",
        level=level,
    )


STRATEGIES: Mapping[str, Strategy] = {
    "balanced": Strategy(
        divide=balanced,
        summary="an equal share of all cores, not split across domains unless unavoidable",
        auto_ranks=_as_many_as_fit,
        takes_cores="not split across domains unless unavoidable",
        fewest_crossings=True,
        takes_devices=True,
    ),
    "compact": Strategy(
        divide=compact,
        summary="as many cores as its threads need, or an equal share, packed from the start of the machine",
        auto_ranks=_as_many_as_fit,
        takes_cores="packed from the start of the machine",
        sized=True,
        takes_devices=True,
    ),
    "spread": Strategy(
        divide=spread,
        summary="as many cores as its threads need, or an equal share, as far from other ranks as possible",
        auto_ranks=_as_many_as_fit,
        takes_cores="as far from other ranks as possible",
        sized=True,
        takes_devices=True,
    ),
    "nodes": _by_domain(Level.NODE),
    "packages": _by_domain(Level.PACKAGE),
    "numa": Strategy(
        divide=_divide_domains(find_numa_parts, "NUMA node or package"),
        summary="one NUMA node, by OS number, or one package (s390x: drawer, book) of nodes with several",
        auto_ranks=lambda sequence, requested: len(find_numa_parts(sequence)),
        label="one per NUMA node, or per package of nodes with several",
        takes_cores="in one NUMA node, or in one package of nodes with several",
        by_os_number=True,
    ),
    "l3": _by_domain(Level.L3),
    "l2": _by_domain(Level.L2),
    "books": _by_domain(Level.BOOK),
    "drawers": _by_domain(Level.DRAWER),
    "cores": Strategy(
        divide=cores,
        summary="one core",
        auto_ranks=lambda sequence, requested: len(sequence.core_cpus),
        label="one per core",
    ),
    "all": Strategy(
        divide=all_cores,
        summary="all cores, shared with all other ranks",
        auto_ranks=lambda sequence, requested: 1,
        label="all ranks would get the same CPUs",
        overlapping=True,
    ),
}
"""The strategies by their names on the command line."""


def list_others_that_take_cores(name: str) -> str:
    """Return the strategies that take --cores if the given strategy does not, else ""."""
    usable = [known for known, strategy in STRATEGIES.items() if strategy.takes_cores]
    return "" if name in usable else ", ".join(usable)


def list_others_that_take_devices(name: str) -> str:
    """Return the strategies to use with --devices if the given strategy chooses domains itself, else ""."""
    usable = [known for known, strategy in STRATEGIES.items() if strategy.takes_devices]
    return "" if name in usable else ", ".join(usable)


def check_strategy(sequence: CoreSequence, name: str) -> None:
    """Raise PlanError if a strategy divides domains of a level that the machine does not have."""
    level = STRATEGIES[name].level
    if level is None or sequence.domains(level):
        return
    usable = [
        known
        for known, strategy in STRATEGIES.items()
        if strategy.level is None or sequence.domains(strategy.level)
    ]
    raise PlanError(f"this machine has no {level} domains", hint=f"use {', '.join(usable)}")
