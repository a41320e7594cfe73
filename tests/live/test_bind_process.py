"""`bind_process` binds all threads of a process that runs already, and `unbind` restores it."""

import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor

import pytest

from ompbind import (
    LaunchError,
    MemoryMode,
    OmpRuntime,
    Request,
    RequestError,
    bind_process,
    make_environment,
    make_plan,
    parse_mask,
    placed,
    read_machine,
    unbind,
)
from ompbind.cpuset import CpuSet
from ompbind.execution import mempolicy
from ompbind.machine.sources.linux.reader import make_counted_machine
from ompbind.procfs.parsers import parse_stat
from ompbind.workers import bind_process as bind_process_module
from tests.live.conftest import clean_environment, required, two_cpus, wait_until
from tests.live.process_settings import is_restored, read_masks, state
from tests.live.runtimes import path_of


@pytest.fixture
def cpus():
    return two_cpus()


@pytest.fixture
def plan(cpus):
    return make_plan(read_machine(), Request(ranks=2, mask=parse_mask("{}|{}".format(*cpus)), threads=3))


@pytest.fixture(autouse=True)
def _as_before():
    multiprocessing.get_start_method()  # sets the default, as a fork server does
    before = state()
    yield
    wait_until(lambda: is_restored(before), "all is restored")  # joined threads exit a moment later


@pytest.fixture
def start_thread():
    """Start a thread that waits until the end of the test, after some work, and return its TID."""
    done, threads = threading.Event(), []

    def start(work=lambda: None):
        ready = threading.Event()

        def run():
            work()
            ready.set()
            done.wait()

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        ready.wait()
        return threads[-1].native_id

    yield start
    done.set()
    for thread in threads:
        thread.join()


def test_all_threads_and_the_variables_are_bound_and_restored(plan, cpus, start_thread):
    narrow = start_thread(lambda: os.sched_setaffinity(0, {cpus[1]}))
    start_thread()
    before = state()
    binding = bind_process(plan, 0, run_id="mine", extra={"PORT": "8000"})
    assert binding.placement == plan.placements[0]
    assert set(read_masks().values()) == {str(cpus[0])}
    assert os.environ == make_environment(plan, 0, run_id="mine", extra={"PORT": "8000"})
    assert (os.environ["OMP_NUM_THREADS"], os.environ["OMPBIND_RANK"], os.environ["PORT"]) == (
        "3",
        "0",
        "8000",
    )
    unbind()
    assert state() == before
    assert read_masks()[str(narrow)] == str(cpus[1])


def test_the_number_of_threads_of_numba_is_not_changed_if_numba_is_imported(plan, monkeypatch):
    """Numba refuses to compile if the variable changes after its threads have started."""
    bind_process(plan, 0)
    assert os.environ["NUMBA_NUM_THREADS"] == "3"
    unbind()
    monkeypatch.setitem(sys.modules, "numba", sys)
    bind_process(plan, 0)
    assert ("NUMBA_NUM_THREADS" in os.environ, os.environ["OMP_NUM_THREADS"]) == (False, "3")
    unbind()
    bind_process(plan, 0, extra={"NUMBA_NUM_THREADS": "2"})
    assert os.environ["NUMBA_NUM_THREADS"] == "2"
    unbind()


def test_threads_that_start_later_get_the_mask_of_the_initial_thread(plan, cpus, start_thread):
    whole = read_masks()[str(os.getpid())]
    bind_process(plan, 0)
    inherited = start_thread()
    elsewhere = start_thread(lambda: os.sched_setaffinity(0, {cpus[1]}))
    assert read_masks()[str(inherited)] == str(cpus[0])
    unbind()
    masks = read_masks()
    assert masks[str(inherited)] == whole
    assert masks[str(elsewhere)] == str(cpus[1])


def test_processes_that_are_started_later_are_bound(plan, cpus):
    bind_process(plan, 1, variables="openmp")
    shown = subprocess.run(
        ["sh", "-c", "grep Cpus_allowed_list /proc/self/status; echo $OMP_NUM_THREADS-$RANK"],
        capture_output=True, text=True,
    )  # fmt: skip
    unbind()
    assert shown.stdout.split()[1:] == [str(cpus[1]), "3-"]


