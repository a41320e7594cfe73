"""Every binding mode with every OpenMP runtime, alone and with a second runtime: the CPUs of all threads.

Threads and child processes print their affinity masks. `runtimes.predict_output` models what each runtime
does with places. CANNOT_HOLD has the reason for each case in which a mode does not keep its promise.
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
    UNBOUND,
    Pair,
    build_program,
    check_output,
    cpus_of,
    is_installed,
    is_llvm,
    needs_packages,
    opposites,
    pairs,
    path_of,
    places_of,
    predict_output,
    read_cases,
)

HERE = Path(__file__).parent
TEAMS = ("region", "again", "second")
"""Kinds of threads that belong to a parallel region; all other threads are the program's own."""


def corners(rows, is_corner):
    """Return rows of a table as parameters; rows that prove nothing new are marked as long."""

    def marks_of(*row):
        marks = [] if is_corner(*row) else [pytest.mark.long]
        return [pytest.mark.part("torch"), *marks] if "torch" in row[0] else marks

    return [pytest.param(*row, marks=marks_of(*row)) for row in rows]


every_runtime = pytest.mark.parametrize("name", corners(zip(RUNTIMES), lambda name: True))
every_bind = pytest.mark.parametrize("bind", BINDS)

GOMP, OLD, NEW, RESETTING = "libgomp.*", "libomp 1[45]", "libomp 1[69]|libiomp5", "libomp 1[569]|libiomp5"


