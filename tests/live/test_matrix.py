"""Every mode of binding with every OpenMP runtime, alone and with a second one: what threads may run on.

Threads and children tell it themselves, from the kernel; `runtimes.foretell` says what each runtime does
with places. Wherever a mode does not keep its promise, the reason stands in CANNOT_HOLD.
"""

import itertools
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.live.conftest import two_cpus
from tests.live.runtimes import (
    BINDS,
    CRASHED,
    OPENBLAS,
    RUNTIMES,
    Pair,
    build_program,
    check_told,
    cpus_of,
    foretell,
    is_here,
    is_llvm,
    needs_packages,
    opposites,
    pairs,
    path_of,
    places_of,
    read_cases,
)
from tests.long import WHOLE_MATRIX

HERE = Path(__file__).parent
TEAMS = ("region", "again", "second")
"""Kinds of threads that belong to a parallel region; all others are the program's own."""


def corners(rows, is_corner):
    """Rows of a table as parameters: all of them, or those that prove something that no other one does."""
    return [
        pytest.param(*row, marks=() if WHOLE_MATRIX or is_corner(*row) else pytest.mark.long) for row in rows
    ]


every_runtime = pytest.mark.parametrize("name", RUNTIMES)
every_bind = pytest.mark.parametrize("bind", BINDS)

UNBOUND = frozenset({("rank", "libomp 14"), ("rank", "libomp 15")})
"""(mode, runtime) where ompbind sees the runtime in the command and gives it no places at all."""

GOMP, OLD, NEW, RESETTING = "libgomp.*", "libomp 1[45]", "libomp 1[69]|libiomp5", "libomp 1[569]|libiomp5"


class Flaw(NamedTuple):
    """What a mode promises and a runtime, or two in one process, cannot keep.

    Patterns for the mode and the names, "" for no second one; the kinds of threads that are elsewhere; why;
    and, where ompbind can know it from the command, a pattern of what it warns of before it starts.
    """

    bind: str
    first: str
    second: str
    order: str
    kinds: str
    reason: str
    said: str = ""


CRASHES = "with places, fork() damages the heap of the child"

CANNOT_HOLD = (
    Flaw("thread|core|exact", OLD, ".*", ".*", "forked", CRASHES, "LLVM 1[45] crashes children"),
    Flaw("rank|thread|core|exact", GOMP, OLD, ".*", "forked", CRASHES),
    Flaw(
        "exact", GOMP, ".*", ".*", "start initial then plain spawned forked",
        "loading narrows the initial thread for good, and all that it creates",
    ),
    Flaw("exact", GOMP, ".+", ".*", "second", "the second one is left with the place of the initial thread"),
    Flaw(
        "exact", "libomp 14", ".*", ".*", "initial then plain spawned",
        "the first use narrows the initial thread, and KMP_AFFINITY=reset is unknown",
    ),
    Flaw("exact", "libomp 14", f"{GOMP}|{OPENBLAS}", "after", "second", "it is left with the first place"),
    Flaw("exact", RESETTING, GOMP, "after", "then plain spawned", "loading libgomp narrows it"),
    Flaw(
        "exact", "libomp.*|libiomp5", GOMP, "before", "region again initial then plain spawned",
        "libgomp has narrowed the initial thread before the other one looks for its places",
    ),
    Flaw("exact", NEW, GOMP, "before", "forked", "the CPUs it began with are those that libgomp left"),
)  # fmt: skip


def flaws(bind, name, pair):
    return [
        flaw
        for flaw in CANNOT_HOLD
        if re.fullmatch(flaw.bind, bind)
        and re.fullmatch(flaw.first, name)
        and re.fullmatch(flaw.second, pair.second)
        and re.fullmatch(flaw.order, pair.order)
        and (bind, name) not in UNBOUND
    ]


def each_alone(cpus):
    """CPUs as cores of one thread each: two of them are all that these tests need."""
    return [(cpu,) for cpu in cpus]


def promise(bind, pair, cpus):
    """Kind → thread → CPUs, if nothing but the threads of a region were ever narrowed."""
    places, whole = places_of(bind, each_alone(cpus)), frozenset(cpus)
    team = {thread: places[thread] if len(places) > 1 else whole for thread in range(len(cpus))}
    own = {kind: {0: whole} for kind in ("start", "initial", "then", "spawned", "forked")}
    second = {"second": dict.fromkeys(range(len(cpus) - 1), whole) if pair.second == OPENBLAS else team}
    promised = {**own, "plain": dict.fromkeys(range(3), whole), "region": team, "again": team}
    return {**promised, **(second if pair.second else {})}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("programs")


