"""`ompbind inspect`, and reading real processes: OpenMP runtimes, daemons, unusual names."""

import json
import os
import subprocess
import sys
import time
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from ompbind.cpuset import CpuSet
from ompbind.inspection.absent_binding import find_libraries, is_library
from ompbind.inspection.expectation import is_relevant
from ompbind.inspection.rank_processes import ObservedProcesses, make_inspection
from ompbind.inspection.samples import SampleHistory, read_cpu_times, take_sample
from ompbind.inspection.targets import Target
from ompbind.planning.other_runs import LiveRun
from ompbind.procfs import process_state, reader
from ompbind.registry.claim_format import make_text
from ompbind.report.inspect import render_inspection
from tests.live.conftest import (
    allowed_list,
    clean_environment,
    is_alive,
    ranks_of,
    required,
    two_cpus,
    wait_until,
)
from tests.live.other_user import call_as_nobody

WAIT = "import os, time; os.write(1, b'up\\n'); time.sleep(300)"
THREADS = """
import os, threading, time
for i in range(4): threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
"""
REGION = """
import ctypes, os
library = ctypes.CDLL({library!r})
part = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
library.GOMP_parallel(part, None, 2, 0)
"""
PR_SET_DUMPABLE = 4


@pytest.fixture
def child():
    """Start Python programs and wait until they have written "up"; they are killed after the test."""
    started = []

    def begin(code, before=(), **env):
        process = subprocess.Popen(
            [*before, sys.executable, "-c", code + WAIT], env=clean_environment(**env), stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout.readline() == b"up\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def libgomp():
    """Return a program with a region in libgomp; try it in a child, since libgomp could bind this process."""
    code = REGION.format(library="libgomp.so.1")
    if subprocess.run([sys.executable, "-c", code], capture_output=True, env=clean_environment()).returncode:
        assert not os.environ.get("OMPTEST_ALL"), "CI must install libgomp1"
        pytest.skip("libgomp.so.1 is not installed")
    return code


def read_process(pid):
    return process_state.read_process(pid, is_library, is_relevant)


def one_line(done):
    return " ".join((done.stdout + done.stderr).split())


def test_threads_are_read_as_in_proc(child):
    first, second = two_cpus()
    narrow, widen = (
        f"import os\nos.sched_setaffinity(0, {{{cpus}}})\n" for cpus in (first, f"{first}, {second}")
    )
    process = child(narrow + THREADS + widen, OMP_NUM_THREADS="3", SOMETHING="else")
    state = read_process(process.pid)
    assert [str(thread.cpus) for thread in state.threads] == [
        allowed_list(process.pid, thread.tid) for thread in state.threads
    ]
    assert len(state.threads) == 5
    assert [str(thread.cpus) for thread in state.threads] == [str(CpuSet((first, second))), *[str(first)] * 4]
    assert {thread.policy for thread in state.threads} == {"other"}
    assert (state.parent, state.env["OMP_NUM_THREADS"], state.unreadable) == (os.getpid(), "3", ())
    assert "SOMETHING" not in state.env
    assert [reader.read_affinity(thread.tid) for thread in state.threads] == [
        thread.cpus for thread in state.threads
    ]
    assert sorted(reader.list_threads(process.pid)) == [thread.tid for thread in state.threads]
    assert state.command == (sys.executable, "-c", narrow + THREADS + widen + WAIT)


NAMES = [b"a) R 1 (b", b"new\nline", b"\xff\xfe", b"(((", b") S 1 1 1", b"", b" "]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_of_a_process_is_parsed(child, name):
    rename = f"import ctypes\nctypes.CDLL(None).prctl(15, {name!r}, 0, 0, 0)\n"
    state = read_process(child(rename).pid)
    assert len(state.threads) == 1
    assert state.parent == os.getpid()
    assert state.name.isprintable()
    assert state.name.encode("ascii", "replace").replace(b"?", b"") in name.replace(b"\n", b"")


def test_a_process_whose_initial_thread_has_exited_is_read(child):
    code = f"import ctypes, threading, time\n{libgomp()}\nimport threading\n" + (
        "def stay():\n    time.sleep(.3)\n    os.write(1, b'up\\n')\n    time.sleep(300)\n"
        "threading.Thread(target=stay).start()\nctypes.CDLL(None).pthread_exit(None)\n"
    )
    process = child(code, OMP_NUM_THREADS="2")
    state = read_process(process.pid)
    assert process.pid not in [thread.tid for thread in state.threads]
    assert state.initial_thread is None
    assert [library.kind.name for library in find_libraries(state)] == ["gomp"]
    assert state.env["OMP_NUM_THREADS"] == "2"


def test_processes_that_have_exited_are_not_read(child):
    process = child("")
    process.kill()
    wait_until(lambda: not is_alive(process.pid), "the child exits")
    assert read_process(process.pid) is None
    process.wait()
    assert read_process(process.pid) is None


def test_threads_that_start_and_exit_meanwhile_are_no_problem(child):
    busy = "import threading\ndef go():\n    while True:\n"
    busy += "        thread = threading.Thread(target=int); thread.start(); thread.join()\n"
    busy += "for _ in range(3): threading.Thread(target=go, daemon=True).start()\n"
    process = child(busy)
    for _ in range(50):
        assert process.pid in [thread.tid for thread in read_process(process.pid).threads]


def test_copies_of_a_library_are_listed_and_a_deleted_file_too(child, tmp_path):
    code = libgomp()
    found = next(
        library for library in find_libraries(read_process(child(code).pid)) if library.kind.name == "gomp"
    )
    for copy in ("libgomp-0123abcd.so.1", "libgomp.so.1"):
        (tmp_path / copy).write_bytes(Path(found.path).read_bytes())
    load = f"import ctypes, os\nctypes.CDLL({str(tmp_path / 'libgomp-0123abcd.so.1')!r})\n"
    load += (
        f"ctypes.CDLL({str(tmp_path / 'libgomp.so.1')!r})\nos.unlink({str(tmp_path / 'libgomp.so.1')!r})\n"
    )
    libraries = find_libraries(read_process(child(load).pid))
    assert sorted(library.path for library in libraries if library.kind.name == "gomp") == [
        str(tmp_path / "libgomp-0123abcd.so.1"),
        str(tmp_path / "libgomp.so.1"),
    ]


def test_what_is_not_readable_is_reported(child):
    process = child(f"import ctypes\nctypes.CDLL(None).prctl({PR_SET_DUMPABLE}, 0, 0, 0, 0)\n")
    mask = allowed_list(process.pid)

    def read():
        state = read_process(process.pid)
        text = render_inspection(make_inspection(ObservedProcesses(processes={process.pid: state})))
        private = find_libraries(state), state.variables
        return state.unreadable, str(state.threads[0].cpus), private, "environment: not readable" in text

    read()  # loads all modules
    assert call_as_nobody(read) == (("libraries", "environment"), mask, ((), ()), True)


def test_a_narrowed_initial_thread_is_found_in_other_processes(child, ompbind):
    first, second = two_cpus()
    places = {"OMP_PLACES": f"{{{first}}},{{{second}}}", "OMP_PROC_BIND": "close"}
    done = ompbind("inspect", str(child(libgomp() + THREADS, **places).pid))
    assert done.returncode == 1, done.stdout
    assert (
        f"5 of 6 threads are restricted to CPU {first} out of {first}-{second}: with "
        f"OMP_PLACES={places['OMP_PLACES']} OMP_PROC_BIND=close, libgomp bound the initial thread"
    ) in one_line(done)
    free = {"OMP_PLACES": f"{{{first},{second}}}", "OMP_PROC_BIND": "true"}
    done = ompbind("inspect", str(child(libgomp() + THREADS, **free).pid))
    assert (done.returncode, "ok: all 6 threads are allowed on" in one_line(done)) == (0, True)


@pytest.mark.parametrize("mode", ["rank", "thread", "exact", "none"])
def test_a_run_is_compared_with_its_mode(start, ompbind, mode):
    first, second = two_cpus()
    code = libgomp() + WAIT
    run = start("run", "-m", f"{first},{second}", "--bind", mode, "--share", "--", sys.executable, "-c", code)
    assert run.stdout.readline() == "up\n"
    done = ompbind("inspect", "--all", "--format", "json")
    record = json.loads(done.stdout)
    group = record["crews"][0]
    assert (done.returncode, record["level"], group["rank"], group["planned"]["bind"]) == (0, "ok", 0, mode)
    masks = [thread["cpus"] for thread in group["processes"][0]["threads"]]
    whole = str(CpuSet((first, second)))
    expected = {"thread": [whole, str(second)], "exact": [str(first), str(second)]}.get(mode, [whole, whole])
    assert masks == expected
    assert [library["kind"] for library in group["processes"][0]["libraries"]] == ["gomp"]


@pytest.mark.parametrize("mode", ["rank", "thread", "none"])
def test_workers_of_a_run_are_expected_beside_its_service_cpus(start, ompbind, mode):
    first, second = two_cpus()
    options = ("-m", f"{first},{second}", "--service-cores", "1", "-t", "2", "--bind", mode, "--share")
    run = start("run", *options, "--", sys.executable, "-c", libgomp() + WAIT)
    assert run.stdout.readline() == "up\n"
    record = json.loads(ompbind("inspect", "--all", "--format", "json").stdout)
    (group,) = record["crews"]
    whole = str(CpuSet((first, second)))
    assert record["level"] == "ok"
    assert group["planned"]["bind"] == mode
    assert (group["planned"]["cpus"], group["planned"]["service_cpus"]) == (whole, str(second))
    worker = whole if mode == "none" else str(first)
    assert [thread["cpus"] for thread in group["processes"][0]["threads"]] == [whole, worker]
    held = json.loads(ompbind("ps", "--format", "json").stdout)["runs"][0]
    assert held["ranks"] == [{"rank": 0, "cpus": whole}]
    assert f": CPU {first}, service CPU {second}, --bind {mode}" in ompbind("inspect", "--all").stdout


def test_a_command_that_undoes_its_binding_is_found(start, ompbind):
    first, second = two_cpus()
    undo = ["env", f"OMP_PLACES={{{first}}},{{{second}}}", "OMP_PROC_BIND=close"]
    code = libgomp() + THREADS + WAIT
    run = start("run", "-m", f"{first},{second}", "--share", "--", *undo, sys.executable, "-c", code)
    assert run.stdout.readline() == "up\n"
    done = ompbind("inspect", str(run.pid))
    assert done.returncode == 1, one_line(done)
    assert "ompbind did not set these variables, they come from the command, --env or --keep-env" in one_line(
        done
    )


def test_threads_that_leave_their_rank_are_found(start, ompbind):
    first, second = two_cpus()
    code = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); " + WAIT
    run = start(
        "run", "-n", "2", "-m", f"{first}|{second}", "--share", "--", sys.executable, "-c", code, str(first)
    )
    assert [run.stdout.readline() for _ in range(2)] == ["up\n"] * 2
    done = ompbind("inspect", "--all")
    assert done.returncode == 1
    assert f"may run on CPU {first}, the rank has CPU {second}" in one_line(done)
    assert f"ranks 0 and 1 are both allowed on CPU {first}, contrary to the plan" in one_line(done)
    assert done.stdout.startswith("2 ranks with 2 threads: 2 errors\n")
    assert "\nrank 0 of run" in done.stdout
    shown = ompbind("inspect", "--all", "--problems")
    assert (shown.returncode, shown.stdout.splitlines()[0]) == (1, done.stdout.splitlines()[0])
    assert "\nrank 0 of run" not in shown.stdout
    assert "\nrank 1 of run" in shown.stdout
    record = json.loads(ompbind("inspect", "--all", "--problems", "--format", "json").stdout)
    assert [group["rank"] for group in record["crews"]] == [1]


