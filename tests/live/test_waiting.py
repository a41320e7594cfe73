"""Runs that wait until CPUs are free: processes that queue, get CPUs in order, and are killed meanwhile."""

import fcntl
import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from ompbind.cli.register import Wait, register_when_free
from ompbind.errors import MaskError, PlanError
from ompbind.masks.parse import parse_mask
from ompbind.planning.request import Request, Sharing
from ompbind.registry import directory_watch
from ompbind.registry.claim_files import try_lock
from ompbind.registry.claim_format import TICKET_SUFFIX
from ompbind.registry.registry import make_run_identity, read_claim_list, read_live_runs
from tests.live.conftest import OMPBIND, clean_environment, required, two_cpus, wait_until
from tests.live.other_user import become_nobody, finish, fork_with_pipe
from tests.long import rounds
from tests.machines import Shape, make_machine

LONG = 60.0
MACHINE = make_machine(Shape(cores=8))


@pytest.fixture(autouse=True)
def _outside(monkeypatch):
    """No run around the tests."""
    monkeypatch.delenv("OMPBIND_RUN_ID", raising=False)


def plan(name, request, limit_s=LONG, **identity):
    """Plan and register in this process, once the CPUs are free."""
    me = make_run_identity(name).replace(**identity)
    return register_when_free(lambda: MACHINE, request, me, Wait(limit_s=limit_s))


def run(pipe, name, request, identity):
    """Wait for CPUs, send them, keep them until the next message, and release them."""
    found = plan(name, request, **identity)
    pipe.send(str(found.plan.used))
    pipe.recv()
    found.claim.release()


def asks(mask="", sharing=Sharing.EXCLUSIVE, **options):
    return Request(mask=parse_mask(mask) if mask else None, sharing=sharing, **options)


class Queue:
    """Processes that each make one request; they are killed after the test."""

    def __init__(self, directory):
        self.directory = str(directory)
        self.started = {}

    def add(self, name, request, **identity):
        """Start a process, and return when it has its CPUs or waits."""
        self.started[name] = fork_with_pipe(run, name, request, identity)
        wait_until(lambda: self.has(name) or name in self.waiting(), f"{name} waits or runs")
        return self

    def has(self, name):
        """Return whether a process has its CPUs."""
        return self.started[name][0].poll()

    def waiting(self):
        return [run.run_id for run in read_claim_list(self.directory, (TICKET_SUFFIX,)).runs]

    def get(self, name):
        """Return the CPUs that a process gets."""
        pipe, _ = self.started[name]
        assert pipe.poll(10), f"{name} still waits"
        return pipe.recv()

    def end(self, name):
        finish(*self.started.pop(name))

    def kill(self, name):
        pipe, process = self.started.pop(name)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        pipe.close()


@pytest.fixture
def queue(claims):
    new = Queue(claims)
    yield new
    for name in tuple(new.started):
        new.kill(name)


@pytest.fixture(params=["inotify", "polling"])
def watch(request, monkeypatch):
    if request.param == "polling":
        monkeypatch.setattr(directory_watch, "_open_watch", lambda directory: -1)
    return request.param


@pytest.mark.parametrize("how", [Queue.end, Queue.kill])
def test_a_run_gets_the_cpus_when_their_holder_exits_or_is_killed(queue, watch, how):
    queue.add("first", asks("0-3")).add("second", asks("2-5"))
    assert (queue.get("first"), queue.has("second"), queue.waiting()) == ("0-3", False, ["second"])
    begun = time.monotonic()
    how(queue, "first")
    assert queue.get("second") == "2-5"
    assert time.monotonic() - begun < (0.5 if watch == "inotify" else 3)
    assert queue.waiting() == []


def test_runs_get_cpus_in_the_order_in_which_they_came(queue):
    names = ["holder", "a", "b", "c"]
    for name in names:
        queue.add(name, asks("0"))
    for name in names:
        assert queue.get(name) == "0"
        assert not any(map(queue.has, queue.started))
        queue.end(name)


def test_a_killed_run_that_waits_is_not_waited_for(queue):
    queue.add("holder", asks("0-3")).add("killed", asks("0-5")).add("last", asks("4-5"))
    assert queue.get("holder") == "0-3"
    assert not queue.has("last"), "it waits for the run that waits"
    queue.kill("killed")
    assert queue.get("last") == "4-5"


def test_a_run_does_not_wait_for_runs_that_want_other_cores(queue):
    queue.add("holder", asks("0")).add("waits", asks("0-1")).add("beside", asks("2-7"))
    assert queue.get("beside") == "2-7"
    assert queue.waiting() == ["waits"]