def run_cases(ompbind, program, options, cases, **env):
    """All cases in one run; what was told of each rank, and what was said."""
    done = ompbind("run", *options, "--", str(program), *(pair.argument() for pair in cases), env=env)
    assert done.returncode == 0, done.stderr
    return read_cases(done.stdout), done.stderr


def check_inside(kinds, cpus):
    """No thread of any kind has ever been outside its rank's CPUs."""
    for kind, threads in kinds.items():
        assert all(seen <= frozenset(cpus) for seen in threads.values()), (kind, threads)


def check_case(told, bind, name, pair, cpus):
    """What is told is what the runtime does; it breaks the promise of the mode just where the table says."""
    kinds = dict(told[pair.argument()])
    check_inside(kinds, cpus)
    assert "end" in kinds, "the program ended before its time"
    tasks = kinds.pop("task").values()
    del kinds["end"]
    places = [] if (bind, name) in UNBOUND else places_of(bind, each_alone(cpus))
    foretold = foretell(name, pair, cpus, places, reset=bind == "exact")
    check_told(kinds, foretold)
    if bind in ("rank", "none"):
        assert set(tasks) == {frozenset(cpus)}
    if len(cpus) > 1:
        promised = promise(bind, pair, cpus)
        broken = {kind for kind, threads in promised.items() if kinds.get(kind, {}) != threads}
        broken |= {"forked"} if "fork died" in foretold else set()
        assert broken == {kind for flaw in flaws(bind, name, pair) for kind in flaw.kinds.split()}


def check_warned(bind, name, said):
    """What ompbind can know to go wrong is told before anything starts."""
    joined = re.sub(r"\n +", " ", said)
    lines = [line for line in joined.splitlines() if line.startswith("ompbind: warning")]
    for flaw in flaws(bind, name, Pair()):
        assert not flaw.said or any(re.search(flaw.said, line) for line in lines), (flaw, said)


@every_bind
@every_runtime
def test_threads_and_children_of_one_rank(ompbind, folder, name, bind):
    cpus = two_cpus()
    cases = pairs(opposites(name))
    program = build_program(name, folder)
    told, said = run_cases(ompbind, program, ("-m", ",".join(map(str, cpus)), "--bind", bind), cases)
    for pair in cases:
        check_case(told[0], bind, name, pair, cpus)
    check_warned(bind, name, said)
    damaged = [pair for pair in cases if any(flaw.reason == CRASHES for flaw in flaws(bind, name, pair))]
    assert not damaged or any("fork died" in told[0][pair.argument()] for pair in damaged)


@pytest.mark.parametrize(
    ("name", "bind"),
    corners(
        itertools.product(RUNTIMES, BINDS),
        lambda name, bind: bind == "exact" or name in ("libgomp", "libomp 19"),
    ),
)
def test_two_ranks_share_nothing(ompbind, folder, name, bind):
    cpus = two_cpus()
    cases = pairs([other for other in opposites(name) if other in ("libomp 19", "libgomp of torch")])
    program = build_program(name, folder)
    options = ("-n", "2", "-m", "|".join(map(str, cpus)), "--bind", bind)
    told, _ = run_cases(ompbind, program, options, cases)
    for rank, pair in itertools.product((0, 1), cases):
        check_case(told[rank], bind, name, pair, cpus[rank : rank + 1])


@pytest.mark.parametrize(
    ("name", "pair"),
    [("libomp 14", Pair("before", "libomp 19")), ("libomp 19", Pair("after", "libiomp5"))],
    ids=str,
)
def test_two_runtimes_of_llvm_end_or_hang_but_inside(ompbind, folder, name, pair):
    """The second one aborts ("OMP: Error #15") or waits for ever; bound or not."""
    cpus = two_cpus()
    assert is_llvm(name)
    assert is_llvm(pair.second)
    options = ("-m", ",".join(map(str, cpus)))
    program = build_program(name, folder)
    told, _ = run_cases(ompbind, program, options, [Pair(), pair], REGIONS_PATIENCE_S="2")
    kinds = told[0][pair.argument()]
    check_inside(kinds, cpus)
    assert set(kinds["died"]) <= {*CRASHED, 128 + signal.SIGALRM}
    assert "end" not in kinds


