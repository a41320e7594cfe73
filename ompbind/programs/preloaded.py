"""Read the present value of LD_PRELOAD: known libraries, and entries that will not be loaded."""

import os
from collections.abc import Mapping

from ompbind.programs.elf import Elf, read_header
from ompbind.programs.library_catalog import Library, name_library
from ompbind.programs.library_search import (
    find_library,
    identify_library,
    is_loadable,
    linker_directories,
)
from ompbind.programs.workload import DetectedLibrary, DetectionMethod


def preload_entries(env: Mapping[str, str]) -> list[str]:
    """Return the entries of LD_PRELOAD, which colons or spaces separate."""
    return [name for name in env.get("LD_PRELOAD", "").replace(":", " ").split(" ") if name]


def read_preloaded(
    env: Mapping[str, str], program: Elf | None
) -> tuple[tuple[DetectedLibrary, ...], tuple[str, ...]]:
    """Return the known libraries in LD_PRELOAD, and warnings about entries that will not be loaded."""
    found: list[Library] = []
    warnings: list[str] = []
    for name in preload_entries(env):
        if "$" in name or "{" in name:  # the linker expands $LIB, ompbind {rank}: the path is not known yet
            found += filter(None, [name_library(name)])
            continue
        path = name if "/" in name else find_library(name, program, linker_directories(env))
        if path is None or not os.path.exists(path):
            warnings.append(f"LD_PRELOAD names {name}, which does not exist: every process prints a warning")
        elif not is_loadable(path, program):
            is_foreign = program is not None and read_header(path) is not None
            kind = f"not for {program.architecture} programs" if program and is_foreign else "not a library"
            warnings.append(f"LD_PRELOAD names {name}, which is {kind}: it will not be loaded")
        elif library := identify_library(path):
            found.append(library)
    detected = (
        DetectedLibrary(library=library, method=DetectionMethod.PRELOADED, origin="LD_PRELOAD")
        for library in found
    )
    return tuple(detected), tuple(warnings)
