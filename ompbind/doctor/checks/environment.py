"""Checks of `ompbind doctor`: what is in the environment, a row of a table for each thing that can be wrong.

Most of it matters only without ompbind, or with --keep-env: ranks are started without what would move or
narrow their threads, and with thread counts of their own.
"""

import re
from collections.abc import Callable, Iterator

from ompbind.doctor.checks.cpus import SHARED
from ompbind.doctor.facts import HostFacts
from ompbind.doctor.issue import HostIssue, error, note, ok
from ompbind.openmp.runtimes import DISABLED, KMP_AFFINITY, KMP_MODIFIERS, NO_RESPECT, SPINS, SUBSETS
from ompbind.openmp.variables import DEFEATING, THREAD_COUNTS, split_words
from ompbind.planning.rank_variables import OMPBIND_RANK

_BINDS_FIRST = "libgomp then moves the initial thread, and all that it starts later, to"
_SPINS = (
    "threads that wait keep their CPUs busy: two ranks on the same CPUs 150-220 times slower; idle threads of"
    " libomp took the time of 11 CPUs"
)
_NO = {"false", "0", "no", "off", ".f.", ".false."}


Holds = Callable[[str, HostFacts], bool]


def _always(value: str, here: HostFacts) -> bool:
    return True


def _empty(value: str, here: HostFacts) -> bool:
    return not value.strip()


def _has(*words: str) -> Holds:
    return lambda value, here: bool(set(words) & split_words(value))


def _yes(value: str, here: HostFacts) -> bool:
    return value.strip().lower() not in _NO


def _binds(here: HostFacts) -> bool:
    return _yes(here.env.get("OMP_PROC_BIND", ""), here)


def _no_number(value: str, here: HostFacts) -> bool:
    numbers = [word.strip() for word in value.split(",")]
    return not all(word.isascii() and word.isdigit() and int(word[:9]) for word in numbers)


def _too_many(value: str, here: HostFacts) -> bool:
    first = value.partition(",")[0].strip()
    most = len(here.machine.allowed) if here.machine else 0
    return most > 0 and not _no_number(first, here) and (len(first) > 6 or int(first) > most)


_BEATS = "it beats OMP_NUM_THREADS in its library"
_FEWER = "teams get fewer threads than the rank has CPUs"
RULES: tuple[tuple[str, Holds, str], ...] = (
    ("GOMP_CPU_AFFINITY", _empty, "the libgomp of wheels puts all threads on CPU 0"),
    (
        "GOMP_CPU_AFFINITY",
        lambda value, here: re.fullmatch(r"[0-9 ,:-]+", value) is None,
        "loading the libgomp of wheels (torch) never ends",
    ),
    (
        "GOMP_CPU_AFFINITY",
        _always,
        "libgomp leaves the affinity mask for these CPUs, libomp prefers them to OMP_PLACES:"
        f" every rank is there, and {SHARED}",
    ),
    (
        KMP_AFFINITY,
        _has(NO_RESPECT),
        "the runtimes of LLVM and Intel leave the affinity mask: all ranks are on the same CPUs",
    ),
    (
        KMP_AFFINITY,
        _has(DISABLED),
        "the runtimes of LLVM and Intel do not look at the mask: 8 threads on the 2 CPUs of a mask;"
        " processes that they fork abort (LLVM 18 and later)",
    ),
    (
        KMP_AFFINITY,
        lambda value, here: not split_words(value) <= KMP_MODIFIERS,
        "it beats OMP_PLACES and OMP_PROC_BIND, =false included, in the runtimes of LLVM and Intel",
    ),
    *((name, _always, "it narrows even the initial thread, whatever OMP_PROC_BIND says") for name in SUBSETS),
    (
        "OMP_PLACES",
        lambda value, here: _binds(here) and re.match(r"\s*\{\s*\d+\s*\}", value) is not None,
        f"{_BINDS_FIRST} one CPU: two plain threads took twice as long, and all threads of a second runtime"
        " are there",
    ),
    (
        "OMP_PLACES",
        lambda value, here: _binds(here),
        f"all processes get the same places, and {SHARED}",
    ),
    (
        "OMP_PROC_BIND",
        lambda value, here: _yes(value, here) and "OMP_PLACES" not in here.env,
        "without OMP_PLACES every process binds its threads from the first CPU on: two ranks of one"
        " thread 1.8-2.1 times slower, on one CPU",
    ),
    ("OMP_NUM_THREADS", _empty, "libomp ends programs that find it empty"),
    ("OMP_NUM_THREADS", _no_number, "libomp may end the program, others take all CPUs"),
    *((name, _too_many, f"more threads than CPUs; {SHARED}") for name in THREAD_COUNTS),
    ("GOTO_NUM_THREADS", _always, _BEATS),
    ("MKL_DOMAIN_NUM_THREADS", _always, _BEATS),
    ("OMP_DYNAMIC", _yes, f"{_FEWER}, depending on the load"),
    *((name, _always, _FEWER) for name in DEFEATING if name.endswith(("_THREAD_LIMIT", "_ALL_THREADS"))),
    *((name, _has(*words), _SPINS) for name, words in SPINS),
    (
        "OMP_DISPLAY_AFFINITY",
        _yes,
        "the runtimes of LLVM and Intel write lines into the standard output of the program",
    ),
)
"""All that can be wrong with variables: the name, for which values and surroundings it is wrong, and why.

For each variable the first row that holds is told.
"""


