"""What `--strict` refuses: plans that say themselves that their binding will not hold."""

from ompbind.errors import PlanError
from ompbind.openmp.binding import CONFLICT
from ompbind.planning.memory_policy import LIMITED, NARROWED, UNSET
from ompbind.planning.plan import Plan

CANNOT_BIND = ("not-bindable", "places-too-long", "preload", CONFLICT, UNSET, LIMITED, NARROWED)
"""The codes of notes on what cannot be bound as asked."""


def check_strict(plan: Plan) -> None:
    """Refuse a plan of a strict request that has a note on what cannot be bound; raises PlanError."""
    faults = [note.text for note in plan.notes if note.code in CANNOT_BIND]
    if plan.request.strict and faults:
        raise PlanError("; ".join(faults), hint="without --strict this is a warning")
