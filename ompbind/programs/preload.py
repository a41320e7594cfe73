"""Finding a library to preload by what people call it, or by its path, and what LD_PRELOAD is to become."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence

from ompbind.errors import RequestError
from ompbind.programs.command_analysis import find_sites, preload_entries
from ompbind.programs.elf import Elf, read_header
from ompbind.programs.library_catalog import KINDS, PACKAGES, PRELOADABLE
from ompbind.programs.library_search import find_kind, fits, identify_library, linker_folders
from ompbind.programs.workload import How, Workload


def find_preloads(names: Sequence[str], workload: Workload, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return what LD_PRELOAD is to become: the libraries of some names or paths, then what it has already.

    Raises RequestError for one that is not there, or not for the program of the workload.
    """
    like = read_header(workload.program) or read_header(sys.executable)
    folders = list(dict.fromkeys(preload_folders(workload, env)))
    found = (_find(name, like, folders) for name in names)
    return tuple(dict.fromkeys([*found, *preload_entries(env)]))


def _find(name: str, like: Elf | None, folders: Sequence[str]) -> str:
    if "/" in name:
        return _checked(name, like)
    if name not in PRELOADABLE:
        raise RequestError(
            f"--preload {name}: neither a path nor one of {', '.join(PRELOADABLE)}",
            hint="a path has a '/', as in ./libmine.so",
        )
    path = find_kind(name, like, folders)
    if path is None:
        raise RequestError(
            f"--preload {name}: no {KINDS[name].label} in {_several(folders)}",
            hint=_find_namesake(name, folders) or f"install {PACKAGES[name]}, or give its path",
        )
    return os.path.abspath(path)


def _find_namesake(name: str, folders: Sequence[str]) -> str:
    """Tell of a link that has the name of a library and leads to another one, as in environments of conda."""
    for folder in folders:
        path = os.path.join(folder, f"{KINDS[name].label}.so")
        other = identify_library(path) if os.path.isfile(path) else None
        if other and other.kind.name != name and other.kind.name in PRELOADABLE:
            return f"{path} leads to {os.path.basename(other.path)}: --preload {other.kind.name}"
    return ""


def _several(folders: Sequence[str]) -> str:
    told = [folder for folder in folders if os.path.isdir(folder)]
    return f"{', '.join(told[:4])} and {len(told) - 4} more folders" if len(told) > 5 else ", ".join(told)


def _checked(path: str, like: Elf | None) -> str:
    """Return the whole path of a file that can be preloaded; LD_PRELOAD cannot hold every name."""
    whole = os.path.abspath(path)
    if not os.path.isfile(whole):
        raise RequestError(f"--preload {path}: there is no such file")
    if not fits(whole, like):
        found = read_header(whole)
        kind = f"it is for {found.architecture}" if found else "it is no shared library"
        wanted = f", the program for {like.architecture}" if like and found else ""
        raise RequestError(f"--preload {path}: {kind}{wanted}", hint="such a file would not be loaded")
    if ":" in whole or any(sign.isspace() for sign in whole):
        raise RequestError(
            f"--preload {path}: LD_PRELOAD can hold no name with blanks or colons", hint="make a link to it"
        )
    return whole


def preload_folders(workload: Workload, env: Mapping[str, str]) -> Iterator[str]:
    """Yield the folders to look in: those of a Python, of torch, of conda, and the linker's."""
    if workload.python:
        yield os.path.join(os.path.dirname(os.path.dirname(workload.python)), "lib")
        for site in find_sites(workload.python, env):
            yield os.path.join(site, "torch", "lib")
    else:
        yield os.path.join(sys.prefix, "lib")
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if env.get(name):
            yield os.path.join(env[name], "lib")
    yield from linker_folders(env)


def find_missing(expected: Sequence[str], workload: Workload, entries: Sequence[str]) -> Iterator[str]:
    """Yield a text for each of the libraries expected that is not among `entries` of LD_PRELOAD.

    Known ones are expected by name, all others by their path.
    """
    if workload.static:
        yield f"{workload.program} is linked statically: nothing can be preloaded into it"
        return
    names = {one.library.kind.name for one in workload.libraries if one.how is How.PRELOADED}
    paths = {os.path.realpath(entry) for entry in entries}
    for name in expected:
        if os.path.realpath(name) in paths if "/" in name else name in names:
            continue
        known = name in PRELOADABLE or "/" in name
        remedy = f"--preload {name} adds it" if known else f"known are {', '.join(PRELOADABLE)}, and paths"
        yield f"{name} is expected in LD_PRELOAD and is not there: {remedy}"
