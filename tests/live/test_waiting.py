"""Runs that wait until CPUs are free: processes that queue, get CPUs in order, and are killed meanwhile."""

import fcntl
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import ompbind.cli.waiting  # noqa: F401 - before the forks: another user may not read it
from ompbind.cli.register import Wait, register_when_free
from ompbind.errors import MaskError, PlanError
from ompbind.masks.parse import parse_mask
from ompbind.planning.request import Request, Sharing
from ompbind.registry import directory_watch
from ompbind.registry.claim_files import try_lock
from ompbind.registry.claim_format import TICKET_SUFFIX
from ompbind.registry.registry import make_run_identity, read_claim_list
from tests.live.conftest import two_cpus, wait_until
from tests.live.other_user import become_nobody, finish, fork_with_pipe
from tests.machines import Shape, make_machine

MACHINE = make_machine(Shape(cores=8))


@pytest.fixture(autouse=True)
def _outside(monkeypatch):
    """No run around the tests."""
    monkeypatch.delenv("OMPBIND_RUN_ID", raising=False)


def plan(name, request, limit_s=60.0, **identity):
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


@pytest.mark.parametrize(
    ("how", "limit_s"), [(Queue.end, 0.5), (Queue.kill, 0.5), (Queue.kill, 3)], ids=["exit", "kill", "polls"]
)
def test_a_run_gets_the_cpus_when_their_holder_exits_or_is_killed(queue, monkeypatch, how, limit_s):
    if limit_s > 1:
        monkeypatch.setattr(directory_watch, "_open_watch", lambda directory: -1)
    queue.add("first", asks("0-3")).add("second", asks("2-5"))
    assert (queue.get("first"), queue.has("second"), queue.waiting()) == ("0-3", False, ["second"])
    begun = time.monotonic()
    how(queue, "first")
    assert queue.get("second") == "2-5"
    assert time.monotonic() - begun < limit_s
    assert queue.waiting() == []


def test_a_run_waits_only_for_earlier_runs_that_want_the_same_cores(queue):
    queue.add("holder", asks("0-3")).add("killed", asks("0-5")).add("last", asks("4-5"))
    queue.add("beside", asks("6-7"))
    assert queue.get("beside") == "6-7"
    assert not queue.has("last"), "it waits for the run that waits"
    queue.kill("killed")
    assert queue.get("last") == "4-5"


@pytest.mark.parametrize("sharing", [Sharing.AVOID, Sharing.EXCLUSIVE])
def test_a_small_request_does_not_overtake_a_large_one(queue, sharing):
    queue.add("holder", asks("0-3")).add("large", asks("0-7"))
    queue.add("small", asks("", sharing, strategy="cores"))
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


