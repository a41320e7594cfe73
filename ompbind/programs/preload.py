"""Libraries that --preload names: find them by name or path, and make the value of LD_PRELOAD."""

import os
from collections.abc import Iterator, Mapping, Sequence

from ompbind.errors import RequestError
from ompbind.programs import libraries
from ompbind.programs.command import Workload, preload_entries
from ompbind.programs.elf import Elf, read_header
from ompbind.programs.libraries import PRELOADABLE
from ompbind.programs.python_packages import find_default_python, find_site_packages


def find_preloads(names: Sequence[str], workload: Workload, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the entries for LD_PRELOAD: the libraries with some names or paths, then its present entries.

    Raises RequestError for a library that is missing, or that the program of the workload cannot load.
    """
    program, directories = read_preload_target(workload, env)
    found = (_find_preload(name, program, directories) for name in names)
    return tuple(dict.fromkeys([*found, *preload_entries(env)]))


def _find_preload(name: str, program: Elf | None, directories: Sequence[str]) -> str:
    if "/" in name:
        return _check_file(name, program)
    if name not in PRELOADABLE:
        text = f"--preload {name}: neither a path nor one of {', '.join(PRELOADABLE)}"
        raise RequestError(text, hint="a path contains a '/', as in ./libmine.so")
    if path := libraries.find_library_of_kind(name, program, directories):
        return os.path.abspath(path)
    label = libraries.LIBRARY_KINDS[name].label
    hint = f"install {libraries.LIBRARY_PACKAGES[name]}, or give its path"
    existing = [directory for directory in directories if os.path.isdir(directory)]
    if len(existing) > 5:
        existing = [*existing[:3], f"{existing[3]} and {len(existing) - 4} more directories"]
    raise RequestError(f"--preload {name}: no {label} in {', '.join(existing)}", hint=hint)


def _check_file(path: str, program: Elf | None) -> str:
    absolute = os.path.abspath(path)
    if not os.path.isfile(absolute):
        raise RequestError(f"--preload {path}: there is no such file")
    if not libraries.is_loadable(absolute, program):
        header = read_header(absolute)
        kind = f"it is for {header.architecture}" if header else "it is not a shared library"
        wanted = f", the program is for {program.architecture}" if program and header else ""
        suitable = f" for {program.architecture}" if program else ""
        raise RequestError(f"--preload {path}: {kind}{wanted}", hint=f"give a shared library{suitable}")
    if ":" in absolute or any(character.isspace() for character in absolute):
        text = f"--preload {path}: LD_PRELOAD cannot hold a path with a space or a colon"
        raise RequestError(text, hint="preload a symbolic link to it")
    return absolute


def read_preload_target(workload: Workload, env: Mapping[str, str]) -> tuple[Elf | None, list[str]]:
    """Read the header of the program, and return the directories to search for its libraries.

    These are directories of the Python, of torch, of conda, and of the linker.
    """
    default = find_default_python(env)
    python = workload.python or default
    sites = find_site_packages(python, env) if workload.python else []
    prefixes = (os.path.dirname(os.path.dirname(python)), env.get("VIRTUAL_ENV"), env.get("CONDA_PREFIX"))
    own, *others = (os.path.join(prefix, "lib") for prefix in prefixes if prefix)
    torch = (os.path.join(site_packages, "torch", "lib") for site_packages in sites)
    directories = list(dict.fromkeys([own, *torch, *others, *libraries.linker_directories(env)]))
    return read_header(workload.program) or read_header(default), directories


def find_missing_preloads(
    expected: Sequence[str], workload: Workload, entries: Sequence[str]
) -> Iterator[str]:
    """Yield a warning for each expected library that is not among the `entries` of LD_PRELOAD.

    Libraries in `PRELOADABLE` are expected by name, others by path.
    """
    if workload.static:
        yield f"{workload.program} is statically linked and ignores LD_PRELOAD"
        return
    names = workload.preloaded
    paths = {os.path.realpath(entry) for entry in entries}
    for name in expected:
        if os.path.realpath(name) in paths if "/" in name else name in names:
            continue
        known = name in PRELOADABLE or "/" in name
        remedy = f"--preload {name} adds it" if known else f"known are {', '.join(PRELOADABLE)}, and paths"
        yield f"{name} is expected in LD_PRELOAD but is not there: {remedy}"
