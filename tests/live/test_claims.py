"""Several runs on one machine, with real processes: which runs see each other, and which CPUs each gets."""

import fcntl
import json
import os
import pwd
import resource
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from ompbind.cli import register
from ompbind.cpuset import CpuSet
from ompbind.errors import ClaimError, PlanError
from ompbind.planning.other_runs import LiveRun
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request, Sharing
from ompbind.registry import claim_files, claim_format
from ompbind.registry import registry as module
from ompbind.registry.claim_format import TEXT_LIMIT, make_text
from ompbind.registry.registry import Registry, find_claims_directory, make_run_identity, read_live_runs
from tests.live.conftest import (
    OMPBIND,
    children_of,
    clean_environment,
    is_alive,
    ranks_of,
    supervisor_of,
    two_cpus,
    wait_until,
)
from tests.live.other_user import NOBODY, finish, fork_with_pipe, start_as_nobody
from tests.long import ROUNDS, rounds
from tests.machines import Shape, make_machine

EMPTY_LIST = {"schema": "ompbind-ps/1", "runs": [], "waiting": []}

BUSY = "import os, time; os.write(1, b'up\\n'); time.sleep(300)"


@pytest.fixture
def live(start):
    """Return a function that starts a run and waits until its rank runs."""

    def begin(*args, **options):
        process = start("run", *args, "--", sys.executable, "-c", BUSY, **options)
        assert process.stdout.readline() == "up\n"
        return process

    return begin


def said(done):
    return " ".join(done.stderr.split())


def names(directory):
    return [run.run_id for run in read_live_runs(str(directory))]


def test_a_run_that_shares_cpus_with_another_run_is_warned(ompbind, live):
    first, second = two_cpus()
    other = live("--run-id", "serve", "-m", str(first))
    done = ompbind("run", "--", "true")
    assert done.returncode == 0
    text = f"warning: CPU {first} is in use by run serve (pid {other.pid}): threads will compete for CPUs"
    assert text in said(done)
    for args in (["-q"], ["--share"], ["--avoid"], ["-m", str(second)], ["--exclusive", "-m", str(second)]):
        done = ompbind("run", *args, "--", "true")
        assert (done.returncode, done.stderr) == (0, ""), args


@pytest.mark.parametrize("verb", ["run", "exec", "plan"])
def test_cpus_of_other_runs_are_refused_or_avoided(ompbind, live, verb):
    first, second = two_cpus()
    other = live("--run-id", "serve", "-m", str(first))
    command = [] if verb == "plan" else ["--", "cat", "/proc/self/status"]
    for args, message in (
        (["--exclusive"], f"not exclusive: CPU {first} is in use by run serve (pid {other.pid})"),
        (["--avoid", "-m", str(first)], f"CPU {first} is in use by run serve (pid {other.pid})"),
    ):
        done = ompbind(verb, *args, *command)
        assert done.returncode == (2 if verb == "plan" else 125)
        assert message in said(done)
    done = ompbind(verb, "--avoid", *command)
    assert done.returncode == 0, done.stderr
    if verb != "plan":
        assert f"Cpus_allowed_list:\t{second}\n" in done.stdout
    done = ompbind("run", "--avoid", "-n", "2", "--", "true")
    assert f"2 ranks would have to share 1 core; CPU {first} is in use by run serve" in said(done)


def test_plan_shows_what_run_would_do_and_registers_nothing(ompbind, live, claims):
    first, second = two_cpus()
    live("--run-id", "serve", "-m", str(first))
    before = os.listdir(claims)
    plan = json.loads(ompbind("plan", "--avoid", "--format", "json").stdout)
    assert (plan["ranks"][0]["cpus"], plan["request"]["sharing"]) == ([second], "avoid")
    assert "avoided" in {note["code"] for note in plan["notes"]}
    assert "in use by run serve" in ompbind("run", "--dry-run", "--", "true").stdout
    assert "in use by" not in ompbind("plan", "--topology", "synthetic:core:2 pu:1").stdout
    assert os.listdir(claims) == before


