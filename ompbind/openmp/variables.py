"""A placement as environment variables: what OpenMP runtimes and other thread pools need to be told.

The reasons are measured. OMP_PLACES and OMP_PROC_BIND are set together or not at all;
OMP_NUM_THREADS always, and never empty or 0; variables that beat them are cleared, because some
runtimes let them override the places or even leave the mask of the process.
"""

from collections.abc import Mapping

from ompbind.openmp.binding import Style, choose_style, knows_reset
from ompbind.openmp.places import places_text
from ompbind.planning.plan import Placement
from ompbind.planning.request import Bind, ProcBind, Request
from ompbind.record import Record

THREAD_COUNTS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "NUMBA_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
    "LOKY_MAX_CPU_COUNT",
    "PYTHON_CPU_COUNT",
    "GOMAXPROCS",
    "VECLIB_MAXIMUM_THREADS",
)
"""Variables that thread pools read their size from; each one gets the threads of the rank."""

LIBUV = "UV_THREADPOOL_SIZE"
LIBUV_LEAST = 4
"""The pool of Node.js, whose threads mostly wait for files, and how many it has when nothing is said."""

DEFEATING = (
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
    "KMP_HW_SUBSET",
    "KMP_PLACE_THREADS",
    "KMP_TOPOLOGY_METHOD",
    "KMP_HIDDEN_HELPER_AFFINITY",
    "KMP_ALL_THREADS",
    "KMP_DEVICE_THREAD_LIMIT",
    "KMP_TEAMS_THREAD_LIMIT",
    "OMP_THREAD_LIMIT",
    "OMP_TEAMS_THREAD_LIMIT",
    "OMP_DYNAMIC",
    "KMP_DYNAMIC_MODE",
    "GOTO_NUM_THREADS",
    "MKL_DOMAIN_NUM_THREADS",
    "OMP_PLACES",
    "OMP_PROC_BIND",
)
"""Variables that would move or narrow the threads of a rank when inherited from the caller."""


class Inherited(Record):
    """A variable of the caller that the plan changes: its value there and its value for the rank."""

    name: str
    before: str
    after: str | None


def make_openmp_variables(placement: Placement, request: Request) -> dict[str, str | None]:
    """Return every variable that decides threads and binding: its value, or None for "unset"."""
    variables: dict[str, str | None] = dict.fromkeys(DEFEATING)
    variables.update(dict.fromkeys(THREAD_COUNTS, str(placement.threads)))
    variables[LIBUV] = str(max(placement.threads, LIBUV_LEAST))
    places = places_text(placement.places) if placement.places else None
    if not places:
        return {**variables, "OMP_PROC_BIND": "false"}
    reset = knows_reset(request)
    if choose_style(request) is Style.LIST:
        return {**variables, "KMP_AFFINITY": _listed(placement, reset=reset)}
    whole = request.bind is Bind.RANK
    variables["OMP_PLACES"] = places
    variables["OMP_PROC_BIND"] = "true" if whole else str(ProcBind(request.proc_bind))
    if request.bind is Bind.EXACT and reset:
        variables["KMP_AFFINITY"] = "reset"
    return variables


def _listed(placement: Placement, *, reset: bool) -> str:
    """Write the CPUs of a rank as runtimes take them that read KMP_AFFINITY: one for each thread, in order.

    Without `granularity=fine` each of them would stand for its whole core.
    """
    cpus = ",".join(map(str, placement.cpus))
    return f"{'reset,' if reset else ''}granularity=fine,explicit,proclist=[{cpus}]"


def find_inherited(base: Mapping[str, str], variables: Mapping[str, str | None]) -> tuple[Inherited, ...]:
    """Return the variables of `base` that `variables` would clear or change, in a fixed order."""
    return tuple(
        Inherited(name=name, before=base[name], after=after)
        for name, after in sorted(variables.items())
        if name in base and base[name] != after
    )