def test_a_wider_mask_is_shown_whole(start, ompbind):
    first, second = two_cpus()
    code = f"import os; os.sched_setaffinity(0, {{{first}, {second}}}); " + WAIT
    run = start("run", "-m", str(first), "--share", "--", sys.executable, "-c", code)
    assert run.stdout.readline() == "up\n"
    both = CpuSet((first, second))
    assert f"may run on CPUs {both}, the rank has CPU {first}" in one_line(ompbind("inspect", str(run.pid)))


def test_daemons_belong_to_their_rank(start, ompbind):
    daemon = "setsid sleep 300 & echo $!; exec sleep 300"
    run = start("run", "--run-id", "with-daemon", "--share", "--", "sh", "-c", f"({daemon})")
    pid = int(run.stdout.readline())
    record = json.loads(ompbind("inspect", "with-d", "--format", "json").stdout)
    assert [group["rank"] for group in record["crews"]] == [0]
    assert pid in [process["pid"] for process in record["crews"][0]["processes"]]
    assert ranks_of(run)[0] == record["crews"][0]["processes"][0]["pid"]


def test_runs_are_found_by_how_their_names_begin(start, ompbind):
    for name in ("one-a", "one-b", "two"):
        run = start("run", "--run-id", name, "--share", "--", sys.executable, "-c", WAIT)
        assert run.stdout.readline() == "up\n"
    assert "rank 0 of run two" in ompbind("inspect", "t").stdout
    several = ompbind("inspect", "one")
    assert (several.returncode, "one of one-a, one-b" in one_line(several)) == (2, True)
    assert "rank 0 of run one-b" in ompbind("inspect", "one-b").stdout
    assert ompbind("inspect", "--all").stdout.count("rank 0 of run") == 3


