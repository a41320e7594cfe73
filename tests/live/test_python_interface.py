"""`placed` and `bind_process`: workers and this process are bound as planned, and it is restored."""

import multiprocessing
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import SimpleQueue

import pytest

import ompbind
from ompbind import Bind, Request, bind_process, make_environment, make_plan, placed, read_machine, unbind
from ompbind.machine.read.linux import make_counted_machine
from tests.live.conftest import allowed_list, clean_environment, read_masks, run_program, two_cpus, wait_until
from tests.live.runtimes import path_of

SHOW = ["sh", "-c", "grep Cpus_allowed_list /proc/self/status; echo $OMP_NUM_THREADS-$RANK"]


def state():
    """Return all that must be restored; `environment` is that of children: from C, not from os.environ."""
    pairs = subprocess.run(["env", "-0"], capture_output=True, check=True).stdout.split(b"\0")
    return {
        "threads": read_masks(),
        "variables": {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        "environment": sorted(pair for pair in pairs if not pair.startswith(b"PYTEST_")),
        "method": multiprocessing.get_start_method(allow_none=True),
    }


def is_restored(before):
    """Return whether all is as in an earlier state. Threads of earlier tests may have exited since."""
    now = state()
    threads = now.pop("threads")
    return threads.items() <= before["threads"].items() and {**now, "threads": before["threads"]} == before


@pytest.fixture
def cpus():
    return two_cpus()


@pytest.fixture
def plan(cpus):
    mask = ompbind.parse_mask("{}|{}".format(*cpus))
    return make_plan(read_machine(), Request(ranks=2, mask=mask, threads=3))


@pytest.fixture(autouse=True)
def _as_before():
    multiprocessing.get_start_method()  # sets the default, as a fork server does
    before = state()
    yield
    wait_until(lambda: is_restored(before), "all is restored")  # joined threads exit a moment later


@pytest.fixture
def start_thread():
    """Start a thread that waits until the end of the test, after some work, and return its TID."""
    done, tids = threading.Event(), SimpleQueue()
    with ThreadPoolExecutor() as executor:  # no thread becomes idle, so each call starts one

        def start(work=lambda: None):
            executor.submit(lambda: (work(), tids.put(threading.get_native_id()), done.wait()))
            return str(tids.get(timeout=20))

        yield start
        done.set()


def show():
    return subprocess.run(SHOW, capture_output=True, text=True).stdout.split()[1:]


def report():
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    return set(read_masks().values()), env  # readline sets the other two for child processes only


def run_python(text, directory, *args):
    """Run a program, which may load OpenMP runtimes, from a file: workers import it."""
    (directory / "program.py").write_text(text)
    return run_program(sys.executable, directory / "program.py", *map(str, args))


@pytest.mark.parametrize("context", [None, multiprocessing.get_context("spawn")])
def test_workers_are_bound_as_planned_one_after_the_other(plan, cpus, context):
    for rank in (0, 1):
        expected = make_environment(plan, rank, report()[1], run_id="mine")
        with placed(plan, rank, run_id="mine") as placement:
            with ProcessPoolExecutor(1, context) as executor:
                threads, env = executor.submit(report).result()
            assert show() == [str(cpus[rank]), f"3-{rank}"]
        assert placement == plan.placements[rank]
        assert (threads, env) == ({str(cpus[rank])}, expected)
        assert env["OMP_PLACES"] == f"{{{cpus[rank]}}}"
        assert (env["WORLD_SIZE"], env["OMPBIND_WORKER_NAME"]) == ("2", f"mine-rank-{rank}")


def test_everything_is_restored_if_the_body_fails_or_nothing_can_be_bound_or_set(plan, start_thread):
    start_thread()
    before = state()
    with suppress(GeneratorExit), placed(plan, 0):
        os.environ["OMP_PLACES"] = "{7}"
        del os.environ["OMPBIND_CPUS"]
        raise GeneratorExit
    assert state() == before
    wrong = plan.replace(placements=(plan.placements[0].replace(cpus=(0, 8191)),))
    with pytest.raises(ompbind.LaunchError, match="8191") as failure, placed(wrong, 0):
        raise AssertionError("the body ran")
    assert "changed since they were read" in failure.value.hint
    with pytest.raises(ompbind.LaunchError, match="8191"):
        bind_process(wrong, 0)
    assert state() == before
    errors = (({"A=B": "1"}, ValueError), ({"A": 1}, ompbind.RequestError), ({"A": "\0"}, ValueError))
    for wrong, error in errors:
        with pytest.raises(error), placed(plan, 0, extra={"FIRST": "1", **wrong}):
            raise AssertionError("the body ran")
        assert state() == before


def test_variables_of_ompbind_are_restored_and_others_keep_changes_of_the_body(plan):
    names = ("RANK", "GOMP_CPU_AFFINITY", "PORT", "SPACE", "KMP_AFFINITY", "OTHER")
    with pytest.MonkeyPatch.context() as patch:  # undone before the state of this process is compared
        for name, value in {"RANK": "7", "GOMP_CPU_AFFINITY": "0-99", "PORT": "8000", "OTHER": "x"}.items():
            patch.setenv(name, value)
        with placed(plan, 0, extra={"SPACE": "4", "OMP_NUM_THREADS": "1", "PORT": None}):
            found = [os.environ.get(name) for name in (*names, "OMP_NUM_THREADS")]
            assert found == ["0", None, None, "4", None, "x", "1"]
            for name in names:
                os.environ[name] = "mine"
        found = [os.environ.get(name) for name in names]
        assert found == ["7", "0-99", "8000", None, None, "mine"]


def test_threads_take_turns_and_bind_only_themselves(plan, cpus):
    main_cpus, found = allowed_list(os.getpid()), []

    def place(rank):
        for _ in range(5):
            with placed(plan, rank):
                found.append(show() == [str(cpus[rank]), f"3-{rank}"])
                found.append(allowed_list(os.getpid()) == main_cpus)
            found.append(set(cpus) <= os.sched_getaffinity(0))

    with ThreadPoolExecutor(4) as executor:
        [*executor.map(place, (0, 1, 0, 1))]
    assert found == [True] * 60


def test_a_thread_cannot_enter_twice_and_another_may_exit(plan, cpus):
    stack = ExitStack()
    stack.enter_context(placed(plan, 0))
    with pytest.raises(ompbind.LaunchError, match="cannot be nested"), placed(plan, 1):
        raise AssertionError("the body ran")
    assert (os.sched_getaffinity(0), os.environ["RANK"]) == ({cpus[0]}, "0")
    closing = threading.Thread(target=stack.close)
    closing.start()
    closing.join()
    assert set(cpus) <= os.sched_getaffinity(0)


def test_without_binding_only_the_variables_are_set():
    plan = make_plan(make_counted_machine(2, 2, "Elsewhere"), Request(ranks=2, bind=Bind.EXACT))
    before = read_masks()
    with placed(plan, 1):
        env = report()[1]
        assert read_masks() == before
    assert (env["OMP_NUM_THREADS"], env["OMP_PROC_BIND"], env["RANK"]) == ("1", "false", "1")
    assert env["OMPBIND_RUN_ID"] == f"python-{os.getpid()}"
    assert "OMP_PLACES" not in env
    bind_process(plan, 1)
    assert (read_masks(), os.environ["OMP_NUM_THREADS"]) == (before, "1")
    unbind()


def test_unknown_ranks_and_recorded_machines_are_refused(plan):
    recorded = make_plan(read_machine("synthetic:core:2 pu:1"), Request(ranks=2))
    for given, rank, said in ((plan, 2, "no rank 2"), (plan, -1, "no rank -1"), (recorded, 0, "synthetic:")):
        with pytest.raises(ompbind.RequestError, match=said), placed(given, rank):
            raise AssertionError("the body ran")
        with pytest.raises(ompbind.RequestError, match=said):
            bind_process(given, rank)


@pytest.mark.two_cpus
def test_environments_equal_those_of_ompbind_run(ompbind, tmp_path):
    inherited = {"OMP_NUM_THREADS": "64", "KMP_AFFINITY": "compact", "RANK": "9"}
    script = f"exec cat /proc/self/environ > {tmp_path}/$RANK"
    options = ("-n", "2", "--bind", "thread", "--run-id", "r")
    assert ompbind("run", *options, "--", "sh", "-c", script, env=inherited).returncode == 0
    plan = make_plan(read_machine(), Request(ranks=2, bind=Bind.THREAD))
    for rank in (0, 1):
        env = make_environment(plan, rank, clean_environment(**inherited), run_id="r")
        text = (tmp_path / str(rank)).read_bytes().decode()
        seen = dict(pair.split("=", 1) for pair in text.rstrip("\0").split("\0"))
        assert {**seen, "_": "", "PWD": ""} == {**env, "_": "", "PWD": ""}  # the shell sets these


HEAD = """
import multiprocessing, os, time
from ompbind import Request, make_plan, parse_mask, placed, read_machine

def main():
    before = os.sched_getaffinity(0)
    plan = make_plan(read_machine(), Request(mask=parse_mask(str(min(before)))))
"""
TAIL = """
if __name__ == "__main__":
    main()
"""

FORKED = """
    with placed(plan, 0):
        child = os.fork()
        if child:
            os.waitpid(child, 0)
    who = "parent" if child else "child"
    print(who, os.sched_getaffinity(0) == before, "RANK" in os.environ, flush=True)
    with placed(plan, 0):
        pass
    if child == 0:
        os._exit(0)
    with placed(plan, 0):
        worker = multiprocessing.Process(target=inner)
        worker.start()
    worker.join()
    for pid in open(f"/proc/self/task/{os.getpid()}/children").read().split():
        if "resource_tracker" in open(f"/proc/{pid}/cmdline").read():
            variables = open(f"/proc/{pid}/environ").read()
            print("tracker", os.sched_getaffinity(int(pid)) == before, "OMPBIND_RANK" in variables)

def inner():
    plan = make_plan(read_machine(), Request())
    print("worker", len(plan.placements[0].cpus), flush=True)
"""


def test_a_forked_child_restores_itself_and_the_resource_tracker_of_a_worker_is_not_bound(tmp_path):
    """The child can enter again, and the worker plans within its CPUs."""
    done = run_python(HEAD + FORKED + TAIL, tmp_path)
    assert done.stdout == "child True False\nparent True False\nworker 1\ntracker True False\n"
    assert done.stderr == ""


OTHERWISE = """
    multiprocessing.set_start_method("{method}")
    with placed(plan, 0):
        default = multiprocessing.Process(target=time.sleep, args=(60,))
        other = multiprocessing.get_context("{method}").Process(target=time.sleep, args=(60,), name="W")
        default.start()
        other.start()
        print(multiprocessing.get_start_method(), end=" ")
    print(multiprocessing.get_start_method(), os.sched_getaffinity(0) == before)
    print(len(os.sched_getaffinity(default.pid)))
    default.kill()
    other.kill()
"""


@pytest.mark.parametrize(("method", "said"), [
    ("spawn", ""), ("fork", "W: it was forked"), ("forkserver", "W: it was started by the fork server"),
])  # fmt: skip
def test_workers_that_are_not_spawned_are_warned_about(tmp_path, method, said):
    done = run_python(HEAD + OTHERWISE.format(method=method) + TAIL, tmp_path)
    assert done.stdout == f"spawn {method} True\n1\n"
    assert (f"program.py:10: RuntimeWarning: {said}" if said else "") in done.stderr
    assert done.stderr.count("RuntimeWarning") == bool(said)


def test_bind_process_binds_all_threads_and_unbind_restores_them(plan, cpus, start_thread):
    narrow = start_thread(lambda: os.sched_setaffinity(0, {cpus[1]}))
    start_thread()
    before = state()
    binding = bind_process(plan, 0, run_id="mine", extra={"PORT": "8000"})
    assert binding.placement == plan.placements[0]
    assert set(read_masks().values()) == {str(cpus[0])}
    assert os.environ == make_environment(plan, 0, run_id="mine", extra={"PORT": "8000"})
    assert (os.environ["OMP_NUM_THREADS"], os.environ["PORT"], show()) == ("3", "8000", [str(cpus[0]), "3-0"])
    inherited = start_thread()
    elsewhere = start_thread(lambda: os.sched_setaffinity(0, {cpus[1]}))
    assert read_masks()[inherited] == str(cpus[0])
    with pytest.raises(ompbind.LaunchError, match="already") as failure:
        bind_process(plan, 1)
    assert failure.value.hint == "call unbind() first"
    with placed(plan, 1):
        assert os.sched_getaffinity(0) == {cpus[1]}
        with pytest.raises(ompbind.LaunchError, match="inside 'with placed"):
            unbind()
    assert os.sched_getaffinity(0) == {cpus[0]}
    unbind()
    masks = read_masks()
    assert masks.pop(elsewhere) == masks[narrow] == str(cpus[1])
    assert masks.pop(inherited) == masks[str(os.getpid())]
    assert {**state(), "threads": masks} == before
    with pytest.raises(ompbind.LaunchError, match="not bound by bind_process"):
        unbind()
    with placed(plan, 0), pytest.raises(ompbind.LaunchError, match="inside 'with placed"):
        bind_process(plan, 1)


def test_the_number_of_threads_of_numba_is_not_changed_if_numba_is_imported(plan, monkeypatch):
    """Numba refuses to compile if the variable changes after its threads have started."""
    for module, extra, number in ((None, {}, "3"), (sys, {}, None), (sys, {"NUMBA_NUM_THREADS": "2"}, "2")):
        if module:
            monkeypatch.setitem(sys.modules, "numba", module)
        bind_process(plan, 0, extra=extra)
        assert (os.environ.get("NUMBA_NUM_THREADS"), os.environ["OMP_NUM_THREADS"]) == (number, "3")
        unbind()


def bind_and_report(plan, rank):
    """Return the masks and variables of this process before it is bound, while it is bound, and after."""
    found = [report()]
    bind_process(plan, rank)
    found.append(report())
    unbind()
    return [*found, report()]


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_child_of_a_bound_process_can_bind_itself(plan, cpus, method):
    bind_process(plan, 0)
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as executor:
            before, bound, after = executor.submit(bind_and_report, plan, 1).result()
        assert (bound[0], bound[1]["RANK"], after) == ({str(cpus[1])}, "1", before)
        assert method == "forkserver" or before == report()
        assert report()[0] == {str(cpus[0])}
    finally:
        unbind()


CALLED = """
import ctypes, os, sys
from ompbind import *
library = ctypes.CDLL(sys.argv[1])
plan = make_plan(read_machine(), Request(threads=1))

def call():
    before = os.sched_getaffinity(0), dict(os.environ)
    try:
        (runtime,) = bind_process(plan, 0).runtimes
        print(runtime.family.value, os.path.samefile(runtime.path, sys.argv[1]))
        unbind()
    except LaunchError as error:
        print(error.message, (os.sched_getaffinity(0), dict(os.environ)) == before)

call()
for thread in map(int, sys.argv[2:]):
    part = lambda _: library.omp_get_thread_num() == thread and call()
    library.GOMP_parallel(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(part), None, 2, 0)
call()
"""


@pytest.mark.parametrize(
    ("name", "family", "threads"), [("libgomp", "gomp", (0, 1)), ("libomp 14", "llvm", (1,))]
)
def test_loaded_runtimes_are_named_and_a_parallel_region_is_refused(tmp_path, name, family, threads):
    first, *refused, last = run_python(CALLED, tmp_path, path_of(name), *threads).stdout.splitlines()
    assert first == last == f"{family} True"
    assert len(refused) == len(threads)
    for line in refused:
        assert line.startswith(f"bind_process is called in a parallel region of {name.split()[0]}")
        assert line.endswith("True"), "nothing was changed"


@pytest.mark.two_cpus
def test_the_program_of_the_readme_starts_a_worker(tmp_path):
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    done = run_python(re.search(r"```python\n(.*?)```", readme, re.S)[1], tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")
