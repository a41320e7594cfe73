"""All strategies: one record for each, in one table, and what several of them have in common."""

from collections.abc import Callable, Mapping

from ompbind.errors import PlanError
from ompbind.machine.model import Level
from ompbind.planning.strategies.balanced import balanced
from ompbind.planning.strategies.core_sequence import CoreIndices, CoreSequence
from ompbind.planning.strategies.domains import divide_domains
from ompbind.planning.strategies.sized import compact, cores, spread
from ompbind.record import Record


def _one_per_node(sequence: CoreSequence, each: int | None) -> int:
    return max(1, len(sequence.domains(Level.NODE)))


def _as_many_as_fit(sequence: CoreSequence, each: int | None) -> int:
    return max(1, len(sequence.units) // each) if each else _one_per_node(sequence, each)


class Strategy(Record):
    """One way to divide cores among ranks, and its words: `summary` says what a rank gets.

    `divide` takes the field, the number of ranks, and the units that a rank asks for (None where it asks for
    none). `auto_ranks` counts the ranks that `-n auto` stands for, from the field and these units; `label`
    says what it counts. A `sized` strategy gives every rank as many units as asked and leaves the rest idle.
    An `overlapping` one gives the same units to several ranks. One with a `level` gives away the domains of
    that level. With `fewest_crossings`, no other equal shares have fewer ranks across borders.
    """

    divide: Callable[[CoreSequence, int, int | None], list[CoreIndices]]
    summary: str
    auto_ranks: Callable[[CoreSequence, int | None], int] = _one_per_node
    label: str = f"one for each {Level.NODE.label}"
    sized: bool = False
    overlapping: bool = False
    level: Level | None = None
    fewest_crossings: bool = False


def everything(sequence: CoreSequence, ranks: int, units: int | None) -> list[CoreIndices]:
    """Give every rank everything: the only strategy that overlaps."""
    return [tuple(range(len(sequence.units)))] * ranks


def _domains(level: Level) -> Strategy:
    return Strategy(
        divide=divide_domains(level),
        summary=f"one {level.label}, or an even share of one",
        auto_ranks=lambda sequence, each: len(sequence.domains(level)),
        label=f"one for each {level.label}",
        level=level,
    )


STRATEGIES: Mapping[str, Strategy] = {
    "balanced": Strategy(
        divide=balanced,
        summary="an equal share of all cores, across no border that it need not cross",
        fewest_crossings=True,
    ),
    "compact": Strategy(
        divide=compact,
        summary="as many cores as its threads need, or an equal share, packed from the start of the machine",
        auto_ranks=_as_many_as_fit,
        sized=True,
    ),
    "spread": Strategy(
        divide=spread,
        summary="as many cores as its threads need, or an equal share, as far from the others as can be",
        auto_ranks=_as_many_as_fit,
        sized=True,
    ),
    "nodes": _domains(Level.NODE),
    "packages": _domains(Level.PACKAGE),
    "l3": _domains(Level.L3),
    "l2": _domains(Level.L2),
    "books": _domains(Level.BOOK),
    "drawers": _domains(Level.DRAWER),
    "cores": Strategy(
        divide=cores,
        summary="one core",
        auto_ranks=lambda sequence, each: len(sequence.units),
        label="one for each core",
    ),
    "all": Strategy(
        divide=everything,
        summary="everything, together with all other ranks",
        auto_ranks=lambda sequence, each: 1,
        label="all ranks would get the same",
        overlapping=True,
    ),
}
"""Every strategy by its name on the command line."""


def check_strategy(sequence: CoreSequence, name: str) -> None:
    """Refuse a strategy that gives away domains of which the machine tells none; raises PlanError."""
    level = STRATEGIES[name].level
    if level is not None and not sequence.domains(level):
        served = [
            known for known, one in STRATEGIES.items() if one.level is None or sequence.domains(one.level)
        ]
        raise PlanError(f"this machine has no {level} domains", hint=f"it can serve {', '.join(served)}")
