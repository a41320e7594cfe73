"""Workers that a Python program starts are bound as planned, and the program itself is restored."""

import multiprocessing
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from ompbind import (
    Bind,
    LaunchError,
    Request,
    RequestError,
    make_environment,
    make_plan,
    parse_mask,
    placed,
    read_machine,
)
from ompbind.cpuset import CpuSet
from ompbind.machine.sources.linux.reader import make_counted_machine
from ompbind.workers.process_settings import restore_affinity
from tests.live.conftest import allowed_list, clean_environment, two_cpus, wait_until
from tests.live.process_settings import is_restored, state

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def cpus():
    return two_cpus()


@pytest.fixture
def plan(cpus):
    return make_plan(read_machine(), Request(ranks=2, mask=parse_mask("{}|{}".format(*cpus)), threads=3))


@pytest.fixture(autouse=True)
def _as_before():
    before = state()
    yield
    wait_until(lambda: is_restored(before), "all is restored")  # joined threads exit a moment later


def report():
    """Return the CPUs of all threads of this process, and its environment."""
    threads = {allowed_list(os.getpid(), name) for name in os.listdir("/proc/self/task")}
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    return threads, env  # readline sets the other two for child processes only


def send_report(pipe):
    pipe.send(report())


def start_and_receive(make_process=multiprocessing.Process):
    receiver, sender = multiprocessing.Pipe()
    worker = make_process(target=send_report, args=(sender,))
    worker.start()
    assert receiver.poll(60)
    received = receiver.recv()
    worker.join()
    return received


SPAWN = multiprocessing.get_context("spawn").Process


@pytest.mark.parametrize("make_process", [multiprocessing.Process, SPAWN], ids=["default", "spawn"])
def test_workers_are_bound_as_planned_one_after_the_other(plan, cpus, make_process):
    for rank in (0, 1):
        expected = make_environment(plan, rank, report()[1])
        with placed(plan, rank) as placement:
            threads, env = start_and_receive(make_process)
        assert placement == plan.placements[rank]
        assert threads == {str(cpus[rank])}
        assert env == expected
        assert env["OMP_PLACES"] == f"{{{cpus[rank]}}}"
        assert (env["OMP_NUM_THREADS"], env["RANK"], env["WORLD_SIZE"]) == ("3", str(rank), "2")


def test_subprocesses_and_executors_are_placed_as_well(plan, cpus):
    with placed(plan, 1, run_id="mine"):
        shown = subprocess.run(
            ["grep", "Cpus_allowed_list", "/proc/self/status"], capture_output=True, text=True
        )
        named = subprocess.run(["printenv", "OMPBIND_WORKER_NAME"], capture_output=True, text=True)
        executor = ProcessPoolExecutor(1)
        found = executor.submit(report)
    assert shown.stdout.split()[1] == str(cpus[1])
    assert named.stdout == "mine-rank-1\n"
    with executor:
        threads, env = found.result()
        assert threads == {str(cpus[1])}
        assert env == make_environment(plan, 1, report()[1], run_id="mine")
        assert executor.submit(report).result()[0] == {str(cpus[1])}


def test_workers_have_their_service_cpus_too(cpus):
    plan = make_plan(read_machine(), Request(mask=parse_mask("{},{}".format(*cpus)), service_cores=1))
    with placed(plan, 0) as placement, ProcessPoolExecutor(1) as executor:
        threads, env = executor.submit(report).result()
    assert set(placement.cpuset) == set(cpus)
    assert threads == {str(placement.cpuset)}
    assert env["OMPBIND_SERVICE_CPUS"] == str(placement.service_cpus) != ""


