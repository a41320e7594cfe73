"""Find processes in which the planned binding of OpenMP threads is absent, although no mask is wrong.

    --bind thread --> OMP_PLACES={0,1},{1} --> env -u OMP_PLACES ./omp --> all threads allowed on CPUs 0-1

All these threads are on the CPUs of their rank. OpenMP threads look like any others. So the evidence is in
the variables with which the process was executed, and in runtimes that bind as soon as they are loaded. A
process can change its own variables later (setenv); that is not visible.
"""

from collections.abc import Iterable, Sequence

from ompbind.cpuset import count
from ompbind.inspection.expectation import ExpectedBinding, expect_variables
from ompbind.openmp.binding import Bind, render_places
from ompbind.openmp.runtimes import KMP_AFFINITY, PLACE_VARIABLES, OmpRuntime
from ompbind.procfs.process_state import ProcessState
from ompbind.procfs.reader import read_mapped_files
from ompbind.programs.libraries import Library, LibraryRole, name_libraries, name_library

_SHOWN = 3  # variables that a text names
_LONGEST = 60  # characters of a value that a text shows


def find_changed(process: ProcessState, expected: ExpectedBinding) -> tuple[str, ...]:
    """Return the variables with which a process with an OpenMP runtime was executed other than planned."""
    if not (find_runtimes(process) and process.is_environment_known):
        return ()
    env = process.env
    return tuple(name for name, value in expected.variables if env.get(name) != value)


def binds(names: Sequence[str], expected: ExpectedBinding) -> bool:
    """Return whether the planned binding is written in one of these variables."""
    planned = dict(expected.variables)
    places = any(planned.get(name) for name in PLACE_VARIABLES)
    return bool(set(names) & (set(PLACE_VARIABLES) if places else {KMP_AFFINITY}))


def is_unbound(process: ProcessState, expected: ExpectedBinding) -> bool:
    """Return whether OpenMP threads of a process are not on places, although the mode of the rank has places.

    All its threads are allowed on all CPUs of the rank, and its variables do not name the planned places; or
    they do, but a runtime that applies them when it is loaded has not.
    """
    has_places = expected.binds_workers and len(expected.cpus) > 1
    is_written = not expected.places or render_places(expected.places) is not None  # else it is too long
    runtimes = find_runtimes(process)
    if not (has_places and is_written and runtimes and process.is_environment_known):
        return False
    if len(process.threads) < 2 or any(thread.cpus != expected.cpus for thread in process.threads):
        return False
    own = expect_variables(process.env)
    if own is None or own.bind is Bind.NONE or set(own.places) != set(expected.places):
        return True
    at_load = any(runtime.family and runtime.family.facts.narrows_at_load for runtime in runtimes)
    return at_load and expected.bind is Bind.EXACT


def explain_changed(process: ProcessState, expected: ExpectedBinding, names: Sequence[str]) -> str:
    """Describe the variables of a process: "executed with A=1 (planned: 2) and without B"."""
    env, planned = process.env, dict(expected.variables)
    ordered = sorted(names, key=lambda name: (name not in PLACE_VARIABLES, planned[name] is None))
    parts = []
    for name in ordered[:_SHOWN]:
        value = planned[name]
        original = "unset" if value is None else _shorten(value)
        if name in env:
            parts.append(f"with {name}={_shorten(env[name])} (planned: {original})")
        else:
            parts.append(f"without {name}")
    if rest := len(names) - len(parts):
        parts.append(count(rest, "other changed variable"))
    return f"executed {' and '.join(filter(None, (', '.join(parts[:-1]), parts[-1])))}"


def _shorten(value: str) -> str:
    return value if len(value) <= _LONGEST else f"{value[: _LONGEST - 3]}..."


def is_library(path: str) -> bool:
    """Return whether a file is a known library, by its name."""
    return ".so" in path and name_library(path) is not None


def find_libraries(process: ProcessState) -> tuple[Library, ...]:
    """Return the OpenMP runtimes, BLAS libraries and allocators that a process has loaded, each file once."""
    return name_libraries(process.files)


def find_runtimes(process: ProcessState) -> tuple[Library, ...]:
    """Return the OpenMP runtimes that a process has loaded."""
    return _keep_runtimes(find_libraries(process))


def read_own_runtimes() -> tuple[Library, ...]:
    """Return the OpenMP runtimes that this process has loaded, each file once."""
    return _keep_runtimes(name_libraries(read_mapped_files("self", is_library)))


def _keep_runtimes(libraries: Iterable[Library]) -> tuple[Library, ...]:
    return tuple(library for library in libraries if library.kind.role is LibraryRole.RUNTIME)


def has_runtime(process: ProcessState, *families: OmpRuntime) -> bool:
    """Return whether a process has loaded an OpenMP runtime of one of these families."""
    return any(runtime.family in families for runtime in find_runtimes(process))