def check_variables(here: HostFacts) -> Iterator[HostIssue]:
    """Look for variables that would move, narrow or multiply threads."""
    if here.inside:
        yield ok("variables", f"those of rank {here.env[OMPBIND_RANK]} of the run around it")
        return
    told = list(_find_wrong(here))
    yield from told
    if not told:
        yield ok("variables", "none that would move or narrow threads")


def _find_wrong(here: HostFacts) -> Iterator[HostIssue]:
    for name in dict.fromkeys(name for name, _, _ in RULES):
        value = here.env.get(name)
        for row, holds, why in RULES:
            if row == name and value is not None and holds(value, here):
                yield _judge(name, value, why, here)
                break


def _judge(name: str, value: str, why: str, here: HostFacts) -> HostIssue:
    """Make the finding of a variable: a note, except for what burns a quota, which ranks inherit."""
    found = f"is {value!r}"
    if name in DEFEATING or name in THREAD_COUNTS:
        does = "clears" if name in DEFEATING else "replaces"
        remedy = f"unset {name}; 'ompbind run' {does} it, but not with --keep-env"
        return note(name, found, why, remedy)
    if name in dict(SPINS) and here.machine and (here.machine.quota or 1e9) < len(here.machine.allowed):
        why += "; here that uses up the CPU quota, and then all threads are stopped"
        return error(name, found, why, f"unset {name}")
    return note(name, found, why, f"unset {name}")


def check_options(here: HostFacts) -> Iterator[HostIssue]:
    """Tell which variables are options of every command of ompbind, and which of them switch binding off."""
    for name in here.options:
        value = here.env.get(name)
        if value is None:
            continue
        if name in ("OMPBIND_BIND", "OMPBIND_MASK") and value.strip().lower() in ("none", "nobind"):
            why = "OpenMP threads are not bound" if name == "OMPBIND_BIND" else "ranks are not bound at all"
            yield note(name, f"is {value!r}", why, f"unset {name}")
        else:
            yield ok(name, f"is {value!r}: an option of every run")


def check_preloads(here: HostFacts) -> Iterator[HostIssue]:
    """Look at what LD_PRELOAD names."""
    for trouble in here.workload.troubles:
        why = "programs run without it"
        yield error(
            "LD_PRELOAD", trouble.removeprefix("LD_PRELOAD "), why, "correct it: LD_PRELOAD=PATH, or unset it"
        )
    if here.workload.troubles:
        return
    value = here.env.get("LD_PRELOAD", "")
    yield ok("LD_PRELOAD", f"{value}: all of it can be loaded" if value.strip() else "nothing")
