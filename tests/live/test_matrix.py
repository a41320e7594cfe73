"""Every binding mode with every OpenMP runtime, alone and with a second runtime: the CPUs of all threads.

Threads and child processes print their affinity masks. `runtimes.predict_output` models what each runtime
does with places, and so which promises of a mode a runtime cannot keep.
"""

import itertools

import pytest

from tests.live.conftest import two_cpus
from tests.live.runtimes import (
    BINDS,
    RUNTIMES,
    UNBOUND,
    build_program,
    check_output,
    opposites,
    pairs,
    places_of,
    predict_output,
    read_cases,
)


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
    for kind, threads in kinds.items():
        assert all(seen <= frozenset(cpus) for seen in threads.values()), (kind, threads)


def check_case(output, bind, name, pair, cpus):
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
