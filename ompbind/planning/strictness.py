"""Refuse a plan whose notes say that ranks cannot have what a strict request (--strict) requires."""

from ompbind.errors import PlanError
from ompbind.planning.memory import LIMITED, NARROWED, UNSET
from ompbind.planning.plan import Plan
from ompbind.planning.runtime_notes import CONFLICT

REFUSED_IF_STRICT = (
    "not-bindable", "quota-ranks", "places-too-long", "service-workers", "preload", "wrapper", "device-far",
    CONFLICT, UNSET, LIMITED, NARROWED,
)  # fmt: skip
"""The codes of notes that say that ranks cannot have what was requested: their binding, or a CPU each."""


def check_strict(plan: Plan) -> None:
    """Raise PlanError if ranks cannot have their binding, or a CPU each."""
    failures = [note.text for note in plan.notes if note.code in REFUSED_IF_STRICT]
    if failures:
        raise PlanError("; ".join(failures), hint="without --strict this is a warning")
