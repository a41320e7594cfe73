"""Checks of `ompbind doctor`: what is in the environment, a row of a table for each thing that can be wrong.

Most of it matters only without ompbind, or with --keep-env: ranks are started without what would move or
narrow their threads, and with thread counts of their own.
"""

import re
from collections.abc import Callable, Iterator

from ompbind.doctor.checks.cpus import SHARED
from ompbind.doctor.facts import Surroundings
from ompbind.doctor.issue import Finding, note, ok, problem
from ompbind.openmp.runtimes import DISABLED, KMP_AFFINITY, KMP_MODIFIERS, NO_RESPECT, SPINS, SUBSETS
from ompbind.openmp.variables import DEFEATING, THREAD_COUNTS, split_words
from ompbind.planning.rank_variables import OMPBIND_RANK
from ompbind.record import Record

_BINDS_FIRST = "libgomp then moves the initial thread, and all that it starts later, to"
_SPINS = (
    "threads that wait keep their CPUs busy: two ranks on the same CPUs 150-220 times slower; idle threads of"
    " libomp took the time of 11 CPUs"
)
_NO = {"false", "0", "no", "off", ".f.", ".false."}


class Rule(Record):
    """One thing that can be wrong with a variable: for which values it holds, given all others, and why."""

    name: str
    holds: Callable[[str, Surroundings], bool]
    why: str


def _always(value: str, here: Surroundings) -> bool:
    return True


def _empty(value: str, here: Surroundings) -> bool:
    return not value.strip()


def _no_list(value: str, here: Surroundings) -> bool:
    return re.fullmatch(r"[0-9 ,:-]+", value) is None


def _has(*words: str) -> Callable[[str, Surroundings], bool]:
    return lambda value, here: bool(set(words) & split_words(value))


def _more_than_modifiers(value: str, here: Surroundings) -> bool:
    return not split_words(value) <= KMP_MODIFIERS


def _yes(value: str, here: Surroundings) -> bool:
    return value.strip().lower() not in _NO


def _binds(here: Surroundings) -> bool:
    return here.env.get("OMP_PROC_BIND", "").strip().lower() not in _NO


def _places_of_one(value: str, here: Surroundings) -> bool:
    return _binds(here) and re.match(r"\s*\{\s*\d+\s*\}", value) is not None


def _places(value: str, here: Surroundings) -> bool:
    return _binds(here)


def _without_places(value: str, here: Surroundings) -> bool:
    return _yes(value, here) and "OMP_PLACES" not in here.env


def _no_number(value: str, here: Surroundings) -> bool:
    numbers = [word.strip() for word in value.split(",")]
    return not all(word.isascii() and word.isdigit() and int(word[:9]) for word in numbers)


def _too_many(value: str, here: Surroundings) -> bool:
    first = value.partition(",")[0].strip()
    most = len(here.machine.allowed) if here.machine else 0
    return most > 0 and not _no_number(first, here) and (len(first) > 6 or int(first) > most)