@pytest.mark.parametrize("end", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_everything_is_restored_if_the_body_fails(plan, end):
    before = state()

    def fail():
        with placed(plan, 0):
            os.environ["OMP_PLACES"] = "{7}"
            del os.environ["OMPBIND_CPUS"]
            raise end("enough")

    with pytest.raises(end, match="enough"):
        fail()
    assert state() == before


@pytest.mark.parametrize("more", [(), (0,)], ids=["none", "partly"])
def test_everything_is_restored_if_binding_fails(plan, more):
    before = state()
    wrong = plan.replace(placements=(plan.placements[0].replace(cpus=(*more, 8191)),))
    with pytest.raises(LaunchError, match="8191") as failure, placed(wrong, 0):
        raise AssertionError("the body ran")
    assert "changed since they were read" in failure.value.hint
    assert state() == before


@pytest.fixture
def user_variables():
    """Yield a MonkeyPatch that is undone before the state of the process is compared."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def test_variables_of_ompbind_are_restored_and_others_keep_changes_of_the_body(plan, user_variables):
    user_variables.setenv("RANK", "7")
    user_variables.setenv("GOMP_CPU_AFFINITY", "0-99")
    user_variables.setenv("PORT", "8000")
    with placed(plan, 0):
        assert (os.environ["RANK"], os.environ["PORT"]) == ("0", "8000")
        assert "GOMP_CPU_AFFINITY" not in os.environ
        os.environ["RANK"] = os.environ["PORT"] = os.environ["KMP_AFFINITY"] = "mine"
    found = [os.environ.get(name) for name in ("RANK", "GOMP_CPU_AFFINITY", "PORT", "KMP_AFFINITY")]
    assert found == ["7", "0-99", "mine", None]


OPENMP = {"OMP_NUM_THREADS", "OMP_PLACES", "OMP_PROC_BIND", "MKL_NUM_THREADS"}


@pytest.mark.parametrize(
    ("variables", "found", "absent"),
    [
        ("openmp", OPENMP, {"RANK", "WORLD_SIZE", "OMPBIND_RANK"}),
        ("all", {*OPENMP, "RANK", "WORLD_SIZE", "OMPBIND_RANK"}, set()),
        (("RANK", "OMP_NUM_THREADS"), {"RANK", "OMP_NUM_THREADS"}, {*OPENMP, "WORLD_SIZE"}),
        ((), set(), {*OPENMP, "RANK"}),
    ],
    ids=["openmp", "all", "names", "none"],
)
def test_only_the_selected_variables_are_set(plan, variables, found, absent):
    base = report()[1]
    with placed(plan, 0, variables=variables):
        threads, env = start_and_receive()
    assert len(threads) == 1
    assert found <= env.keys()
    assert not (absent - found) & env.keys() - base.keys()
    assert env == make_environment(plan, 0, base, variables=variables)


def test_extra_variables_override_those_of_ompbind_and_are_restored(plan, user_variables):
    user_variables.setenv("PORT", "8000")
    extra = {"VLLM_CPU_KVCACHE_SPACE": "4", "OMP_NUM_THREADS": "1", "PORT": None}
    before = state()
    with placed(plan, 1, variables="openmp", extra=extra):
        found = report()[1]
        os.environ["VLLM_CPU_KVCACHE_SPACE"] = "8"
    assert (found["VLLM_CPU_KVCACHE_SPACE"], found["OMP_NUM_THREADS"]) == ("4", "1")
    assert "PORT" not in found
    assert state() == before
    assert found == make_environment(plan, 1, report()[1], variables="openmp", extra=extra)


@pytest.mark.parametrize(
    ("extra", "error"),
    [({"A=B": "1"}, ValueError), ({"A": 1}, RequestError), ({"A": "\0"}, ValueError)],
    ids=["name", "type", "zero"],
)
def test_everything_is_restored_if_an_extra_variable_cannot_be_set(plan, extra, error):
    before = state()
    with pytest.raises(error), placed(plan, 0, extra={"FIRST": "1", **extra}):
        raise AssertionError("the body ran")
    assert state() == before


def test_threads_take_turns_and_bind_only_themselves(plan, cpus):
    main_cpus, found, wrong = allowed_list(os.getpid()), [], []
    ready = threading.Barrier(6)

    def place(rank):
        before = os.sched_getaffinity(0)
        ready.wait(20)
        for _ in range(10):
            with placed(plan, rank):
                shown = subprocess.run(
                    ["sh", "-c", "grep Cpus_allowed_list /proc/self/status; echo $OMPBIND_RANK"],
                    capture_output=True, text=True,
                )  # fmt: skip
                found.append((rank, shown.stdout.split()[1:]))
                wrong.append(allowed_list(os.getpid()) != main_cpus)
            wrong.append(os.sched_getaffinity(0) != before)

    threads = [threading.Thread(target=place, args=(number % 2,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 60
    assert all(words == [str(cpus[rank]), str(rank)] for rank, words in found)
    assert not any(wrong)


def test_a_thread_cannot_enter_twice(plan, cpus):
    with placed(plan, 0):
        with pytest.raises(LaunchError, match="cannot be nested") as failure, placed(plan, 1):
            raise AssertionError("the body ran")
        assert "enter the next block" in failure.value.hint
        assert os.sched_getaffinity(0) == {cpus[0]}
        assert os.environ["RANK"] == "0"
    with placed(plan, 1):
        assert os.environ["RANK"] == "1"


def test_another_thread_may_exit_the_placement(plan, cpus):
    stack = ExitStack()
    stack.enter_context(placed(plan, 0))
    assert os.sched_getaffinity(0) == {cpus[0]}
    closing = threading.Thread(target=stack.close)
    closing.start()
    closing.join()
    assert set(cpus) <= os.sched_getaffinity(0)
    with placed(plan, 1):
        pass


def test_without_binding_workers_get_variables_only():
    machine = make_counted_machine(2, 2, "Elsewhere")
    plan = make_plan(machine, Request(ranks=2, bind=Bind.EXACT))
    before = allowed_list(os.getpid())
    with placed(plan, 1):
        threads, env = start_and_receive()
    assert threads == {before}
    assert (env["OMP_NUM_THREADS"], env["OMP_PROC_BIND"], env["RANK"]) == ("1", "false", "1")
    assert "OMP_PLACES" not in env


def test_unknown_ranks_and_recorded_machines_are_refused(plan):
    recorded = make_plan(read_machine("synthetic:core:2 pu:1"), Request(ranks=2))
    for given, rank, said in (
        (plan, 2, "no rank 2"),
        (plan, -1, "no rank -1"),
        (recorded, 0, "synthetic:core:2 pu:1"),
    ):
        with pytest.raises(RequestError, match=said), placed(given, rank):
            raise AssertionError("the body ran")


def test_a_thread_gets_all_cpus_if_its_own_are_offline():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        with pytest.warns(RuntimeWarning, match="CPU 8191 can no longer be used"):
            restore_affinity(0, CpuSet([8191]))
        assert before <= os.sched_getaffinity(0)
    finally:
        os.sched_setaffinity(0, before)


def test_a_thread_that_has_exited_is_not_restored():
    exited = subprocess.Popen(["true"])
    exited.wait()
    restore_affinity(exited.pid, CpuSet(os.sched_getaffinity(0)))


@pytest.mark.parametrize("bind", list(Bind))
def test_environments_equal_those_of_ompbind_run(ompbind, tmp_path, bind):
    inherited = {"OMP_NUM_THREADS": "64", "KMP_AFFINITY": "compact", "RANK": "9"}
    script = f"cat /proc/self/environ > {tmp_path}/$RANK"
    done = ompbind("run", "-n", "2", "--bind", str(bind), "--run-id", "r", "--", "sh", "-c", f"exec {script}",
                   env=inherited)  # fmt: skip
    assert done.returncode == 0, done.stderr
    plan = make_plan(read_machine(), Request(ranks=2, bind=bind))
    for rank in (0, 1):
        env = make_environment(plan, rank, clean_environment(**inherited), run_id="r")
        text = (tmp_path / str(rank)).read_bytes().decode()
        seen = dict(pair.split("=", 1) for pair in text.rstrip("\0").split("\0"))
        seen.pop("PWD", None)  # set by the shell
        env.pop("PWD", None)
        assert {**seen, "_": ""} == {**env, "_": ""}


def run_program(tmp_path, text, **env):
    program = tmp_path / "program.py"
    program.write_text(text)
    return subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=60, env=clean_environment(**env)
    )


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

TRACKED = """
    with placed(plan, 0):
        worker = multiprocessing.Process(target=time.sleep, args=(0,))
        worker.start()
    worker.join()
    for pid in children():
        words = open(f"/proc/{pid}/cmdline").read()
        if "resource_tracker" in words:
            variables = open(f"/proc/{pid}/environ").read()
            print("tracker", os.sched_getaffinity(pid) == before, "OMPBIND_RANK" in variables)

def children():
    return map(int, open(f"/proc/self/task/{os.getpid()}/children").read().split())
"""


def test_the_resource_tracker_is_neither_bound_nor_a_rank(tmp_path):
    done = run_program(tmp_path, HEAD + TRACKED + TAIL)
    assert (done.stdout, done.stderr) == ("tracker True False\n", "")


OTHERWISE = """
    multiprocessing.set_start_method("{method}")
    with placed(plan, 0):
        default = multiprocessing.Process(target=time.sleep, args=(60,))
        other = multiprocessing.get_context("{method}").Process(target=time.sleep, args=(60,), name="W")
        default.start()
        other.start()
    print(multiprocessing.get_start_method(), os.sched_getaffinity(0) == before)
    print(len(os.sched_getaffinity(default.pid)))
    default.kill()
    other.kill()
"""


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("spawn", ""),
        ("fork", "program.py:10: RuntimeWarning: W: it was forked"),
        ("forkserver", "program.py:10: RuntimeWarning: W: it was started by the fork server"),
    ],
)
def test_workers_that_are_not_spawned_are_warned_about(tmp_path, method, said):
    done = run_program(tmp_path, HEAD + OTHERWISE.format(method=method) + TAIL)
    assert done.stdout == f"{method} True\n1\n"
    assert said in done.stderr
    assert done.stderr.count("RuntimeWarning") == bool(said)


FORKED = """
    with placed(plan, 0):
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            print("parent", os.sched_getaffinity(0) == {min(before)})
    who = "parent" if child else "child"
    print(who, os.sched_getaffinity(0) == before, "RANK" in os.environ, flush=True)
    with placed(plan, 0):
        pass
    if child == 0:
        os._exit(0)
"""


def test_a_process_forked_inside_restores_itself(tmp_path):
    done = run_program(tmp_path, HEAD + FORKED + TAIL)
    assert done.stdout.splitlines() == ["child True False", "parent True", "parent True False"]


HELD = """
    import signal, threading
    inside, done = threading.Event(), threading.Event()

    def hold():
        with placed(plan, 0):
            inside.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        with placed(plan, 0):
            os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    done.set()
    thread.join()
"""


def test_a_process_forked_while_another_thread_is_inside_can_enter(tmp_path):
    assert run_program(tmp_path, HEAD + HELD + TAIL).stdout == "7\n"


def test_a_worker_plans_within_its_own_cpus(tmp_path):
    text = """
    with placed(plan, 0):
        worker = multiprocessing.Process(target=inner)
        worker.start()
    worker.join()

def inner():
    plan = make_plan(read_machine(), Request())
    print(len(plan.placements[0].cpus), flush=True)
"""
    assert run_program(tmp_path, HEAD + text + TAIL).stdout == "1\n"


def test_the_program_of_the_readme_starts_a_worker(cpus, tmp_path):
    text = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
    (tmp_path / "program.py").write_text(text)
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")
