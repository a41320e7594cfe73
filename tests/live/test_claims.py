"""Several runs on one machine, with real processes: who sees whom, who gets what, and what is left behind."""

import fcntl
import json
import multiprocessing
import os
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

from ompbind.cpuset import CpuSet
from ompbind.errors import ClaimError
from ompbind.planning.occupancy import LiveRun
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request, Sharing
from ompbind.registry import claims as module
from ompbind.registry.claim_format import TEXT_LIMIT, make_text
from ompbind.registry.claims import find_folder, lock_registry, make_claimant, read_live_runs
from tests.live.conftest import (
    OMPBIND,
    children_of,
    clean_environment,
    is_alive,
    keeper_of,
    ranks_of,
    two_cpus,
    wait_until,
)
from tests.long import ROUNDS, rounds
from tests.machines import Shape, make_machine

BUSY = "import os, time; os.write(1, b'up\\n'); time.sleep(300)"
NOBODY = 65534


@pytest.fixture
def live(start):
    """Start a run that stays, and wait until its rank runs."""

    def begin(*args, **options):
        process = start("run", *args, "--", sys.executable, "-c", BUSY, **options)
        assert process.stdout.readline() == "up\n"
        return process

    return begin


def said(done):
    return " ".join(done.stderr.split())


def names(folder):
    return [run.run_id for run in read_live_runs(str(folder))]


def test_a_run_is_told_of_another_that_uses_its_cpus(ompbind, live):
    first, second = two_cpus()
    other = live("--run-id", "serve", "-m", str(first))
    done = ompbind("run", "--", "true")
    assert done.returncode == 0
    assert f"warning: CPU {first} is in use by run serve (pid {other.pid}) as well" in said(done)
    for args in (["-q"], ["--share"], ["--avoid"], ["-m", str(second)], ["--exclusive", "-m", str(second)]):
        done = ompbind("run", *args, "--", "true")
        assert (done.returncode, done.stderr) == (0, ""), args


@pytest.mark.parametrize("verb", ["run", "exec", "plan"])
def test_what_others_use_is_refused_or_left_to_them(ompbind, live, verb):
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


SEES_NONE = "exit $((${OMPBIND_SHARE+1}${OMPBIND_EXCLUSIVE+1}0))"


@pytest.mark.parametrize(
    ("args", "env", "message"),
    [
        (["--share", "--avoid"], {}, "--share and --avoid contradict each other"),
        ([], {"OMPBIND_AVOID": "1", "OMPBIND_EXCLUSIVE": "1"}, "--avoid and --exclusive contradict"),
        ([], {"OMPBIND_EXCLUSIVE": "1"}, "not exclusive"),
        ([], {"OMPBIND_AVOID": "1"}, "no core is free"),
        (["--exclusive"], {"OMPBIND_SHARE": "1"}, "not exclusive"),
        (["--share"], {"OMPBIND_EXCLUSIVE": "1"}, ""),
        ([], {"OMPBIND_SHARE": "1"}, ""),
        ([], {"OMPBIND_AVOID": "0"}, "warning: CPUs"),
    ],
)
def test_the_command_line_beats_the_environment(ompbind, live, args, env, message):
    live()
    done = ompbind("run", *args, "--", "sh", "-c", SEES_NONE, env=env)
    assert done.returncode == (0 if not message or "warning" in message else 125)
    assert message in said(done)
    assert message or not done.stderr


RACE_S, RACES, FEWEST = 15 * ROUNDS, rounds(200), 10
HOLD = "exec flock -n {folder}/$OMPBIND_CPUS sleep 0.03"


@pytest.mark.parametrize(
    ("args", "outcomes"),
    [(("-m", "{first}"), {(0, 0), (0, 125)}), (("-s", "cores"), {(0, 0)})],
    ids=["both need one CPU", "each needs one of two"],
)
def test_two_that_start_at_once_never_get_the_same_cpus(tmp_path, args, outcomes):
    """A rank takes a lock of its own for its CPU: with the same CPU the second one ends with 1."""
    first, _ = two_cpus()
    command = [OMPBIND, "run", "--avoid", *(word.format(first=first) for word in args), "--run-id"]
    script = ["--", "sh", "-c", HOLD.format(folder=tmp_path)]
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
    """Plan among the other runs and register the plan, as `run` does; return both."""
    with lock_registry(request.sharing, me) as registry:
        plan = make_plan(machine, request, registry.occupied)
        return plan, registry.register(plan)


