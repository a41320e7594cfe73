"""Several runs on one machine, with real processes: which runs see each other, and which CPUs each gets."""

import fcntl
import json
import os
import shlex
import signal
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest

from ompbind.cli import register
from ompbind.cpuset import CpuSet
from ompbind.errors import ClaimError, PlanError
from ompbind.planning.other_runs import LiveRun
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request, Sharing
from ompbind.registry import registry as module
from ompbind.registry.claims import TEXT_LIMIT, make_text
from ompbind.registry.registry import Registry, find_claims_directory, make_own_run, read_live_runs
from tests.launchers.environments import make_env
from tests.live.conftest import OMPBIND, is_alive, one_line, ranks_of, supervisor_of, two_cpus, wait_until
from tests.live.other_user import NOBODY, finish, start_as_nobody
from tests.machines import Shape, make_machine
from tests.tables import rows


@pytest.fixture
def ps(ompbind):
    return lambda **options: json.loads(ompbind("ps", "--format", "json", **options).stdout)["runs"]


def names(directory):
    return [run.run_id for run in read_live_runs(str(directory))]


@pytest.mark.parametrize("verb", ["run", "exec", "plan"])
def test_cpus_of_other_runs_are_warned_of_refused_or_avoided(ompbind, live, claims, verb):
    first, second = two_cpus()
    other, before = live("--run-id", "serve", "-m", str(first)), os.listdir(claims)
    used = f"CPU {first} is in use by run serve (pid {other.pid})"
    command, failed = ([], 2) if verb == "plan" else (["--", "cat", "/proc/self/status"], 125)
    for args, code, text in (
        ([], 0, f"{used}: threads will compete for CPUs (--avoid uses"),
        (["--exclusive"], failed, f"not exclusive: {used}"),
        (["--avoid", "-m", str(first)], failed, used),
        (["--share"], 0, ""),
        (["--exclusive", "-m", str(second)], 0, ""),
        (["--avoid"], 0, ""),
    ):
        done = ompbind(verb, *args, *command)
        shown = one_line(done.stderr or done.stdout)
        assert (done.returncode, text in shown) == (code, True), (args, shown)
        assert text or "in use by" not in done.stderr
    assert verb == "plan" or f"Cpus_allowed_list:\t{second}\n" in done.stdout
    assert verb != "plan" or os.listdir(claims) == before


def test_a_session_of_bench_is_one_run_with_the_cpus_of_all_candidates(start, ps):
    """Also while the command runs without ompbind; after a kill nothing is left."""
    first, second = two_cpus()
    options = ("-q", "--share", "--vary", f"mask={first};{second}", "--run-id")
    lines = {"one": "-- sleep 300", "two": "--name a -- sleep 300 : --name b -- sleep 300"}
    sessions = {name: start("bench", *options, name, *line.split()) for name, line in lines.items()}
    wait_until(lambda: len(ps()) == 2, "both are registered")
    cpus = str(CpuSet((first, second)))
    found = {run["run_id"]: (run["pid"], run["ranks"], run["held"]) for run in ps()}
    assert found == {name: (process.pid, [], cpus) for name, process in sessions.items()}
    sessions["one"].kill()
    wait_until(lambda: [run["run_id"] for run in ps()] == ["two"], "the killed session is gone")


SHOW = "grep Cpus_allowed_list /proc/self/status; read wait"


@pytest.mark.parametrize("verbs", [("run", "run"), ("run", "exec"), ("exec", "exec")])
def test_runs_with_cores_that_start_at_once_share_no_cpu_while_another_is_free(start, ompbind, claims, verbs):
    """A third run shares the CPUs of the first."""
    first, second = two_cpus()
    before = ["taskset", "-c", f"{first},{second}"]
    for _ in range(7):
        words, options = ("-c", "1", "--run-id", "one", "--"), {"before": before, "stdin": subprocess.PIPE}
        both = [start(verb, *words, "sh", "-c", SHOW, **options) for verb in verbs]
        lines = sorted(process.stdout.readline() for process in both)
        assert lines == [f"Cpus_allowed_list:\t{cpu}\n" for cpu in (first, second)]
        assert {str(run.claimed) for run in read_live_runs(str(claims))} == {str(first), str(second)}
        third = ompbind(verbs[1], "-c", "1", "--", "sh", "-c", SHOW, before=before)
        assert third.stdout == lines[0]
        assert f"CPU {first} is in use by run one" in one_line(third.stderr)
        for process in both:
            assert process.communicate("\n") == ("", ""), "no warning: the note is in the plan"