HAS_NO_VARIABLES = "exit $((${OMPBIND_SHARE+1}${OMPBIND_EXCLUSIVE+1}0))"


@pytest.mark.parametrize(
    ("args", "env", "message"),
    [
        (["--share", "--avoid"], {}, "--share and --avoid contradict each other"),
        (
            [],
            {"OMPBIND_AVOID": "1", "OMPBIND_EXCLUSIVE": "1"},
            "OMPBIND_AVOID and OMPBIND_EXCLUSIVE contradict",
        ),
        ([], {"OMPBIND_EXCLUSIVE": "1"}, "not exclusive"),
        ([], {"OMPBIND_AVOID": "1"}, "no core is free"),
        (["--exclusive"], {"OMPBIND_SHARE": "1"}, "not exclusive"),
        (["--share"], {"OMPBIND_EXCLUSIVE": "1"}, ""),
        (["--share"], {"OMPBIND_EXCLUSIVE": "1", "OMPBIND_AVOID": "1"}, ""),
        (["--avoid"], {"OMPBIND_EXCLUSIVE": "1", "OMPBIND_SHARE": "1"}, "no core is free"),
        (["--exclusive"], {"OMPBIND_AVOID": "1", "OMPBIND_SHARE": "1"}, "not exclusive"),
        ([], {"OMPBIND_SHARE": "1"}, ""),
        ([], {"OMPBIND_AVOID": "0"}, "warning: CPUs"),
    ],
)
def test_the_command_line_overrides_the_environment(ompbind, live, args, env, message):
    live()
    done = ompbind("run", *args, "--", "sh", "-c", HAS_NO_VARIABLES, env=env)
    assert done.returncode == (0 if not message or "warning" in message else 125)
    assert message in said(done)
    assert message or not done.stderr


RACE_S, RACES, FEWEST = 15 * ROUNDS, rounds(200), 10
HOLD = "exec flock -n {directory}/$OMPBIND_CPUS sleep 0.03"


@pytest.mark.parametrize(
    ("args", "outcomes"),
    [(("-m", "{first}"), {(0, 0), (0, 125)}), (("-s", "cores"), {(0, 0)})],
    ids=["both need one CPU", "each needs one of two"],
)
def test_two_simultaneous_runs_never_get_the_same_cpus(tmp_path, args, outcomes):
    """Each rank locks a file for its CPU: if both have the same CPU, the second rank exits with 1."""
    first, _ = two_cpus()
    command = [OMPBIND, "run", "--avoid", *(word.format(first=first) for word in args), "--run-id"]
    script = ["--", "sh", "-c", HOLD.format(directory=tmp_path)]
    give_up_at, seen = time.monotonic() + RACE_S / 2, []
    while len(seen) < FEWEST or (len(seen) < RACES / 2 and time.monotonic() < give_up_at):
        pair = [
            subprocess.Popen(
                [*command, name, *script], env=clean_environment(), stderr=subprocess.PIPE, text=True
            )
            for name in ("one", "two")
        ]
        texts = [" ".join(process.communicate()[1].split()) for process in pair]
        seen.append(tuple(sorted(process.returncode for process in pair)))
        for process, text, other in zip(pair, texts, ("two", "one"), strict=True):
            assert process.returncode != 125 or f"in use by run {other}" in text, text
    assert set(seen) <= outcomes


def claim_plan(machine, request, me):
    """Plan among the other runs and register the plan, as `run` does; return plan and claim."""
    with Registry(request.sharing, me) as registry:
        plan = make_plan(machine, request, registry.occupied)
        return plan, registry.register(plan)