_FEWER = "teams get fewer threads than the rank has CPUs"
RULES = (
    Rule(name="GOMP_CPU_AFFINITY", holds=_empty, why="the libgomp of wheels puts all threads on CPU 0"),
    Rule(name="GOMP_CPU_AFFINITY", holds=_no_list, why="loading the libgomp of wheels (torch) never ends"),
    Rule(
        name="GOMP_CPU_AFFINITY",
        holds=_always,
        why="libgomp leaves the affinity mask for these CPUs, libomp prefers them to OMP_PLACES:"
        f" every rank is there, and {SHARED}",
    ),
    Rule(
        name=KMP_AFFINITY,
        holds=_has(NO_RESPECT),
        why="the runtimes of LLVM and Intel leave the affinity mask: all ranks are on the same CPUs",
    ),
    Rule(
        name=KMP_AFFINITY,
        holds=_has(DISABLED),
        why="the runtimes of LLVM and Intel do not look at the mask: 8 threads on the 2 CPUs of a mask;"
        " processes that they fork abort (LLVM 18 and later)",
    ),
    Rule(
        name=KMP_AFFINITY,
        holds=_more_than_modifiers,
        why="it beats OMP_PLACES and OMP_PROC_BIND, =false included, in the runtimes of LLVM and Intel",
    ),
    *(
        Rule(name=name, holds=_always, why="it narrows even the initial thread, whatever OMP_PROC_BIND says")
        for name in SUBSETS
    ),
    Rule(
        name="OMP_PLACES",
        holds=_places_of_one,
        why=f"{_BINDS_FIRST} one CPU: two plain threads took twice as long, and all threads of a second"
        " runtime are there",
    ),
    Rule(name="OMP_PLACES", holds=_places, why=f"all processes get the same places, and {SHARED}"),
    Rule(
        name="OMP_PROC_BIND",
        holds=_without_places,
        why="without OMP_PLACES every process binds its threads from the first CPU on: two ranks of one"
        " thread 1.8-2.1 times slower, on one CPU",
    ),
    Rule(name="OMP_NUM_THREADS", holds=_empty, why="libomp ends programs that find it empty"),
    Rule(name="OMP_NUM_THREADS", holds=_no_number, why="libomp may end the program, others take all CPUs"),
    *(Rule(name=name, holds=_too_many, why=f"more threads than CPUs; {SHARED}") for name in THREAD_COUNTS),
    *(
        Rule(name=name, holds=_always, why="it beats OMP_NUM_THREADS in its library")
        for name in ("GOTO_NUM_THREADS", "MKL_DOMAIN_NUM_THREADS")
    ),
    Rule(name="OMP_DYNAMIC", holds=_yes, why=f"{_FEWER}, depending on the load"),
    *(
        Rule(name=name, holds=_always, why=_FEWER)
        for name in DEFEATING
        if name.endswith(("_THREAD_LIMIT", "_ALL_THREADS"))
    ),
    *(Rule(name=name, holds=_has(*words), why=_SPINS) for name, words in SPINS),
    Rule(
        name="OMP_DISPLAY_AFFINITY",
        holds=_yes,
        why="the runtimes of LLVM and Intel write lines into the standard output of the program",
    ),
)
"""Everything that can be wrong with variables; for each variable the first row that holds is told."""


def check_variables(here: Surroundings) -> Iterator[Finding]:
    """Look for variables that would move, narrow or multiply threads."""
    if here.inside:
        yield ok("variables", f"those of rank {here.env[OMPBIND_RANK]} of the run around it")
        return
    told = list(_find_wrong(here))
    yield from told
    if not told:
        yield ok("variables", "none that would move or narrow threads")


def _find_wrong(here: Surroundings) -> Iterator[Finding]:
    for name in dict.fromkeys(rule.name for rule in RULES):
        value = here.env.get(name)
        rows = (rule for rule in RULES if rule.name == name)
        rule = None if value is None else next((row for row in rows if row.holds(value, here)), None)
        if rule is not None:
            yield _judge(rule, f"is {value!r}", here)


def _judge(rule: Rule, found: str, here: Surroundings) -> Finding:
    """Make the finding of a variable: a note, except for what burns a quota, which ranks inherit."""
    name = rule.name
    if name in DEFEATING or name in THREAD_COUNTS:
        does = "clears" if name in DEFEATING else "replaces"
        remedy = f"unset {name}; 'ompbind run' {does} it, but not with --keep-env"
        return note(name, found, rule.why, remedy)
    if name in dict(SPINS) and here.machine and (here.machine.quota or 1e9) < len(here.machine.allowed):
        why = f"{rule.why}; here that uses up the CPU quota, and then all threads are stopped"
        return problem(name, found, why, f"unset {name}")
    return note(name, found, rule.why, f"unset {name}")


def check_options(here: Surroundings) -> Iterator[Finding]:
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


def check_preloads(here: Surroundings) -> Iterator[Finding]:
    """Look at what LD_PRELOAD names."""
    for trouble in here.workload.troubles:
        why = "programs run without it"
        yield problem(
            "LD_PRELOAD", trouble.removeprefix("LD_PRELOAD "), why, "correct it: LD_PRELOAD=PATH, or unset it"
        )
    if here.workload.troubles:
        return
    value = here.env.get("LD_PRELOAD", "")
    yield ok("LD_PRELOAD", f"{value}: all of it can be loaded" if value.strip() else "nothing")
