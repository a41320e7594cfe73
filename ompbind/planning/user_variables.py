"""OpenMP variables that ranks get as the user set them, and what they do to the binding of a plan."""

from collections.abc import Iterator

from ompbind.openmp.runtimes import (
    CPU_LIST_VARIABLES,
    DISABLED,
    KMP_AFFINITY,
    KMP_MODIFIERS,
    NO_RESPECT,
    PLACE_VARIABLES,
    SUBSET_VARIABLES,
)
from ompbind.openmp.variables import split_words
from ompbind.planning.plan import Plan

_DECIDING = {KMP_AFFINITY, *SUBSET_VARIABLES, *PLACE_VARIABLES}
"""Variables that bind threads within the affinity mask."""


def find_overriding(plan: Plan) -> Iterator[str]:
    """Yield a warning for each of the user's variables that overrides the binding of the plan."""
    for name, value in plan.request.user_variables:
        if effect := find_override(name, value, has_places=plan.has_places):
            yield f"{name}={value} (from --env or --keep-env) {effect}"


def find_override(name: str, value: str, *, has_places: bool) -> str:
    """Return what a variable of the user does to the binding of a plan, "" if nothing.

    `has_places`: the plan binds threads to places.
    """
    words = split_words(value)
    if name in CPU_LIST_VARIABLES or (name == KMP_AFFINITY and words & {NO_RESPECT, DISABLED}):
        return "may move threads off the CPUs of their rank"
    if has_places and name in _DECIDING and not (name == KMP_AFFINITY and words <= KMP_MODIFIERS):
        return "will override the binding of the plan"
    return ""