def test_a_run_with_cores_uses_free_cores_unless_an_option_or_a_launcher_decides(ompbind, live, tmp_path):
    first, second = two_cpus()
    live("-m", str(first), "--run-id", "serve")
    (tmp_path / "ompbind.toml").write_text("[defaults]\ncores = 1\n")
    launched = {**mpich(0), "MPI_LOCALNRANKS": "2"}
    for verb, words, options, cpu in (
        ("run", "-c 1", {}, second),
        ("exec", "-c 1", {}, second),
        ("run", "", {"cwd": tmp_path}, second),
        ("run", "-c 1 --share", {}, first),
        ("run", "-c 1 --no-avoid", {}, second),
        ("run", "-c 1 -m all", {}, first),
        ("run", "-c 1", {"env": launched}, first),
        ("exec", "-c 1", {"env": launched}, first),
    ):
        before = ["taskset", "-c", f"{first},{second}"]
        done = ompbind(verb, *words.split(), "--", "sh", "-c", SHOW, before=before, **options)
        assert done.stdout == f"Cpus_allowed_list:\t{cpu}\n", (verb, words, options)
        is_warned = cpu == first and "--share" not in words
        assert ("is in use by run serve" in one_line(done.stderr)) == is_warned


@pytest.mark.two_cpus
@pytest.mark.parametrize(("words", "env", "message"), rows("""
    --share --avoid |                     | --share and --avoid contradict each other
                | AVOID=1 EXCLUSIVE=1     | OMPBIND_AVOID and OMPBIND_EXCLUSIVE contradict
    --exclusive | SHARE=1                 | not exclusive
    --share     | EXCLUSIVE=1 AVOID=1     |
    --avoid     | EXCLUSIVE=1 SHARE=1     | hint: wait for other runs ('run --wait'; 'ompbind ps' lists them)
                | AVOID=0                 | (--avoid --wait waits for free CPUs, --share hides this warning
"""))  # fmt: skip
def test_the_command_line_overrides_the_environment(ompbind, live, words, env, message):
    live()
    script = "exit $((${OMPBIND_SHARE+1}${OMPBIND_EXCLUSIVE+1}0))"  # the ranks do not have these variables
    variables = {f"OMPBIND_{pair[:-2]}": pair[-1] for pair in env.split()}
    done = ompbind("run", *words.split(), "--", "sh", "-c", script, env=variables)
    assert done.returncode == (0 if not message or "warning" in message else 125)
    assert message in one_line(done.stderr)
    assert message or not done.stderr


def claim_plan(machine, request, me):
    """Plan among the other runs and register the plan, as `run` does; return plan and claim."""
    with Registry(request.sharing, me) as registry:
        plan = make_plan(machine, request, registry.occupied)
        return plan, registry.register(plan)


def test_a_run_that_prefers_free_cores_plans_while_no_other_such_run_plans(claims, monkeypatch):
    monkeypatch.setattr(module, "SHORT_LOCK_TIMEOUT_S", 60.0)
    machine, request = make_machine(Shape(cores=8)), Request(cores=2, sharing=Sharing.PREFER_FREE)
    thread = threading.Thread(target=lambda: claim_plan(machine, request, make_own_run("x"))[1].release())
    lock = os.open(claims, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive(), "it waits"
    os.close(lock)
    thread.join()


def test_after_ompbind_is_killed_the_claim_stays_until_its_ranks_exit(live, claims):
    process = live("--run-id", "serve")
    (rank,) = ranks_of(process)
    assert names(claims) == ["serve"]
    process.kill()
    while names(claims):
        pass
    assert not is_alive(rank)
    process = live()
    (rank,) = ranks_of(process)
    try:
        os.kill(process.pid, signal.SIGSTOP)
        os.kill(supervisor_of(process), signal.SIGKILL)
        assert names(claims)
        process.kill()
        wait_until(lambda: not names(claims), "the kernel has released the lock", 5)
    finally:
        os.kill(rank, signal.SIGKILL)
    wait_until(lambda: not os.listdir(claims), "files gone", 5)


@pytest.mark.two_cpus
def test_runs_inside_a_rank_have_other_names_and_are_not_others_but_to_each_other(ompbind):
    inner = shlex.split("ompbind run --exclusive -- ompbind run --avoid -- ompbind exec -- true")
    done = ompbind("run", "-n", "2", "--run-id", "a b", "--", *inner)
    assert (done.returncode, done.stderr) == (0, "")
    nested = shlex.split("ompbind run -- ompbind ps --format json")
    outer, nested = json.loads(ompbind("run", "--run-id", "outer", "--", *nested).stdout)["runs"]
    assert (outer["run_id"], outer["inside"], nested["inside"]) == ("outer", None, "outer")
    assert nested["run_id"] != "outer"
    done = ompbind("run", "--run-id", "same", "--", "ompbind", "run", "--run-id", "same", "--", "true")
    assert (done.returncode, "--run-id same: the enclosing run has" in one_line(done.stderr)) == (125, True)
    script = "ompbind run --run-id one -- sleep 300 & while ! ompbind ps | grep -q '^one '; do :; done; "
    script += "ompbind run -- true; kill $!; wait"
    done = ompbind("run", "--run-id", "outer", "--", "sh", "-c", script)
    assert "in use by run one" in one_line(done.stderr)


def test_a_command_of_exec_and_its_children_keep_the_claim(start, ompbind, claims):
    script = "exec 3>&1 4>&1 5>&1 6>&1; echo up; read x; sleep 300 & echo $!"
    process = start("exec", "--run-id", "job", "--", "sh", "-c", script, stdin=subprocess.PIPE, up=1)
    (run,) = read_live_runs(str(claims))
    assert (run.run_id, run.pid) == ("job", process.pid)
    assert "run job" in one_line(ompbind("run", "--", "true").stderr)
    process.stdin.write("\n")
    process.stdin.flush()
    child = int(process.stdout.readline())
    process.wait()
    assert names(claims) == ["job"]
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: not names(claims), "claim gone", 5)