def claim_one(pipe, cores):
    """Claim one core at the same moment as other processes, send it, and keep it until the next message."""
    machine = make_machine(Shape(cores=cores))
    pipe.recv()
    request = Request(ranks=1, strategy="cores", sharing=Sharing.AVOID)
    plan, claim = claim_plan(machine, request, make_run_identity(f"run-{os.getpid()}"))
    pipe.send(str(plan.placements[0].cpuset))
    assert claim
    pipe.recv()


def test_many_simultaneous_runs_get_different_cores():
    many = 48
    started = [fork_with_pipe(claim_one, many) for _ in range(many)]
    for pipe, _ in started:
        pipe.send(None)
    assert all(pipe.poll(60) for pipe, _ in started)
    got = [pipe.recv() for pipe, _ in started]
    for pipe, process in started:
        finish(pipe, process)
    assert sorted(got, key=int) == [str(cpu) for cpu in range(many)]


def test_no_claim_is_left_by_a_run_that_exits(ompbind, claims):
    for args in (["--", "true"], ["--", "false"], ["--", "nosuch"], ["--timeout", "0.1", "--", "sleep", "9"]):
        ompbind("run", *args)
        assert not os.listdir(claims), args
    ompbind("exec", "--", "nosuch")
    assert not os.listdir(claims)


def test_after_ompbind_is_killed_the_claim_stays_until_its_ranks_exit(live, claims):
    process = live("--run-id", "serve")
    (rank,) = ranks_of(process)
    assert names(claims) == ["serve"]
    process.kill()
    process.wait()
    wait_until(lambda: not names(claims), "claim gone", 5)
    assert not is_alive(rank)
    wait_until(lambda: not os.listdir(claims), "file gone", 5)


def test_a_claim_stays_until_a_killed_rank_has_exited(start, claims):
    eater = "x = bytearray(600 << 20); x[::4096] = b'x' * len(x[::4096]); " + BUSY
    process = start("run", "--", sys.executable, "-c", eater)
    assert process.stdout.readline() == "up\n"
    (rank,) = ranks_of(process)
    process.kill()
    while names(claims):
        pass
    assert not is_alive(rank)


def test_after_both_processes_of_ompbind_are_killed_no_claim_stays(live, claims):
    process = live()
    (rank,) = ranks_of(process)
    try:
        os.kill(process.pid, signal.SIGSTOP)
        os.kill(supervisor_of(process), signal.SIGKILL)
        assert names(claims)
        process.kill()
        process.wait()
        wait_until(lambda: not names(claims), "the kernel has released the lock", 5)
        assert not os.listdir(claims)
    finally:
        os.kill(rank, signal.SIGKILL)


def test_ranks_have_no_file_of_the_claim_open(ompbind):
    done = ompbind("run", "--", "ls", "-l", "/proc/self/fd")
    assert ".run" not in done.stdout


def test_closed_standard_streams_do_not_release_the_claim(start, claims):
    process = start("run", "--", "sh", "-c", "sleep 300", stdin=None, preexec_fn=lambda: os.closerange(0, 3))
    wait_until(lambda: ranks_of(process) and names(claims), "claim")
    time.sleep(0.2)
    assert names(claims)


def test_a_low_limit_of_open_files_is_enough(ompbind):
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    done = ompbind(
        "run", "-n", "2", "--", "true",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, limit[1])),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_runs_inside_a_rank_are_not_others(ompbind):
    inner = shlex.split("ompbind run --exclusive -- ompbind run --avoid -- ompbind exec -- true")
    done = ompbind("run", "-n", "2", "--run-id", "a b", "--", *inner)
    assert (done.returncode, done.stderr) == (0, "")
    nested = shlex.split("ompbind run -- ompbind ps --format json")
    done = ompbind("run", "--run-id", "outer", "--", *nested)
    outer, nested = json.loads(done.stdout)["runs"]
    assert (outer["run_id"], outer["inside"], nested["inside"]) == ("outer", None, "outer")