class Flaw(NamedTuple):
    """A promise of a mode that a runtime, or two runtimes in one process, cannot keep.

    The fields are patterns of the mode and of the names of runtimes ("" for no second runtime), the kinds of
    threads that have other CPUs, the reason, and, if ompbind can detect the case, a pattern of its warning.
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
    Flaw("thread|core|exact", OLD, ".*", ".*", "forked", CRASHES, "will crash in libomp of LLVM 1[45]"),
    Flaw("rank|thread|core|exact", GOMP, OLD, ".*", "forked", CRASHES),
    Flaw(
        "exact", GOMP, ".*", ".*", "start early initial then plain spawned forked",
        "loading narrows the initial thread for good, and so all that it creates",
    ),
    Flaw("exact", GOMP, ".+", ".*", "second", "the second finds only the place of the initial thread"),
    Flaw(
        "exact", "libomp 14", ".*", ".*", "initial then plain spawned",
        "the first use narrows the initial thread, and KMP_AFFINITY=reset is unknown",
    ),
    Flaw("exact", "libomp 14", f"{GOMP}|{OPENBLAS}", "after", "second", "it finds only the first place"),
    Flaw("exact", RESETTING, GOMP, "after", "then plain spawned", "loading libgomp narrows it"),
    Flaw(
        "exact", "libomp.*|libiomp5", GOMP, "before", "region again initial then plain spawned",
        "libgomp has narrowed the initial thread before the other runtime reads its places",
    ),
    Flaw("exact", NEW, GOMP, "before", "forked", "it started with the CPUs that libgomp left"),
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
    """Return CPUs as cores with one CPU each; these tests need two."""
    return [(cpu,) for cpu in cpus]


def promise(bind, pair, cpus):
    """Return kind → thread → CPUs if only the threads of a region have places."""
    places, whole = places_of(bind, each_alone(cpus)), frozenset(cpus)
    team = {thread: places[thread] if len(places) > 1 else whole for thread in range(len(cpus))}
    own = {kind: {0: whole} for kind in ("start", "initial", "then", "spawned", "forked")}
    second = {"second": dict.fromkeys(range(len(cpus) - 1), whole) if pair.second == OPENBLAS else team}
    plain = {kind: dict.fromkeys(range(3), whole) for kind in ("early", "plain")}
    promised = {**own, **plain, "region": team, "again": team}
    return {**promised, **(second if pair.second else {})}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("programs")


def run_cases(ompbind, program, options, cases, **env):
    """Run all cases in one run; return the output of each rank, and stderr."""
    done = ompbind("run", *options, "--", str(program), *(pair.argument() for pair in cases), env=env)
    assert done.returncode == 0, done.stderr
    return read_cases(done.stdout), done.stderr


def check_inside(kinds, cpus):
    """Check that no thread of any kind was ever outside the CPUs of its rank."""
    for kind, threads in kinds.items():
        assert all(seen <= frozenset(cpus) for seen in threads.values()), (kind, threads)


def check_case(output, bind, name, pair, cpus):
    """Check that threads have the predicted CPUs, and break promises only where CANNOT_HOLD has a reason."""
    kinds = dict(output[pair.argument()])
    check_inside(kinds, cpus)
    assert "end" in kinds, "the program exited too early"
    tasks = kinds.pop("task").values()
    del kinds["end"]
    places = [] if (bind, name) in UNBOUND else places_of(bind, each_alone(cpus))
    predicted = predict_output(name, pair, cpus, places, reset=bind == "exact")
    check_output(kinds, predicted)
    if bind in ("rank", "none"):
        assert set(tasks) == {frozenset(cpus)}
    if len(cpus) > 1:
        promised = promise(bind, pair, cpus)
        broken = {kind for kind, threads in promised.items() if kinds.get(kind, {}) != threads}
        broken |= {"forked"} if "fork died" in predicted else set()
        assert broken == {kind for flaw in flaws(bind, name, pair) for kind in flaw.kinds.split()}


def check_warned(bind, name, said):
    """Check that ompbind warns of all that it can detect before it starts ranks."""
    joined = re.sub(r"\n +", " ", said)
    lines = [line for line in joined.splitlines() if line.startswith("ompbind: warning")]
    for flaw in flaws(bind, name, Pair()):
        assert not flaw.said or any(re.search(flaw.said, line) for line in lines), (flaw, said)


@every_bind
@every_runtime
def test_threads_and_children_of_one_rank(ompbind, directory, name, bind):
    cpus = two_cpus()
    cases = pairs(opposites(name))
    program = build_program(name, directory)
    output, said = run_cases(ompbind, program, ("-m", ",".join(map(str, cpus)), "--bind", bind), cases)
    for pair in cases:
        check_case(output[0], bind, name, pair, cpus)
    check_warned(bind, name, said)
    damaged = [pair for pair in cases if any(flaw.reason == CRASHES for flaw in flaws(bind, name, pair))]
    assert not damaged or any("fork died" in output[0][pair.argument()] for pair in damaged)


@pytest.mark.parametrize(
    ("name", "bind"),
    corners(
        itertools.product(RUNTIMES, BINDS),
        lambda name, bind: bind == "exact" or name in ("libgomp", "libomp 19"),
    ),
)
def test_two_ranks_share_no_cpu(ompbind, directory, name, bind):
    cpus = two_cpus()
    cases = pairs([other for other in opposites(name) if other in ("libomp 19", "libgomp of torch")])
    program = build_program(name, directory)
    options = ("-n", "2", "-m", "|".join(map(str, cpus)), "--bind", bind)
    output, _ = run_cases(ompbind, program, options, cases)
    for rank, pair in itertools.product((0, 1), cases):
        check_case(output[rank], bind, name, pair, cpus[rank : rank + 1])


@pytest.mark.parametrize(
    ("name", "bind"),
    corners(
        itertools.product(RUNTIMES, ("rank", "none", "thread", "core")),
        lambda name, bind: bind == "rank" or (bind, name) == ("thread", "libgomp"),
    ),
)
def test_no_worker_runs_on_service_cpus(ompbind, directory, name, bind):
    """One CPU computes, with two threads; the initial thread, and what it creates, may use both."""
    both = two_cpus()
    compute, whole = frozenset(both[:1]), frozenset(both)
    cases = pairs(opposites(name))
    options = ("-m", ",".join(map(str, both)), "--service-cores", "1", "-t", "2", "--bind", bind)
    output, said = run_cases(ompbind, build_program(name, directory), options, cases)
    has_places = bind != "none" and (bind, name) not in UNBOUND
    places = places_of(bind, each_alone(both[:1] * 2), both[1:]) if has_places else []
    team = {0: whole, 1: compute if has_places else whole}
    for pair in cases:
        kinds = dict(output[0][pair.argument()])
        assert "end" in kinds, "the program exited too early"
        assert kinds["region"] == kinds["again"] == team
        assert not pair.second or kinds["second"] == ({0: whole} if pair.second == OPENBLAS else team)
        assert kinds["early"] == kinds["plain"] == dict.fromkeys(range(3), whole)
        assert kinds["start"] == kinds["initial"] == kinds["then"] == kinds["spawned"] == {0: whole}
        del kinds["end"], kinds["task"]
        check_output(kinds, predict_output(name, pair, both, places, reset=False))
    assert ("OpenMP workers of rank 0 may use service CPUs" in said) == ((bind, name) in UNBOUND)


@pytest.mark.parametrize(
    ("name", "pair"),
    [("libomp 14", Pair("before", "libomp 19")), ("libomp 19", Pair("after", "libiomp5"))],
    ids=str,
)
def test_two_runtimes_of_llvm_abort_or_hang_inside_their_cpus(ompbind, directory, name, pair):
    """The second runtime aborts ("OMP: Error #15") or waits forever, bound or not."""
    cpus = two_cpus()
    assert is_llvm(name)
    assert is_llvm(pair.second)
    options = ("-m", ",".join(map(str, cpus)))
    program = build_program(name, directory)
    output, _ = run_cases(ompbind, program, options, [Pair(), pair], REGIONS_PATIENCE_S="2")
    kinds = output[0][pair.argument()]
    check_inside(kinds, cpus)
    assert set(kinds["died"]) <= {*CRASHED, 128 + signal.SIGALRM}
    assert "end" not in kinds


@every_bind
@pytest.mark.parametrize("ranks", [1, 2])
def test_probe_finds_the_same_cpus_in_every_runtime(ompbind, tmp_path, bind, ranks):
    cpus = two_cpus()
    installed = [name for name in RUNTIMES if is_installed(name)]
    for name in installed:
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
    for rank, name in itertools.product(range(ranks), installed):
        own = cpus if ranks == 1 else cpus[rank : rank + 1]
        seen = {
            line["thread"]: cpus_of(line["cpus_allowed"])
            for line in lines
            if line["rank"] == rank and line["path"] and os.path.realpath(line["path"]) == path_of(name)
        }
        assert seen == promise(bind, Pair(), own)["region"], name


ORDERS = [
    *(("torch sklearn", bind) for bind in BINDS),
    *itertools.product(("torch numpy", "numpy torch", "sklearn torch"), ("rank", "exact")),
]


@pytest.mark.part("torch")
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


def check_python(output, libraries, bind, cpus):
    """Check that only exact narrows other threads: once the first library has loaded libgomp."""
    whole, main = frozenset(cpus), frozenset(cpus)
    for case in ("start", *libraries):
        check_inside(output[case], cpus)
        main = frozenset(cpus[:1]) if bind == "exact" and case in ("torch", "sklearn") else main
        assert {seen for threads in output[case].values() for seen in threads.values()} == {main}, case
    check_inside(output["end"], cpus)
    tasks = set(output["end"]["task"].values())
    assert tasks <= {whole, *places_of(bind, each_alone(cpus))}
    assert tasks == {whole} or bind not in ("rank", "none")


@pytest.mark.part("torch")
@pytest.mark.parametrize("bind", corners([("rank",), ("exact",)], lambda bind: bind == "exact"))
def test_two_python_programs_share_no_cpu(ompbind, bind):
    needs_packages("torch", "numpy", "sklearn")
    cpus = two_cpus()
    options = ("-n", "2", "-m", "|".join(map(str, cpus)), "--bind", bind)
    done = ompbind("run", *options, "--", sys.executable, str(HERE / "mixed.py"), "torch", "sklearn")
    assert done.returncode == 0, done.stderr
    for rank, cpu in enumerate(cpus):
        check_python(read_cases(done.stdout)[rank], ["torch", "sklearn"], bind, [cpu])


@pytest.mark.part("torch")
@pytest.mark.parametrize("bind", corners(zip(BINDS), lambda bind: bind in ("rank", "thread", "exact")))
def test_a_preloaded_runtime_over_torch(ompbind, bind):
    """Calls of torch go to the preloaded runtime, but the libgomp of torch is loaded too.

    With places of one CPU each, the initial thread and the whole team would have one CPU. Therefore exact
    lists the CPUs for the preloaded runtime only, which restores the initial thread after each region.
    """
    needs_packages("torch")
    cpus = two_cpus()
    options = ("-m", ",".join(map(str, cpus)), "--bind", bind, "--preload", path_of("libiomp5"))
    done = ompbind("run", *options, "--", sys.executable, str(HERE / "mixed.py"), "torch")
    assert done.returncode == 0, done.stderr
    output = read_cases(done.stdout)[0]
    assert done.stderr == ""
    check_python(output, ["torch"], "thread" if bind == "exact" else bind, cpus)
    team = {frozenset(cpus)} if bind in ("rank", "none") else {frozenset(cpus), frozenset(cpus[1:])}
    assert set(output["end"]["task"].values()) == team