def mpich(rank, job="x"):
    return make_env(f"PMI_RANK={rank} PMI_SIZE=2 MPI_LOCALRANKID={rank} MPI_LOCALNRANKS=2 PMI_JOBID={job}")


@pytest.mark.two_cpus
def test_ranks_of_one_job_are_not_others_to_each_other(live, ompbind, ps):
    for rank in (1, 0):
        live("--exclusive", verb="exec", env=mpich(rank))
    listed = ps()
    expected = [[{"rank": rank, "cpus": str(cpu)}] for rank, cpu in enumerate(two_cpus())]
    assert sorted((run["ranks"] for run in listed), key=str) == expected
    assert {run["held"] for run in listed} == {str(CpuSet(two_cpus()))}
    done = ompbind("exec", "--exclusive", "--", "true", env=mpich(0, job="y"))
    assert (done.returncode, "not exclusive" in done.stderr) == (125, True)
    assert ompbind("exec", "--", "true", env=mpich(0)).stderr == "", "no warning of its job"
    assert "in use by run" in one_line(ompbind("exec", "--", "true", env=mpich(0, job="y")).stderr)


def test_ranks_of_one_job_plan_among_the_runs_that_the_first_rank_found(monkeypatch, claims):
    monkeypatch.delenv("OMPBIND_RUN_ID", raising=False)
    machine, request = make_machine(Shape(cores=8)), Request(ranks=2, sharing=Sharing.AVOID)
    _, other = claim_plan(machine, Request(strategy="cores"), make_own_run("other"))
    identities = [make_own_run("job").replace(placement_index=rank, rank=rank) for rank in (0, 1)]
    first, own = claim_plan(machine, request, identities[0])
    _, late = claim_plan(machine, request.replace(sharing=Sharing.SHARE), make_own_run("late"))
    other.release()
    second, claim = claim_plan(machine, request, identities[1])
    for each in (own, late, claim):
        each.release()
    assert [str(placement.cpuset) for placement in first.placements] == ["1-4", "5-7"]
    assert second.placements == first.placements


@pytest.mark.parametrize(("sharing", "cpus", "note"), [
    (Sharing.WARN, "0", "CPU 0 is in use by run late"), (Sharing.AVOID, "1", "not used: CPU 0"),
    (Sharing.SHARE, "0", ""), (Sharing.EXCLUSIVE, "", "not exclusive: CPU 0 is in use by run late"),
])  # fmt: skip
def test_a_run_that_registers_between_plan_and_claim_is_found(monkeypatch, claims, sharing, cpus, note):
    machine, request, late = make_machine(Shape(cores=4)), Request(strategy="cores", sharing=sharing), []

    def plan_before_another(machine, request, occupied):
        plan = make_plan(machine, request, occupied)
        if not late:
            other = Request(ranks=1, strategy="cores", sharing=Sharing.SHARE)
            late.append(claim_plan(machine, other, make_own_run("late"))[1])
        return plan

    monkeypatch.setattr(register, "make_local_plan", plan_before_another)
    with Registry(sharing, make_own_run("mine")) as registry:
        if not cpus:
            with pytest.raises(PlanError, match=note):
                register.plan_and_register(machine, request, registry)
            return
        found = register.plan_and_register(machine, request, registry)
    plan, claim = found.plan, found.claim
    assert (str(plan.placements[0].cpuset), str(plan.used)) == (cpus, cpus)
    assert note in " ".join(note.text for note in plan.notes)
    claimed = {run.run_id: run.claimed for run in read_live_runs(str(claims))}
    assert claimed == {"late": CpuSet((0,)), "mine": plan.used}
    for held in (claim, *late):
        held.release()


