"""Find out from files what a command would run; nothing is imported or started.

1. Follow the command to the program that runs in the end: a wrapper (`taskset -c 0 app`) has it among its
   arguments, a script has its interpreter in the `#!` line.
2. An ELF program: its DT_NEEDED libraries, recursively. A shell or a launcher: the workload is opaque.
3. A Python: the libraries in the site-packages directories of its environment, which it *may* load.
4. Before all these: the libraries in LD_PRELOAD, unless the program is statically linked.
"""

from __future__ import annotations

import os
import sys
from itertools import product

from ompbind.openmp.runtimes import OmpRuntime
from ompbind.programs.elf import SYSTEM_LIBRARY_PREFIXES, Elf, read_elf, read_header
from ompbind.programs.library_catalog import Library, LibraryRole, name_library
from ompbind.programs.process_launchers import is_process_launcher
from ompbind.programs.which import find_file
from ompbind.programs.workload import DetectedLibrary, DetectionMethod, Workload
from ompbind.programs.wrappers import read_wrapper

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_HEAD = 1 << 12
"""Bytes at the beginning of a script that name its interpreter, also behind `#!/bin/sh` (`_TRAMPOLINE`)."""

_TRAMPOLINE = r"""'''exec' (?:"\$\(.*\)"/)?(?:'([^']+)'|"([^"]+)"|(\S+))"""
"""The line after `#!/bin/sh` in scripts whose Python has too long a path for a `#!` line.

To sh the line is an `exec` command, to Python the beginning of a string. A path after `$(…)/` is relative to
the directory of the script.
"""

_SHELLS = (
    "sh", "bash", "dash", "zsh", "ksh", "fish", "busybox", "make", "xargs", "parallel", "ompbind", "docker",
    "podman", "uv", "uvx", "pixi", "poetry", "pdm", "hatch", "pipenv", "pipx", "conda", "mamba", "micromamba",
)  # fmt: skip
"""Programs that start others, which no file names: shells, package managers."""

_CHAIN_LIMIT = 6
"""Scripts and wrappers that are followed at most until a program is found."""


def read_workload(argv: Sequence[str], env: Mapping[str, str]) -> Workload:
    """Read what a command would run with an environment, LD_PRELOAD included.

    An empty `argv` is no command: then only LD_PRELOAD is read.
    """
    found, elf, env = _find_program(list(argv), env)
    static = elf is not None and elf.static
    preloaded, warnings = _read_preloaded(env, elf) if not static else ((), ())
    if not found.program:
        return found.replace(opaque=bool(argv), libraries=preloaded, preload_warnings=warnings)
    sites = find_site_packages(found.python, env) if found.python else []
    of_program = (
        _find_packaged(found.python, sites)
        if found.python
        else _find_needed(found.program, elf, preloaded, env)
    )
    return found.replace(
        site_packages=sites[0] if sites else "",
        opaque=not found.python and (elf is None or _starts_others(found.program)),
        static=static,
        libraries=(*preloaded, *of_program),
        preload_warnings=warnings,
    )


def read_wrapped_workload(wrap: Sequence[str], argv: Sequence[str], env: Mapping[str, str]) -> Workload:
    """Read what a command would run behind the words of a wrapper, which need not be a known wrapper."""
    wrappers, words = [], list(wrap)
    while words and (path := find_file(words[0], env)):
        wrapper, words = read_wrapper(path, words[1:], env)
        if wrapper.changes:
            wrappers.append(wrapper)
            env = wrapper.make_env(env)
    work = read_workload(argv, env)
    return work.replace(wrappers=(*wrappers, *work.wrappers))


def _find_program(argv: list[str], env: Mapping[str, str]) -> tuple[Workload, Elf | None, Mapping[str, str]]:
    """Follow scripts and wrappers to the program that runs in the end; `program` is "" if it is not found.

    Returns a workload with `program`, `wrappers` and, for a Python, `python`; the program's header, None for
    a file that is not ELF; and the environment that the program gets.
    """
    work = Workload()
    for _ in range(_CHAIN_LIMIT):
        path = find_file(argv[0], env) if argv else None
        if path is None:
            break
        wrapper, command = read_wrapper(path, argv[1:], env)
        if wrapper.changes:
            work, env = work.replace(wrappers=(*work.wrappers, wrapper)), wrapper.make_env(env)
        if _starts_others(path):
            return work.replace(program=path), read_header(path), env
        try:
            elf = read_elf(path)
            with open(path, "rb") as file:
                head = b"" if elf else file.read(_HEAD)
        except OSError:
            break
        if is_python(path) and not head.startswith(b"#!"):
            path = os.path.abspath(path)
            return work.replace(program=path, python=path), elf, env
        command = command or _parse_interpreter(head, path)
        if not command:
            return work.replace(program=path), elf, env
        argv = command
    return work, None, env


