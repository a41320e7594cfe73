"""Find the OpenMP runtimes and other known libraries among the mapped files of a process."""

from collections.abc import Iterable

from ompbind.openmp.runtimes import OmpRuntime
from ompbind.procfs.process_state import ProcessState
from ompbind.procfs.reader import read_mapped_files
from ompbind.programs.library_catalog import Library, LibraryRole, name_libraries, name_library


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
