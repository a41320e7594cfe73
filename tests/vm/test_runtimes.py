"""Real OpenMP runtimes on two packages with hyper-threads: two ranks, each with several cores.

Programs are built outside and run inside: a virtual machine has this machine's files. One boot runs all.
"""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.conftest import OMPBIND
from tests.live.runtimes import (
    UNBOUND,
    Pair,
    build_program,
    check_output,
    is_installed,
    is_llvm,
    places_of,
    predict_output,
    read_cases,
)
from tests.long import LONG
from tests.vm.conftest import BOOT_S, MACHINE_FAILED, TOOL, last_line, what_is_missing

pytestmark = pytest.mark.part("vm")

NAMES = ("libgomp", "libgomp of torch", "libomp 14", "libomp 19", "libiomp5")
SERVED = "-n 2 --smt all -c 2 --service-cores 1"
SHARES = {
    "-n 2 --smt all": [[(0, 1), (2, 3), (4, 5), (6, 7)], [(8, 9), (10, 11), (12, 13), (14, 15)]],
    "-n 2": [[(0,), (2,), (4,), (6,)], [(8,), (10,), (12,), (14,)]],
    SERVED: [[(0, 1), (2, 3)], [(8, 9), (10, 11)]],
}
"""Options → the cores of each rank."""

SERVICE = {SERVED: [(4, 5), (12, 13)]}
"""Options → the service CPUs of each rank."""

ALL, ONE = "-n 2 --smt all", "-n 2"
CORNERS = [
    *itertools.product([ALL], ["rank", "exact"], NAMES),
    (ALL, "thread", "libgomp"),
    (ALL, "core", "libomp 19"),
    (ONE, "none", "libgomp"),
    (ONE, "exact", "libomp 19"),
    *itertools.product([SERVED], ["rank", "thread", "core"], ["libgomp", "libomp 19", "libiomp5"]),
]
EVERY = [
    *itertools.product([ALL], ["rank", "thread", "core", "exact"], NAMES),
    *itertools.product([ONE], ["none", "exact"], ["libgomp", "libomp 19"]),
    *itertools.product([SERVED], ["rank", "none", "thread", "core"], NAMES),
]
RUNS = EVERY if LONG else CORNERS


def cases_of(name):
    """A runtime alone, and with a runtime of the other family."""
    second = "libgomp" if is_llvm(name) else "libomp 19"
    return [Pair(), *([Pair("after", second)] if is_installed(second) else [])]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """(options, mode, runtime) → result of the run inside, for all installed runtimes."""
    if missing := what_is_missing():
        pytest.skip(f"NOTE: no virtual machines: {missing}")
    directory = tmp_path_factory.mktemp("programs")
    runs = [run for run in RUNS if is_installed(run[2])]
    done = boot([command_of(*run, build_program(run[2], directory)) for run in runs])
    if done.returncode in MACHINE_FAILED and not os.environ.get("OMPTEST_ALL"):
        pytest.skip(f"NOTE: no virtual machine: {last_line(done.stderr)}")
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(runs, json.loads(done.stdout), strict=True))


def command_of(options, bind, name, program):
    cases = [pair.argument() for pair in cases_of(name)]
    return [OMPBIND, "run", *options.split(), "--bind", bind, "--", os.fspath(program), *cases]


def boot(commands):
    inside = [sys.executable, os.fspath(Path(__file__).with_name("each.py")), json.dumps(commands)]
    command = [TOOL, "--timeout", str(BOOT_S), "--topology", "dual16", "--", *inside]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=BOOT_S + 60, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize(("options", "bind", "name"), RUNS)
def test_threads_run_on_their_places(results, options, bind, name):
    if (options, bind, name) not in results:
        pytest.skip(f"{name} is not installed")
    done = results[options, bind, name]
    assert done["code"] == 0, done["err"]
    printed = read_cases(done["out"])
    assert set(printed) == {0, 1}
    service = SERVICE.get(options, [(), ()])
    for (rank, cores), pair in itertools.product(enumerate(SHARES[options]), cases_of(name)):
        check_rank(printed[rank][pair.argument()], (bind, name, pair), cores, service[rank])


def check_rank(masks, case, cores, service):
    """All threads have CPUs of the rank, threads of a region their places; without places, all CPUs.

    `masks` are the affinity masks of threads, by the kind of thread.
    """
    bind, name, pair = case
    compute = frozenset(cpu for core in cores for cpu in core)
    cpus = compute.union(service)
    kinds = {kind: threads for kind, threads in masks.items() if kind not in ("task", "end")}
    assert "end" in masks
    assert all(mask <= cpus for threads in masks.values() for mask in threads.values())
    places = [] if service and (bind, name) in UNBOUND else places_of(bind, cores, service)
    reset = bind == "exact"
    check_output(kinds, predict_output(name, pair, cpus, places, reset, threads=len(compute)))
    if service and places:
        assert all(mask <= compute for thread, mask in kinds["region"].items() if thread)
    elif bind in ("rank", "none"):
        assert set(masks["task"].values()) == {cpus}