def _starts_others(path: str) -> bool:
    """Return whether a program starts others, which no file names: a shell or a launcher."""
    return os.path.basename(path) in _SHELLS or is_process_launcher(path)


def is_python(path: str) -> bool:
    """Return whether a file is a Python interpreter, by its name or the name of its link's target."""
    return _python_version(path) is not None or _python_version(os.path.realpath(path)) is not None


def _python_version(path: str) -> str | None:
    """Return the version in the name of a Python: "3.11", "3.13t" or ""; None for other names."""
    name = os.path.basename(path)
    stem = next((stem for stem in ("python", "pypy") if name.startswith(stem)), "")
    version = name.removeprefix(stem)
    return version if stem and not version.removesuffix("t").strip("0123456789.") else None


def _parse_interpreter(head: bytes, path: str) -> list[str]:
    """Return the command line of a script's interpreter if it is a Python or `env`, else []."""
    if not head.startswith(b"#!"):
        return []
    line, _, rest = head.decode("utf-8", "surrogateescape").partition("\n")
    import re  # late: most commands are no scripts

    trampoline = re.match(_TRAMPOLINE, rest)
    if trampoline:
        python = next(filter(None, trampoline.groups()))
        words = [os.path.join(os.path.dirname(path), python)]
    else:  # Linux splits the line at spaces and tabs; a carriage return is a part of the name
        words = [word for word in line[2:].replace("\t", " ").split(" ") if word]
    python_or_env = words and (is_python(words[0]) or os.path.basename(words[0]) == "env")
    return [*words, path] if python_or_env else []


def _read_preloaded(
    env: Mapping[str, str], program: Elf | None
) -> tuple[tuple[DetectedLibrary, ...], tuple[str, ...]]:
    """Return the known libraries in LD_PRELOAD, and warnings about entries that will not be loaded."""
    entries = preload_entries(env)
    if not entries:
        return (), ()
    from ompbind.programs.library_search import (  # late, as below: most commands save its 0.5 ms
        find_library,
        identify_library,
        is_loadable,
        linker_directories,
    )

    found: list[Library] = []
    warnings: list[str] = []
    for name in entries:
        if "$" in name or "{" in name:  # the linker expands $LIB, ompbind {rank}: the path is not known yet
            found += filter(None, [name_library(name)])
            continue
        path = name if "/" in name else find_library(name, program, linker_directories(env))
        if path is None or not os.path.exists(path):
            warnings.append(f"LD_PRELOAD names {name}, which does not exist: every process prints a warning")
        elif not is_loadable(path, program):
            is_foreign = program is not None and read_header(path) is not None
            kind = f"not for {program.architecture} programs" if program and is_foreign else "not a library"
            warnings.append(f"LD_PRELOAD names {name}, which is {kind}: it will not be loaded")
        elif library := identify_library(path):
            found.append(library)
    detected = (_detected(library, DetectionMethod.PRELOADED, "LD_PRELOAD") for library in found)
    return tuple(detected), tuple(warnings)


def _detected(library: Library, method: DetectionMethod, origin: str) -> DetectedLibrary:
    return DetectedLibrary(library=library, method=method, origin=origin)


def preload_entries(env: Mapping[str, str]) -> list[str]:
    """Return the entries of LD_PRELOAD, which colons or spaces separate."""
    return [name for name in env.get("LD_PRELOAD", "").replace(":", " ").split(" ") if name]


def _find_needed(
    program: str, elf: Elf | None, preloaded: Sequence[DetectedLibrary], env: Mapping[str, str]
) -> tuple[DetectedLibrary, ...]:
    """Return the known libraries that a program needs directly or through other libraries."""
    if elf is None or all(name.startswith(SYSTEM_LIBRARY_PREFIXES) for name in elf.needed):
        return ()
    from ompbind.programs.library_search import find_needed_libraries, identify_library

    headers = (read_header(detected.library.path) for detected in preloaded)
    sonames = tuple(header.soname for header in headers if header and header.soname)
    paths = find_needed_libraries(program, elf, env, sonames)
    libraries = (identify_library(path) for path in paths)
    origin = os.path.basename(program)
    return tuple(_detected(library, DetectionMethod.NEEDED, origin) for library in libraries if library)


