"""Find out from files what a command would run; nothing is imported or started.

1. Follow the command to the program that runs in the end: a wrapper (`taskset -c 0 app`) has it among its
   arguments, a script has its interpreter in the `#!` line.
2. An ELF program: its DT_NEEDED libraries, recursively. A shell or a launcher: the workload is opaque.
3. A Python: the libraries in the site-packages directories of its environment, which it *may* load.
4. Before all these: the libraries in LD_PRELOAD, unless the program is statically linked.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ompbind.openmp.runtimes import OmpRuntime
from ompbind.programs import libraries, mpi, wrappers
from ompbind.programs.elf import SYSTEM_LIBRARY_PREFIXES, Elf, read_elf, read_header
from ompbind.programs.find_command import find_file
from ompbind.programs.libraries import DetectedLibrary, DetectionMethod, Library
from ompbind.programs.python_packages import find_packaged, find_site_packages
from ompbind.programs.wrappers import PYTHON_MANAGERS, Launch, Wrapper, is_python
from ompbind.record import Record

_HEAD = 1 << 12  # bytes at the beginning of a script that name its interpreter, also as a `_TRAMPOLINE`
_CHAIN_LIMIT = 6  # scripts and wrappers that are followed at most until a program is found

_TRAMPOLINE = r"""'''exec' (?:"\$\(.*\)"/)?(?:'([^']+)'|"([^"]+)"|(\S+))"""
"""The line after `#!/bin/sh` in scripts whose Python has too long a path for a `#!` line.

To sh the line is an `exec` command, to Python the beginning of a string. A path after `$(…)/` is relative to
the directory of the script.
"""


class Workload(Record):
    """A command with the facts that its files show.

    `program` is the path of the file that runs, "" without a command, `python` that of its interpreter and
    `site_packages` the first package directory, "" if there is none. `opaque`: the file does not show which
    program will run (a shell script, `mpirun`). `static`: the program ignores LD_PRELOAD. `preload` is the
    new value of LD_PRELOAD, one path or name each; empty leaves it unchanged. `preload_warnings` say which
    entries will not be loaded. `wrappers` are programs before the command that change what a rank gets. `mpi`
    are the words that start it as one job of MPI, and its command in messages; () for other programs.
    """

    program: str = ""
    python: str = ""
    site_packages: str = ""
    opaque: bool = False
    static: bool = False
    libraries: tuple[DetectedLibrary, ...] = ()
    preload: tuple[str, ...] = ()
    preload_warnings: tuple[str, ...] = ()
    wrappers: tuple[Wrapper, ...] = ()
    mpi: tuple[str, ...] = ()

    def runtimes(self) -> Iterator[DetectedLibrary]:
        """Yield the OpenMP runtimes among the libraries, surest first, each file once."""
        by_path: dict[str, DetectedLibrary] = {}
        for method in DetectionMethod:
            for found in self.libraries:
                if found.library.family and found.method is method:
                    by_path.setdefault(found.library.path, found)
        yield from by_path.values()

    @property
    def preloaded(self) -> set[str]:
        """The names of the known libraries in LD_PRELOAD."""
        found = (found for found in self.libraries if found.method is DetectionMethod.PRELOADED)
        return {each.library.kind.name for each in found}

    @property
    def launch(self) -> Launch | None:
        """The processes that the command starts, as its words show; None if they show none."""
        return next((wrapper.launch for wrapper in self.wrappers if wrapper.launch), None)

    @property
    def is_python_program(self) -> bool:
        """Whether the command runs a Python, or a package manager that runs one."""
        return bool(self.python) or os.path.basename(self.program) in PYTHON_MANAGERS

    def has(self, *families: OmpRuntime, method: DetectionMethod | None = None) -> bool:
        """Return whether a runtime of one of these families is expected, by `method` if it is given."""
        runtimes = (found for found in self.runtimes() if method in (None, found.method))
        return any(found.library.family in families for found in runtimes)


def read_workload(argv: Sequence[str], env: Mapping[str, str]) -> Workload:
    """Read what a command would run with an environment, LD_PRELOAD included.

    An empty `argv` is no command: then only LD_PRELOAD is read.
    """
    found, elf, env = _find_program(list(argv), env)
    binding = tuple(wrappers.find_self_binding(argv))
    found = found.replace(static=elf is not None and elf.static, wrappers=(*found.wrappers, *binding))
    if env.get("LD_PRELOAD") and not found.static:
        loaded, warnings = read_preloaded(env, elf)
        found = found.replace(libraries=loaded, preload_warnings=warnings)
    if not found.program:
        return found.replace(opaque=bool(argv))
    if found.python:
        sites = find_site_packages(found.python, env)
        loaded = (*found.libraries, *find_packaged(found.python, sites))
        return found.replace(site_packages=sites[0] if sites else "", libraries=loaded)
    paths: tuple[str, ...] = ()
    if elf and not all(name.startswith(SYSTEM_LIBRARY_PREFIXES) for name in elf.needed):
        headers = (read_header(preloaded.library.path) for preloaded in found.libraries)
        sonames = tuple(header.soname for header in headers if header and header.soname)
        paths = tuple(libraries.find_needed_libraries(found.program, elf, env, sonames))
    known = map(libraries.identify_library, paths)
    needed = _detect(known, DetectionMethod.NEEDED, os.path.basename(found.program))
    if not binding and any(each.library.kind.name == "hpx" for each in needed):
        binding = tuple(wrappers.find_self_binding([*argv, wrappers.HPX]))
        found = found.replace(wrappers=(*found.wrappers, *binding))
    opaque = elf is None or wrappers.starts_others(found.program)
    job = mpi.find_job(paths, argv, env)
    return found.replace(opaque=opaque, libraries=(*found.libraries, *needed), mpi=job)


def read_wrapped_workload(wrap: Sequence[str], argv: Sequence[str], env: Mapping[str, str]) -> Workload:
    """Read what a command would run behind the words of a wrapper, which need not be a known wrapper."""
    if not wrap:
        return read_workload(argv, env)
    before, words = list[Wrapper](), list(wrap)
    while words and (path := find_file(words[0], env)):
        wrapper, words = wrappers.read_wrapper(path, words[1:], env)
        if wrapper.changes:
            before.append(wrapper)
            env = wrapper.make_env(env)
    work = read_workload(argv, env)
    return work.replace(wrappers=(*before, *work.wrappers))


def _find_program(argv: list[str], env: Mapping[str, str]) -> tuple[Workload, Elf | None, Mapping[str, str]]:
    """Follow scripts and wrappers to the program that runs in the end; `program` is "" if it is not found.

    Returns a workload with `program`, `wrappers` and, for a Python, `python`; the program's header, None for
    a file that is not ELF; and the environment that the program gets.
    """
    work = Workload()
    for _ in range(_CHAIN_LIMIT):
        path = find_file(argv[0], env) if argv else None
        if path is None:  # it may be installed on the machine of the plan: its words show what it starts
            known, _ = wrappers.read_wrapper(argv[0], argv[1:], env) if argv else (wrappers.NO_WRAPPER, [])
            found = (known,) if known.launch or known.lost else ()
            return work.replace(wrappers=(*work.wrappers, *found)), None, env
        wrapper, command = wrappers.read_wrapper(path, argv[1:], env)
        if wrapper.changes and not (wrapper.launch and work.launch):  # Python runs the launcher's script
            work, env = work.replace(wrappers=(*work.wrappers, wrapper)), wrapper.make_env(env)
        if wrappers.starts_others(path):
            return work.replace(program=path), read_header(path), env
        try:
            elf, head = read_elf(path), b""
            if elf is None:
                with open(path, "rb") as file:
                    head = file.read(_HEAD)
        except OSError:
            break
        if is_python(path) and not head.startswith(b"#!"):
            path, job = os.path.abspath(path), mpi.find_job(mpi.find_imports(argv[1:]), argv, env)
            return work.replace(program=path, python=path, mpi=job), elf, env
        command = command or _parse_interpreter(head, path)
        if not command:
            return work.replace(program=path), elf, env
        argv = command
    return work, None, env


def _parse_interpreter(head: bytes, path: str) -> list[str]:
    """Return the command line of a script's interpreter if it is a Python or `env`, else []."""
    if not head.startswith(b"#!"):
        return []
    line, _, rest = head.decode("utf-8", "surrogateescape").partition("\n")
    if found := re.match(_TRAMPOLINE, rest):
        words = [os.path.join(os.path.dirname(path), next(filter(None, found.groups())))]
    else:  # Linux splits the line at spaces and tabs; a carriage return is a part of the name
        words = [word for word in line[2:].replace("\t", " ").split(" ") if word]
    python_or_env = words and (is_python(words[0]) or os.path.basename(words[0]) == "env")
    return [*words, path] if python_or_env else []


def _detect(
    libraries: Iterable[Library | None], method: DetectionMethod, origin: str
) -> tuple[DetectedLibrary, ...]:
    return tuple(DetectedLibrary(library=each, method=method, origin=origin) for each in libraries if each)


def preload_entries(env: Mapping[str, str]) -> list[str]:
    """Return the entries of LD_PRELOAD, which colons or spaces separate."""
    return [name for name in env.get("LD_PRELOAD", "").replace(":", " ").split(" ") if name]


def read_preloaded(
    env: Mapping[str, str], program: Elf | None
) -> tuple[tuple[DetectedLibrary, ...], tuple[str, ...]]:
    """Return the known libraries in LD_PRELOAD, and warnings about entries that will not be loaded."""
    found: list[Library | None] = []
    warnings: list[str] = []
    for name in preload_entries(env):
        if "$" in name or "{" in name:  # the linker expands $LIB, ompbind {rank}: the path is not known yet
            found.append(libraries.name_library(name))
            continue
        directories = libraries.linker_directories(env)
        path = name if "/" in name else libraries.find_library(name, program, directories)
        if path is None or not os.path.exists(path):
            warnings.append(f"LD_PRELOAD names {name}, which does not exist: every process prints a warning")
        elif not libraries.is_loadable(path, program):
            is_foreign = program is not None and read_header(path) is not None
            kind = f"not for {program.architecture} programs" if program and is_foreign else "not a library"
            warnings.append(f"LD_PRELOAD names {name}, which is {kind}: it will not be loaded")
        else:
            found.append(libraries.identify_library(path))
    return _detect(found, DetectionMethod.PRELOADED, "LD_PRELOAD"), tuple(warnings)