def fork_with_pipe(function, *args):
    """Run a function in a child that gets an end of a pipe first; returns the other end and the child.

    Locks and queues of multiprocessing would need a /dev/shm.
    """
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()
    process = context.Process(target=function, args=(theirs, *args), daemon=True)
    process.start()
    theirs.close()
    return mine, process


def claim_one(pipe, cores):
    """Claim one core of many at the same moment as others do, and tell which; keep it until asked to end."""
    machine = make_machine(Shape(cores=cores))
    pipe.recv()
    request = Request(ranks=1, strategy="cores", sharing=Sharing.AVOID)
    plan, claim = claim_plan(machine, request, make_claimant(f"run-{os.getpid()}"))
    pipe.send(str(plan.placements[0].cpuset))
    assert claim
    pipe.recv()


def test_of_many_that_start_at_once_everyone_gets_cores_of_its_own():
    many = 48
    started = [fork_with_pipe(claim_one, many) for _ in range(many)]
    for pipe, _ in started:
        pipe.send(None)
    assert all(pipe.poll(60) for pipe, _ in started)
    got = [pipe.recv() for pipe, _ in started]
    for pipe, process in started:
        let_go(pipe, process)
    assert sorted(got, key=int) == [str(cpu) for cpu in range(many)]


def test_nothing_is_left_of_a_run_that_ends(ompbind, claims):
    for args in (["--", "true"], ["--", "false"], ["--", "nosuch"], ["--timeout", "0.1", "--", "sleep", "9"]):
        ompbind("run", *args)
        assert not os.listdir(claims), args
    ompbind("exec", "--", "nosuch")
    assert not os.listdir(claims)


def test_when_ompbind_is_killed_its_cpus_are_claimed_until_its_ranks_are_gone(live, claims):
    process = live("--run-id", "serve")
    (rank,) = ranks_of(process)
    assert names(claims) == ["serve"]
    process.kill()
    process.wait()
    wait_until(lambda: not names(claims), "claim gone", 5)
    assert not is_alive(rank)
    wait_until(lambda: not os.listdir(claims), "file gone", 5)


def test_a_claim_holds_while_a_killed_rank_takes_its_time(start, claims):
    eater = "x = bytearray(600 << 20); x[::4096] = b'x' * len(x[::4096]); " + BUSY
    process = start("run", "--", sys.executable, "-c", eater)
    assert process.stdout.readline() == "up\n"
    (rank,) = ranks_of(process)
    process.kill()
    while names(claims):
        pass
    assert not is_alive(rank)


def test_when_both_processes_of_ompbind_are_killed_no_claim_stays(live, claims):
    process = live()
    (rank,) = ranks_of(process)
    try:
        os.kill(process.pid, signal.SIGSTOP)
        os.kill(keeper_of(process), signal.SIGKILL)
        assert names(claims)
        process.kill()
        process.wait()
        wait_until(lambda: not names(claims), "the kernel has let go of it", 5)
        assert not os.listdir(claims)
    finally:
        os.kill(rank, signal.SIGKILL)


def test_ranks_have_no_file_of_the_claim_open(ompbind):
    done = ompbind("run", "--", "ls", "-l", "/proc/self/fd")
    assert ".run" not in done.stdout


def test_closed_standard_files_take_no_claim_away(start, claims):
    process = start("run", "--", "sh", "-c", "sleep 300", stdin=None, preexec_fn=lambda: os.closerange(0, 3))
    wait_until(lambda: ranks_of(process) and names(claims), "claim")
    time.sleep(0.2)
    assert names(claims)


def test_few_files_that_may_be_open_are_enough(ompbind):
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


def test_a_command_of_exec_keeps_the_claim_and_what_it_starts_too(start, ompbind, claims):
    script = "exec 3>&1 4>&1 5>&1 6>&1; echo up; read x; sleep 300 & echo $!"
    process = start("exec", "--run-id", "job", "--", "sh", "-c", script, stdin=subprocess.PIPE)
    assert process.stdout.readline() == "up\n"
    (run,) = read_live_runs(str(claims))
    assert (run.run_id, run.pid) == ("job", process.pid)
    assert "run job" in said(ompbind("run", "--", "true"))
    process.stdin.write("\n")
    process.stdin.flush()
    left = int(process.stdout.readline())
    process.wait()
    assert names(claims) == ["job"]
    os.kill(left, signal.SIGKILL)
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
    assert sorted(str(one["ranks"]) for one in listed) == sorted(
        str([{"rank": rank, "cpus": str(cpu)}]) for rank, cpu in enumerate((first, second))
    )
    assert {one["held"] for one in listed} == {f"{first}-{second}"} or second != first + 1
    done = ompbind("exec", "--exclusive", "--", "true", env=mpich(0, job="y"))
    assert (done.returncode, "not exclusive" in done.stderr) == (125, True)


