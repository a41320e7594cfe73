"""Real OpenMP runtimes on two packages with hyper-threads: two ranks with several cores each.

Programs are built outside and run inside: a virtual machine has this machine's files. One boot runs all.
"""

import json
import sys

import pytest

from tests.live import runtimes
from tests.live.conftest import OMPBIND
from tests.vm.conftest import run_in_machine

ALL, ONE = "-n 2 --smt all", "-n 2"
CORES = {
    ALL: [[(0, 1), (2, 3), (4, 5), (6, 7)], [(8, 9), (10, 11), (12, 13), (14, 15)]],
    ONE: [[(0,), (2,), (4,), (6,)], [(8,), (10,), (12,), (14,)]],
}
"""Options → the cores of each rank."""
NAMES = ("libgomp", "libomp 14", "libomp 19", "libiomp5")
RUNS = [
    *((ALL, bind, name) for bind in ("none", "exact") for name in NAMES),
    *((ALL, "rank", name) for name in NAMES if name != "libomp 14"),
    (ALL, "thread", "libgomp"), (ALL, "core", "libomp 19"), (ONE, "exact", "libomp 19"),
]  # fmt: skip
INSIDE = """
import json, subprocess, sys
for command in json.loads(sys.argv[1]):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    print(json.dumps([done.returncode, done.stdout, done.stderr]))
"""


@pytest.mark.part("vm")
def test_threads_of_ranks_with_several_cores_run_on_their_places(tmp_path):
    runs = [
        (options, bind, name, runtimes.Pair(*("after", "libgomp") * (name == "libomp 19")))
        for options, bind, name in RUNS
        if runtimes.is_installed(name)
    ]
    programs = {name: str(runtimes.build_program(name, tmp_path)) for _, _, name, _ in runs}
    commands = [
        [OMPBIND, "run", *options.split(), "--bind", bind, "--", programs[name], pair.argument()]
        for options, bind, name, pair in runs
    ]
    output = run_in_machine(("--topology", "dual16"), sys.executable, "-c", INSIDE, json.dumps(commands))
    for run, line in zip(runs, output.splitlines(), strict=True):
        check_run(*run, *json.loads(line))


@pytest.mark.part("vm")
def test_each_isolated_cpu_has_one_thread(tmp_path):
    """The initial thread is on the first CPU of the mask; the kernel would not move it from another CPU."""
    probe = [OMPBIND, "probe", "--format", "json"]
    one_rank = ["exec", "--local-rank", "0", "--local-size", "1"]
    commands = [[OMPBIND, *verb, "-m", "5,2-4", "--", *probe] for verb in (["run"], one_rank)]
    machine = ("--topology", "dual16", "--append", "isolcpus=2-5")
    output = run_in_machine(machine, sys.executable, "-c", INSIDE, json.dumps(commands))
    for line in output.splitlines():
        code, printed, errors = json.loads(line)
        threads = [json.loads(row) for row in printed.splitlines()]
        assert (code, {thread["thread"] for thread in threads}) == (0, {0, 1, 2, 3}), errors
        assert all(thread["cpu"] == [5, 2, 3, 4][thread["thread"]] for thread in threads)


def check_run(options, bind, name, pair, code, output, errors):
    """All threads have CPUs of the rank, threads of a region their places; without places, all CPUs."""
    assert code == 0, (options, bind, name, errors)
    printed = runtimes.read_cases(output)
    assert set(printed) == {0, 1}
    for rank, cores in enumerate(CORES[options]):
        masks = printed[rank][pair.argument()]
        cpus = frozenset(cpu for core in cores for cpu in core)
        assert all(mask <= cpus for threads in masks.values() for mask in threads.values())
        kinds = {kind: threads for kind, threads in masks.items() if kind not in ("task", "end")}
        expected = runtimes.predict_output(name, pair, cpus, runtimes.places_of(bind, cores), bind == "exact")
        runtimes.check_output(kinds, expected)