def test_no_thread_is_missed_while_threads_start_and_exit(plan):
    stop = threading.Event()

    def churn():
        while not stop.is_set():
            thread = threading.Thread(target=lambda: None)
            thread.start()
            thread.join()

    threads = [threading.Thread(target=churn) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            bind_process(plan, 0)
            bound = set(read_masks().values())
            unbind()
            assert len(bound) == 1
            wait_until(lambda: len(set(read_masks().values())) == 1, "all masks are restored")
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_thread_that_exits_between_listing_and_binding_is_no_error(plan, cpus, monkeypatch):
    exited = subprocess.Popen(["true"])
    exited.wait()
    real = bind_process_module.read_affinity
    monkeypatch.setattr(bind_process_module, "read_affinity", lambda tid: real(tid) or CpuSet(cpus))
    lists = bind_process_module.list_threads
    monkeypatch.setattr(bind_process_module, "list_threads", lambda pid: [*lists(pid), exited.pid])
    stat = bind_process_module.read_stat
    own = f"{os.getpid()}/task/{os.getpid()}"
    monkeypatch.setattr(bind_process_module, "read_stat", lambda path: stat(path) or stat(own))
    bind_process(plan, 0)
    assert set(read_masks().values()) == {str(cpus[0])}
    unbind()


def test_a_thread_with_the_number_of_an_exited_thread_does_not_get_its_mask(
    plan, cpus, start_thread, monkeypatch
):
    tid = start_thread(lambda: os.sched_setaffinity(0, {cpus[1]}))
    bind_process(plan, 0)
    real = bind_process_module.read_stat

    def read_later_start(path):
        stat = real(path)
        return stat.replace(start_ticks=stat.start_ticks + 1) if path.endswith(f"/{tid}") else stat

    monkeypatch.setattr(bind_process_module, "read_stat", read_later_start)
    unbind()
    assert read_masks()[str(tid)] == read_masks()[str(os.getpid())] != str(cpus[1])


def test_threads_that_start_without_end_are_an_error_and_nothing_is_changed(
    plan, cpus, start_thread, monkeypatch
):
    before_all = os.sched_getaffinity(0)
    real, made = bind_process_module.list_threads, []

    def list_and_start(pid):
        found = real(pid)
        if len(made) < bind_process_module.PASSES:
            made.append(start_thread(lambda: os.sched_setaffinity(0, {cpus[1]})))
        return found

    monkeypatch.setattr(bind_process_module, "list_threads", list_and_start)
    variables = dict(os.environ)
    with pytest.raises(LaunchError, match="after 10 attempts") as failure:
        bind_process(plan, 0)
    assert "before it starts its threads" in failure.value.hint
    assert os.environ == variables
    masks = read_masks()
    assert {masks.pop(str(tid)) for tid in made} == {str(cpus[1])}
    assert all(os.sched_getaffinity(int(tid)) == before_all for tid in masks)


def test_threads_that_start_without_end_are_a_warning_of_unbind(plan, cpus, start_thread, monkeypatch):
    real, made = bind_process_module.list_threads, []

    def start_and_list(pid):
        made.append(start_thread(lambda: os.sched_setaffinity(0, {cpus[0]})))
        return real(pid)

    whole = os.sched_getaffinity(0)
    bind_process(plan, 0)
    monkeypatch.setattr(bind_process_module, "list_threads", start_and_list)
    with pytest.warns(RuntimeWarning, match="after 10 attempts to restore all threads") as warned:
        unbind()
    assert [warning.filename for warning in warned] == [__file__]
    assert len(made) == bind_process_module.PASSES
    assert all(os.sched_getaffinity(int(tid)) == whole for tid in read_masks())
    assert "OMPBIND_RANK" not in os.environ


@pytest.mark.parametrize("more", [(), (0,)], ids=["none", "partly"])
def test_nothing_is_changed_if_a_mask_cannot_be_set(plan, start_thread, more):
    start_thread()
    before = state()
    wrong = plan.replace(placements=(plan.placements[0].replace(cpus=(*more, 8191)),))
    with pytest.raises(LaunchError, match="8191"):
        bind_process(wrong, 0)
    assert state() == before
    bind_process(plan, 0)
    unbind()


def test_the_mask_of_each_thread_is_restored_if_another_cannot_be_set(plan, cpus, start_thread, monkeypatch):
    start_thread(lambda: os.sched_setaffinity(0, {cpus[1]}))
    start_thread()
    before = state()
    real, calls = bind_process_module.set_affinity, []

    def refuse_third(wanted, tid):
        calls.append(tid)
        if len(calls) == 3:
            raise LaunchError("refused")
        real(wanted, tid)

    monkeypatch.setattr(bind_process_module, "set_affinity", refuse_third)
    with pytest.raises(LaunchError, match="refused"):
        bind_process(plan, 0)
    assert len(calls) == 3
    assert state() == before


def test_a_second_binding_is_refused_until_unbind(plan, cpus):
    bind_process(plan, 0)
    with pytest.raises(LaunchError, match="already") as failure:
        bind_process(plan, 1)
    assert failure.value.hint == "call unbind() first"
    assert os.sched_getaffinity(0) == {cpus[0]}
    unbind()
    with pytest.raises(LaunchError, match="not bound by bind_process"):
        unbind()


def test_binding_inside_a_placement_is_refused_and_the_reverse_works(plan, cpus):
    with placed(plan, 0):
        with pytest.raises(LaunchError, match="inside 'with placed"):
            bind_process(plan, 1)
        with pytest.raises(LaunchError, match="inside 'with placed"):
            unbind()
    bind_process(plan, 0)
    with placed(plan, 1):
        assert os.sched_getaffinity(0) == {cpus[1]}
    assert os.sched_getaffinity(0) == {cpus[0]}
    unbind()


def test_unknown_ranks_and_recorded_machines_are_refused(plan):
    recorded = make_plan(read_machine("synthetic:core:2 pu:1"), Request(ranks=2))
    for given, rank, said in ((plan, 2, "no rank 2"), (recorded, 0, "synthetic:core:2 pu:1")):
        with pytest.raises(RequestError, match=said):
            bind_process(given, rank)


def test_without_binding_only_the_variables_are_set():
    plan = make_plan(make_counted_machine(2, 2, "Elsewhere"), Request(ranks=2))
    before = read_masks()
    bind_process(plan, 1)
    assert (read_masks(), os.environ["OMP_NUM_THREADS"]) == (before, "1")
    unbind()


def test_without_proc_nothing_is_changed(plan, monkeypatch):
    before = state()
    monkeypatch.setattr(bind_process_module, "list_threads", lambda pid: [])
    with pytest.raises(LaunchError, match="threads of this process cannot be listed"):
        bind_process(plan, 0)
    assert state() == before


def report():
    return os.sched_getaffinity(0), os.environ.get("OMPBIND_RANK")


def bind_and_report(plan, rank):
    """Return the settings of this process before it is bound, while it is bound, and after `unbind`."""
    found = [report()]
    bind_process(plan, rank)
    with pytest.raises(LaunchError, match="already"):
        bind_process(plan, rank)
    found.append(report())
    unbind()
    return [*found, report()]


def run_in_child(method, function, *args):
    with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as executor:
        return executor.submit(function, *args).result()


def test_a_forked_child_is_bound_as_its_parent_and_can_bind_itself(plan, cpus):
    inherited, own = ({cpus[0]}, "0"), ({cpus[1]}, "1")
    bind_process(plan, 0)
    try:
        assert run_in_child("fork", bind_and_report, plan, 1) == [inherited, own, inherited]
        assert report() == inherited
    finally:
        unbind()


def test_a_child_of_a_fork_server_can_bind_itself(plan, cpus):
    before, bound, after = run_in_child("forkserver", bind_and_report, plan, 1)
    assert (before, bound) == (after, ({cpus[1]}, "1"))


@pytest.fixture
def memory_plan():
    plan = make_plan(read_machine(), Request(memory=MemoryMode.BIND))
    if plan.placements[0].memory is None or mempolicy.replace_unsupported_policies(plan).notes:
        pytest.skip("memory policies cannot be set here")
    return plan


def test_the_memory_policy_is_set_and_restored_in_the_calling_thread(memory_plan):
    before = mempolicy.read_policy()
    bind_process(memory_plan, 0)
    assert mempolicy.read_policy().mode == memory_plan.placements[0].memory.kernel_mode
    unbind()
    assert mempolicy.read_policy() == before


def test_another_thread_cannot_restore_the_memory_policy(memory_plan):
    before, caught = mempolicy.read_policy(), []

    def restore():
        with pytest.warns(RuntimeWarning, match="set by another thread, which keeps it") as warned:
            unbind()
        caught.extend(warning.filename for warning in warned)

    bind_process(memory_plan, 0)
    thread = threading.Thread(target=restore)
    thread.start()
    thread.join()
    assert caught == [__file__]
    mempolicy.restore_policy(before)


def test_workers_of_io_uring_are_left_alone():
    text = f"7 (iou-wrk-7) S {' '.join('1' for _ in range(5))} {{}} {' '.join('1' for _ in range(40))}"
    assert parse_stat(text.format(0x04000000 | 0x10).encode()).has_fixed_affinity
    assert not parse_stat(text.format(0x400000).encode()).has_fixed_affinity


def run_program(text, *args):
    """Run a program with its own OpenMP runtimes, which this process must not load."""
    head = "import ctypes, os, sys\nfrom ompbind import *\n"
    return subprocess.run(
        [sys.executable, "-c", head + text, *map(str, args)],
        capture_output=True, text=True, timeout=60, env=clean_environment(),
    )  # fmt: skip


LOADED = """
library = ctypes.CDLL(sys.argv[1])
plan = make_plan(read_machine(), Request(threads=1))
binding = bind_process(plan, 0)
print(*[(runtime.family, os.path.samefile(runtime.path, sys.argv[1])) for runtime in binding.runtimes])
print(library.omp_get_max_threads())
unbind()
"""


@pytest.mark.parametrize(
    ("name", "family", "threads"),
    [
        ("libgomp", OmpRuntime.GOMP, len(os.sched_getaffinity(0))),
        ("libomp 14", OmpRuntime.LLVM, 1),
        ("libiomp5", OmpRuntime.INTEL, 1),
    ],
)
def test_loaded_runtimes_are_named_and_not_started(name, family, threads):
    """libgomp reads its variables when it is loaded, the others when they start: nothing has started them."""
    done = run_program(LOADED, path_of(name))
    assert done.stdout.splitlines() == [str((family, True)), str(threads)], done.stderr


REGION = """
#include <omp.h>
void run(void (*call)(void), int thread) {
    #pragma omp parallel num_threads(2)
    if (omp_get_thread_num() == thread) call();
}
"""

CALLED = """
library = ctypes.CDLL(sys.argv[1])
plan = make_plan(read_machine(), Request())

def call():
    before = os.sched_getaffinity(0), dict(os.environ)
    try:
        bind_process(plan, 0)
    except LaunchError as error:
        print(error.message, (os.sched_getaffinity(0), dict(os.environ)) == before)
    else:
        print("bound")

function = ctypes.CFUNCTYPE(None)(call)
library.run(function, int(sys.argv[2]))
call()
unbind()
"""


@pytest.mark.parametrize(
    ("name", "thread", "seen"), [("libgomp", 0, True), ("libgomp", 1, True), ("libomp 14", 1, True)]
)
def test_a_parallel_region_is_refused(tmp_path, name, thread, seen):
    compiler, runtime, library = required("gcc"), path_of(name), tmp_path / "region.so"
    command = [compiler, "-fopenmp", "-shared", "-fPIC", "-x", "c", "-", "-o", library]
    done = subprocess.run(
        [*command, "-x", "none", runtime, "-Wl,--no-as-needed"], input=REGION, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    done = run_program(CALLED, library, thread)
    first, last = done.stdout.splitlines() or ("", done.stderr)
    assert first.startswith(f"bind_process is called in a parallel region of {name.split()[0]}") == seen
    assert first.endswith("True") == seen
    assert last == "bound"