def test_ranks_of_one_job_plan_among_the_runs_that_the_first_of_them_saw(monkeypatch, claims):
    monkeypatch.delenv("OMPBIND_RUN_ID", raising=False)
    machine, request = make_machine(Shape(cores=8)), Request(ranks=2, sharing=Sharing.AVOID)
    _, other = claim_plan(machine, Request(strategy="cores"), make_claimant("other"))
    mine = [make_claimant("job").replace(slot=slot, rank=slot) for slot in (0, 1)]
    first, first_claim = claim_plan(machine, request, mine[0])
    _, late = claim_plan(machine, request.replace(sharing=Sharing.SHARE), make_claimant("late"))
    other.release()
    second, second_claim = claim_plan(machine, request, mine[1])
    assert [str(one.cpuset) for one in first.placements] == ["1-4", "5-7"]
    assert second.placements == first.placements
    for claim in (first_claim, second_claim, late):
        claim.release()
    assert not os.listdir(claims)


def ompi(rank):
    """The variables of a rank that Open MPI has bound: it tells of one rank, on CPUs of its own."""
    return {
        "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "PMIX_NAMESPACE": "job",
    }  # fmt: skip


@pytest.mark.parametrize("how", ["--exclusive", "--avoid"])
def test_ranks_that_an_engine_has_bound_keep_out_of_the_way_too(start, live, ompbind, how):
    first, second = two_cpus()
    process = start("exec", how, "-m", str(first), "--", sys.executable, "-c", BUSY, env=ompi(0))
    assert process.stdout.readline() == "up\n", process.stderr.read()
    other = live("--run-id", "late", "--share", "-m", str(second))
    done = ompbind("exec", how, "-m", str(second), "--", "true", env=ompi(1))
    assert done.returncode == 125
    assert f"CPU {second} is in use by run late (pid {other.pid})" in said(done)
    assert ompbind("exec", how, "-m", str(first), "--", "true", env=ompi(1)).returncode == 0


def test_more_claims_than_anybody_could_mean_are_not_believed_in_silence(ompbind, claims, monkeypatch):
    for number in range(module.FILES_LIMIT + 1):
        (claims / f"ompbind-junk{number}").touch()
    assert names(claims) == [], "what is no claim does not count"
    monkeypatch.setattr(module, "FILES_LIMIT", 3)
    for number in range(4):
        (claims / f"ompbind-{number}.run").touch()
    with pytest.raises(OSError, match="more claims than anybody could mean"):
        read_live_runs(str(claims))


def test_so_many_bytes_are_read_and_no_more(claims, monkeypatch):
    monkeypatch.setattr(module, "BYTES_LIMIT", 1000)
    handles = []
    try:
        for number in range(2):
            handles.append(os.open(claims / f"ompbind-{number}.run", os.O_RDWR | os.O_CREAT))
            os.write(handles[-1], b"x" * 600)
            fcntl.flock(handles[-1], fcntl.LOCK_EX)
        with pytest.raises(OSError, match="more claims than anybody could mean"):
            read_live_runs(str(claims))
    finally:
        for handle in handles:
            os.close(handle)


def test_what_kills_the_group_of_ompbind_misses_the_keeper(start, claims):
    """SIGKILL to the whole group as soon as there is a rank: the keeper is out of it by then."""
    for _ in range(20):
        process = start("run", "--share", "--", sys.executable, "-c", BUSY, start_new_session=True)
        supervisor = keeper_of(process)
        ranks = wait_until(lambda supervisor=supervisor: children_of(supervisor), "a rank")
        os.killpg(process.pid, signal.SIGKILL)
        for pid in (supervisor, *ranks):
            wait_until(lambda pid=pid: not is_alive(pid), "nothing is left", 5)
        wait_until(lambda: not names(claims), "no claim is left", 5)


