"""`ompbind inspect`, and reading real processes: OpenMP runtimes, daemons, unusual names."""

import json
import os
import subprocess
import sys

import pytest

from ompbind.cli.inspect import render_inspection
from ompbind.cpuset import CpuSet
from ompbind.inspection.diagnosis import find_libraries, is_library, is_relevant
from ompbind.inspection.rank_processes import ObservedProcesses, make_inspection
from ompbind.procfs import process_state
from tests.live.conftest import WAIT, allowed_list, need_libgomp, two_cpus, wait_until
from tests.live.other_user import NOBODY, as_user, call_as_nobody

THREADS = """
import os, threading, time
for i in range(4): threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
"""
REGION = """
import ctypes, os
library = ctypes.CDLL("libgomp.so.1")
part = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
library.GOMP_parallel(part, None, 2, 0)
"""


@pytest.fixture
def child(start):
    return lambda code, **env: start("-c", code + WAIT, program=sys.executable, env=env, up=1)


@pytest.fixture
def region():
    need_libgomp()
    return REGION


def read_process(pid):
    return process_state.read_process(pid, is_library, is_relevant)


def one_line(done):
    return " ".join((done.stdout + done.stderr).split())


def test_a_process_that_is_not_reaped_is_reported(child, ompbind):
    process = child("", OMP_NUM_THREADS="3", SOMETHING="else")
    state = read_process(process.pid)
    assert (state.env.get("OMP_NUM_THREADS"), state.env.get("SOMETHING")) == ("3", None)
    process.kill()
    wait_until(lambda: read_process(process.pid) is None, "it has exited, and is not reaped")
    done = ompbind("inspect", str(process.pid))
    assert done.returncode == 2
    assert f"has exited, and its parent ({os.getpid()}) has not reaped it" in one_line(done)


def test_wrong_numbers_in_the_environment_of_a_rank_are_none(child, ompbind):
    env = dict.fromkeys(("OMPBIND_ATTEMPT", "OMPBIND_GROUP_RANK"), "9" * 4500)
    env |= {"OMPBIND_RUN_ID": "night", "OMPBIND_RANK": "0", "OMPBIND_CPUS": "0", "OMPBIND_GROUP": "load"}
    done = ompbind("inspect", str(child("", **env).pid), "--format", "json")
    assert json.loads(done.stdout)["crews"][0]["group_rank"] is None, done


def test_what_is_not_readable_is_reported(child):
    process = child("import ctypes\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n")  # PR_SET_DUMPABLE
    if not os.path.exists(f"/proc/{process.pid}"):
        pytest.skip("takes a /proc without hidepid, or root: it hides such a process")
    mask = allowed_list(process.pid)

    def read():
        state = read_process(process.pid)
        text = render_inspection(make_inspection(ObservedProcesses(processes={process.pid: state})))
        private = find_libraries(state), state.variables
        return state.unreadable, str(state.threads[0].cpus), private, "environment: not readable" in text

    read()  # loads all modules
    assert call_as_nobody(read) == (("libraries", "environment"), mask, ((), ()), True)


TITLE = """
import sys
environ = open("/proc/self/environ", "rb").read()
end = len(environ) if sys.argv[1] == "whole" else environ.rindex(b"\\0", 0, -1) + 1
with open("/proc/self/mem", "r+b", buffering=0) as memory:
    memory.seek(int(open("/proc/self/stat").read().rpartition(")")[2].split()[47]))
    memory.write(b"over".ljust(end, b"\\0"))
"""
"""Write a title over the environment, wholly or up to the last variable, as setproctitle does."""


@pytest.mark.parametrize(("verb", "part"), [("run", "whole"), ("exec", "up to a variable")])
def test_a_title_over_the_environment_is_no_changed_variable(start, region, ompbind, verb, part):
    mask = ",".join(map(str, two_cpus()))
    command = ("--", sys.executable, "-c", region + TITLE + WAIT, part)
    start(verb, "--share", "-m", mask, "--bind", "thread", *command, up=1)
    done = ompbind("inspect", "--all")
    assert (done.returncode, "rank 0 of run" in done.stdout) == (0, True), done.stdout
    assert "environment: not readable: the process title is written over it" in one_line(done)


def test_a_narrowed_initial_thread_is_found_in_other_processes(child, region, ompbind):
    first, second = two_cpus()
    places = {"OMP_PLACES": f"{{{first}}},{{{second}}}", "OMP_PROC_BIND": "close"}
    process = child(region + THREADS, **places)
    done = ompbind("inspect", str(read_process(process.pid).threads[-1].tid))
    assert done.returncode == 1, done.stdout
    assert f"pid {process.pid}: " in done.stdout, "the ID of a thread means its process"
    assert f"5 of 6 threads are restricted to CPU {first} out of" in one_line(done)
    assert f"OMP_PLACES={places['OMP_PLACES']} OMP_PROC_BIND=close" in one_line(done)
    free = {"OMP_PLACES": f"{{{first},{second}}}", "OMP_PROC_BIND": "true"}
    done = ompbind("inspect", str(child(region + THREADS, **free).pid))
    assert (done.returncode, "ok: all 6 threads are allowed on" in one_line(done)) == (0, True)


FORKS = """
import os
parent, (reading, writing) = os.getpid(), os.pipe()
for i in range(4):
    if os.fork() == 0:
        while os.getppid() == parent: i < 3 or os.close(writing) or os.read(reading, 1)
        os._exit(0)
"""
"""Start three workers that compute and one that waits; they exit with their parent."""