def test_a_run_that_waits_sleeps_without_a_lock(queue, claims):
    queue.add("holder", asks("0")).add("waits", asks("0"))
    handle = os.open(claims, os.O_RDONLY)
    wait_until(lambda: try_lock(handle, fcntl.LOCK_EX), "the directory is not locked")
    os.close(handle)
    status = Path(f"/proc/{queue.started['waits'][1].pid}/status")

    def read_switches():
        return int(status.read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    wait_until(lambda: read_switches() == (time.sleep(0.2), read_switches())[1], "it sleeps for 0.2 s")


def test_the_error_after_the_limit_names_the_runs(queue):
    queue.add("holder", asks("0-3")).add("earlier", asks("0-5"))
    with pytest.raises(PlanError, match=r"the CPUs are not free after 0\.1 s") as failure:
        plan("late", asks("3-7"), limit_s=0.1)
    for name, text in (("holder", "uses CPUs 0-3"), ("earlier", "waits for CPUs 0-5")):
        assert f"run {name} (pid {queue.started[name][1].pid}, user " in failure.value.message
        assert text in failure.value.message
    assert "late" not in queue.waiting()


def test_what_no_other_run_causes_is_an_error_at_once(queue):
    queue.add("holder", asks(""))
    for request, error in ((asks("9"), MaskError), (asks("0", ranks=2), PlanError)):
        with pytest.raises(error):
            plan("wrong", request)
    assert "wrong" not in queue.waiting()


def test_ranks_of_a_job_do_not_wait_for_runs_that_wait_for_the_job(queue):
    """The first rank of a job that gets CPUs gets them for all ranks, so the others must not queue."""
    job = asks("0-1", ranks=2)
    queue.add("holder", asks("0"))
    queue.started["early"] = fork_with_pipe(run, "job", job, {"rank": 0, "placement_index": 0})
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


def test_runs_get_one_core_in_the_order_in_which_they_came(queue, claims):
    names = ["holder", "a", "b", "c"]
    for name in names:
        queue.add(name, asks("0"))
    for name in names:
        assert queue.get(name) == "0"
        assert not any(map(queue.has, queue.started))
        queue.end(name)
    assert os.listdir(claims) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("users", [("root", "nobody"), ("nobody", "root")])
def test_runs_of_two_users_wait_for_each_other(monkeypatch, public, users):
    """The runs that have the CPUs, wait and come last alternate between two users."""

    def work(pipe, user, name):
        if user == "nobody":
            become_nobody()
        run(pipe, name, asks("0"), {})

    monkeypatch.setenv("OMPBIND_RUNTIME_DIR", str(public))
    queue = Queue(public)
    for name, user in zip("0123", users * 2, strict=True):
        queue.started[name] = fork_with_pipe(work, user, name)
        wait_until(lambda n=name: queue.has(n) or n in queue.waiting(), "it waits or runs")
    for name in "0123":
        assert queue.get(name) == "0"
        assert not any(map(queue.has, queue.started))
        (queue.kill if name == "1" else queue.end)(name)


def said(text):
    return " ".join(text.split())


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
        waiting = lambda: read_claim_list(str(claims), (TICKET_SUFFIX,)).runs  # noqa: E731
        wait_until(lambda: process.pid in [run.pid for run in waiting()], "it waits")
        return process

    return begin


def test_run_waits_and_its_timeout_starts_with_the_ranks(ompbind, holder, wait):
    options = ("--exclusive", "--wait", "--timeout", "1", "--run-id", "later")
    process, begun = wait("run", *options, "--", "true"), time.monotonic()
    (line,) = (line for line in ompbind("ps").stdout.splitlines() if line.startswith("later "))
    assert line.split()[5] == "waits"
    found = json.loads(ompbind("ps", "--format", "json").stdout)
    assert [run["run_id"] for run in found["runs"]] == ["holder"]
    (waiting,) = found["waiting"]
    assert (waiting["run_id"], waiting["pid"], waiting["inside"]) == ("later", process.pid, None)
    assert waiting["wanted"] == found["runs"][0]["held"]
    wait_until(lambda: time.monotonic() > begun + 1, "its timeout is over")
    holder.stdin.close()
    text = said(process.communicate(timeout=20)[1])
    assert process.returncode == 0, text
    assert text.count(f"waiting for CPUs: run holder (pid {holder.pid}, user ") == 1


def test_after_the_limit_nothing_was_started(ompbind, holder, tmp_path):
    report, touched = tmp_path / "run.json", tmp_path / "x"
    options = ("--exclusive", "-q", "--report", str(report), "--", "touch", str(touched))
    done = ompbind("run", *options, env={"OMPBIND_WAIT": "0.2"})
    text = f"the CPUs are not free after 0.2 s: run holder (pid {holder.pid}, user "
    assert (done.returncode, touched.exists()) == (125, False)
    assert text in said(done.stderr)
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
    assert process.stderr.readline().startswith("ompbind: waiting"), "it has tried with all CPUs"
    os.sched_setaffinity(process.pid, [second])
    holder.stdin.close()
    assert process.stdout.readline() == f"{second}\n"


@pytest.mark.two_cpus
def test_a_run_that_has_its_cpus_waits_no_longer(ompbind, holder, wait):
    command = ("-s", "cores", "--avoid", "--wait=20", "--", "sh", "-c", "echo $OMPBIND_CPUS; read x")
    both = [wait("run", "--run-id", name, *command, stdin=subprocess.PIPE) for name in ("one", "two")]
    holder.stdin.close()
    one, two = (process.stdout.readline() for process in both)
    assert len({"", one, two}) == 3
    found = json.loads(ompbind("ps", "--format", "json").stdout)
    assert (sorted(run["run_id"] for run in found["runs"]), found["waiting"]) == (["one", "two"], [])


RANK = {"PMI_RANK": "0", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2", "PMI_JOBID": "x"}


@pytest.mark.parametrize(
    ("words", "env", "code", "text"),
    [
        ("run --wait", {}, 125, "--wait needs --avoid or --exclusive"),
        ("exec --wait=5 --share", {}, 125, "--wait=5 needs --avoid or --exclusive"),
        ("run --avoid --wait=soon", {}, 125, "'soon' is not a time"),
        ("run --avoid --wait true", {}, 125, "before a command write --wait --"),
        ("run --avoid --wait --dry-run", {}, 0, "--wait has no effect with --dry-run"),
        ("run --no-wait --share", {"OMPBIND_WAIT": "0.1"}, 0, ""),
        ("exec --exclusive --wait", RANK, 125, "MPICH or Intel MPI has started ranks on other machines too"),
    ],
)
def test_wait_is_refused_without_a_reason_and_where_ranks_could_wait_for_each_other(
    ompbind, words, env, code, text
):
    done = ompbind(*words.split(), "--", "true", env=env)
    assert (done.returncode, text in said(done.stderr)) == (code, True)