def test_all_without_live_runs(ompbind):
    done = ompbind("inspect", "--all")
    assert (done.returncode, done.stdout) == (0, "no ompbind runs on this machine\n")


def test_an_unreadable_registry_is_an_error(ompbind, tmp_path):
    done = ompbind("inspect", "--all", env={"OMPBIND_RUNTIME_DIR": str(tmp_path / "gone")})
    assert (done.returncode, "cannot read" in one_line(done)) == (2, True)
    assert ompbind("inspect", str(os.getpid()), env={"OMPBIND_RUNTIME_DIR": str(tmp_path / "gone")}).stdout


def test_a_run_in_another_container_has_its_own_error(ompbind, claims):
    run = LiveRun(run_id="far", pid=1, uid=0, started=1, ranks=(), claimed=CpuSet((0,)), pid_space=1)
    with open(claims / "ompbind-0-1-far.run", "w", encoding="utf-8") as file:
        file.write(make_text(run))
        file.flush()
        flock(file, LOCK_EX)
        done = ompbind("inspect", "far")
        assert (done.returncode, "in another container" in one_line(done)) == (2, True)
        assert "far" in ompbind("ps").stdout


REFUSED = [
    ((), "no process or run is given"),
    (("--all", "1"), "--all excludes names of processes and runs"),
    (("999999999",), "process 999999999 does not exist"),
    (("nothing",), "no live run is named 'nothing'"),
    (("--all", "--watch", "--format", "json"), "--watch cannot print JSON"),
    (("--all", "--watch", "-v"), "--watch excludes -v"),
    (("--all", "--watch", "--problems"), "--watch excludes --problems"),
    (("--watch", "4711"), "--watch 4711: the interval must be 0.1 to 3600 seconds"),
]


