"""What a command would run, told from its files alone: nothing is imported and nothing is started.

A script names its interpreter, a program the libraries that it needs, and the packages of a Python lie in
folders of the one environment that it belongs to.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from ompbind.errors import OmpbindError
from ompbind.openmp.runtimes import OmpRuntime
from ompbind.programs.elf import PLAIN, Elf, read_elf, read_header
from ompbind.programs.library_catalog import Role, name_library
from ompbind.programs.which import find_command
from ompbind.programs.workload import Found, How, Workload

_HEAD = 1 << 12
"""Bytes of a script in which its interpreter is named; behind `#!/bin/sh` that may be a long path."""

_WRAPPERS = (
    "env", "nice", "ionice", "nohup", "setsid", "stdbuf", "time", "timeout", "chrt", "taskset", "numactl",
    "perf", "strace", "ltrace", "catchsegv", "gdb", "valgrind", "sudo", "exec", "prlimit", "setpriv", "flock",
    "tini", "dumb-init", "unshare", "hwloc-bind",
)  # fmt: skip
"""Programs that execute one which their arguments name."""

_TRAMPOLINE = r"""'''exec' (?:"\$\(.*\)"/)?(?:'([^']+)'|"([^"]+)"|(\S+))"""
"""What comes after `#!/bin/sh` in scripts whose Python has too long a path: text to it, a command to sh.

With what is in `$(…)` the path is below the folder of the script.
"""

_SHELLS = (
    "sh", "bash", "dash", "zsh", "ksh", "fish", "busybox", "make", "xargs", "parallel", "ompbind", "mpirun",
    "mpiexec", "srun", "docker", "podman", "uv", "uvx", "pixi", "poetry", "pdm", "hatch", "pipenv", "pipx",
    "conda", "mamba", "micromamba",
)  # fmt: skip
"""Programs that execute whatever they are told to, which no file tells."""

_DEPTH = 6
"""Scripts and wrappers that lead to each other, at most."""


def read_workload(argv: Sequence[str], env: Mapping[str, str]) -> Workload:
    """Read what a command would run with an environment, LD_PRELOAD included; no argv is no command."""
    env = _with_assignments(argv, env)
    found, elf = _find_program(list(argv), env)
    static = elf is not None and elf.static
    preloaded, troubles = _read_preloaded(env, elf) if not static else ((), ())
    if not found.program:
        return Workload(opaque=bool(argv), libraries=preloaded, troubles=troubles)
    sites = find_sites(found.python, env) if found.python else []
    own = _packaged(found.python, sites) if found.python else _needed(found.program, elf, preloaded, env)
    return found.replace(
        site=sites[0] if sites else "",
        opaque=not found.python and (elf is None or os.path.basename(found.program) in _SHELLS),
        static=static,
        libraries=(*preloaded, *own),
        troubles=troubles,
    )


def _with_assignments(argv: Sequence[str], env: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment that a program is given, to which `env NAME=VALUE` adds."""
    if not argv or os.path.basename(argv[0]) != "env":
        return env
    below = _wrapped(argv[0], list(argv[1:]), env)
    pairs = (word.partition("=") for word in argv[1 : len(argv) - len(below)] if not word.startswith("-"))
    return {**env, **{name: value for name, equals, value in pairs if equals}}


def _find_program(argv: list[str], env: Mapping[str, str]) -> tuple[Workload, Elf | None]:
    """Follow scripts and wrappers to what runs in the end; no `program` when it is not found.

    Returns its file, as that of a Python where it is one, and its header where it is a program.
    """
    nothing = Workload(), None
    for _ in range(_DEPTH):
        path = _which(argv[0], env) if argv else None
        if path is None:
            return nothing
        if os.path.basename(path) in _SHELLS:
            return Workload(program=path), read_header(path)
        try:
            elf = read_elf(path)
            with open(path, "rb") as file:
                head = b"" if elf else file.read(_HEAD)
        except OSError:
            return nothing
        if is_python(path) and not head.startswith(b"#!"):
            path = os.path.abspath(path)
            return Workload(program=path, python=path), elf
        leads = _wrapped(path, argv[1:], env) or _interpreted(head, path)
        if not leads:
            return Workload(program=path), elf
        argv = leads
    return nothing


def is_python(path: str) -> bool:
    """Tell whether a file is a Python by its name, or by that of the file that it is a link to."""
    return _version(path) is not None or _version(os.path.realpath(path)) is not None


def _version(path: str) -> str | None:
    """Return what comes behind the name of a Python: "3.11", "3.13t" or ""; None for anything else."""
    name = os.path.basename(path)
    stem = next((stem for stem in ("python", "pypy") if name.startswith(stem)), "")
    version = name.removeprefix(stem)
    return version if stem and not version.removesuffix("t").strip("0123456789.") else None


def _which(name: str, env: Mapping[str, str]) -> str | None:
    """Return the file of a command; None for none, and for pipes and devices, whose reading may never end."""
    try:
        path = find_command(name, env)
    except OmpbindError:
        return None
    return path if os.path.isfile(path) else None


def _wrapped(path: str, arguments: list[str], env: Mapping[str, str]) -> list[str]:
    """Return the command that a wrapper's arguments name: the first word that is one."""
    if os.path.basename(path) not in _WRAPPERS:
        return []
    if arguments[:1] in (["-S"], ["--split-string"]):
        arguments = " ".join(arguments[1:]).split()
    words = enumerate(arguments)
    found = (at for at, word in words if not word.startswith("-") and "=" not in word and _which(word, env))
    at = next(found, None)
    return [] if at is None else arguments[at:]


def _interpreted(head: bytes, path: str) -> list[str]:
    """Return the command line of a script's interpreter; that of a Python behind `#!/bin/sh`, too."""
    if not head.startswith(b"#!"):
        return []
    line, _, rest = head.decode("utf-8", "surrogateescape").partition("\n")
    behind = re.match(_TRAMPOLINE, rest)
    if behind:
        python = next(filter(None, behind.groups()))
        words = [os.path.join(os.path.dirname(path), python)]
    else:  # Linux takes blanks and tabs for borders, and a carriage return for a part of the name
        words = [word for word in line[2:].replace("\t", " ").split(" ") if word]
    python_or_env = words and (is_python(words[0]) or os.path.basename(words[0]) == "env")
    return [*words, path] if python_or_env else []


def _read_preloaded(env: Mapping[str, str], like: Elf | None) -> tuple[tuple[Found, ...], tuple[str, ...]]:
    """Return the known libraries of LD_PRELOAD, and what is wrong with its entries."""
    entries = preload_entries(env)
    if not entries:
        return (), ()
    from ompbind.programs.library_search import (  # late, as below: most commands save its 0.5 ms
        find_library,
        fits,
        identify_library,
        linker_folders,
    )

    found: list[Found] = []
    troubles: list[str] = []
    for name in entries:
        if "$" in name or "{" in name:  # filled in for the linker as it was built, or for each rank
            named = name_library(name)
            found += [Found(library=named, how=How.PRELOADED, by="LD_PRELOAD")] if named else []
            continue
        path = name if "/" in name else find_library(name, like, linker_folders(env))
        if path is None or not os.path.exists(path):
            troubles.append(f"LD_PRELOAD names {name}, which does not exist: every process will say so")
        elif not fits(path, like):
            kind = (
                f"is not for {like.architecture} programs" if like and read_header(path) else "is no library"
            )
            troubles.append(f"LD_PRELOAD names {name}, which {kind}: it will not be loaded")
        elif library := identify_library(path):
            found.append(Found(library=library, how=How.PRELOADED, by="LD_PRELOAD"))
    return tuple(found), tuple(troubles)


def preload_entries(env: Mapping[str, str]) -> list[str]:
    """Return the names in LD_PRELOAD, which colons or blanks separate."""
    return [name for name in env.get("LD_PRELOAD", "").replace(":", " ").split(" ") if name]


def _needed(
    program: str, elf: Elf | None, preloaded: Sequence[Found], env: Mapping[str, str]
) -> tuple[Found, ...]:
    if elf is None or all(name.startswith(PLAIN) for name in elf.needed):
        return ()
    from ompbind.programs.library_search import identify_library, needed_libraries

    headers = (read_header(one.library.path) for one in preloaded)
    there = tuple(one.soname for one in headers if one and one.soname)
    files = needed_libraries(program, elf, env, there)
    named = (identify_library(path) for path in files)
    by = os.path.basename(program)
    return tuple(Found(library=one, how=How.NEEDED, by=by) for one in named if one)


def find_sites(python: str, env: Mapping[str, str]) -> list[str]:
    """Return the folders in which a Python finds packages: those of its environment first."""
    home = _venv_home(python)
    prefix = os.path.dirname(os.path.dirname(python if home is not None else os.path.realpath(python)))
    version = _version(os.path.realpath(python)) or ""
    series = f"python{version}" if "." in version else "python3*"
    sites = [os.path.join(prefix, lib, series, "site-packages") for lib in ("lib", "lib64")]
    if home is None or home:
        base = prefix if home is None else os.path.dirname(home)
        folders = (f"lib/{series}/site-packages", "lib/python3/dist-packages", f"lib/{series}/dist-packages",
                   f"local/lib/{series}/dist-packages")  # fmt: skip
        sites += [os.path.join(base, folder) for folder in folders]
        if not env.get("PYTHONNOUSERSITE") and env.get("HOME"):
            sites.append(os.path.join(env["HOME"], ".local/lib", series, "site-packages"))
    asked = [folder for folder in env.get("PYTHONPATH", "").split(":") if folder]
    return list(dict.fromkeys(os.path.realpath(site) for site in _existing([*asked, *sites])))


def _venv_home(python: str) -> str | None:
    """Return the folder of the Python that a virtual environment also takes packages from.

    "" for one that takes none, None for a Python that is of no virtual environment.
    """
    path = os.path.join(os.path.dirname(os.path.dirname(python)), "pyvenv.cfg")
    if not os.path.isfile(path):  # a pipe would be waited for
        return None
    try:
        with open(path, encoding="utf-8") as file:
            pairs = [line.partition("=") for line in file]
    except (OSError, UnicodeDecodeError):
        return None
    told = {key.strip().lower(): value.strip() for key, _, value in pairs}
    shared = told.get("include-system-site-packages", "").lower() == "true"
    return told.get("home", "") if shared else ""


def _existing(folders: Sequence[str]) -> Iterator[str]:
    from glob import glob  # late: most commands are no Python

    for folder in folders:
        if "*" in folder:
            yield from sorted(glob(folder), reverse=True)
        elif os.path.isdir(folder):
            yield folder


def _packaged(python: str, sites: Sequence[str]) -> tuple[Found, ...]:
    """Return the known libraries that packages of a Python carry, and those of its environment."""
    from ompbind.programs.library_search import identify_library

    found: dict[str, Found] = {}
    for folder, by in _library_folders(python, sites):
        for name in sorted(_names(folder)):
            if name_library(name) is None:
                continue
            library = identify_library(os.path.join(folder, name))
            if library and library.kind.role in (Role.RUNTIME, Role.BLAS):
                found.setdefault(library.path, Found(library=library, how=How.AVAILABLE, by=by))
    if not any(one.library.kind.role is Role.RUNTIME for one in found.values()):
        found.update((one.library.path, one) for one in _shared_runtime(sites))
    return tuple(found.values())


def _shared_runtime(sites: Sequence[str]) -> Iterator[Found]:
    """Yield the system's runtime where packages are there that need one and carry none, as Debian's are."""
    from ompbind.programs.library_search import find_library, identify_library, linker_folders

    for site, facts in product(sites, (one.facts for one in OmpRuntime if one.facts.used_by)):
        by = next((name for name in facts.used_by if name in _names(site)), None)
        path = find_library(facts.sonames[0], None, linker_folders({})) if by else None
        library = identify_library(path) if path else None
        if library and by:
            yield Found(library=library, how=How.AVAILABLE, by=by)


def _library_folders(python: str, sites: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the folders in which packages keep libraries, each with the name of the package."""
    for site in sites:
        names = _names(site)
        if "torch" in names:
            yield os.path.join(site, "torch", "lib"), "torch"
        for name in names:
            if name.endswith(".libs"):
                yield os.path.join(site, name), name.removesuffix(".libs")
    prefix = os.path.dirname(os.path.dirname(python))
    if prefix not in ("/usr", "/"):
        yield os.path.join(prefix, "lib"), prefix


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
