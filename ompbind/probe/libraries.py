"""Finding the OpenMP runtimes that programs on this machine would load.

Candidates come by name (as the dynamic linker finds them), from the Python environment, from torch
and from the libraries that wheels carry. Nothing is loaded here.
"""

import glob
import os
import sys
from collections.abc import Iterator, Mapping

from ompbind.openmp.runtimes import OmpRuntime
from ompbind.programs.library_catalog import name_library

NAMES = tuple(name for one in OmpRuntime for name in one.facts.sonames)
"""Names by which the dynamic linker knows the OpenMP runtimes."""

_SYSTEM = tuple(folder for one in OmpRuntime for folder in one.facts.folders)
_OWN = (folder for one in OmpRuntime for folder in one.facts.package_folders)
_IN_SITE_PACKAGES = ("torch/lib", "*.libs", *_OWN, "conda/lib")


def find_candidates(env: Mapping[str, str]) -> list[str]:
    """Return names and paths to try, each file once, by-name ones first."""
    seen: dict[tuple[str, OmpRuntime | None], str] = {}
    for path in _paths(env):
        if name_runtime(path):
            seen.setdefault(identity(path), path)
    return [*NAMES, *seen.values()]


def identity(path: str) -> tuple[str, OmpRuntime | None]:
    """Return what makes a runtime one of its own: its folder and its kind; some folders hold copies."""
    file = os.path.realpath(path)
    return os.path.dirname(file), name_runtime(file)


def name_runtime(path: str) -> OmpRuntime | None:
    """Return which OpenMP runtime a file is by its name, None for any other file."""
    library = name_library(path)
    return library.family if library else None


def _paths(env: Mapping[str, str]) -> Iterator[str]:
    folders = [os.path.join(sys.prefix, "lib"), *_SYSTEM]
    if env.get("CONDA_PREFIX"):
        folders.append(os.path.join(env["CONDA_PREFIX"], "lib"))
    for site in sys.path:
        if site.endswith("-packages"):
            folders.extend(os.path.join(site, below) for below in _IN_SITE_PACKAGES)
    for folder in folders:
        yield from sorted(glob.glob(os.path.join(folder, "lib*.so*")))
    yield from env.get("LD_PRELOAD", "").replace(":", " ").split()