def test_workers_on_the_cpu_of_a_narrowed_parent_are_found(child, region, ompbind):
    first = two_cpus()[0]
    where = f"are restricted to CPU {first}, although CPUs {CpuSet(os.sched_getaffinity(0))} are allowed: "
    narrow = f"import os\nos.sched_setaffinity(0, [{first}])\n"
    for process, code, text in (
        (child(region + FORKS, OMP_PROC_BIND="true"), 1, "OMP_PROC_BIND=true, libgomp bound the initial"),
        (child(narrow + FORKS), 0, "warning: 3 busy processes are"),
    ):
        done = ompbind("inspect", str(process.pid))
        assert done.returncode == code, done.stdout
        for words in (where, text, f"'ompbind rebind {process.pid}' gives it the CPUs"):
            assert words in one_line(done)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide processes")
def test_what_proc_hides_is_not_seen(ompbind, public_ompbind):
    hide = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    before = ("unshare", "--mount", "sh", "-c", hide, "sh", *as_user(NOBODY))
    if subprocess.run([*before, "true"], capture_output=True).returncode:
        pytest.skip("needs a mount namespace and hidepid")
    options = {"before": before, "program": public_ompbind, "cwd": "/"}
    done = ompbind("inspect", str(os.getpid()), **options)
    said = f"not seen: process {os.getpid()}: /proc does not show it"
    assert (done.returncode, one_line(done)) == (1, said)
    done = ompbind("inspect", str(os.getpid()), "--format", "json", **options)
    record, reason = json.loads(done.stdout), {"reason": "/proc does not show it"}
    assert (done.returncode, record["state"], record["crews"]) == (1, "not seen", [])
    assert record["unseen"] == [{"target": f"process {os.getpid()}", **reason}]


@pytest.mark.parametrize(("mode", "service", "masks"), [
    ("rank", False, "both both"), ("thread", False, "both second"), ("exact", False, "first second"),
    ("rank", True, "both first"), ("none", True, "both both"),
])  # fmt: skip
def test_a_run_is_compared_with_its_mode_and_service_cpus(live, region, ompbind, mode, service, masks):
    first, second = two_cpus()
    lists = {"both": str(CpuSet((first, second))), "first": str(first), "second": str(second)}
    options = ("-m", f"{first},{second}", "--bind", mode)
    live("--share", *options, *(("--service-cores", "1", "-t", "2") if service else ()), code=region + WAIT)
    done = ompbind("inspect", "--all", "--format", "json")
    record = json.loads(done.stdout)
    (group,) = record["crews"]
    assert (done.returncode, group["verdict"]["level"], group["planned"]["bind"]) == (0, "ok", mode)
    assert not {issue["code"] for issue in record["together"]} - {"others"}, "other tests use the CPUs, too"
    found = [thread["cpus"] for thread in group["processes"][0]["threads"]]
    assert found == [lists[name] for name in masks.split()]
    assert [library["kind"] for library in group["processes"][0]["libraries"]] == ["gomp"]
    assert group["planned"]["cpus"] == lists["both"]
    if service:
        assert group["planned"]["service_cpus"] == str(second)
        held = json.loads(ompbind("ps", "--format", "json").stdout)["runs"][0]
        assert held["ranks"] == [{"rank": 0, "cpus": lists["both"]}]


def test_threads_that_leave_their_rank_are_found(live, ompbind):
    first, second = two_cpus()
    code = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); " + WAIT
    live("--share", "-n", "2", "-m", f"{first}|{second}", code=code, args=(str(first),), ranks=2)
    done = ompbind("inspect", "--all")
    assert done.returncode == 1
    assert f"may run on CPU {first}, the rank has CPU {second}" in one_line(done)
    assert f"ranks 0 and 1 are both allowed on CPU {first}, contrary to the plan" in one_line(done)
    assert done.stdout.startswith("2 ranks with 2 threads: 2 errors")
    shown = ompbind("inspect", "--all", "--problems")
    first, again = (each.stdout.splitlines()[0].removesuffix(", 1 warning") for each in (done, shown))
    assert (shown.returncode, again) == (1, first), "apart from the load of other tests"
    assert ["\nrank 0 of run" in each.stdout for each in (done, shown)] == [True, False]
    record = json.loads(ompbind("inspect", "--all", "--problems", "--format", "json").stdout)
    assert [group["rank"] for group in record["crews"]] == [1]


def test_runs_are_found_by_how_their_names_begin(live, ompbind):
    done = ompbind("inspect", "--all")
    assert (done.returncode, done.stdout) == (0, "no ompbind runs on this machine\n")
    unreadable = {"OMPBIND_RUNTIME_DIR": "/no/such"}
    done = ompbind("inspect", "--all", env=unreadable)
    assert (done.returncode, "cannot read" in one_line(done)) == (2, True)
    assert ompbind("inspect", str(os.getpid()), env=unreadable).stdout
    for name in ("one-a", "one-b", "two"):
        live("--share", "--run-id", name)
    assert "rank 0 of run two" in ompbind("inspect", "t").stdout
    several = ompbind("inspect", "one")
    assert (several.returncode, "one of one-a, one-b" in one_line(several)) == (2, True)
    assert ompbind("inspect", "--all").stdout.count("\nrank 0 of run") == 3
    env = {"_OMPBIND_COMPLETE": "bash_complete", "COMP_WORDS": "ompbind inspect tw", "COMP_CWORD": "2"}
    assert "two" in ompbind(env=env).stdout


@pytest.mark.parametrize(("words", "text"), [
    ("", "no process or run is given"), ("--all 1", "--all excludes names of processes and runs"),
    ("999999999", "process 999999999 does not exist"), ("nothing", "no live run is named 'nothing'"),
    ("--all --watch --format json", "--watch cannot print JSON"),
    ("--watch 4711", "--watch 4711: the interval must be 0.1 to 3600 seconds"),
])  # fmt: skip
def test_contradictory_arguments_are_refused(ompbind, words, text):
    done = ompbind("inspect", *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert text in one_line(done)
