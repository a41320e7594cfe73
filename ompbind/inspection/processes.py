"""Which of the files in the memory of a process are OpenMP runtimes and other known libraries."""

from ompbind.openmp.runtimes import OmpRuntime
from ompbind.procfs.process_state import ProcessState
from ompbind.programs.library_catalog import Library, Role, name_libraries, name_library


def is_library(path: str) -> bool:
    """Tell whether a file is a known library, by its name."""
    return ".so" in path and name_library(path) is not None


def find_libraries(process: ProcessState) -> tuple[Library, ...]:
    """Return the runtimes, BLAS libraries and allocators in the memory of a process, each file once."""
    return name_libraries(process.files)


def find_runtimes(process: ProcessState) -> tuple[Library, ...]:
    """Return the OpenMP runtimes in the memory of a process."""
    return tuple(one for one in find_libraries(process) if one.kind.role is Role.RUNTIME)


def has_runtime(process: ProcessState, *families: OmpRuntime) -> bool:
    """Tell whether a runtime of one of these families is in the memory of a process."""
    return any(one.family in families for one in find_runtimes(process))
