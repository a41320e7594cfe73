"""What can be told of a command beyond its libraries: why it cannot run, its Python, its packages."""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence

from ompbind.errors import LaunchError
from ompbind.machine.elf import read_header
from ompbind.machine.libraries import find_kind
from ompbind.machine.preloads import preload_folders
from ompbind.machine.programs import find_sites, read_workload
from ompbind.machine.which import find_command
from ompbind.surroundings import Command
from ompbind.workload import How, Workload

PRELOADABLE = ("tcmalloc", "jemalloc", "mimalloc", "iomp")
"""Libraries that are looked for, to be preloaded."""

INTERESTING = ("duckdb", "torch", "vllm")
"""Packages of a Python whose thread pools, or wishes, are worth a word."""

_SERIES = re.compile(r"(?:python|pypy)([0-9]+)\.([0-9]+)")
_IN_SITE = re.compile(r"/python([0-9]+)\.([0-9]+)/")
_X86 = ("x86_64", "i386", "x32")


def read_commands_workload(argv: Sequence[str], env: Mapping[str, str]) -> Workload:
    """Read what a command would run; without one, what every program of this Python's kind has preloaded."""
    if argv:
        return read_workload(argv, env)
    work = read_workload((sys.executable,), env)
    loaded = tuple(one for one in work.libraries if one.how is How.PRELOADED)
    return Workload(libraries=loaded, troubles=work.troubles)


def read_command(argv: tuple[str, ...], env: Mapping[str, str], work: Workload) -> Command:
    """Read what a command is, whose workload is given; one that cannot run has the reason in `error`."""
    try:
        find_command(argv[0], env)
    except LaunchError as error:
        return Command(argv=argv, error=error.message, hint=error.hint)
    elf = read_header(work.program)
    return Command(
        argv=argv,
        arch=elf.architecture if elf else "",
        python=_read_series(work) if work.python else None,
        isolated=bool(work.python) and _is_isolated(argv),
        cpp=elf is not None and not work.python and any(one.startswith("libstdc++.so") for one in elf.needed),
        packages=tuple(_find_packages(work, env)),
    )


def _read_series(work: Workload) -> tuple[int, int] | None:
    """Return the version of a Python by the name of its file, or by the folder of its packages."""
    name = os.path.basename(os.path.realpath(work.python))
    found = _SERIES.match(name) or _IN_SITE.search(f"{work.site}/")
    return (int(found[1]), int(found[2])) if found else None


def _is_isolated(argv: Sequence[str]) -> bool:
    """Tell whether the options before a Python's script make it ignore variables: -E, or -I."""
    for word in argv[1:]:
        if not word.startswith("-") or word in ("-c", "-m", "-"):
            return False
        if not word.startswith("--") and {"E", "I"} & set(word):
            return True
    return False


def _find_packages(work: Workload, env: Mapping[str, str]) -> Iterator[str]:
    sites = find_sites(work.python, env) if work.python else []
    for name in INTERESTING:
        if any(os.path.isdir(os.path.join(site, name)) for site in sites):
            yield name


def find_preloadable(work: Workload, env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return (name, path) of the libraries that could be preloaded, "" for those that are not found.

    Intel's runtime is for x86 alone.
    """
    like = read_header(work.program) or read_header(sys.executable)
    folders = list(dict.fromkeys(preload_folders(work, env)))
    names = [name for name in PRELOADABLE if name != "iomp" or like is None or like.architecture in _X86]
    return tuple((name, find_kind(name, like, folders) or "") for name in names)
