"""The binding of a rank as variables: what OpenMP runtimes and other thread pools need to be told.

The reasons are measured. OMP_PLACES and OMP_PROC_BIND are set together or not at all;
OMP_NUM_THREADS always, and never empty or 0; variables that beat them are cleared, because some
runtimes let them override the places or even leave the mask of the process.
"""

from collections.abc import Mapping, Sequence

from ompbind.cpuset import CpuSet
from ompbind.openmp.binding import Bind, BindingSyntax, ProcBind
from ompbind.openmp.places import places_text
from ompbind.openmp.runtimes import CLEARED, KMP_AFFINITY, STANDARD

THREAD_COUNTS = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS",
    "LOKY_MAX_CPU_COUNT", "PYTHON_CPU_COUNT", "GOMAXPROCS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip
"""Variables that thread pools read their size from; each one gets the threads of the rank."""

LIBUV = "UV_THREADPOOL_SIZE"
LIBUV_LEAST = 4
"""The pool of Node.js, whose threads mostly wait for files, and how many it has when nothing is said."""

DEFEATING = (
    *CLEARED, "OMP_THREAD_LIMIT", "OMP_TEAMS_THREAD_LIMIT", "OMP_DYNAMIC", "GOTO_NUM_THREADS",
    "MKL_DOMAIN_NUM_THREADS", *STANDARD,
)  # fmt: skip
"""Variables that would move or narrow the threads of a rank when inherited from the caller."""


def make_openmp_variables(
    cpus: Sequence[int],
    places: Sequence[CpuSet],
    threads: int,
    *,
    bind: Bind = Bind.RANK,
    proc_bind: ProcBind = ProcBind.CLOSE,
    syntax: BindingSyntax = BindingSyntax.PLACES,
    reset: bool = False,
) -> dict[str, str | None]:
    """Return every variable that decides threads and binding: its value, or None for "unset".

    `cpus` are those of the rank in the order of its threads; without `places` nothing is bound. `syntax` is
    how the binding is written; with `reset`, KMP_AFFINITY=reset frees the initial thread after each region.
    """
    variables: dict[str, str | None] = dict.fromkeys(DEFEATING)
    variables.update(dict.fromkeys(THREAD_COUNTS, str(threads)))
    variables[LIBUV] = str(max(threads, LIBUV_LEAST))
    text = places_text(places) if places else None
    if not text:
        return {**variables, "OMP_PROC_BIND": "false"}
    if syntax is BindingSyntax.LIST:
        return {**variables, KMP_AFFINITY: _listed(cpus, reset=reset)}
    variables["OMP_PLACES"] = text
    variables["OMP_PROC_BIND"] = "true" if bind is Bind.RANK else str(proc_bind)
    if bind is Bind.EXACT and reset:
        variables[KMP_AFFINITY] = "reset"
    return variables


def _listed(cpus: Sequence[int], *, reset: bool) -> str:
    """Write the CPUs of a rank as runtimes take them that read KMP_AFFINITY: one for each thread, in order.

    Without `granularity=fine` each of them would stand for its whole core.
    """
    listed = ",".join(map(str, cpus))
    return f"{'reset,' if reset else ''}granularity=fine,explicit,proclist=[{listed}]"


def split_words(value: str) -> set[str]:
    """Return the words in the value of a variable, which commas separate, in lower case."""
    return set(value.lower().replace(" ", "").split(","))


def find_inherited(base: Mapping[str, str], variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return those of `variables` that clear or change what `base` has, in a fixed order."""
    return {name: value for name, value in sorted(variables.items()) if base.get(name, value) != value}