def find_default_python(env: Mapping[str, str]) -> str:
    """Return the Python that counts if no command names a Python: of VIRTUAL_ENV, else of ompbind."""
    directory = env.get("VIRTUAL_ENV")
    python = os.path.join(directory, "bin", "python") if directory else ""
    return python if os.path.isfile(python) else sys.executable


def find_site_packages(python: str, env: Mapping[str, str]) -> list[str]:
    """Return the directories in which a Python finds packages: PYTHONPATH, its environment, the system."""
    home = _venv_home(python)
    prefix = os.path.dirname(os.path.dirname(python if home is not None else os.path.realpath(python)))
    version = _python_version(os.path.realpath(python)) or ""
    series = f"python{version}" if "." in version else "python3*"
    sites = [os.path.join(prefix, lib, series, "site-packages") for lib in ("lib", "lib64")]
    if home is None or home:
        base = prefix if home is None else os.path.dirname(home)
        paths = (f"lib/{series}/site-packages", "lib/python3/dist-packages", f"lib/{series}/dist-packages",
                 f"local/lib/{series}/dist-packages")  # fmt: skip
        sites += [os.path.join(base, path) for path in paths]
        if not env.get("PYTHONNOUSERSITE") and env.get("HOME"):
            sites.append(os.path.join(env["HOME"], ".local/lib", series, "site-packages"))
    python_path = [directory for directory in env.get("PYTHONPATH", "").split(":") if directory]
    return list(dict.fromkeys(os.path.realpath(site) for site in _expand([*python_path, *sites])))


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


def _expand(patterns: Sequence[str]) -> Iterator[str]:
    """Yield the directories that exist, for a pattern with `*` the highest version first."""
    from glob import glob  # late: most commands are not a Python

    for pattern in patterns:
        if "*" in pattern:
            yield from sorted(glob(pattern), reverse=True)
        elif os.path.isdir(pattern):
            yield pattern


def _find_packaged(python: str, sites: Sequence[str]) -> tuple[DetectedLibrary, ...]:
    """Return the known libraries that Python packages bundle, and those in the prefix of the environment."""
    from ompbind.programs.library_search import identify_library

    found: dict[str, DetectedLibrary] = {}
    for directory, origin in _library_directories(python, sites):
        for name in sorted(_list_names(directory)):
            if name_library(name) is None:
                continue
            library = identify_library(os.path.join(directory, name))
            if library and library.kind.role in (LibraryRole.RUNTIME, LibraryRole.BLAS):
                found.setdefault(library.path, _detected(library, DetectionMethod.AVAILABLE, origin))
    if not any(detected.library.kind.role is LibraryRole.RUNTIME for detected in found.values()):
        found.update((detected.library.path, detected) for detected in _find_system_runtime(sites))
    return tuple(found.values())


def _find_system_runtime(sites: Sequence[str]) -> Iterator[DetectedLibrary]:
    """Yield the system's runtime if a package needs it and bundles none, as Debian's packages do."""
    from ompbind.programs.library_search import find_library, identify_library, linker_directories

    for site, facts in product(sites, (runtime.facts for runtime in OmpRuntime if runtime.facts.used_by)):
        package = next((name for name in facts.used_by if name in _list_names(site)), None)
        path = find_library(facts.sonames[0], None, linker_directories({})) if package else None
        library = identify_library(path) if path else None
        if library and package:
            yield _detected(library, DetectionMethod.AVAILABLE, package)


def _library_directories(python: str, sites: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (directory, package) where wheels bundle libraries, and `lib` of the environment's prefix."""
    for site in sites:
        names = _list_names(site)
        if "torch" in names:
            yield os.path.join(site, "torch", "lib"), "torch"
        for name in names:
            if name.endswith(".libs"):  # auditwheel's directory for bundled libraries
                yield os.path.join(site, name), name.removesuffix(".libs")
    prefix = os.path.dirname(os.path.dirname(python))
    if prefix not in ("/usr", "/"):
        yield os.path.join(prefix, "lib"), prefix


def _list_names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []
