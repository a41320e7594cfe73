"""The binding of a rank as environment variables, for OpenMP runtimes and other thread pools.

The reasons are measured. OMP_PLACES and OMP_PROC_BIND are set together or not at all. Numbers of threads are
never empty or 0. Variables that override them are removed: with some of these, a runtime ignores the places,
or binds threads to CPUs outside the affinity mask of the process.
"""

from collections.abc import Mapping, Sequence

from ompbind.openmp import runtimes
from ompbind.openmp.binding import OR_HOLD, Bind, Binding, BindingSyntax, ProcBind

THREAD_COUNTS = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS",
    "LOKY_MAX_CPU_COUNT", "PYTHON_CPU_COUNT", "GOMAXPROCS", "VECLIB_MAXIMUM_THREADS",
    "OPENCV_FOR_THREADS_NUM", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "LLAMA_ARG_THREADS",
    "JULIA_NUM_THREADS", "DOTNET_PROCESSOR_COUNT",
)  # fmt: skip
"""Variables that set the size of a thread pool; all are set to the threads of the rank.

Their programs are listed in docs/runtimes.md. All read a decimal number. Not among them are pools whose
threads mostly wait (ARROW_IO_THREADS, TOKIO_WORKER_THREADS), and JAVA_TOOL_OPTIONS, which Java prints.
"""

PROCESS_COUNTS = ("LOKY_MAX_CPU_COUNT", "PYTHON_CPU_COUNT")
"""Variables of `THREAD_COUNTS` that also decide how many worker processes a pool of Python has."""

MASK_COUNTS = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS",
)  # fmt: skip
"""Variables of `THREAD_COUNTS` whose libraries start a thread for each CPU of the affinity mask without them.

joblib, Dask and Ray divide the CPUs among their worker processes only if these variables are not set.
NumExpr does not read the mask, but without NUMEXPR_NUM_THREADS it starts NUMEXPR_MAX_THREADS threads.
"""

LIBUV_VARIABLE = "UV_THREADPOOL_SIZE"
LIBUV_DEFAULT = 4
"""The thread pool of Node.js, whose threads mostly wait for files, and its default size."""

OVERRIDING_VARIABLES = (
    *runtimes.CLEARED_VARIABLES, "OMP_THREAD_LIMIT", "OMP_TEAMS_THREAD_LIMIT", "OMP_DYNAMIC",
    "GOTO_NUM_THREADS", "MKL_DOMAIN_NUM_THREADS", *runtimes.PLACE_VARIABLES,
)  # fmt: skip
"""Variables that change which CPUs threads use, or how many threads there are, if ranks inherit them."""


def make_openmp_variables(
    cpus: Sequence[int],
    places_text: str,
    threads: int,
    binding: Binding,
    *,
    processes: int = 1,
    by_mask: bool = False,
) -> dict[str, str | None]:
    """Return every variable that sets threads and binding: its value, or None to remove it.

    `cpus` are the CPUs of the rank in thread order, `places_text` are its places as the value of OMP_PLACES.
    Without places, threads are not bound. `processes` of the rank divide its `threads`. With `by_mask`, no
    number is set where libraries find it by the affinity mask (`MASK_COUNTS`). A rank with service CPUs has
    one place per thread, also with Bind.RANK: only `close` gives them to its threads in order.
    """
    variables: dict[str, str | None] = dict.fromkeys(OVERRIDING_VARIABLES)
    variables.update(dict.fromkeys(THREAD_COUNTS, str(max(1, threads // processes))))
    if processes > 1:
        variables.update(dict.fromkeys(PROCESS_COUNTS, str(processes)))
    if by_mask:
        variables.update(dict.fromkeys(MASK_COUNTS))
    variables[LIBUV_VARIABLE] = str(max(threads, LIBUV_DEFAULT))
    if not places_text:
        return {**variables, "OMP_PROC_BIND": "false"}
    if binding.syntax is BindingSyntax.LIST:  # without `granularity=fine`, each CPU stands for its whole core
        reset, numbers = "reset," if binding.reset else "", ",".join(map(str, cpus))
        return {**variables, runtimes.KMP_AFFINITY: f"{reset}granularity=fine,explicit,proclist=[{numbers}]"}
    variables["OMP_PLACES"] = places_text
    variables["OMP_PROC_BIND"] = str(binding.proc_bind)
    if binding.mode is Bind.RANK:
        variables["OMP_PROC_BIND"] = "true" if places_text.count("{") == 1 else str(ProcBind.CLOSE)
    if binding.mode is Bind.EXACT and binding.reset:
        variables[runtimes.KMP_AFFINITY] = "reset"
    return variables


def split_words(value: str) -> set[str]:
    """Return the words in the comma-separated value of a variable, in lower case."""
    return set(value.lower().replace(" ", "").split(","))


def find_override(name: str, value: str, *, has_places: bool, is_held: bool) -> str:
    """Return what a variable of the user does to a binding, which may have places; "" if nothing."""
    words = split_words(value)
    is_kmp = name == runtimes.KMP_AFFINITY
    if not is_held and (name in runtimes.CPU_LIST_VARIABLES or (is_kmp and runtimes.NO_RESPECT in words)):
        return f"may move threads off the CPUs of their rank (omit it{OR_HOLD})"
    if is_kmp and runtimes.DISABLED in words:
        return "may move threads off the CPUs of their rank"
    is_deciding = name in (runtimes.KMP_AFFINITY, *runtimes.SUBSET_VARIABLES, *runtimes.PLACE_VARIABLES)
    if has_places and is_deciding and not (is_kmp and words <= runtimes.KMP_MODIFIERS):
        return "will override the binding of the plan"
    return ""


def find_overridden_variables(
    base: Mapping[str, str], variables: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Return the `variables` that change or remove a variable of `base`, sorted by name."""
    return {name: value for name, value in sorted(variables.items()) if base.get(name, value) != value}