def test_two_runs_inside_one_rank_are_others_to_each_other(ompbind):
    script = "ompbind run --run-id one -- sleep 300 & while ! ompbind ps | grep -q '^one '; do :; done; "
    script += "ompbind run -- true; kill $!; wait"
    assert "in use by run one" in said(ompbind("run", "--run-id", "outer", "--", "sh", "-c", script))


def test_a_command_of_exec_and_its_children_keep_the_claim(start, ompbind, claims):
    script = "exec 3>&1 4>&1 5>&1 6>&1; echo up; read x; sleep 300 & echo $!"
    process = start("exec", "--run-id", "job", "--", "sh", "-c", script, stdin=subprocess.PIPE)
    assert process.stdout.readline() == "up\n"
    (run,) = read_live_runs(str(claims))
    assert (run.run_id, run.pid) == ("job", process.pid)
    assert "run job" in said(ompbind("run", "--", "true"))
    process.stdin.write("\n")
    process.stdin.flush()
    child = int(process.stdout.readline())
    process.wait()
    assert names(claims) == ["job"]
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: not names(claims), "claim gone", 5)
    assert not os.listdir(claims)


def mpich(rank, job="x"):
    return {"PMI_RANK": str(rank), "PMI_SIZE": "2", "MPI_LOCALRANKID": str(rank), "MPI_LOCALNRANKS": "2",
            "PMI_JOBID": job}  # fmt: skip


def test_ranks_of_one_job_are_not_others_to_each_other(start, ompbind):
    first, second = two_cpus()
    for rank in (1, 0):
        process = start("exec", "--exclusive", "--", sys.executable, "-c", BUSY, env=mpich(rank))
        assert process.stdout.readline() == "up\n", process.stderr.read()
    listed = json.loads(ompbind("ps", "--format", "json").stdout)["runs"]
    assert sorted(str(run["ranks"]) for run in listed) == sorted(
        str([{"rank": rank, "cpus": str(cpu)}]) for rank, cpu in enumerate((first, second))
    )
    assert {run["held"] for run in listed} == {f"{first}-{second}"} or second != first + 1
    done = ompbind("exec", "--exclusive", "--", "true", env=mpich(0, job="y"))
    assert (done.returncode, "not exclusive" in done.stderr) == (125, True)


def test_ranks_of_one_job_are_not_warned_of_each_other(start, ompbind):
    process = start("exec", "-s", "all", "--", sys.executable, "-c", BUSY, env=mpich(1))
    assert process.stdout.readline() == "up\n", process.stderr.read()
    done = ompbind("exec", "-s", "all", "--", "true", env=mpich(0))
    assert (done.returncode, done.stderr) == (0, "")
    assert "in use by run" in said(ompbind("exec", "-s", "all", "--", "true", env=mpich(0, job="y")))


def test_ranks_of_one_job_plan_among_the_runs_that_the_first_rank_found(monkeypatch, claims):
    monkeypatch.delenv("OMPBIND_RUN_ID", raising=False)
    machine, request = make_machine(Shape(cores=8)), Request(ranks=2, sharing=Sharing.AVOID)
    _, other = claim_plan(machine, Request(strategy="cores"), make_run_identity("other"))
    identities = [make_run_identity("job").replace(placement_index=rank, rank=rank) for rank in (0, 1)]
    first, first_claim = claim_plan(machine, request, identities[0])
    _, late = claim_plan(machine, request.replace(sharing=Sharing.SHARE), make_run_identity("late"))
    other.release()
    second, second_claim = claim_plan(machine, request, identities[1])
    assert [str(placement.cpuset) for placement in first.placements] == ["1-4", "5-7"]
    assert second.placements == first.placements
    for claim in (first_claim, second_claim, late):
        claim.release()
    assert not os.listdir(claims)


