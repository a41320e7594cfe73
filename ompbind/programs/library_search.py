"""Finding shared libraries: where the dynamic linker would, and what a file of one really is."""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from glob import escape, glob

from ompbind.programs.elf import PLAIN, Elf, read_header
from ompbind.programs.library_catalog import KINDS, Library, name_library

_DEFAULT_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_CONFIGURATION = "/etc/ld.so.conf"
_NESTING = 8
"""Files of the linker's configuration that include each other, at most."""

_NAMES_END = 1 << 17
"""Bytes at the beginning of a runtime in which the names are that it exports."""


def identify_library(path: str) -> Library | None:
    """Return what library a file is, None for one that is none of those that are known.

    Some environments have a link named libgomp that leads to another runtime.
    """
    library = name_library(os.path.realpath(path)) or name_library(path)
    if library is None or library.family is None or library.version is not None:
        return library
    return library.replace(version=_read_version(library.path, library.family.facts.version_names))


def _read_version(path: str, names: Sequence[tuple[str, int]]) -> int | None:
    """Return the version of a runtime by the first of some names that it exports, if it exports the last."""
    if not names:
        return None
    try:
        with open(path, "rb") as file:
            head = file.read(_NAMES_END)
    except OSError:
        return None
    found = [version for name, version in names if b"\0%b\0" % name.encode() in head]
    return found[0] if names[-1][1] in found else None


def find_library(name: str, like: Elf | None, folders: Sequence[str]) -> str | None:
    """Return the first file of a name in some folders; with `like`, that can be in one process with it."""
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path) and fits(path, like):
            return path
    return None


def fits(path: str, like: Elf | None) -> bool:
    """Tell whether a library can be in one process with another file; False when it cannot be read."""
    found = read_header(path)
    return found is not None and (like is None or found.runs_with(like))


def find_kind(name: str, like: Elf | None, folders: Sequence[str]) -> str | None:
    """Return the first file of a kind of library in some folders, by its links that programs use."""
    for folder in folders:
        for stem in KINDS[name].stems:
            for path in sorted(glob(os.path.join(escape(folder), f"{stem}*.so*")), key=_shortest_first):
                found = identify_library(path)
                if found and found.kind.name == name and os.path.isfile(path) and fits(path, like):
                    return path
    return None


def _shortest_first(path: str) -> tuple[int, str]:
    """Sort `libtcmalloc.so.4` before `libtcmalloc.so.4.5.9`, to which it leads."""
    return len(os.path.basename(path)), path


def linker_folders(env: Mapping[str, str]) -> list[str]:
    """Return the folders in which the dynamic linker looks, after those that a file itself names."""
    return list(dict.fromkeys([*_asked_folders(env), *_configured_folders(), *_DEFAULT_FOLDERS]))


def _asked_folders(env: Mapping[str, str]) -> list[str]:
    """Return the folders of LD_LIBRARY_PATH, in which an empty item is the current one."""
    value = env.get("LD_LIBRARY_PATH", "").replace(";", ":")
    return [folder or "." for folder in value.split(":")] if value else []


@cache
def _configured_folders() -> tuple[str, ...]:
    return tuple(_read_configuration(_CONFIGURATION, _NESTING))


def _read_configuration(path: str, nesting: int) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = [line.partition("#")[0].strip() for line in file]
    except OSError:
        return
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "include" and nesting:
            for pattern in rest.split():
                for name in sorted(glob(os.path.join(os.path.dirname(path), pattern))):
                    yield from _read_configuration(name, nesting - 1)
        elif line.startswith("/"):
            yield line


def needed_libraries(path: str, elf: Elf, env: Mapping[str, str], there: Sequence[str] = ()) -> Iterator[str]:
    """Yield the files of all libraries that a program needs, and that these need, each once.

    Those whose names are `there` already, since they are preloaded, are not loaded again. Of one that is not
    found the name is yielded. Libraries of the system that never need others are left out.
    """
    waiting: list[tuple[Elf, str, tuple[str, ...]]] = [(elf, os.path.dirname(os.path.realpath(path)), ())]
    seen = set(there)
    while waiting:
        one, origin, inherited = waiting.pop(0)
        named = (folder.replace("${ORIGIN}", origin) for folder in one.folders)
        own = tuple(folder.replace("$ORIGIN", origin) for folder in named)
        above = () if one.late else (*own, *inherited)
        folders = [*above, *_asked_folders(env), *own, *linker_folders(env)]
        for name in one.needed:
            if name in seen or name.startswith(PLAIN):
                continue
            seen.add(name)
            found = name if "/" in name else find_library(name, elf, folders)
            yield found or name
            below = read_header(found) if found else None
            if below and found:
                waiting.append((below, os.path.dirname(os.path.realpath(found)), above or inherited))
