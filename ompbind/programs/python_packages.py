"""Find the packages of a Python, and the libraries that programs may load from them or from the system.

Packages are in PYTHONPATH, and in `site-packages` of the Python or of its virtual environment. Nothing is
loaded here.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from glob import glob
from itertools import product

from ompbind.openmp.runtimes import OmpRuntime
from ompbind.programs import libraries
from ompbind.programs.libraries import DetectedLibrary, DetectionMethod, Library, LibraryRole, list_names
from ompbind.programs.wrappers import python_version


def find_default_python(env: Mapping[str, str]) -> str:
    """Return the Python that counts if no command names a Python: of VIRTUAL_ENV, else of ompbind."""
    directory = env.get("VIRTUAL_ENV")
    python = os.path.join(directory, "bin", "python") if directory else ""
    return python if os.path.isfile(python) else sys.executable


def find_site_packages(python: str, env: Mapping[str, str]) -> list[str]:
    """Return the directories in which a Python finds packages: PYTHONPATH, its environment, the system."""
    home = _venv_home(python)
    prefix = os.path.dirname(os.path.dirname(python if home is not None else os.path.realpath(python)))
    version = python_version(os.path.realpath(python)) or ""
    series = f"python{version}" if "." in version else "python3*"
    sites = [os.path.join(prefix, lib, series, "site-packages") for lib in ("lib", "lib64")]
    if home is None or home:
        base = prefix if home is None else os.path.dirname(home)
        paths = (f"lib/{series}/site-packages", "lib/python3/dist-packages", f"lib/{series}/dist-packages",
                 f"local/lib/{series}/dist-packages")  # fmt: skip
        sites += [os.path.join(base, path) for path in paths]
        if not env.get("PYTHONNOUSERSITE") and env.get("HOME"):
            sites.append(os.path.join(env["HOME"], ".local/lib", series, "site-packages"))
    found: list[str] = []
    for site in (*filter(None, env.get("PYTHONPATH", "").split(":")), *sites):
        if "*" in site:  # the highest version first
            found += sorted(glob(site), reverse=True)
        elif os.path.isdir(site):
            found.append(site)
    return list(dict.fromkeys(map(os.path.realpath, found)))


def is_installed(name: str, python: str, env: Mapping[str, str]) -> bool:
    """Return whether a Python finds the metadata of a package; it may be an editable installation."""
    names = (entry for site in find_site_packages(python, env) for entry in list_names(site))
    return any(entry.startswith(f"{name}-") and entry.endswith(".dist-info") for entry in names)


def _venv_home(python: str) -> str | None:
    """Return the directory of the Python whose packages a virtual environment also uses.

    Read from `pyvenv.cfg`. "" if it uses no other packages, None outside of a virtual environment.
    """
    path = os.path.join(os.path.dirname(os.path.dirname(python)), "pyvenv.cfg")
    if not os.path.isfile(path):  # opening a pipe would block
        return None
    try:
        with open(path, encoding="utf-8") as file:
            pairs = [line.partition("=") for line in file]
    except (OSError, UnicodeDecodeError):
        return None
    settings = {key.strip().lower(): value.strip() for key, _, value in pairs}
    shared = settings.get("include-system-site-packages", "").lower() == "true"
    return settings.get("home", "") if shared else ""


def find_packaged(python: str, sites: Sequence[str]) -> tuple[DetectedLibrary, ...]:
    """Return the known libraries that Python packages bundle, and those in the prefix of the environment."""
    found: dict[str, tuple[Library, str]] = {}
    for directory, origin in _library_directories(python, sites):
        for name in sorted(list_names(directory)):
            if libraries.name_library(name) is None:
                continue
            library = libraries.identify_library(os.path.join(directory, name))
            if library and library.kind.role in (LibraryRole.RUNTIME, LibraryRole.BLAS):
                found.setdefault(library.path, (library, origin))
    # the system's runtime, if a package needs it and bundles none, as Debian's packages do
    users = [runtime.facts for runtime in OmpRuntime if runtime.facts.used_by]
    is_bundled = any(library.family for library, _ in found.values())
    for site, facts in product(() if is_bundled else sites, users):
        package = next((name for name in facts.used_by if name in list_names(site)), None)
        directories = libraries.linker_directories({})
        path = libraries.find_library(facts.sonames[0], None, directories) if package else None
        library = libraries.identify_library(path) if path else None
        if library and package:
            found[library.path] = library, package
    method = DetectionMethod.AVAILABLE
    return tuple(DetectedLibrary(library=each, method=method, origin=of) for each, of in found.values())


def _library_directories(python: str, sites: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (directory, package) where wheels bundle libraries, and `lib` of the environment's prefix."""
    for site in sites:
        names = list_names(site)
        if "torch" in names:
            yield os.path.join(site, "torch", "lib"), "torch"
        for name in names:
            if name.endswith(".libs"):  # auditwheel's directory for bundled libraries
                yield os.path.join(site, name), name.removesuffix(".libs")
    prefix = os.path.dirname(os.path.dirname(python))
    if prefix not in ("/usr", "/"):
        yield os.path.join(prefix, "lib"), prefix


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
        paths.extend(sorted(glob(os.path.join(directory, "lib*.so*"))))
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
    library = libraries.name_library(path)
    return library.family if library else None
