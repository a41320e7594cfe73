"""`ompbind doctor` on this machine: with a clean and a wrong environment, a small mask, without rights."""

import errno
import json
import os
import re
import subprocess
import sys

import pytest

from tests.live.conftest import OMPBIND, SANDBOX, one_line, python_with_torch, required, run_program, two_cpus
from tests.live.other_user import NOBODY, as_user


@pytest.fixture
def doctor(ompbind):
    """Run doctor with --format json, check its exit code and return its results by subject."""

    def run(*command, code=0, **options):
        done = ompbind("doctor", "--format", "json", *(["--", *command] if command else []), **options)
        record = json.loads(done.stdout)
        errors = [result for result in record["findings"] if result["level"] == "problem"]
        assert (done.returncode, len(errors), record["problems"]) == (code, code, len(errors)), done.stdout
        return {result["subject"]: result for result in record["findings"]}

    return run


@pytest.mark.two_cpus
def test_a_clean_environment_has_no_error_and_the_command_is_not_started(doctor, tmp_path):
    trace = tmp_path / "trace"
    found = doctor(sys.executable, "-c", f"open({str(trace)!r}, 'w')")
    assert not trace.exists()
    assert found["variables"]["found"] == "none that would move, bind or multiply threads"
    assert found["sched_setaffinity"]["found"] == "is permitted"
    assert found["kernel"]["found"] == os.uname().release
    assert "Python {}.{}".format(*sys.version_info) in found["command"]["found"]


def test_whether_ranks_can_be_held(doctor, ompbind):
    """The filter is installed in a child process: doctor finds the same a second time."""
    assert [doctor()["--hold"]["found"] for _ in range(2)] == ["is permitted"] * 2
    number = {"x86_64": 317, "aarch64": 277}[os.uname().machine]
    for answer, why in ((str(errno.EPERM), "here: Operation not permitted"), ("kill", "here")):
        found = doctor(before=[sys.executable, SANDBOX, answer, str(number), "--"])["--hold"]
        assert f"does not work: seccomp is refused {why}" in found["found"]
        assert found["level"] == "ok"
    done = ompbind("run", "--hold", "--share", "--", OMPBIND, "doctor")
    assert "does not work: another program already answers system calls" in one_line(done.stdout)


def test_one_cpu_by_taskset_and_a_missing_command_are_errors(doctor):
    cpu = two_cpus()[1]
    before = [required("taskset"), "-c", str(cpu)]
    assert f"({cpu}): the affinity mask of this process" in doctor(code=1, before=before)["CPUs"]["found"]
    assert doctor("nosuch-command", code=1)["command"]["found"] == "command not found: nosuch-command"


@pytest.mark.two_cpus
def test_a_rank_of_a_run_has_no_error_and_the_variables_of_a_plan_are_a_note(doctor, ompbind):
    done = ompbind("run", "-n", "2", "--share", "-m", "all", "--", OMPBIND, "doctor", "--format", "json")
    assert done.returncode == 0
    assert done.stdout.count("the enclosing run") >= 2
    env = dict(line.split("=", 1) for line in ompbind("plan", "--format", "env").stdout.splitlines())
    assert env["OMPBIND_RANK"] == "0"
    found = doctor(env=env)
    assert "variables" not in found
    assert found["OMP_PLACES"]["level"] == "note"


def test_other_runs_and_busy_processes_are_reported(doctor, start):
    words = ("--run-id", "elsewhere", "--", sys.executable, "-c", "print(1, flush=True)\nwhile True: pass")
    start("run", "-m", str(two_cpus()[0]), *words).stdout.readline()
    found = doctor()
    run, load = found["other runs"], found["other load"]
    assert (run["level"], run["found"].split(" (")[0]) == ("note", "elsewhere")
    used = re.fullmatch(r"other processes used (\d+) % of CPUs? [\d,-]+ in [\d.]+ s", load["found"])
    assert (load["level"], int(used[1]) > 20) == ("note", True), load


POOLS = """
import concurrent.futures, multiprocessing
pool = multiprocessing.Pool()
print(pool._processes, concurrent.futures.ThreadPoolExecutor()._max_workers)
pool.terminate()
"""


def run_on_one_cpu(*command):
    return run_program(required("taskset"), "-c", str(two_cpus()[0]), *command).stdout.split()


def test_the_sizes_of_python_pools_are_true(doctor):
    """With one CPU allowed, Python before 3.13 still has workers for all online CPUs."""
    online = os.sysconf("SC_NPROCESSORS_ONLN")
    sizes = run_on_one_cpu(sys.executable, "-c", POOLS)
    issue = doctor(sys.executable, "-c", POOLS).get("Python's pools")
    if issue is None:
        assert sizes == ["1", "5"]
    else:
        assert sizes == [str(online), str(min(32, online + 4))]
        assert "online CPU ({}), ThreadPoolExecutor has up to {} threads".format(*sizes) in issue["found"]


@pytest.mark.part("programs")
@pytest.mark.parametrize(("name", "subject", "words", "counts"), [
    ("node", "Node.js", ("-p", "os.cpus().length + ' ' + os.availableParallelism()"), ("online", 1)),
    ("Rscript", "R", ("-e", "cat(parallel::detectCores())"), ("online",)),
    ("Rscript", "data.table of R", ("-e", "cat(data.table::getDTthreads())"), (1,)),
])  # fmt: skip
def test_what_is_said_of_other_programs_is_true(doctor, name, subject, words, counts):
    """On one CPU: what they count, which is all online CPUs for those that a note is about."""
    command = [required(name), *words]
    online = os.sysconf("SC_NPROCESSORS_ONLN")
    assert doctor(*command)[subject]["level"] == "note"
    found = run_on_one_cpu(*command)
    assert found == [str(online if each == "online" else each) for each in counts]


@pytest.mark.part("programs")
@pytest.mark.parametrize("binds", [True, False])
def test_a_program_that_binds_itself_is_warned_about_and_then_seen(ompbind, tmp_path, binds):
    first, second = two_cpus()
    configuration = tmp_path / "redis.conf"
    setting = f"{'#' * (not binds)}server_cpulist {first}"
    configuration.write_text(f"port 0\nunixsocket {tmp_path}/socket\ndir {tmp_path}\n{setting}\n")
    command = ("timeout", "2", required("redis-server"), str(configuration))
    done = ompbind("run", "-m", str(second), "--share", "--verify", "--", *command)
    assert ("redis (server_cpulist) replaces the affinity mask" in one_line(done.stderr)) == binds
    assert (f"on CPU {first}" in one_line(done.stderr)) == binds, done.stderr


@pytest.mark.part("torch")
def test_what_is_said_of_torch_is_true(doctor):
    """With one CPU allowed, torch before 2.14 still has inter-op threads for all cores."""
    command = [python_with_torch(), "-c", "import torch; print(torch.get_num_interop_threads())"]
    threads, issue = run_on_one_cpu(*command), doctor(*command)["torch"]
    assert (issue["level"] == "ok") == (threads == ["1"]), (threads, issue)


@pytest.mark.two_cpus
def test_an_ordinary_user_without_rights(public_ompbind):
    command = [*as_user(NOBODY), "--bounding-set=-all", public_ompbind, "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={}, cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