@pytest.mark.parametrize(("words", "text"), REFUSED)
def test_contradictory_arguments_are_refused(ompbind, words, text):
    done = ompbind("inspect", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert text in one_line(done)


def test_a_zombie_has_its_own_error(ompbind, child):
    process = child("")
    process.kill()
    wait_until(lambda: not is_alive(process.pid), "the child exits")
    done = ompbind("inspect", str(process.pid))
    assert (
        done.returncode,
        f"has exited, and its parent ({os.getpid()}) has not reaped it" in one_line(done),
    ) == (2, True)


def test_the_id_of_a_thread_means_its_process(ompbind, child):
    process = child(THREADS)
    thread = read_process(process.pid).threads[-1].tid
    assert f"pid {process.pid}: " in ompbind("inspect", str(thread), "-v").stdout


def test_names_of_runs_are_completed(start, ompbind):
    run = start("run", "--run-id", "complete-me", "--share", "--", sys.executable, "-c", WAIT)
    assert run.stdout.readline() == "up\n"
    env = {"_OMPBIND_COMPLETE": "bash_complete", "COMP_WORDS": "ompbind inspect comp", "COMP_CWORD": "2"}
    assert "complete-me" in ompbind(env=env).stdout


def test_known_processes_are_not_read_completely_again(child, monkeypatch):
    """New threads are seen at once, libraries with one of ten samples, and exits at once."""
    process = child(THREADS)
    target, history = Target(pids=(process.pid,)), SampleHistory()
    files_read = []
    monkeypatch.setattr(process_state, "parse_maps", lambda maps, keep: files_read.append(maps) or ())
    for _ in range(11):
        history, _ = take_sample(target, history)
        assert [len(known.threads) for known in history.known.values()] == [5]
    assert len(files_read) == 2
    process.kill()
    process.wait()
    assert take_sample(target, history)[1].inspection.groups == ()


def test_cpu_times_increase():
    before = {cpu: (busy_s, all_s) for cpu, busy_s, all_s in read_cpu_times()}
    time.sleep(0.2)
    for cpu, busy_s, all_s in read_cpu_times():
        assert before[cpu][0] <= busy_s <= all_s
        assert before[cpu][1] <= all_s


BUSY = """
#include <pthread.h>
static void *spin(void *_) { for (;;) {} return _; }
int main(void) {
    pthread_t made;
    for (int i = 0; i < 14; i++) pthread_create(&made, 0, spin, 0);
    spin(0);
}
"""
"""A program with 15 threads that are always runnable."""


@pytest.mark.long
def test_busy_threads_on_one_cpu_are_an_error(ompbind, tmp_path):
    program = tmp_path / "busy"
    compiler = [required("gcc"), "-pthread", "-x", "c", "-", "-o", program]
    subprocess.run(compiler, input=BUSY, text=True, check=True, timeout=60)
    cpu = two_cpus()[0]
    process = subprocess.Popen([required("taskset"), "-c", str(cpu), program])
    try:
        done = ompbind("inspect", str(process.pid))
        record = json.loads(ompbind("inspect", str(process.pid), "--format", "json").stdout)
    finally:
        process.kill()
        process.wait()
    assert done.returncode == 1
    assert f"threads were runnable on CPU {cpu} in 3 samples over 10 s" in one_line(done)
    assert "likely pool: 15 threads 'busy' of busy" in one_line(done)
    assert "checking for 10 s whether more threads are runnable than there are CPUs" in one_line(done)
    (issue,) = record["crews"][0]["verdict"]["findings"]
    assert (issue["code"], issue["threads"], record["level"]) == ("oversubscribed", 15, "problem")


def test_run_delays_are_read(child):
    (thread,) = read_process(child("").pid).threads
    assert thread.delay_s is not None
    assert 0 <= thread.delay_s < 60
