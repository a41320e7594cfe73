"""Finding the OpenMP runtimes that programs on this machine would load.

Candidates come by name (as the dynamic linker finds them), from the Python environment, from torch
and from the libraries that wheels carry. Nothing is loaded here.
"""

import glob
import os
import sys
from collections.abc import Iterator, Mapping

NAMES = ("libgomp.so.1", "libomp.so.5", "libomp.so", "libiomp5.so")
"""Names by which the dynamic linker knows the OpenMP runtimes."""

_FILES = "lib*omp*.so*"
_IN_SITE_PACKAGES = ("torch/lib", "*.libs", "intel_openmp*/lib", "conda/lib")
_SYSTEM = ("/usr/lib/llvm-*/lib",)
_STEMS = ("libgomp", "libomp", "libiomp5")


def find_candidates(env: Mapping[str, str]) -> list[str]:
    """Return names and paths to try, each file once, by-name ones first."""
    seen: dict[tuple[str, str | None], str] = {}
    for path in _paths(env):
        if runtime_name(path):
            seen.setdefault(identity(path), path)
    return [*NAMES, *seen.values()]


def identity(path: str) -> tuple[str, str | None]:
    """Return what makes a runtime one of its own: its folder and its kind; some folders hold copies."""
    file = os.path.realpath(path)
    return os.path.dirname(file), runtime_name(file)


def runtime_name(path: str) -> str | None:
    """Return "libgomp", "libomp" or "libiomp5" for the file of a runtime, None for any other file."""
    base = os.path.basename(path)
    for stem in _STEMS:
        if base.startswith(stem) and base[len(stem) : len(stem) + 1] in (".", "-"):
            return None if "plugin" in base else stem
    return None


def _paths(env: Mapping[str, str]) -> Iterator[str]:
    folders = [os.path.join(sys.prefix, "lib"), *_SYSTEM]
    if env.get("CONDA_PREFIX"):
        folders.append(os.path.join(env["CONDA_PREFIX"], "lib"))
    for site in sys.path:
        if site.endswith("-packages"):
            folders.extend(os.path.join(site, below) for below in _IN_SITE_PACKAGES)
    for folder in folders:
        yield from sorted(glob.glob(os.path.join(folder, _FILES)))
    yield from env.get("LD_PRELOAD", "").replace(":", " ").split()