@pytest.fixture
def public():
    """A folder that every user can reach and write to, as /dev/shm is."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o1777)
        yield Path(name)


def as_nobody(function, *args):
    """Run a function in a child, as another user where that is possible; returns its process."""

    def work(pipe):
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        pipe.send(function(*args))
        pipe.recv()

    return fork_with_pipe(work)


def let_go(mine, process):
    mine.send(None)
    process.join(60)
    mine.close()


GOOD = LiveRun(run_id="?", pid=1, uid=0, started=1, ranks=((0, CpuSet((0,))),), held=CpuSet((0,)))
KEPT = []
"""Files that stay open, and so locked, in the child that has opened them."""

ESCAPE = "\x1b]0;owned\x07\x1b[31m"


def spoil(folder):
    """Leave in a folder all that somebody could, and keep it locked; returns how much that is."""
    good = make_text(GOOD).encode()
    texts = {
        "empty": b"", "zeros": b"\0" * 5000, "bytes": bytes(range(256)) * 20, "cut": good[:-2],
        "huge": b"ompbind-run 1\n" + b"x" * (TEXT_LIMIT + 1), "long": good + b"rank 0 0-8191\n" * 9000,
        "numbers": good.replace(b"pid 1", b"pid 1e99"), "far": good.replace(b"held 0", b"held 0-65535"),
        "escape": good.replace(b"run ?", b"run " + ESCAPE.encode()), "secret": good, "linked": good,
    }  # fmt: skip
    kept = []
    for name, text in texts.items():
        path = folder / f"ompbind-0-1-{name}.run"
        path.write_bytes(text)
        kept.append(path.open("rb"))
        fcntl.flock(kept[-1], fcntl.LOCK_EX)
        path.chmod(0 if name == "secret" else 0o644)
    os.link(folder / "ompbind-0-1-linked.run", folder / "ompbind-0-1-again.run")
    os.symlink("ompbind-0-1-escape.run", folder / "ompbind-0-1-symlink.run")
    os.symlink("/dev/zero", folder / "ompbind-0-1-device.run")
    os.mkfifo(folder / "ompbind-0-1-fifo.run")
    (folder / "ompbind-0-1-folder.run").mkdir()
    (folder / "ompbind-0-1-stale.run").write_bytes(good)
    (folder / "ompbind-\udcff\n.run").write_bytes(good)
    KEPT.extend(kept)
    return len(texts)


def test_what_others_leave_in_the_folder_does_no_harm(ompbind, public):
    other = as_nobody(spoil, public)
    assert other[0].recv()
    env = {"OMPBIND_RUNTIME_DIR": str(public)}
    listed = ompbind("ps", env=env)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "\x1b" not in listed.stdout
    assert "\x07" not in listed.stdout
    assert "?]0;owned??[31m" in listed.stdout.replace("\n", "").replace(" ", "")
    assert max(map(len, listed.stdout.splitlines())) <= 80
    done = ompbind("run", "--exclusive", "-m", "0", "--", "true", env=env)
    assert (done.returncode, "in use by" in said(done), "\x1b" in done.stderr) == (125, True, False)
    assert ompbind("run", "--share", "--", "true", env=env).returncode == 0
    done = json.loads(ompbind("ps", "--format", "json", env=env).stdout)["runs"]
    secret = os.geteuid() == 0  # who may read everything
    assert len(done) == 2 + secret
    assert {one["uid"] for one in done} == {NOBODY if os.geteuid() == 0 else os.geteuid()}
    assert not (public / "ompbind-0-1-stale.run").exists()
    assert stat.S_ISFIFO((public / "ompbind-0-1-fifo.run").stat().st_mode)
    let_go(*other)
    assert json.loads(ompbind("ps", "--format", "json", env=env).stdout)["runs"] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_other_users_see_a_run_and_cannot_end_its_claim(live, public):
    live("--run-id", "serve", env={"OMPBIND_RUNTIME_DIR": str(public)})
    (public / "ompbind-0-9-stale.run").write_text(make_text(GOOD))
    mine, process = as_nobody(lambda: [run.uid for run in read_live_runs(str(public)) * 2])
    assert mine.recv() == [0, 0]
    let_go(mine, process)
    assert (public / "ompbind-0-9-stale.run").exists()
    assert names(public) == ["serve"]
    assert not (public / "ompbind-0-9-stale.run").exists()


def read_and_check(pipe, folder, until):
    """Read as fast as possible; tell what was ever missing or too much."""
    wrong, reads = [], 0
    while time.monotonic() < until:
        found = names(folder)
        wrong += [found] if found != ["anchor"] else []
        reads += 1
    pipe.send((wrong, reads))


def test_readers_at_the_same_time_neither_miss_a_run_nor_list_a_stale_one(live, ompbind, claims):
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


def test_who_locks_the_folder_for_long_stops_only_those_who_must_be_sure(ompbind, claims, monkeypatch):
    handle = os.open(claims, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    done = ompbind("run", "--", "true")
    assert (done.returncode, "locked for 1 s" in said(done)) == (0, True)
    assert ompbind("run", "--share", "--", "true").stderr == ""
    monkeypatch.setattr(module, "PATIENCE_S", 0.1)
    for sharing in (Sharing.AVOID, Sharing.EXCLUSIVE):
        with pytest.raises(ClaimError, match="locked for 0.1 s"):
            claim_plan(make_machine(Shape()), Request(sharing=sharing), make_claimant("x"))
    os.close(handle)


@pytest.mark.parametrize("folder", ["/no/such/folder", "/etc/passwd", "/proc"])
def test_without_a_folder_runs_go_on_unless_they_must_be_sure(ompbind, folder):
    env = {"OMPBIND_RUNTIME_DIR": folder}
    done = ompbind("run", "--", "true", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    trouble = "run cannot be registered in /proc" if folder == "/proc" else f"runs in {folder} cannot be told"
    assert trouble in said(ompbind("run", "-v", "--", "true", env=env))
    for option in ("--avoid", "--exclusive"):
        done = ompbind("run", option, "--", "true", env=env)
        assert done.returncode == 125
        assert f"{option} cannot be kept" in said(done)
        assert "OMPBIND_RUNTIME_DIR" in done.stderr
    done = ompbind("ps", env=env)
    assert (done.returncode, "Traceback" in done.stderr) == (0 if folder == "/proc" else 2, False)


def test_all_users_choose_the_same_folder(tmp_path, monkeypatch):
    private, public = tmp_path / "private", tmp_path / "public"
    private.mkdir()
    public.mkdir()
    public.chmod(0o1777)
    monkeypatch.setattr(module, "FOLDERS", (str(tmp_path / "missing"), str(private), str(public)))
    assert find_folder({}) == str(public)
    assert find_folder({"OMPBIND_RUNTIME_DIR": "here"}) == f"{Path.cwd()}/here"
    assert find_folder({"OMPBIND_RUNTIME_DIR": ""}) == str(public)


def test_half_written_claims_of_a_crash_are_removed_once_they_are_old(claims):
    young, old = claims / "ompbind-0-1-a.new", claims / "ompbind-0-1-b.new"
    for path in (young, old):
        path.write_text("ompbind")
    os.utime(old, (1, 1))
    assert names(claims) == []
    assert (young.exists(), old.exists()) == (True, False)


def test_ps_for_people(ompbind, live):
    assert ompbind("ps").stdout == "no run of ompbind is live on this machine\n"
    first, _ = two_cpus()
    process = live("-n", "2", "--share", "-m", str(first), "--run-id", "serve")
    head, *lines = ompbind("ps").stdout.splitlines()
    assert head.split() == ["run", "user", "pid", "age", "ranks", "CPUs", "command"]
    words = lines[0].split()
    assert (words[0], words[2], words[5:8]) == ("serve", str(process.pid), ["2", str(first), "ompbind"])
    assert max(map(len, [head, *lines])) <= 80


def test_ps_for_programs(ompbind, live):
    assert json.loads(ompbind("ps", "--format", "json").stdout) == {"schema": "ompbind-ps/1", "runs": []}
    first, _ = two_cpus()
    process = live("-m", str(first), "--run-id", "my run")
    (run,) = json.loads(ompbind("ps", "--format", "json").stdout)["runs"]
    assert abs(run.pop("started") - time.time()) < 60
    assert run.pop("user")
    assert run.pop("command")[1:4] == [OMPBIND, "run", "-m"]
    assert run == {
        "run_id": "my run", "inside": None, "pid": process.pid, "uid": os.geteuid(),
        "ranks": [{"rank": 0, "cpus": str(first)}], "held": str(first),
    }  # fmt: skip


@pytest.mark.parametrize(("since_s", "space", "shown"), [(0, 0, True), (10**6, 0, False), (0, 1, False)])
def test_a_process_that_only_has_the_same_number_is_not_shown(ompbind, claims, since_s, space, shown):
    me = make_claimant("gone")
    about = {"pid": me.pid, "started": me.started - since_s, "pid_space": me.pid_space + space}
    text = make_text(GOOD.replace(run_id="gone", **about))
    path = claims / "ompbind-0-1-x.run"
    path.write_text(text)
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (run,) = json.loads(ompbind("ps", "--format", "json").stdout)["runs"]
    assert (run["command"] is not None) == shown
    assert run["run_id"] == "gone"
