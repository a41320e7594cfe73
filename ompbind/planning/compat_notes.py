"""The notes of a plan on the variables of other programs that it was made from (--compat)."""

from collections.abc import Iterator

from ompbind.machine.model import Level, find_overlapping
from ompbind.planning.plan import Note, Plan
from ompbind.planning.request import Compat
from ompbind.planning.strategies.core_sequence import make_core_sequence
from ompbind.planning.strategies.table import STRATEGIES


def explain_compat(plan: Plan, compat: Compat) -> Iterator[Note]:
    """Explain how variables of other programs were read (--compat)."""
    for text in (*compat.read, *compat.others):
        yield Note(code="compat", text=text)
    for text in compat.warnings:
        yield Note(code="compat", text=text, warning=True)
    if compat.divided and plan.request.strategy in ("numa", "nodes") and _divides_domains(plan):
        yield Note(code="compat", text=compat.divided)


def _divides_domains(plan: Plan) -> bool:
    """Return whether several ranks share a domain of the strategy; domains of all ranks are counted."""
    cores = find_overlapping(plan.machine.at(Level.CORE), plan.compute)
    sequence = make_core_sequence(plan.machine, tuple(core.cpus & plan.compute for core in cores))
    return STRATEGIES[plan.request.strategy].auto_ranks(sequence, None) < len(plan.placements)