@every_bind
@pytest.mark.parametrize("ranks", [1, 2])
def test_probe_sees_the_same_in_every_runtime(ompbind, tmp_path, bind, ranks):
    cpus = two_cpus()
    here = [name for name in RUNTIMES if is_here(name)]
    for name in here:
        stem = "libgomp" if name.startswith("libgomp") else name.split()[0]
        (tmp_path / "lib").mkdir(exist_ok=True)
        (tmp_path / "lib" / f"{stem}-{name.replace(' ', '-')}.so").symlink_to(path_of(name))
    mask = (",", "|")[ranks - 1].join(map(str, cpus))
    done = ompbind(
        "run", "-n", str(ranks), "-m", mask, "--bind", bind, "--", "ompbind", "probe", "--format", "json",
        env={"CONDA_PREFIX": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    for rank, name in itertools.product(range(ranks), here):
        mine = cpus if ranks == 1 else cpus[rank : rank + 1]
        seen = {
            line["thread"]: cpus_of(line["cpus_allowed"])
            for line in lines
            if line["rank"] == rank and line["path"] and os.path.realpath(line["path"]) == path_of(name)
        }
        assert seen == promise(bind, Pair(), mine)["region"], name


ORDERS = [
    *(("torch sklearn", bind) for bind in BINDS),
    *itertools.product(("torch numpy", "numpy torch", "sklearn torch"), ("rank", "exact")),
]


@pytest.mark.parametrize(
    ("order", "bind"),
    corners(
        ORDERS, lambda order, bind: (order, bind) in (("torch sklearn", "rank"), ("sklearn torch", "exact"))
    ),
)
def test_a_python_program_with_several_libraries(ompbind, bind, order):
    needs_packages("torch", "numpy", "sklearn")
    cpus = two_cpus()
    options = ("-m", ",".join(map(str, cpus)), "--bind", bind)
    done = ompbind("run", *options, "--", sys.executable, str(HERE / "mixed.py"), *order.split())
    assert done.returncode == 0, done.stderr
    assert ("warning: --bind exact leaves the initial thread" in done.stderr) == (bind == "exact")
    check_python(read_cases(done.stdout)[0], order.split(), bind, cpus)


def check_python(told, libraries, bind, cpus):
    """Only exact narrows what is no OpenMP thread: from the first library on that brings libgomp."""
    whole, main = frozenset(cpus), frozenset(cpus)
    for case in ("start", *libraries):
        check_inside(told[case], cpus)
        main = frozenset(cpus[:1]) if bind == "exact" and case in ("torch", "sklearn") else main
        assert {seen for threads in told[case].values() for seen in threads.values()} == {main}, case
    check_inside(told["end"], cpus)
    tasks = set(told["end"]["task"].values())
    assert tasks <= {whole, *places_of(bind, each_alone(cpus))}
    assert tasks == {whole} or bind not in ("rank", "none")


@pytest.mark.parametrize("bind", corners([("rank",), ("exact",)], lambda bind: bind == "exact"))
def test_two_python_programs_share_nothing(ompbind, bind):
    needs_packages("torch", "numpy", "sklearn")
    cpus = two_cpus()
    options = ("-n", "2", "-m", "|".join(map(str, cpus)), "--bind", bind)
    done = ompbind("run", *options, "--", sys.executable, str(HERE / "mixed.py"), "torch", "sklearn")
    assert done.returncode == 0, done.stderr
    for rank, cpu in enumerate(cpus):
        check_python(read_cases(done.stdout)[rank], ["torch", "sklearn"], bind, [cpu])


@pytest.mark.parametrize("bind", corners(zip(BINDS), lambda bind: bind in ("rank", "thread", "exact")))
def test_a_preloaded_runtime_over_torch(ompbind, bind):
    """Calls of torch go to the preloaded one, but torch's own libgomp is loaded as well.

    Places of one CPU each would leave one CPU to the initial thread, and to the whole team: exact lists CPUs
    for the preloaded one alone, which gives the initial thread back after each region.
    """
    needs_packages("torch")
    cpus = two_cpus()
    options = ("-m", ",".join(map(str, cpus)), "--bind", bind, "--preload", path_of("libiomp5"))
    done = ompbind("run", *options, "--", sys.executable, str(HERE / "mixed.py"), "torch")
    assert done.returncode == 0, done.stderr
    told = read_cases(done.stdout)[0]
    assert done.stderr == ""
    check_python(told, ["torch"], "thread" if bind == "exact" else bind, cpus)
    team = {frozenset(cpus)} if bind in ("rank", "none") else {frozenset(cpus), frozenset(cpus[1:])}
    assert set(told["end"]["task"].values()) == team
