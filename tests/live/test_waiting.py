"""Runs that wait until CPUs are free: processes that wait, get CPUs, and are killed meanwhile."""

import json
import os
import signal
import subprocess
import time

import pytest

import ompbind.launchers.find  # noqa: F401 - before the forks: another user may not read it
from ompbind.cli.register import register_when_free
from ompbind.cpuset import named
from ompbind.errors import MaskError, PlanError
from ompbind.masks.mask import parse_mask
from ompbind.planning.request import Request, Sharing
from ompbind.registry.claims import WAITING_SUFFIX
from ompbind.registry.registry import make_own_run, read_claim_list
from tests.live.conftest import one_line, two_cpus, wait_until
from tests.live.other_user import become_nobody, finish, fork_with_pipe
from tests.machines import Shape, make_machine

MACHINE = make_machine(Shape(cores=8))


@pytest.fixture(autouse=True)
def _outside(monkeypatch):
    monkeypatch.delenv("OMPBIND_RUN_ID", raising=False)


def plan(name, request, limit_s=60.0, **identity):
    """Plan and register in this process, once the CPUs are free."""
    me = make_own_run(name).replace(**identity)
    return register_when_free(lambda: MACHINE, request, me, limit_s=limit_s, prints=True)


def run(pipe, name, request, identity):
    """Wait for CPUs, send them, keep them until the next message, and release them."""
    found = plan(name, request, **identity)
    pipe.send(str(found.plan.used))
    pipe.recv()
    found.claim.release()


def asks(mask="", sharing=Sharing.EXCLUSIVE, **options):
    return Request(mask=parse_mask(mask) if mask else None, sharing=sharing, **options)


class Waiters:
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
        return self.started[name][0].poll()

    def waiting(self):
        return [run.run_id for run in read_claim_list(self.directory, (WAITING_SUFFIX,)).runs]

    def get(self, name):
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
def waiters(claims):
    new = Waiters(claims)
    yield new
    for name in tuple(new.started):
        new.kill(name)


@pytest.mark.parametrize("how", [Waiters.end, Waiters.kill], ids=["exit", "kill"])
def test_a_run_gets_the_cpus_when_their_holder_exits_or_is_killed(waiters, how):
    waiters.add("first", asks("0-3")).add("second", asks("2-5")).add("beside", asks("6-7"))
    assert (waiters.get("first"), waiters.get("beside")) == ("0-3", "6-7")
    assert (waiters.has("second"), waiters.waiting()) == (False, ["second"])
    begun = time.monotonic()
    how(waiters, "first")
    assert waiters.get("second") == "2-5"
    assert time.monotonic() - begun < 3
    assert waiters.waiting() == []


def test_what_no_other_run_causes_is_an_error_at_once(waiters):
    waiters.add("holder", asks(""))
    for request, error in ((asks("9"), MaskError), (asks("0", ranks=2), PlanError)):
        with pytest.raises(error):
            plan("wrong", request)
    assert "wrong" not in waiters.waiting()


def test_a_run_that_comes_and_goes_between_two_looks_does_not_count(claims, monkeypatch):
    """The first look sees no other run, the plan sees one, and the second look again none."""
    reads, short = [], []

    def read():
        reads.append(1)
        if len(reads) == 2:  # for the plan
            short.append(plan("short", asks("0-7")).claim)
        return MACHINE

    monkeypatch.setattr(time, "sleep", lambda _: short.pop().release() if short else None)
    found = register_when_free(read, asks("0-7"), make_own_run("next"), limit_s=5, prints=False)
    assert str(found.plan.used) == "0-7"
    found.claim.release()


def test_ranks_of_a_job_get_their_cpus_together(waiters):
    """The first rank of a job that gets CPUs gets them for all ranks."""
    job = asks("0-1", ranks=2)
    waiters.add("holder", asks("0"))
    for index, name in enumerate(("early", "late")):
        identity = {"rank": index, "placement_index": index}
        waiters.started[name] = fork_with_pipe(run, "job", job, identity)
    wait_until(lambda: waiters.waiting() == ["job", "job"], "both ranks wait")
    waiters.end("holder")
    assert (waiters.get("early"), waiters.get("late")) == ("0-1", "0-1")


ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.mark.parametrize("other", [None, pytest.param(become_nobody, marks=ROOT)], ids=["own", "other user"])
def test_only_one_run_at_a_time_gets_one_core(monkeypatch, public, other):
    def work(pipe, name):
        if other and name == "1":
            other()
        run(pipe, name, asks("0"), {})

    monkeypatch.setenv("OMPBIND_RUNTIME_DIR", str(public))
    waiters = Waiters(public)
    for name in "012":
        waiters.started[name] = fork_with_pipe(work, name)
        wait_until(lambda n=name: waiters.has(n) or n in waiters.waiting(), "it waits or runs")
    for end in (Waiters.kill, Waiters.end, Waiters.kill):
        (name,) = wait_until(lambda: list(filter(waiters.has, waiters.started)), "a run has the core")
        assert waiters.get(name) == "0"
        end(waiters, name)


@pytest.fixture
def holder(start):
    """A run that has all CPUs until its standard input is closed."""
    script = ("sh", "-c", "echo up; read x")
    return start("run", "--run-id", "holder", "--", *script, stdin=subprocess.PIPE, up=1)


@pytest.fixture
def wait(start, claims):
    """Return a function that starts a command that waits, and returns when it waits."""

    def begin(*args, **options):
        process = start(*args, **options)
        waiting = lambda: read_claim_list(str(claims), (WAITING_SUFFIX,)).runs  # noqa: E731
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
    text = one_line(process.communicate(timeout=20)[1])
    assert process.returncode == 0, text
    assert text.count(f"waiting for CPUs: run holder (pid {holder.pid}, user ") == 1


def test_after_the_limit_nothing_was_started(ompbind, holder, tmp_path):
    report, touched = tmp_path / "run.json", tmp_path / "x"
    options = ("--exclusive", "-q", "--report", str(report), "--", "touch", str(touched))
    done = ompbind("run", *options, env={"OMPBIND_WAIT": "0.2"})
    text = f"the CPUs are not free after 0.2 s: run holder (pid {holder.pid}, user "
    assert (done.returncode, touched.exists()) == (125, False)
    assert text in one_line(done.stderr)
    assert f"uses {named('CPU', os.sched_getaffinity(0))}" in one_line(done.stderr)
    assert "waiting for CPUs" not in done.stderr, "-q hides it"
    assert text in json.loads(report.read_text())["error"]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, 125)]
)
def test_a_signal_ends_the_wait_at_once(holder, wait, tmp_path, number, code):
    report = tmp_path / "run.json"
    process = wait("run", "--exclusive", "--wait", "--report", str(report), "--", "true")
    last = wait("exec", "--exclusive", "--wait", "--", "sh", "-c", "echo $$")
    process.send_signal(number)
    assert process.wait(5) == -number
    found = json.loads(report.read_text())
    unknown = "the run has not finished" if code == 125 else None
    assert (found["exit_code"], found["error"]) == (code, unknown)
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
