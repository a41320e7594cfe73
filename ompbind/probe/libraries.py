"""Find the OpenMP runtimes that programs on this machine would load.

Candidates are found by their names, as the dynamic linker does, in the Python environment, in torch and in
the libraries of wheels. Nothing is loaded here.
"""

import glob
import os
from collections.abc import Mapping

from ompbind.openmp.runtimes import OmpRuntime
from ompbind.programs.libraries import name_library
from ompbind.programs.python_packages import find_default_python, find_site_packages

NAMES = tuple(name for runtime in OmpRuntime for name in runtime.facts.sonames)
"""Names of the OpenMP runtimes for the dynamic linker."""

_SYSTEM = tuple(directory for runtime in OmpRuntime for directory in runtime.facts.directories)
_PACKAGES = (directory for runtime in OmpRuntime for directory in runtime.facts.package_directories)
_IN_SITE_PACKAGES = ("torch/lib", "*.libs", *_PACKAGES, "conda/lib")


def find_candidates(env: Mapping[str, str], python: str = "") -> list[str]:
    """Return names, and then paths, of candidates; each file is listed once.

    `python` is the Python whose packages are searched, "" for the default Python.
    """
    python = python or find_default_python(env)
    directories = [os.path.join(os.path.dirname(os.path.dirname(python)), "lib"), *_SYSTEM]
    if env.get("CONDA_PREFIX"):
        directories.append(os.path.join(env["CONDA_PREFIX"], "lib"))
    for site in find_site_packages(python, env):
        directories.extend(os.path.join(site, below) for below in _IN_SITE_PACKAGES)
    paths: list[str] = []
    for directory in directories:
        paths.extend(sorted(glob.glob(os.path.join(directory, "lib*.so*"))))
    paths.extend(env.get("LD_PRELOAD", "").replace(":", " ").split())
    found: dict[tuple[str, OmpRuntime | None], str] = {}
    for path in filter(name_runtime, paths):
        found.setdefault(identify_runtime(path), path)
    return [*NAMES, *found.values()]


def identify_runtime(path: str) -> tuple[str, OmpRuntime | None]:
    """Return what identifies a runtime: its directory and its family; copies in a directory count once."""
    file = os.path.realpath(path)
    return os.path.dirname(file), name_runtime(file)


def name_runtime(path: str) -> OmpRuntime | None:
    """Return the OpenMP runtime with this file name, None for any other file."""
    library = name_library(path)
    return library.family if library else None
