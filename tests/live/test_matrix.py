"""Every binding mode with every OpenMP runtime, alone and with a second runtime: the CPUs of all threads.

Threads and child processes print their affinity masks. `runtimes.predict_output` models what each runtime
does with places, and so which promises of a mode a runtime cannot keep.
"""

import itertools
import json
import os
import sys
from pathlib import Path

import pytest

from tests.live.conftest import two_cpus
from tests.live.runtimes import (
    BINDS,
    OPENBLAS,
    RUNTIMES,
    UNBOUND,
    build_program,
    check_output,
    cpus_of,
    is_installed,
    needs_packages,
    opposites,
    pairs,
    path_of,
    places_of,
    predict_output,
    read_cases,
)

HERE = Path(__file__).parent


def corners(rows, is_corner):
    """Return rows of a table as parameters; rows that prove nothing new are marked as long."""

    def marks_of(*row):
        marks = [] if is_corner(*row) else [pytest.mark.long]
        return [pytest.mark.part("torch"), *marks] if "torch" in row[0] else marks

    return [pytest.param(*row, marks=marks_of(*row)) for row in rows]


def each_alone(cpus):
    """Return CPUs as cores with one CPU each; these tests need two."""
    return [(cpu,) for cpu in cpus]


@pytest.fixture(scope="module")
def run_cases(tmp_path_factory):
    """Run all cases of a program with a runtime in one run; return the output of each rank, and stderr."""
    directory = tmp_path_factory.mktemp("programs")

    def run(ompbind, name, options, cases, **env):
        program = build_program(name, directory)
        done = ompbind("run", *options, "--", str(program), *(pair.argument() for pair in cases), env=env)
        assert done.returncode == 0, done.stderr
        return read_cases(done.stdout), done.stderr

    return run


def check_inside(kinds, cpus):
    """Check that no thread of any kind was ever outside the CPUs of its rank."""
    for kind, threads in kinds.items():
        assert all(seen <= frozenset(cpus) for seen in threads.values()), (kind, threads)


def check_case(output, bind, name, pair, cpus):
    """Check that threads have the predicted CPUs."""
    kinds = dict(output[pair.argument()])
    check_inside(kinds, cpus)
    assert "end" in kinds, "the program exited too early"
    tasks = kinds.pop("task").values()
    del kinds["end"]
    places = [] if (bind, name) in UNBOUND else places_of(bind, each_alone(cpus))
    check_output(kinds, predict_output(name, pair, cpus, places, reset=bind == "exact"))
    if bind in ("rank", "none"):
        assert set(tasks) == {frozenset(cpus)}


@pytest.mark.parametrize(
    ("name", "bind"),
    corners(
        itertools.product(RUNTIMES, BINDS),
        lambda name, bind: bind in ("rank", "exact") or name in ("libgomp", "libomp 14", "libomp 19"),
    ),
)
def test_threads_and_children_of_one_rank(ompbind, run_cases, name, bind):
    cpus = two_cpus()
    cases = pairs(opposites(name))
    output, said = run_cases(ompbind, name, ("-m", ",".join(map(str, cpus)), "--bind", bind), cases)
    for pair in cases:
        check_case(output[0], bind, name, pair, cpus)
    crashes = RUNTIMES[name].crashes_forks and bind not in ("rank", "none")
    assert ("will crash in libomp of LLVM 1" in " ".join(said.split())) == crashes
    assert not crashes or any("fork died" in kinds for kinds in output[0].values())


@pytest.mark.parametrize(
    ("name", "bind"),
    corners(
        itertools.product(RUNTIMES, BINDS),
        lambda name, bind: (bind == "exact" and "16" not in name) or name == "libgomp",
    ),
)
def test_two_ranks_share_no_cpu(ompbind, run_cases, name, bind):
    cpus = two_cpus()
    cases = pairs([other for other in opposites(name) if other in ("libomp 19", "libgomp of torch")])
    options = ("-n", "2", "-m", "|".join(map(str, cpus)), "--bind", bind)
    output, _ = run_cases(ompbind, name, options, cases)
    for rank, pair in itertools.product((0, 1), cases):
        check_case(output[rank], bind, name, pair, cpus[rank : rank + 1])