GOOD = LiveRun(run_id="?", pid=1, uid=0, started=1, ranks=((0, CpuSet((0,))),), claimed=CpuSet((0,)))
KEPT = []
"""Files that stay open and locked until the child that has opened them exits."""


def spoil(directory):
    """Write files that look like claims, only some of them valid, and keep them locked."""
    good = make_text(GOOD).encode()
    texts = {
        "empty": b"", "zeros": b"\0" * 5000, "bytes": bytes(range(256)) * 20, "cut": good[:-2],
        "huge": b"ompbind-run 1\n" + b"x" * (TEXT_LIMIT + 1), "long": good + b"rank 0 0-8191\n" * 8000,
        "numbers": good.replace(b"pid 1", b"pid 1e99"), "far": good.replace(b"held 0", b"held 0-65535"),
        "escape": good.replace(b"run ?", b"run \x1b]0;owned\x07\x1b[31m"), "secret": good, "linked": good,
    }  # fmt: skip
    for name, text in texts.items():
        path = directory / f"ompbind-0-1-{name}.run"
        path.write_bytes(text)
        KEPT.append(path.open("rb"))
        fcntl.flock(KEPT[-1], fcntl.LOCK_EX)
        path.chmod(0 if name == "secret" else 0o644)
    os.link(directory / "ompbind-0-1-linked.run", directory / "ompbind-0-1-again.run")
    os.symlink("ompbind-0-1-escape.run", directory / "ompbind-0-1-symlink.run")
    os.symlink("/dev/zero", directory / "ompbind-0-1-device.run")
    os.mkfifo(directory / "ompbind-0-1-fifo.run")
    (directory / "ompbind-0-1-directory.run").mkdir()
    (directory / "ompbind-0-1-stale.run").write_bytes(good)
    (directory / "ompbind-\udcff\n.run").write_bytes(good)
    return True


def test_files_of_other_users_in_the_directory_do_no_harm(ompbind, ps, public):
    other = start_as_nobody(spoil, public)
    assert other[0].recv()
    env = {"OMPBIND_RUNTIME_DIR": str(public)}
    listed = ompbind("ps", env=env)
    assert listed.returncode == 0
    assert one_line(listed.stderr).count(f"claims in {public} do not count: ompbind-") == 1
    assert max(map(len, (listed.stdout + listed.stderr).splitlines())) <= 80
    assert not {"\x1b", "\x07"} & set(listed.stdout)
    assert "?]0;owned??[31m" in listed.stdout.replace("\n", "").replace(" ", "")
    done = ompbind("run", "--exclusive", "-m", "0", "--", "true", env=env)
    assert (done.returncode, "in use by" in one_line(done.stderr)) == (125, True)
    assert "\x1b" not in done.stderr
    done = ompbind("run", "--share", "--", "true", env=env)
    assert (done.returncode, done.stderr) == (0, ""), "it reads no claims"
    is_root = os.geteuid() == 0  # root can read the secret file too
    assert [run["uid"] for run in ps(env=env)] == [NOBODY if is_root else os.geteuid()] * (2 + is_root)
    assert (public / "ompbind-0-1-stale.run").exists() == is_root, "only its user removes it"
    assert stat.S_ISFIFO((public / "ompbind-0-1-fifo.run").stat().st_mode)
    finish(*other)
    assert ps(env=env) == []