@pytest.mark.parametrize("sharing", [Sharing.AVOID, Sharing.EXCLUSIVE])
def test_a_small_request_does_not_overtake_a_large_one(queue, sharing):
    queue.add("holder", asks("0-3")).add("large", asks("0-7")).add(
        "small", asks("", sharing, strategy="cores")
    )
    assert not queue.has("small"), "cores 4 to 7 are free, but the earlier run wants them too"
    queue.end("holder")
    assert queue.get("large") == "0-7"
    queue.end("large")
    assert queue.get("small") == "0"


def test_a_run_that_avoids_others_waits_only_if_it_must(queue):
    cores = asks("", Sharing.AVOID, ranks=2, strategy="cores")
    queue.add("holder", asks("0-5")).add("beside", cores).add("waits", cores)
    assert queue.get("beside") == "6-7"
    queue.end("holder")
    assert queue.get("waits") == "0-1"


def test_no_lock_is_held_meanwhile(queue, claims):
    queue.add("holder", asks("0")).add("waits", asks("0"))
    handle = os.open(claims, os.O_RDONLY)
    wait_until(lambda: try_lock(handle, fcntl.LOCK_EX), "the directory is not locked")
    os.close(handle)


def test_a_run_that_waits_sleeps(queue):
    queue.add("holder", asks("0")).add("waits", asks("0"))
    assert queue.get("holder") == "0"
    pid = queue.started["waits"][1].pid

    def read_switches():
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    wait_until(lambda: read_switches() == (time.sleep(0.3), read_switches())[1], "it sleeps for 0.3 s")


@pytest.mark.parametrize("blocker", ["has CPUs", "waits"])
def test_the_error_after_the_limit_names_the_runs(queue, blocker):
    queue.add("holder", asks("0-3"))
    if blocker == "waits":
        queue.add("earlier", asks("0-5"))
    found = [("holder", "uses CPUs 0-3")]
    if blocker == "waits":
        found.append(("earlier", "waits for CPUs 0-5"))
    runs = [rf"run {name} \(pid {queue.started[name][1].pid}, user \w+\) {text}" for name, text in found]
    text = rf"^the CPUs are not free after 0\.1 s: {'; '.join(runs)}$"
    with pytest.raises(PlanError, match=text):
        plan("late", asks("3-7"), limit_s=0.1)
    assert "late" not in queue.waiting()


@pytest.mark.parametrize(
    ("request_", "error"), [(asks("9"), MaskError), (asks("0", ranks=2), PlanError)], ids=["mask", "ranks"]
)
def test_what_no_other_run_causes_is_an_error_at_once(queue, request_, error):
    queue.add("holder", asks(""))
    assert queue.get("holder") == "0-7"
    with pytest.raises(error):
        plan("wrong", request_)
    assert queue.waiting() == []


def test_runs_that_start_in_a_rank_do_not_wait_for_runs_that_wait_for_the_rank(queue):
    queue.add("outer", asks("0-3")).add("waits", asks("0-7"))
    queue.add("inner", asks("0-1"), parent_run_id="outer")
    assert queue.get("inner") == "0-1"
    queue.add("second", asks("1-2"), parent_run_id="outer")
    queue.add("third", asks("2-3"), parent_run_id="outer")
    assert queue.waiting() == ["waits", "second", "third"], "among themselves they queue"
    queue.end("inner")
    assert queue.get("second") == "1-2"
    assert not queue.has("third")


def test_ranks_of_a_job_do_not_wait_for_runs_that_wait_for_the_job(queue):
    job, both = asks("0-1", ranks=2), {"rank": 0, "placement_index": 0}
    queue.add("holder", asks("0"))
    queue.started["early"] = fork_with_pipe(run, "job", job, both)
    wait_until(lambda: queue.waiting() == ["job"], "the first rank waits")
    queue.add("between", asks("0-7"))
    queue.started["late"] = fork_with_pipe(run, "job", job, {"rank": 1, "placement_index": 1})
    wait_until(lambda: queue.waiting().count("job") == 2, "the second rank waits")
    queue.end("holder")
    assert (queue.get("early"), queue.get("late")) == ("0-1", "0-1")
    assert not queue.has("between")
    queue.end("early")
    queue.end("late")
    assert queue.get("between") == "0-7"


MANY = rounds(50)


def test_many_runs_get_one_core_in_turn(queue, claims, tmp_path):
    """Each run locks a file while it has the core, and writes its number."""
    log = tmp_path / "log"
    queue.add("holder", asks("0"))

    def work(pipe, number):
        found = plan(f"run-{number}", asks("0"))
        with log.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(f"{number}\n")
            file.flush()
        found.claim.release()
        pipe.send(None)
        pipe.recv()

    for number in range(MANY):
        queue.started[number] = fork_with_pipe(work, number)
        wait_until(lambda number=number: f"run-{number}" in queue.waiting(), "it waits")
    begun = time.monotonic()
    queue.end("holder")
    for number in range(MANY):
        queue.get(number)
    assert time.monotonic() - begun < 20
    assert log.read_text().split() == [str(number) for number in range(MANY)]
    assert read_live_runs(str(claims)) == ()
    assert os.listdir(claims) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("first", ["root", "nobody"])
