"""The words of a binding: what is bound to what, and how that is written for a runtime."""

from enum import StrEnum


class Bind(StrEnum):
    """How the OpenMP threads of a rank are bound; the rank's process is confined in every mode."""

    RANK = "rank"
    CORE = "core"
    THREAD = "thread"
    EXACT = "exact"
    NONE = "none"


class ProcBind(StrEnum):
    """How OpenMP spreads the threads of a team over its places."""

    CLOSE = "close"
    SPREAD = "spread"


class BindingSyntax(StrEnum):
    """How a binding is written: as OMP_PLACES, as a list in KMP_AFFINITY, or not at all."""

    PLACES = "places"
    LIST = "list"
    UNBOUND = "unbound"