def test_only_claims_are_removed(ompbind, public):
    files = {
        "notes.run": ("buy milk", True), "empty.run": ("", True), "notes.new": ("buy milk", True),
        "0-9-stale.run": (make_text(GOOD), False), "0-9-0123abcd.new": ("", False),
        "0-9-4567abcd.new": (make_text(GOOD)[:20], False), "0-9-stale.wait": (make_text(GOOD), False),
        "0-9-locked.wait": (make_text(GOOD), True), "0-9-89abcdef.new": ("", True),
    }  # fmt: skip
    for name, (text, _) in files.items():
        (public / f"ompbind-{name}").write_text(text)
    with open(public / "ompbind-0-9-89abcdef.new") as new, open(public / "ompbind-0-9-locked.wait") as ticket:
        for file in (new, ticket):
            fcntl.flock(file, fcntl.LOCK_EX)
        done = ompbind("run", "--", "true", env={"OMPBIND_RUNTIME_DIR": str(public)})
    assert (done.returncode, done.stderr) == (0, "")
    left = {name: (public / f"ompbind-{name}").exists() for name in files}
    assert left == {name: is_kept for name, (_, is_kept) in files.items()}


def test_a_directory_that_stays_locked_stops_strict_runs_only(ompbind, claims, monkeypatch):
    handle = os.open(claims, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    for words in ([], ["-c", "1"]):  # with --cores, it waits for 1 s
        done = ompbind("run", *words, "--", "true")
        assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.setattr(module, "LOCK_TIMEOUT_S", 0.1)
    holder = f"another process has kept {claims} locked for 0.1 s"
    for sharing in (Sharing.AVOID, Sharing.EXCLUSIVE):
        with pytest.raises(ClaimError, match=holder) as caught:
            claim_plan(make_machine(Shape()), Request(sharing=sharing), make_own_run("x"))
        assert f"omit --{sharing}" in caught.value.hint
    os.close(handle)


@pytest.mark.parametrize(("directory", "code", "text"), [
    ("/no/such", 2, "cannot read live runs in /no/such"), ("/proc", 0, "register this run in /proc"),
])  # fmt: skip
def test_without_a_directory_only_strict_runs_fail(ompbind, directory, code, text):
    env = {"OMPBIND_RUNTIME_DIR": directory}
    done = ompbind("run", "--", "true", env=env)
    assert (done.returncode, text in one_line(done.stderr)) == (0, True)
    assert "warning: this run is not registered, so other runs may use its CPUs" in one_line(done.stderr)
    for option in ("--avoid", "--exclusive"):
        done = ompbind("run", option, "--", "true", env=env)
        assert (done.returncode, f"{option} is not possible" in one_line(done.stderr)) == (125, True)
        assert "OMPBIND_RUNTIME_DIR" in done.stderr
    assert ompbind("ps", env=env).returncode == code


def test_all_users_choose_the_same_directory(public, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "DIRECTORIES", (str(tmp_path / "missing"), str(tmp_path), str(public)))
    assert find_claims_directory({}) == find_claims_directory({"OMPBIND_RUNTIME_DIR": ""}) == str(public)
    assert find_claims_directory({"OMPBIND_RUNTIME_DIR": "here"}) == f"{Path.cwd()}/here"


def test_ps_for_people_and_for_programs(ompbind, live, ps):
    assert ompbind("ps").stdout == "no ompbind runs on this machine\n"
    assert ps() == []
    cpu = str(two_cpus()[0])
    process = live("-m", cpu, "--run-id", "serve")
    _, line, command, *_ = ompbind("ps").stdout.splitlines()
    assert {"serve", str(process.pid), cpu} <= {*line.split()}
    assert f"{command} ".startswith(f"    ompbind run -m {cpu} --run-id serve -- ")  # a long word may follow
    (run,) = ps()
    found = [run[name] for name in ("run_id", "pid", "uid", "held", "ranks")]
    assert found == ["serve", process.pid, os.geteuid(), cpu, [{"rank": 0, "cpus": cpu}]]
    assert (run["command"][1:4], abs(run["started"] - time.time()) < 60) == ([OMPBIND, "run", "-m"], True)


@pytest.mark.parametrize(("since_s", "space", "shown"), [(0, 0, True), (10**6, 0, False), (0, 1, False)])
def test_another_process_with_the_same_pid_is_not_shown(ompbind, ps, claims, since_s, space, shown):
    """It has started later, or is in another PID namespace."""
    me = make_own_run("gone")
    about = {"pid": me.pid, "started": me.started - since_s, "pid_space": me.pid_space + space}
    path = claims / "ompbind-0-1-x.run"
    path.write_text(make_text(GOOD.replace(run_id="gone", **about)))
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (run,), inspected = ps(), ompbind("inspect", "gone")
    assert (run["run_id"], run["command"] is not None) == ("gone", shown)
    assert (inspected.returncode, "in another container" in inspected.stdout) == (space, bool(space))
