"""How OpenMP threads are bound: the modes of --bind, and how a binding is written for a runtime."""

from enum import StrEnum

from ompbind.record import Record


class Bind(StrEnum):
    """The modes of --bind: how the OpenMP threads of a rank are bound; every mode also binds its process."""

    RANK = "rank"
    CORE = "core"
    THREAD = "thread"
    EXACT = "exact"
    NONE = "none"


class ProcBind(StrEnum):
    """How OpenMP distributes the threads of a team over places (OMP_PROC_BIND)."""

    CLOSE = "close"
    SPREAD = "spread"


DISTRIBUTING_WORDS = ("true", *map(str, ProcBind))
"""Values of OMP_PROC_BIND that only distribute threads over the places of OMP_PLACES."""


class BindingSyntax(StrEnum):
    """How a binding is written: as OMP_PLACES, as a CPU list in KMP_AFFINITY, or not at all."""

    PLACES = "places"
    LIST = "list"
    UNBOUND = "unbound"


class Binding(Record):
    """How the threads of one rank are bound, and how this is written.

    With `reset`, KMP_AFFINITY=reset restores the affinity mask of the initial thread after each parallel
    region, where the mode needs it and the runtime supports it.
    """

    mode: Bind = Bind.RANK
    proc_bind: ProcBind = ProcBind.CLOSE
    syntax: BindingSyntax = BindingSyntax.PLACES
    reset: bool = False
