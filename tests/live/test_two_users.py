"""Two users: what one user does in a directory that both may write to has no effect on runs of the other.

The tests run as root, and the other user is user 65534.
"""

import fcntl
import json
import os
import pwd
import resource
import stat
import subprocess
import time
import tracemalloc
from pathlib import Path

import pytest

from ompbind.cpuset import CpuSet
from ompbind.errors import ClaimError, LaunchError
from ompbind.execution.output.log_files import LogDirectory
from ompbind.execution.report_file import prepare_report, write_report
from ompbind.planning.other_runs import LiveRun
from ompbind.planning.request import Sharing
from ompbind.registry import registry as module
from ompbind.registry.claims import ENTRIES_LIMIT, TEXT_LIMIT, make_text
from ompbind.registry.registry import Registry, make_run_identity
from tests.live.conftest import clean_environment, is_alive, required, supervisor_of, wait_until
from tests.live.containers import rootless_run
from tests.live.other_user import (
    NOBODY,
    as_user,
    call_as_nobody,
    finish,
    public_directory,
    start_as_nobody,
    unavailable,
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

KINDS = {"sticky": 0o1777, "open": 0o777, "theirs": 0o755}
"""Directories: sticky as /tmp, open for all users, or of the other user."""


@pytest.fixture
def directory():
    """Yield a directory that all users can enter; `make_shared` makes directories there."""
    with public_directory() as made:
        yield made


def make_shared(directory, kind):
    path = directory / "shared"
    path.mkdir()
    path.chmod(KINDS[kind])
    if kind == "theirs":
        os.chown(path, NOBODY, NOBODY)
    return path


def put_file(path):
    path.write_text("of the other user")
    path.chmod(0o666)


def put_link(path):
    path.symlink_to(path.parent.parent / "precious")


def put_pipe(path):
    os.mkfifo(path)
    path.chmod(0o666)


def put(how, path):
    """Put something at a path, in place of what is there; return whether that was possible."""
    try:
        path.unlink(missing_ok=True)
        how(path)
    except PermissionError:
        return False
    return True


def make_precious(directory):
    path = directory / "precious"
    path.write_text("precious")
    path.chmod(0o600)
    return path


def unwrapped(done):
    return " ".join(done.stderr.split())


@pytest.mark.parametrize(("kind", "how"), [("sticky", put_link), ("open", put_link), ("theirs", put_pipe)])
def test_what_is_put_at_the_name_of_the_report_during_a_run_is_replaced(start, directory, kind, how):
    precious, path = make_precious(directory), make_shared(directory, kind) / "run.json"
    process = start("run", "--report", str(path), "--", "sh", "-c", "echo up; read x", stdin=subprocess.PIPE)
    assert process.stdout.readline() == "up\n"
    assert json.loads(path.read_text())["error"] == "the run has not finished"
    assert call_as_nobody(put, how, path) == (kind != "sticky")
    process.stdin.write("\n")
    process.stdin.close()
    assert process.wait(30) == 0
    status = path.lstat()
    assert (status.st_uid, stat.filemode(status.st_mode)) == (0, "-rw-r--r--")
    assert json.loads(path.read_text())["exit_code"] == 0
    assert (precious.read_text(), os.listdir(path.parent)) == ("precious", ["run.json"])


@pytest.mark.parametrize("how", [put_file, put_link, put_pipe, os.mkdir])
@pytest.mark.parametrize("kind", ["sticky", "open"])
def test_what_is_there_before_the_start_is_refused(ompbind, directory, kind, how):
    precious, path = make_precious(directory), make_shared(directory, kind) / "run.json"
    assert call_as_nobody(put, how, path)
    before = path.lstat()[:7]  # without times: reading a link changes one
    done = ompbind("run", "--report", str(path), "--", "echo", "started")
    assert (done.returncode, done.stdout) == (125, "")
    assert f"belongs to user {NOBODY}, in a directory" in unwrapped(done) or how is os.mkdir
    assert (path.lstat()[:7], precious.read_text()) == (before, "precious")


@pytest.mark.parametrize("options", ["--report {}/link/run.json", "--log-dir {}/link/logs"])
def test_a_link_of_the_other_user_on_the_path_is_refused(ompbind, directory, options):
    shared, own = make_shared(directory, "sticky"), directory / "own"
    own.mkdir()
    assert call_as_nobody(put, lambda link: link.symlink_to(own), shared / "link")
    done = ompbind("run", *options.format(shared).split(), "--", "true")
    assert (done.returncode, os.listdir(own)) == (125, [])
    assert "symbolic link on its path is not safe" in unwrapped(done)


def test_a_directory_that_is_exchanged_gets_no_report(directory):
    shared = make_shared(directory, "open")
    (shared / "mine").mkdir()
    file = prepare_report(str(shared / "mine/run.json"))

    def exchange():
        os.rename(shared / "mine", shared / "moved")
        (shared / "mine").mkdir()
        (shared / "mine").chmod(0o777)
        return True

    assert call_as_nobody(exchange)
    write_report(file, "{}")
    assert (os.listdir(shared / "mine"), os.listdir(shared / "moved")) == ([], ["run.json"])


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("how", [put_file, put_link, put_pipe])
def test_log_files_of_the_other_user_are_not_used(directory, how, late):
    precious, shared = make_precious(directory), make_shared(directory, "sticky")
    logs = LogDirectory(str(shared), ["0"], force=True) if late else None
    assert call_as_nobody(put, how, shared / "0.out")
    with pytest.raises(LaunchError, match="not a regular file|belongs to user"):
        logs.open("0", "out") if logs else LogDirectory(str(shared), ["0"], force=True)
    assert precious.read_text() == "precious"
    assert how is not put_file or (shared / "0.out").read_text() == "of the other user"


@pytest.mark.parametrize("options", ["--report {}/0.out", "--log-dir {} --force"])
def test_hard_links_in_a_shared_directory_are_refused(ompbind, directory, options):
    """The kernel lets a user make hard links to files of others if `protected_hardlinks` is 0."""
    precious, shared = make_precious(directory), make_shared(directory, "sticky")
    os.link(precious, shared / "0.out")
    done = ompbind("run", "-n", "1", *options.format(shared).split(), "--", "echo", "x")
    assert (done.returncode, precious.read_text()) == (125, "precious")
    assert "it has several names (hard links)" in unwrapped(done)


def read_wait(pid):
    """Return the function of the kernel in which a process waits."""
    return Path(f"/proc/{pid}/wchan").read_text()


def test_a_pipe_without_a_reader_is_waited_for_until_a_limit_or_a_stop_request(start, directory):
    path = directory / "pipe"
    os.mkfifo(path)
    process = start("run", "--grace", "0.2", "--report", str(path), "--timeout", "0.1", "--", "sleep", "60")
    assert process.wait(20) == 124
    assert "no process has opened the pipe for reading in 0.2 s" in " ".join(process.stderr.read().split())
    process = start("run", "--grace", "60", "--report", str(path), "--", "true")
    supervisor = supervisor_of(process)
    wait_until(lambda: "nanosleep" in read_wait(supervisor), "it waits for a reader")
    process.terminate()
    assert process.wait(20) != 0
    wait_until(lambda: not is_alive(supervisor), "the supervisor has exited")
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(LaunchError, match=r"has read nothing for 0\.1 s"):
        write_report(prepare_report(str(path)), "x" * 200_000, 0.1)
    os.close(reader)


def hold_claims(directory, texts):
    """Write claims and keep them locked; return how many."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for number, text in enumerate(texts):
        path = Path(directory, f"ompbind-{NOBODY}-{number}-x.run")
        path.write_text(text)
        HELD.append(path.open("rb"))
        fcntl.flock(HELD[-1], fcntl.LOCK_EX)
    return len(HELD)


HELD = []
CLAIM = make_text(
    LiveRun(run_id="theirs", pid=1, uid=0, started=1, ranks=(), claimed=CpuSet((0,)), avoided=CpuSet((1,)))
)
MANY_RANKS = CLAIM + "rank 0 0-8191\n" * ((TEXT_LIMIT - len(CLAIM)) // 14)
LONG_SETS = CLAIM.replace("held 0", f"held {','.join(map(str, range(0, 8192, 2)))}")


def measure_entry_s(registry):
    """Return the CPU time until a registry has read all claims."""
    begun = time.process_time()
    with registry:
        return time.process_time() - begun


@pytest.mark.parametrize(
    "texts",
    [[MANY_RANKS] * 60, [LONG_SETS] * 100, [CLAIM] * 3000, ["x" * (4 << 20)] * 15],
    ids=["ranks", "sets", "claims", "bytes"],
)
def test_claims_of_the_other_user_cost_little(directory, texts, monkeypatch):
    shared = make_shared(directory, "sticky")
    monkeypatch.setenv("OMPBIND_RUNTIME_DIR", str(shared))
    registry = Registry(Sharing.WARN, make_run_identity("mine"))
    other = start_as_nobody(hold_claims, shared, texts)
    assert other[0].recv() == len(texts)
    used_s = min(measure_entry_s(registry) for _ in range(3))  # garbage of other tests may be collected
    tracemalloc.start()
    with registry:
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    finish(*other)
    assert f"user {NOBODY}" in registry.ignored
    assert (used_s < 0.5, peak_bytes < 4 << 20) == (True, True)


@pytest.mark.long
def test_files_that_fill_the_directory_of_claims_cost_little(directory, monkeypatch):
    shared = make_shared(directory, "sticky")
    monkeypatch.setenv("OMPBIND_RUNTIME_DIR", str(shared))
    registry = Registry(Sharing.WARN, make_run_identity("mine"))
    for number in range(ENTRIES_LIMIT + 1):
        os.mknod(shared / f"f{number}")
    tracemalloc.start()
    used_s = measure_entry_s(registry)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert registry.ignored.endswith("too many files")
    assert (used_s < 0.5, peak_bytes < 4 << 20) == (True, True)


def lock_directory(path):
    """Lock a directory until this process exits."""
    HELD.append(os.open(path, os.O_RDONLY))
    fcntl.flock(HELD[-1], fcntl.LOCK_EX)
    return os.getpid()


def test_a_lock_of_the_other_user_does_not_delay_a_run(ompbind, directory, monkeypatch):
    shared = make_shared(directory, "sticky")
    other = start_as_nobody(lock_directory, shared)
    pid = other[0].recv()
    done = ompbind("run", "--", "true", env={"OMPBIND_RUNTIME_DIR": str(shared)}, timeout=5)
    assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.setattr(module, "LOCK_TIMEOUT_S", 0.1)
    monkeypatch.setenv("OMPBIND_RUNTIME_DIR", str(shared))
    with pytest.raises(ClaimError) as caught, Registry(Sharing.AVOID, make_run_identity("mine")):
        pass
    assert f"process {pid} of user {pwd.getpwuid(NOBODY).pw_name} has kept" in caught.value.message
    assert os.listdir(shared) == []
    finish(*other)


OWN, STRANGER = 1000, 1001
"""Two users of the machine; the first one has a user namespace, which does not know the second one."""


def run_as(uid, *command, namespace=False, **options):
    before = [*as_user(uid), *(["unshare", "--map-root-user"] if namespace else [])]
    return subprocess.run([*before, *command], capture_output=True, text=True, timeout=30, **options)


@pytest.fixture
def namespace(directory, public_ompbind):
    """Return a function that runs ompbind as root of a user namespace, in a directory of its user."""
    required("unshare")
    own = directory / "own"
    own.mkdir()
    os.chown(own, OWN, OWN)
    env = clean_environment(HOME=str(own), OMPBIND_RUNTIME_DIR=str(own))
    if run_as(OWN, "true", namespace=True).returncode:
        unavailable(f"user {OWN} cannot create a user namespace")
    return lambda *words: run_as(OWN, public_ompbind, *words, namespace=True, env=env, cwd=own)


@pytest.mark.parametrize("kind", ["link", "file", "pipe"])
def test_a_user_namespace_does_not_make_strangers_trusted(directory, namespace, kind):
    """The owner of the root directory has the number of all users whom the namespace does not know."""
    shared = make_shared(directory, "sticky")
    path, target = shared / "run.json", directory / "own/target"
    make = {"link": f"ln -s {target} {path}", "file": f"echo old >{path}", "pipe": f"mkfifo {path}"}[kind]
    assert run_as(STRANGER, "sh", "-c", f"umask 0; {make}").returncode == 0
    done = namespace("run", "--report", str(path), "--", "true")
    assert done.returncode == 125
    text = "belongs to a user whom this container does not know (65534)"
    assert text in " ".join(done.stderr.split())
    assert not target.exists()
    assert kind != "file" or path.read_text() == "old\n"


@pytest.mark.no_quota
def test_a_user_namespace_reads_no_configuration_of_strangers(directory, namespace):
    project = directory / "own/ompbind.toml"
    project.write_text("[defaults]\nranks = 2\n")
    os.chown(project, OWN, OWN)
    done = namespace("run", "--share", "--", "echo", "up")
    assert (done.stdout, done.stderr) == ("up\nup\n", "")
    os.chown(project, STRANGER, STRANGER)
    done = namespace("run", "--share", "--", "echo", "up")
    assert done.stdout == "up\n"
    assert "a user whom this container does not know" in " ".join(done.stderr.split())


def test_reports_and_logs_are_written_in_a_user_namespace(directory, namespace):
    """A report of another user in an own directory is replaced; its owner cannot be set."""
    report = directory / "own/run.json"
    for owner in (None, OWN, STRANGER):
        if owner:
            os.chown(report, owner, owner)
            report.chmod(0o666)
        done = namespace("run", "--report", str(report), "--log-dir", "logs", "--force", "--", "echo", "up")
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(report.read_text())["exit_code"] == 0
        assert (report.stat().st_uid, (directory / "own/logs/0.out").read_text()) == (OWN, "up\n")


@pytest.mark.part("image")
def test_reports_logs_and_configuration_work_in_a_rootless_container(public_ompbind):
    with rootless_run(OWN, public_ompbind) as (before, own):
        (own / "ompbind.toml").write_text("[defaults]\nranks = 2\n")
        for path in own.iterdir():
            os.chown(path, OWN, OWN)
        command = [public_ompbind, "run", "--share", "--report", "run.json", "--log-dir", "logs", "--force"]
        for _ in range(2):  # the second run replaces the files of the first
            done = subprocess.run([*before, *command, "--", "echo", "up"], capture_output=True, text=True)
            assert (done.returncode, done.stderr.count("ompbind:")) == (0, 0), done.stderr
            assert json.loads((own / "run.json").read_text())["exit_code"] == 0
            assert [(own / f"logs/{rank}.out").read_text() for rank in (0, 1)] == ["up\n", "up\n"]
