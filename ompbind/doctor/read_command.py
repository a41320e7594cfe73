"""Read facts about a command beyond its libraries: why it cannot run, its Python, its packages."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from glob import escape, glob

from ompbind.doctor.checks.pools import POOLS
from ompbind.doctor.checks.rebinding import PACKAGES as REBINDING_PACKAGES
from ompbind.doctor.facts import CommandFacts, Package
from ompbind.errors import LaunchError
from ompbind.programs.command import Workload, read_workload
from ompbind.programs.elf import read_header
from ompbind.programs.find_command import find_command, find_script_error
from ompbind.programs.library_catalog import LIBRARY_KINDS, PRELOADABLE, DetectionMethod
from ompbind.programs.library_search import find_library_of_kind
from ompbind.programs.preload import preload_directories
from ompbind.programs.python_packages import find_default_python, find_site_packages
from ompbind.programs.wrappers import is_python

WORTHWHILE = tuple(
    name
    for name in PRELOADABLE
    if (family := LIBRARY_KINDS[name].family) is None or family.facts.preload_benefit
)
"""Libraries to search for: preloading them may make programs faster."""

_PACKAGES = (
    *("torch", "vllm"),
    *(name for pool in POOLS if pool.is_package for name in pool.names),
    *(row.package for row in REBINDING_PACKAGES),
)
"""Packages with thread pools, with expected preloads, or that bind by default."""

_SERIES = re.compile(r"(?:python|pypy)([0-9]+)\.([0-9]+)")
_IN_SITE = re.compile(r"/python([0-9]+)\.([0-9]+)/")


def read_commands_workload(argv: Sequence[str], env: Mapping[str, str]) -> Workload:
    """Read what a command would run; without a command only the preloads of the default Python."""
    if argv:
        return read_workload(argv, env)
    work = read_workload((find_default_python(env),), env)
    loaded = tuple(found for found in work.libraries if found.method is DetectionMethod.PRELOADED)
    return Workload(libraries=loaded, preload_warnings=work.preload_warnings)


def read_command_facts(argv: tuple[str, ...], env: Mapping[str, str], work: Workload) -> CommandFacts:
    """Read the facts about a command with a given workload; if it cannot run, `error` is the reason."""
    try:
        path = find_command(argv[0], env)
    except LaunchError as error:
        return CommandFacts(argv=argv, error=error.message, hint=error.hint)
    if problem := find_script_error(path):
        return CommandFacts(argv=argv, error=problem.message, hint=problem.hint)
    elf = read_header(work.program)
    sites = find_site_packages(work.python, env) if work.python else []
    file = os.path.basename(os.path.realpath(work.python))
    series = _SERIES.match(file) or _IN_SITE.search(f"{work.site_packages}/") if work.python else None
    return CommandFacts(
        argv=argv,
        arch=elf.architecture if elf else "",
        python=(int(series[1]), int(series[2])) if series else None,
        isolated=bool(work.python) and is_python(argv[0]) and _is_isolated(argv),
        cpp=elf is not None
        and not work.python
        and any(name.startswith("libstdc++.so") for name in elf.needed),
        packages=tuple(_find_packages(sites)),
    )


def _find_packages(sites: Sequence[str]) -> Iterator[Package]:
    """Yield the packages in _PACKAGES that are installed, each with the version of its metadata."""
    for name in _PACKAGES:
        site = next((site for site in sites if os.path.isdir(f"{site}/{name}")), None)
        if site:
            number = re.compile(rf"/{name}-([0-9]+)\.([0-9]+)[^/]*$")
            found = next(filter(None, map(number.search, glob(f"{escape(site)}/{name}-*.dist-info"))), None)
            yield Package(name=name, version=(int(found[1]), int(found[2])) if found else ())


def _is_isolated(argv: Sequence[str]) -> bool:
    """Return whether the options of Python before the script make it ignore variables: -E or -I."""
    for word in argv[1:]:
        if not word.startswith("-") or word in ("-c", "-m", "-"):
            return False
        letters = word[1:].partition("W")[0].partition("X")[0]  # their value follows
        if not word.startswith("--") and {"E", "I"} & set(letters):
            return True
    return False


def find_preloadable(work: Workload, env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return (name, path) of the libraries that can be preloaded; the path is "" if one is not found.

    Runtimes that do not exist for the architecture of the program are left out.
    """
    like = read_header(work.program) or read_header(find_default_python(env))
    directories = list(dict.fromkeys(preload_directories(work, env)))
    families = ((name, LIBRARY_KINDS[name].family) for name in WORTHWHILE)
    names = (name for name, family in families if not (family and like) or family.runs_on(like.architecture))
    return tuple((name, find_library_of_kind(name, like, directories) or "") for name in names)