def test_runs_of_two_users_wait_for_each_other(monkeypatch, first):
    """The runs that have the CPUs, wait and come last alternate between two users."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o1777)
        monkeypatch.setenv("OMPBIND_RUNTIME_DIR", name)
        queue = Queue(name)

        def work(pipe, user, number):
            if user == "nobody":
                become_nobody()
            run(pipe, number, asks("0"), {})

        users = [first, "nobody" if first == "root" else "root"] * 2
        for number, user in enumerate(map(str, users)):
            queue.started[str(number)] = fork_with_pipe(work, user, str(number))
            wait_until(lambda n=str(number): queue.has(n) or n in queue.waiting(), "it waits or runs")
        for number in map(str, range(4)):
            assert queue.get(number) == "0"
            assert not any(map(queue.has, queue.started))
            (queue.kill if number == "1" else queue.end)(number)


def said(process):
    """Return the messages of a process that has exited, on one line."""
    return " ".join(process.stderr.read().split())


@pytest.fixture
def holder(start):
    """A run that has all CPUs until its standard input is closed."""
    process = start("run", "--run-id", "holder", "--", "sh", "-c", "echo up; read x", stdin=subprocess.PIPE)
    assert process.stdout.readline() == "up\n"
    return process


@pytest.fixture
def wait(start, claims):
    """Return a function that starts a command that waits, and returns when it waits."""

    def begin(*args, **options):
        process = start(*args, **options)
        wait_until(
            lambda: any(
                run.pid == process.pid for run in read_claim_list(str(claims), (TICKET_SUFFIX,)).runs
            ),
            "it waits",
        )
        return process

    return begin


def test_run_waits_and_its_timeout_starts_with_the_ranks(ompbind, holder, wait):
    process = wait(
        "run", "--exclusive", "--wait", "--timeout", "1", "--run-id", "later", "--", "sleep", "0.1"
    )
    time.sleep(1.2)
    (line,) = (line for line in ompbind("ps").stdout.splitlines() if line.startswith("later "))
    assert line.split()[5] == "waits"
    found = json.loads(ompbind("ps", "--format", "json").stdout)
    assert [run["run_id"] for run in found["runs"]] == ["holder"]
    (waiting,) = found["waiting"]
    assert (waiting["run_id"], waiting["pid"], waiting["inside"]) == ("later", process.pid, None)
    assert waiting["wanted"] == found["runs"][0]["held"]
    holder.stdin.close()
    assert process.wait(20) == 0
    text = said(process)
    assert text.count("waiting for CPUs: run holder") == 1
    assert f"(pid {holder.pid}, user " in text


def test_after_the_limit_nothing_was_started(ompbind, holder, tmp_path):
    report = tmp_path / "run.json"
    done = ompbind(
        "run", "--exclusive", "--wait=0.2", "-q", "--report", str(report), "--", "touch", str(tmp_path / "x")
    )
    text = f"the CPUs are not free after 0.2 s: run holder (pid {holder.pid}, user "
    assert (done.returncode, (tmp_path / "x").exists()) == (125, False)
    assert text in " ".join(done.stderr.split())
    assert "waiting for CPUs" not in done.stderr, "-q hides it"
    assert text in json.loads(report.read_text())["error"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_the_wait_at_once(holder, wait, tmp_path, number):
    report = tmp_path / "run.json"
    process = wait("run", "--exclusive", "--wait", "--report", str(report), "--", "true")
    last = wait("exec", "--exclusive", "--wait", "--", "sh", "-c", "echo $$")
    process.send_signal(number)
    assert process.wait(5) == -number
    assert json.loads(report.read_text())["error"] == "the run has not finished"
    holder.stdin.close()
    assert last.wait(20) == 0
    assert last.stdout.read() == f"{last.pid}\n"


def test_the_cpus_that_are_allowed_after_the_wait_count(holder, wait):
    _, second = two_cpus()
    process = wait("run", "--exclusive", "--wait", "--", "sh", "-c", "echo $OMPBIND_CPUS")
    os.sched_setaffinity(process.pid, [second])
    holder.stdin.close()
    assert process.stdout.readline() == f"{second}\n"


def test_the_variable_sets_the_limit(ompbind, holder):
    env = {"OMPBIND_WAIT": "0.1"}
    assert "not free after 0.1 s" in ompbind("run", "--exclusive", "--", "true", env=env).stderr
    assert ompbind("run", "--no-wait", "--share", "--", "true", env=env).returncode == 0


@pytest.mark.parametrize("verb", ["run", "exec"])
def test_wait_needs_a_reason_to_wait(ompbind, verb):
    for args, text in (
        (["--wait"], "--wait needs --avoid or --exclusive"),
        (["--wait=5", "--share"], "--wait=5 needs --avoid or --exclusive"),
        (["--avoid", "--wait=soon"], "'soon' is not a time"),
        (["--avoid", "--wait", "true"], "before a command write --wait --"),
    ):
        done = ompbind(verb, *args, "--", "true")
        assert (done.returncode, text in " ".join(done.stderr.split())) == (125, True)
    done = ompbind(verb, "--avoid", "--wait", "--dry-run", "--", "true")
    assert (done.returncode, "--wait has no effect with --dry-run" in done.stderr) == (0, True)


def ranks(size, local_size):
    return {
        "PMI_RANK": "0", "PMI_SIZE": str(size), "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": str(local_size),
        "PMI_JOBID": "x",
    }  # fmt: skip


def test_ranks_that_could_wait_for_each_other_are_refused(ompbind):
    done = ompbind("exec", "--exclusive", "--wait", "--", "true", env=ranks(4, 2))
    text = "MPICH or Intel MPI has started ranks on other machines too, so two jobs could wait for each other"
    assert (done.returncode, text in " ".join(done.stderr.split())) == (125, True)
    hydra = (required("mpiexec.hydra"), "-n", "2", "-bind-to", "core")
    done = ompbind("exec", "--avoid", "--wait", "--", "true", before=hydra)
    assert "MPICH or Intel MPI has bound each rank to CPUs of its own" in " ".join(done.stderr.split())


LIMITED = ("--exclusive", "--wait=20")
"""Of runs that would wait for ever if a test fails."""


def ready(process):
    """Wait for the first line of a process: it has its CPUs; return the line without its end."""
    return process.stdout.readline().rstrip("\n")


def test_a_rank_gets_its_cpus_before_runs_that_wait_for_its_job(holder, wait):
    """The first rank of a job that gets CPUs gets them for all ranks, so the second must not queue."""
    command = ("--run-id", "job", "--", "sh", "-c", "echo $RANK; read x")
    early, late = ({**ranks(2, 2), "PMI_RANK": str(rank), "MPI_LOCALRANKID": str(rank)} for rank in range(2))
    first = wait("exec", *LIMITED, *command, env=early, stdin=subprocess.PIPE)
    between = wait("run", *LIMITED, "--", "echo", "between")
    second = wait("exec", *LIMITED, *command, env=late, stdin=subprocess.PIPE)
    holder.stdin.close()
    assert (ready(first), ready(second)) == ("0", "1")
    first.stdin.close()
    second.stdin.close()
    assert ready(between) == "between"


def test_a_run_that_has_its_cpus_waits_no_longer(ompbind, holder, wait):
    command = ("-s", "cores", "--avoid", "--wait=20", "--", "sh", "-c", "echo $OMPBIND_CPUS; read x")
    both = [wait("run", "--run-id", name, *command, stdin=subprocess.PIPE) for name in ("one", "two")]
    holder.stdin.close()
    one, two = (ready(process) for process in both)
    assert one
    assert two not in ("", one)
    found = json.loads(ompbind("ps", "--format", "json").stdout)
    assert (sorted(run["run_id"] for run in found["runs"]), found["waiting"]) == (["one", "two"], [])


def test_a_run_in_a_rank_does_not_wait_for_runs_that_wait_for_the_rank(start, wait):
    script = f"echo up; read x; exec ompbind run {' '.join(LIMITED)} -- echo inner"
    outer = start("run", "--run-id", "outer", "--", "sh", "-c", script, stdin=subprocess.PIPE)
    assert ready(outer) == "up"
    last = wait("run", *LIMITED, "--", "echo", "last")
    outer.stdin.close()
    assert (ready(outer), ready(last)) == ("inner", "last")


def test_jobs_of_a_launcher_take_turns(tmp_path):
    """Both ranks of a job must run at the same time: each waits for the file of the other."""
    script = (
        "flock -n {0}/$RANK sh -c 'touch {0}/$1-$0; while ! test -e {0}/$1-$((1 - $0)); do :; done' $RANK {1}"
    )
    jobs = [
        subprocess.Popen(
            [required("mpiexec.hydra"), "-n", "2", OMPBIND, "exec", "--exclusive", "--wait", "--",
             "sh", "-c", script.format(tmp_path, job)],
            env=clean_environment(), stderr=subprocess.PIPE, text=True,
        )
        for job in range(3)
    ]  # fmt: skip
    assert [job.communicate(timeout=40) and job.returncode for job in jobs] == [0, 0, 0]