def test_reserved_cpus_are_in_use_too(ompbind, live):
    first, second = two_cpus()
    process = live("--run-id", "serve", "-m", f"{first},{second}", "--reserve-total", "1")
    (run,) = json.loads(ompbind("ps", "--format", "json").stdout)["runs"]
    (cpu,) = os.sched_getaffinity(ranks_of(process)[0])
    reserved = first + second - cpu
    assert (run["ranks"], run["held"]) == ([{"rank": 0, "cpus": str(cpu)}], str(CpuSet((first, second))))
    done = ompbind("run", "--exclusive", "-m", str(reserved), "--", "true")
    assert done.returncode == 125
    assert f"not exclusive: CPU {reserved} is in use by run serve (pid {process.pid})" in said(done)


def ompi(rank):
    """Return the variables of a rank that Open MPI has bound: it has one local rank, with its own CPUs."""
    return {
        "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "PMIX_NAMESPACE": "job",
    }  # fmt: skip


@pytest.mark.parametrize("how", ["--exclusive", "--avoid"])
def test_ranks_that_a_launcher_has_bound_avoid_other_runs_too(start, live, ompbind, how):
    first, second = two_cpus()
    process = start("exec", how, "-m", str(first), "--", sys.executable, "-c", BUSY, env=ompi(0))
    assert process.stdout.readline() == "up\n", process.stderr.read()
    other = live("--run-id", "late", "--share", "-m", str(second))
    done = ompbind("exec", how, "-m", str(second), "--", "true", env=ompi(1))
    assert done.returncode == 125
    assert f"CPU {second} is in use by run late (pid {other.pid})" in said(done)
    assert ompbind("exec", how, "-m", str(first), "--", "true", env=ompi(1)).returncode == 0


def test_too_many_claims_are_an_error(ompbind, claims, monkeypatch):
    for number in range(claim_format.FILES_LIMIT + 1):
        (claims / f"ompbind-junk{number}").touch()
    assert names(claims) == [], "only names of claims count"
    monkeypatch.setattr(claim_format, "FILES_LIMIT", 3)
    for number in range(4):
        (claims / f"ompbind-{number}.run").touch()
    with pytest.raises(OSError, match="too many claims"):
        read_live_runs(str(claims))


def test_a_run_that_shares_cpus_reads_no_claims(ompbind, live, claims):
    live("--run-id", "serve")
    (claims / "ompbind-0-1-x.run").mkdir()
    for verb in ("run", "exec"):
        assert ompbind(verb, "--share", "--", "true").stderr == ""
    assert "does not count: ompbind-0-1-x.run (not a regular file" in said(ompbind("run", "--", "true"))
    assert "in use by" not in ompbind("run", "--share", "--dry-run", "--", "true").stdout


class LateRun:
    """Registers another run between the plan of a run and its claim, by a patch of the plan."""

    def __init__(self, monkeypatch, machine, sharing):
        self.machine, self.sharing, self.claims = machine, sharing, []
        monkeypatch.setattr(register, "make_local_plan", self.make_plan)

    def make_plan(self, machine, request, occupied):
        plan = make_plan(machine, request, occupied)
        if not self.claims:
            late = Request(ranks=1, strategy="cores", sharing=self.sharing)
            self.claims.append(claim_plan(self.machine, late, make_run_identity("late"))[1])
        return plan


@pytest.mark.parametrize(
    ("sharing", "cpus", "note"),
    [(Sharing.WARN, "0", "CPU 0 is in use by run late"), (Sharing.AVOID, "1", "not used: CPU 0"),
     (Sharing.SHARE, "0", "")],
)  # fmt: skip
def test_a_run_that_registers_meanwhile_is_found(monkeypatch, claims, sharing, cpus, note):
    machine, request = make_machine(Shape(cores=4)), Request(strategy="cores", sharing=sharing)
    late = LateRun(monkeypatch, machine, Sharing.SHARE)
    with Registry(sharing, make_run_identity("mine")) as registry:
        plan, claim = register.plan_and_register(machine, request, registry)
    assert str(plan.placements[0].cpuset) == cpus
    assert note in " ".join(note.text for note in plan.notes)
    assert sorted(names(claims)) == ["late", "mine"]
    (mine,) = (run for run in read_live_runs(str(claims)) if run.run_id == "mine")
    assert mine.claimed == plan.used
    for held in (claim, *late.claims):
        held.release()