@pytest.mark.parametrize(
    ("name", "bind"),
    corners(
        itertools.product(RUNTIMES, ("rank", "none", "thread", "core")),
        lambda name, bind: (
            (bind, name) == ("thread", "libgomp")
            or (bind == "rank" and name in ("libgomp", "libomp 14", "libomp 19", "libiomp5"))
        ),
    ),
)
def test_no_worker_runs_on_service_cpus(ompbind, run_cases, name, bind):
    """One CPU computes, with two threads; the initial thread, and what it creates, may use both."""
    both = two_cpus()
    compute, whole = frozenset(both[:1]), frozenset(both)
    cases = pairs(opposites(name))
    options = ("-m", ",".join(map(str, both)), "--service-cores", "1", "-t", "2", "--bind", bind)
    output, said = run_cases(ompbind, name, options, cases)
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
    ("bind", "ranks"),
    corners(itertools.product(BINDS, (1, 2)), lambda bind, ranks: bind in ("rank", "exact") or ranks == 1),
)
def test_probe_finds_the_same_cpus_in_every_runtime(ompbind, tmp_path, bind, ranks):
    cpus = two_cpus()
    installed = [name for name in RUNTIMES if is_installed(name)]
    (tmp_path / "lib").mkdir()
    for name in installed:
        stem = "libgomp" if name.startswith("libgomp") else name.split()[0]
        (tmp_path / "lib" / f"{stem}-{name.replace(' ', '-')}.so").symlink_to(path_of(name))
    mask = (",", "|")[ranks - 1].join(map(str, cpus))
    words = (
        "run",
        "-n",
        str(ranks),
        "-m",
        mask,
        "--bind",
        bind,
        "--",
        "ompbind",
        "probe",
        "--format",
        "json",
    )
    done = ompbind(*words, env={"CONDA_PREFIX": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    for rank, name in itertools.product(range(ranks), installed):
        own = cpus if ranks == 1 else cpus[rank : rank + 1]
        seen = {
            line["thread"]: cpus_of(line["cpus_allowed"])
            for line in lines
            if line["rank"] == rank and line["path"] and os.path.realpath(line["path"]) == path_of(name)
        }
        places = places_of(bind, each_alone(own))
        assert seen == {n: places[n] if len(places) > 1 else frozenset(own) for n in range(len(own))}, name


def run_python(ompbind, libraries, *options):
    """Run mixed.py with some libraries on one or two ranks; return its output and stderr."""
    needs_packages(*libraries)
    done = ompbind("run", *options, "--", sys.executable, str(HERE / "mixed.py"), *libraries)
    assert done.returncode == 0, done.stderr
    return read_cases(done.stdout), done.stderr


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
@pytest.mark.parametrize(
    ("order", "bind"),
    [
        *itertools.product(["torch sklearn"], BINDS),
        *itertools.product(("torch numpy", "numpy torch", "sklearn torch"), ("rank", "exact")),
    ],
)
def test_a_python_program_with_several_libraries(ompbind, bind, order):
    cpus, libraries = two_cpus(), order.split()
    output, said = run_python(ompbind, libraries, "-m", ",".join(map(str, cpus)), "--bind", bind)
    assert ("warning: --bind exact leaves the initial thread" in said) == (bind == "exact")
    check_python(output[0], libraries, bind, cpus)


@pytest.mark.part("torch")
@pytest.mark.parametrize("bind", ["rank", "exact"])
def test_two_python_programs_share_no_cpu(ompbind, bind):
    cpus, libraries = two_cpus(), ["torch", "sklearn"]
    output, _ = run_python(ompbind, libraries, "-n", "2", "-m", "|".join(map(str, cpus)), "--bind", bind)
    for rank, cpu in enumerate(cpus):
        check_python(output[rank], libraries, bind, [cpu])


@pytest.mark.part("torch")
@pytest.mark.parametrize("bind", BINDS)
def test_a_preloaded_runtime_over_torch(ompbind, bind):
    """Calls of torch go to the preloaded runtime, but the libgomp of torch is loaded too.

    With places of one CPU each, the initial thread and the whole team would have one CPU. Therefore exact
    lists the CPUs for the preloaded runtime only, which restores the initial thread after each region.
    """
    cpus = two_cpus()
    options = ("-m", ",".join(map(str, cpus)), "--bind", bind, "--preload", path_of("libiomp5"))
    output, said = run_python(ompbind, ["torch"], *options)
    assert said == ""
    check_python(output[0], ["torch"], "thread" if bind == "exact" else bind, cpus)
    team = {frozenset(cpus)} if bind in ("rank", "none") else {frozenset(cpus), frozenset(cpus[1:])}
    assert set(output[0]["end"]["task"].values()) == team
