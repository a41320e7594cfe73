"""Runs that wait until CPUs are free: processes that queue, get CPUs in order, and are killed meanwhile."""

import fcntl
import os
import signal
import time
from pathlib import Path

import pytest

from ompbind.cli.waiting import Wait, plan_when_free
from ompbind.errors import MaskError, PlanError
from ompbind.masks.mask import parse_mask
from ompbind.planning.request import Request, Sharing
from ompbind.registry import directory_watch
from ompbind.registry.claim_files import try_lock
from ompbind.registry.claim_names import TICKET_SUFFIX
from ompbind.registry.claims import make_run_identity, read_claim_list, read_live_runs
from tests.live.conftest import wait_until
from tests.live.other_user import finish, fork_with_pipe
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
    return plan_when_free(lambda: MACHINE, request, me, Wait(limit_s=limit_s))


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
    mask, name, action = ("3", "holder", "uses CPUs 0-3")
    if blocker == "waits":
        mask, name, action = ("5", "earlier", "waits for CPUs 0-5")
    pid = queue.started[name][1].pid
    text = rf"the CPUs are not free after 0\.1 s: run {name} \(pid {pid}, user \w+\) {action}"
    with pytest.raises(PlanError, match=text):
        plan("late", asks(mask), limit_s=0.1)
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