def test_a_claim_that_is_written_meanwhile_refuses_an_exclusive_run(monkeypatch, claims):
    machine = make_machine(Shape(cores=4))
    LateRun(monkeypatch, machine, Sharing.SHARE)
    request = Request(strategy="cores", sharing=Sharing.EXCLUSIVE)
    with (
        Registry(request.sharing, make_run_identity("mine")) as registry,
        pytest.raises(PlanError, match="not exclusive: CPU 0 is in use by run late"),
    ):
        register.plan_and_register(machine, request, registry)


def test_the_supervisor_survives_a_kill_of_the_process_group(start, claims):
    """The supervisor has left the process group before it starts a rank."""
    for _ in range(20):
        process = start("run", "--share", "--", sys.executable, "-c", BUSY, start_new_session=True)
        supervisor = supervisor_of(process)
        ranks = wait_until(lambda supervisor=supervisor: children_of(supervisor), "a rank")
        os.killpg(process.pid, signal.SIGKILL)
        for pid in (supervisor, *ranks):
            wait_until(lambda pid=pid: not is_alive(pid), "nothing is left", 5)
        wait_until(lambda: not names(claims), "no claim is left", 5)


@pytest.fixture
def public():
    """Yield a directory that all users can write to, like /dev/shm."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o1777)
        yield Path(name)


GOOD = LiveRun(run_id="?", pid=1, uid=0, started=1, ranks=((0, CpuSet((0,))),), claimed=CpuSet((0,)))
KEPT = []
"""Files that stay open and locked until the child that has opened them exits."""

ESCAPE = "\x1b]0;owned\x07\x1b[31m"


def spoil(directory):
    """Write files that look like claims but are not valid; keep them locked and return how many."""
    good = make_text(GOOD).encode()
    texts = {
        "empty": b"", "zeros": b"\0" * 5000, "bytes": bytes(range(256)) * 20, "cut": good[:-2],
        "huge": b"ompbind-run 1\n" + b"x" * (TEXT_LIMIT + 1), "long": good + b"rank 0 0-8191\n" * 8000,
        "many": good + b"rank 0 0\n" * 9000,
        "numbers": good.replace(b"pid 1", b"pid 1e99"), "far": good.replace(b"held 0", b"held 0-65535"),
        "escape": good.replace(b"run ?", b"run " + ESCAPE.encode()), "secret": good, "linked": good,
    }  # fmt: skip
    kept = []
    for name, text in texts.items():
        path = directory / f"ompbind-0-1-{name}.run"
        path.write_bytes(text)
        kept.append(path.open("rb"))
        fcntl.flock(kept[-1], fcntl.LOCK_EX)
        path.chmod(0 if name == "secret" else 0o644)
    os.link(directory / "ompbind-0-1-linked.run", directory / "ompbind-0-1-again.run")
    os.symlink("ompbind-0-1-escape.run", directory / "ompbind-0-1-symlink.run")
    os.symlink("/dev/zero", directory / "ompbind-0-1-device.run")
    os.mkfifo(directory / "ompbind-0-1-fifo.run")
    (directory / "ompbind-0-1-directory.run").mkdir()
    (directory / "ompbind-0-1-stale.run").write_bytes(good)
    (directory / "ompbind-\udcff\n.run").write_bytes(good)
    KEPT.extend(kept)
    return len(texts)


def test_files_of_other_users_in_the_directory_do_no_harm(ompbind, public):
    other = start_as_nobody(spoil, public)
    assert other[0].recv()
    env = {"OMPBIND_RUNTIME_DIR": str(public)}
    listed = ompbind("ps", env=env)
    assert listed.returncode == 0
    assert said(listed).count(f"claims in {public} do not count: ompbind-") == 1
    assert max(map(len, listed.stderr.splitlines())) <= 80
    assert "\x1b" not in listed.stdout
    assert "\x07" not in listed.stdout
    assert "?]0;owned??[31m" in listed.stdout.replace("\n", "").replace(" ", "")
    assert max(map(len, listed.stdout.splitlines())) <= 80
    done = ompbind("run", "--exclusive", "-m", "0", "--", "true", env=env)
    assert (done.returncode, "in use by" in said(done), "\x1b" in done.stderr) == (125, True, False)
    assert ompbind("run", "--share", "--", "true", env=env).returncode == 0
    done = json.loads(ompbind("ps", "--format", "json", env=env).stdout)["runs"]
    secret = os.geteuid() == 0  # root can read this file too
    assert len(done) == 2 + secret
    assert {run["uid"] for run in done} == {NOBODY if os.geteuid() == 0 else os.geteuid()}
    assert not (public / "ompbind-0-1-stale.run").exists()
    assert stat.S_ISFIFO((public / "ompbind-0-1-fifo.run").stat().st_mode)
    finish(*other)
    assert json.loads(ompbind("ps", "--format", "json", env=env).stdout)["runs"] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_other_users_see_a_run_and_cannot_remove_its_claim(live, public):
    live("--run-id", "serve", env={"OMPBIND_RUNTIME_DIR": str(public)})
    (public / "ompbind-0-9-stale.run").write_text(make_text(GOOD))
    pipe, process = start_as_nobody(lambda: [run.uid for run in read_live_runs(str(public)) * 2])
    assert pipe.recv() == [0, 0]
    finish(pipe, process)
    assert (public / "ompbind-0-9-stale.run").exists()
    assert names(public) == ["serve"]
    assert not (public / "ompbind-0-9-stale.run").exists()


def read_and_check(pipe, directory, until):
    """Read claims as fast as possible; send each wrong list, and the number of reads."""
    wrong, reads = [], 0
    while time.monotonic() < until:
        found = names(directory)
        wrong += [found] if found != ["anchor"] else []
        reads += 1
    pipe.send((wrong, reads))


def test_concurrent_readers_neither_miss_a_run_nor_list_a_stale_claim(live, ompbind, claims):
    live("--run-id", "anchor")
    stale = make_text(GOOD.replace(run_id="stale"))
    readers = [fork_with_pipe(read_and_check, claims, time.monotonic() + 2) for _ in range(4)]
    for number in range(200):
        (claims / f"ompbind-0-{number}-x.run").write_text(stale)
        time.sleep(0.005)
    assert all(pipe.poll(30) for pipe, _ in readers)
    results = [pipe.recv() for pipe, _ in readers]
    for pipe, process in readers:
        process.join(10)
        pipe.close()
    assert [wrong for wrong, _ in results] == [[]] * 4
    assert min(reads for _, reads in results) > 20


def test_a_directory_that_stays_locked_stops_strict_runs_only(ompbind, claims, monkeypatch):
    handle = os.open(claims, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    for options in ((), ("--share",)):
        done = ompbind("run", *options, "--", "true")
        assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.setattr(claim_files, "LOCK_TIMEOUT_S", 0.1)
    user = pwd.getpwuid(os.geteuid()).pw_name
    holder = f"process {os.getpid()} of user {user} has kept {claims} locked for 0.1 s"
    for sharing in (Sharing.AVOID, Sharing.EXCLUSIVE):
        with pytest.raises(ClaimError, match=holder) as caught:
            claim_plan(make_machine(Shape()), Request(sharing=sharing), make_run_identity("x"))
        assert caught.value.hint == f"ask its user to stop it and try again, or omit --{sharing}"
    os.close(handle)


@pytest.mark.parametrize("directory", ["/no/such/directory", "/etc/passwd", "/proc"])
def test_without_a_directory_only_strict_runs_fail(ompbind, directory):
    env = {"OMPBIND_RUNTIME_DIR": directory}
    message = (
        "register this run in /proc" if directory == "/proc" else f"cannot read live runs in {directory}"
    )
    for options in ((), ("-v",)):
        done = ompbind("run", *options, "--", "true", env=env)
        assert (done.returncode, message in said(done)) == (0, True)
        assert "warning: this run is not registered, so other runs may use its CPUs: cannot" in said(done)
    for option in ("--avoid", "--exclusive"):
        done = ompbind("run", option, "--", "true", env=env)
        assert done.returncode == 125
        assert f"{option} is not possible" in said(done)
        assert "OMPBIND_RUNTIME_DIR" in done.stderr
    done = ompbind("ps", env=env)
    assert (done.returncode, "Traceback" in done.stderr) == (0 if directory == "/proc" else 2, False)


def test_all_users_choose_the_same_directory(tmp_path, monkeypatch):
    private, public = tmp_path / "private", tmp_path / "public"
    private.mkdir()
    public.mkdir()
    public.chmod(0o1777)
    monkeypatch.setattr(module, "DIRECTORIES", (str(tmp_path / "missing"), str(private), str(public)))
    assert find_claims_directory({}) == str(public)
    assert find_claims_directory({"OMPBIND_RUNTIME_DIR": "here"}) == f"{Path.cwd()}/here"
    assert find_claims_directory({"OMPBIND_RUNTIME_DIR": ""}) == str(public)


def test_incomplete_claims_are_removed_if_they_are_old(claims):
    young, old = claims / "ompbind-0-1-a.new", claims / "ompbind-0-1-b.new"
    for path in (young, old):
        path.write_text("ompbind")
    os.utime(old, (1, 1))
    assert names(claims) == []
    assert (young.exists(), old.exists()) == (True, False)


def test_ps_for_people(ompbind, live):
    assert ompbind("ps").stdout == "no ompbind runs on this machine\n"
    first, _ = two_cpus()
    process = live("-n", "2", "--share", "-m", str(first), "--run-id", "serve")
    head, *lines = ompbind("ps").stdout.splitlines()
    assert head.split() == ["run", "user", "pid", "age", "ranks", "CPUs", "command"]
    words = lines[0].split()
    assert (words[0], words[2], words[5:8]) == ("serve", str(process.pid), ["2", str(first), "ompbind"])
    assert max(map(len, [head, *lines])) <= 80


def test_ps_for_programs(ompbind, live):
    assert json.loads(ompbind("ps", "--format", "json").stdout) == EMPTY_LIST
    first, _ = two_cpus()
    process = live("-m", str(first), "--run-id", "my run")
    (run,) = json.loads(ompbind("ps", "--format", "json").stdout)["runs"]
    assert abs(run.pop("started") - time.time()) < 60
    assert run.pop("user")
    assert run.pop("command")[1:4] == [OMPBIND, "run", "-m"]
    assert run == {
        "run_id": "my run", "inside": None, "pid": process.pid, "uid": os.geteuid(),
        "ranks": [{"rank": 0, "cpus": str(first)}], "restarts": 0, "held": str(first), "configuration": None,
    }  # fmt: skip


@pytest.mark.parametrize(("since_s", "space", "shown"), [(0, 0, True), (10**6, 0, False), (0, 1, False)])
def test_another_process_with_the_same_pid_is_not_shown(ompbind, claims, since_s, space, shown):
    me = make_run_identity("gone")
    about = {"pid": me.pid, "started": me.started - since_s, "pid_space": me.pid_space + space}
    text = make_text(GOOD.replace(run_id="gone", **about))
    path = claims / "ompbind-0-1-x.run"
    path.write_text(text)
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (run,) = json.loads(ompbind("ps", "--format", "json").stdout)["runs"]
    assert (run["command"] is not None) == shown
    assert run["run_id"] == "gone"
