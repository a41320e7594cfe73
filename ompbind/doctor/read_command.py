"""What can be told of a command beyond its libraries: why it cannot run, its Python, its packages."""

import os
import re
import sys
from collections.abc import Mapping, Sequence

from ompbind.doctor.facts import CommandFacts
from ompbind.errors import LaunchError
from ompbind.programs.command_analysis import find_sites, is_python, read_workload
from ompbind.programs.elf import read_header
from ompbind.programs.library_catalog import KINDS, PRELOADABLE
from ompbind.programs.library_search import find_kind
from ompbind.programs.preload import preload_folders
from ompbind.programs.which import find_command
from ompbind.programs.workload import How, Workload

WORTHWHILE = tuple(
    name for name in PRELOADABLE if (family := KINDS[name].family) is None or family.facts.worth_preloading
)
"""Libraries that are looked for, since preloading them may make programs faster."""

_PACKAGES = ("duckdb", "torch", "vllm")  # whose thread pools, or wishes, are worth a word
_SERIES = re.compile(r"(?:python|pypy)([0-9]+)\.([0-9]+)")
_IN_SITE = re.compile(r"/python([0-9]+)\.([0-9]+)/")


def read_commands_workload(argv: Sequence[str], env: Mapping[str, str]) -> Workload:
    """Read what a command would run; without one, what every program of this Python's kind has preloaded."""
    if argv:
        return read_workload(argv, env)
    work = read_workload((sys.executable,), env)
    loaded = tuple(one for one in work.libraries if one.how is How.PRELOADED)
    return Workload(libraries=loaded, troubles=work.troubles)


def read_command(argv: tuple[str, ...], env: Mapping[str, str], work: Workload) -> CommandFacts:
    """Read what a command is, whose workload is given; one that cannot run has the reason in `error`."""
    try:
        path = find_command(argv[0], env)
    except LaunchError as error:
        return CommandFacts(argv=argv, error=error.message, hint=error.hint)
    if lost := _find_lost_interpreter(path):
        fault = f"cannot execute {path}: its interpreter {lost!r} does not exist"
        hint = "mend its first line (#!)"
        if lost.endswith("\r"):
            hint = f"its lines end as on Windows: sed -i 's/\\r$//' {path}"
        return CommandFacts(argv=argv, error=fault, hint=hint)
    elf = read_header(work.program)
    sites = find_sites(work.python, env) if work.python else []
    return CommandFacts(
        argv=argv,
        arch=elf.architecture if elf else "",
        python=_read_series(work) if work.python else None,
        isolated=bool(work.python) and is_python(argv[0]) and _is_isolated(argv),
        cpp=elf is not None and not work.python and any(one.startswith("libstdc++.so") for one in elf.needed),
        packages=tuple(one for one in _PACKAGES if any(os.path.isdir(f"{site}/{one}") for site in sites)),
    )


def _find_lost_interpreter(path: str) -> str:
    """Return the interpreter that a script names and that is not there, "" for everything else."""
    try:
        with open(path, "rb") as file:
            line = file.readline(256)  # as much as Linux reads
    except OSError:
        return ""
    name = os.fsdecode(line[2:].replace(b"\t", b" ").strip(b" \n").partition(b" ")[0])
    return name if line.startswith(b"#!") and not os.path.exists(name) else ""


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
        letters = word[1:].partition("W")[0].partition("X")[0]  # behind these comes their value
        if not word.startswith("--") and {"E", "I"} & set(letters):
            return True
    return False


def find_preloadable(work: Workload, env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return (name, path) of the libraries that could be preloaded, "" for those that are not found.

    Runtimes that are not made for the architecture of the program are left out.
    """
    like = read_header(work.program) or read_header(sys.executable)
    folders = list(dict.fromkeys(preload_folders(work, env)))
    families = ((name, KINDS[name].family) for name in WORTHWHILE)
    names = (name for name, one in families if not (one and like) or one.runs_on(like.architecture))
    return tuple((name, find_kind(name, like, folders) or "") for name in names)
