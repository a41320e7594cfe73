"""The binding of a rank as environment variables, for OpenMP runtimes and other thread pools.

The reasons are measured. OMP_PLACES and OMP_PROC_BIND are set together or not at all. OMP_NUM_THREADS is
always set, and never empty or 0. Variables that override them are removed: with some of these, a runtime
ignores the places, or binds threads to CPUs outside the affinity mask of the process.
"""

from collections.abc import Mapping, Sequence

from ompbind.cpuset import CpuSet
from ompbind.openmp.binding import Bind, Binding, BindingSyntax, ProcBind
from ompbind.openmp.places import render_places
from ompbind.openmp.runtimes import CLEARED_VARIABLES, KMP_AFFINITY, PLACE_VARIABLES

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

LIBUV_VARIABLE = "UV_THREADPOOL_SIZE"
LIBUV_DEFAULT = 4
"""The thread pool of Node.js, whose threads mostly wait for files, and its default size."""

OVERRIDING_VARIABLES = (
    *CLEARED_VARIABLES, "OMP_THREAD_LIMIT", "OMP_TEAMS_THREAD_LIMIT", "OMP_DYNAMIC", "GOTO_NUM_THREADS",
    "MKL_DOMAIN_NUM_THREADS", *PLACE_VARIABLES,
)  # fmt: skip
"""Variables that change which CPUs threads use, or how many threads there are, if ranks inherit them."""


def make_openmp_variables(
    cpus: Sequence[int],
    places: Sequence[CpuSet],
    threads: int,
    binding: Binding,
) -> dict[str, str | None]:
    """Return every variable that sets threads and binding: its value, or None to remove it.

    `cpus` are the CPUs of the rank in thread order. Without `places`, threads are not bound.
    """
    variables: dict[str, str | None] = dict.fromkeys(OVERRIDING_VARIABLES)
    variables.update(dict.fromkeys(THREAD_COUNTS, str(threads)))
    variables[LIBUV_VARIABLE] = str(max(threads, LIBUV_DEFAULT))
    text = render_places(places) if places else None
    if not text:
        return {**variables, "OMP_PROC_BIND": "false"}
    if binding.syntax is BindingSyntax.LIST:
        return {**variables, KMP_AFFINITY: _render_cpu_list(cpus, reset=binding.reset)}
    variables["OMP_PLACES"] = text
    variables["OMP_PROC_BIND"] = _render_proc_bind(places, binding)
    if binding.mode is Bind.EXACT and binding.reset:
        variables[KMP_AFFINITY] = "reset"
    return variables


def _render_proc_bind(places: Sequence[CpuSet], binding: Binding) -> str:
    """Return the value of OMP_PROC_BIND: every thread of a rank with one place is bound to that place.

    With Bind.RANK, a rank with service CPUs has one place per thread, which only `close` gives it in order.
    """
    if binding.mode is Bind.RANK:
        return "true" if len(places) == 1 else str(ProcBind.CLOSE)
    return str(binding.proc_bind)


def _render_cpu_list(cpus: Sequence[int], *, reset: bool) -> str:
    """Return the value of KMP_AFFINITY that binds each thread to one CPU, in order.

    Without `granularity=fine`, each CPU stands for its whole core.
    """
    numbers = ",".join(map(str, cpus))
    return f"{'reset,' if reset else ''}granularity=fine,explicit,proclist=[{numbers}]"


def split_words(value: str) -> set[str]:
    """Return the words in the comma-separated value of a variable, in lower case."""
    return set(value.lower().replace(" ", "").split(","))


def find_overridden_variables(
    base: Mapping[str, str], variables: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Return the `variables` that change or remove a variable of `base`, sorted by name."""
    return {name: value for name, value in sorted(variables.items()) if base.get(name, value) != value}
