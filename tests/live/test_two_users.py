"""Two users: what one user does in a directory that both may write to has no effect on runs of the other.

The tests run as root, and the other user is user 65534.
"""

import fcntl
import json
import os
import re
import resource
import signal
import stat
import subprocess
import time
import tracemalloc
from pathlib import Path

import pytest

from ompbind.cli.report_file import prepare_report, write_report
from ompbind.cpuset import CpuSet
from ompbind.planning.other_runs import LiveRun
from ompbind.planning.request import Sharing
from ompbind.registry.claims import ENTRIES_LIMIT, TEXT_LIMIT, make_text
from ompbind.registry.registry import Registry, make_own_run
from tests.live.conftest import clean_environment, one_line, required
from tests.live.containers import rootless_run
from tests.live.other_user import NOBODY, as_user, finish, start_as_nobody, unavailable

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

KINDS = {"sticky": 0o1777, "open": 0o777, "theirs": 0o755}
"""Directories: sticky as /tmp, open for all users, or of the other user."""

MAKE = {
    "file": "echo theirs >{path}", "link": "ln -s {target} {path}", "pipe": "mkfifo {path}",
    "directory": "mkdir {path}",
}  # fmt: skip


WHY = f"belongs to user {NOBODY}, in a directory|not a regular file|is a directory"


def run_as(uid, *command, namespace=False, **options):
    before = [*as_user(uid), *(["unshare", "--map-root-user"] if namespace else [])]
    return subprocess.run([*before, *command], capture_output=True, text=True, timeout=30, **options)


def put(kind, path, target, uid=NOBODY):
    """Put something at a path as another user, in place of what is there; return whether it was possible."""
    script = f"umask 0; rm -f {path} && {MAKE[kind].format(path=path, target=target)}"
    return run_as(uid, "sh", "-c", script).returncode == 0


@pytest.fixture
def precious(public):
    """A file of root, which may not change."""
    path = public / "precious"
    path.write_text("precious")
    path.chmod(0o600)
    yield path
    assert path.read_text() == "precious"


@pytest.mark.parametrize(("kind", "what"), [("sticky", "link"), ("open", "link"), ("theirs", "pipe")])
def test_what_is_put_at_the_name_of_the_report_during_a_run_is_replaced(start, public, precious, kind, what):
    path = public / "run.json"
    public.chmod(KINDS[kind])
    os.chown(public, *[NOBODY * (kind == "theirs")] * 2)
    rank = ("sh", "-c", "echo up; read x")
    process = start("run", "--report", str(path), "--", *rank, stdin=subprocess.PIPE, up=1)
    assert json.loads(path.read_text())["error"] == "the run has not finished"
    assert put(what, path, precious) == (kind != "sticky")
    process.stdin.write("\n")
    process.stdin.close()
    assert process.wait(30) == 0
    status = path.lstat()
    assert (status.st_uid, stat.filemode(status.st_mode)) == (0, "-rw-r--r--")
    assert json.loads(path.read_text())["exit_code"] == 0
    assert sorted(os.listdir(public)) == ["precious", "run.json"]


@pytest.mark.parametrize("options", ["--report {}/0.out", "--log-dir {} --force"])
@pytest.mark.parametrize("kind", ["sticky", "open"])
@pytest.mark.parametrize("what", [*MAKE, "hard link"])
def test_what_is_there_before_the_start_is_refused(ompbind, public, precious, what, kind, options):
    """The kernel lets a user make hard links to files of others if `protected_hardlinks` is 0."""
    path = public / "0.out"
    public.chmod(KINDS[kind])
    os.link(precious, path) if what == "hard link" else put(what, path, precious)
    before = path.lstat()[:7]  # without times: reading a link changes one
    done = ompbind("run", "-n", "1", *options.format(public).split(), "--", "echo", "started")
    assert (done.returncode, done.stdout, path.lstat()[:7]) == (125, "", before)
    why = f"belongs to user {NOBODY}, in a directory" if what == "file" else WHY
    assert re.search(r"it has several names \(hard" if what == "hard link" else why, one_line(done.stderr))
    assert what != "file" or path.read_text() == "theirs\n"


@pytest.mark.parametrize("options", ["--report {}/link/run.json", "--log-dir {}/link/logs"])
def test_a_link_of_the_other_user_on_the_path_is_refused(ompbind, public, tmp_path, options):
    assert put("link", public / "link", tmp_path)
    done = ompbind("run", *options.format(public).split(), "--", "true")
    assert (done.returncode, os.listdir(tmp_path)) == (125, [])
    assert "symbolic link on its path is not safe" in one_line(done.stderr)


def test_a_directory_that_is_exchanged_gets_no_report(public):
    public.chmod(KINDS["open"])
    (public / "mine").mkdir()
    file = prepare_report(str(public / "mine/run.json"))
    run_as(NOBODY, "sh", "-c", "umask 0; mv mine moved; mkdir mine", cwd=public).check_returncode()
    write_report(file, "{}")
    assert (os.listdir(public / "mine"), os.listdir(public / "moved")) == ([], ["run.json"])


HELD = []


def hold_claims(directory, texts):
    """Write claims and keep them locked; return how many."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for number, text in enumerate(texts):
        path = Path(directory, f"ompbind-{NOBODY}-{number}-x.run")
        path.write_text(text)
        HELD.append(path.open("rb"))
        fcntl.flock(HELD[-1], fcntl.LOCK_EX)
    return len(HELD)


THEIRS = {"run_id": "theirs", "pid": 1, "uid": 0, "started": 1, "ranks": ()}
CLAIM = make_text(LiveRun(**THEIRS, claimed=CpuSet((0,)), avoided=CpuSet((1,))))
MANY_RANKS = CLAIM + "rank 0 0-8191\n" * ((TEXT_LIMIT - len(CLAIM)) // 14)
LONG_SETS = CLAIM.replace("held 0", f"held {','.join(map(str, range(0, 8192, 2)))}")


@pytest.mark.parametrize(("texts", "files"), [
    pytest.param([MANY_RANKS] * 60, 0, id="ranks"), pytest.param([LONG_SETS] * 100, 0, id="sets"),
    pytest.param([CLAIM] * 3000, 0, id="claims"), pytest.param(["x" * (4 << 20)] * 15, 0, id="bytes"),
    pytest.param([], ENTRIES_LIMIT + 1, id="files", marks=pytest.mark.long),
])  # fmt: skip
def test_claims_of_the_other_user_cost_little(public, texts, files, monkeypatch):
    monkeypatch.setenv("OMPBIND_RUNTIME_DIR", str(public))
    registry = Registry(Sharing.WARN, make_own_run("mine"))
    for number in range(files):
        os.mknod(public / f"f{number}")
    other = start_as_nobody(hold_claims, public, texts)
    assert other[0].recv() == len(texts)

    def measure_entry_s():
        begun = time.process_time()
        with registry:
            return time.process_time() - begun

    used_s = min(measure_entry_s() for _ in range(3))  # garbage of other tests may be collected
    tracemalloc.start()
    with registry:
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    finish(*other)
    assert ("too many files" if files else f"user {NOBODY}") in registry.ignored
    assert (used_s < 0.5, peak_bytes < 4 << 20) == (True, True)


OWN, STRANGER = 1000, 1001
"""Two users of the machine; the first one has a user namespace, which does not know the second one."""

UNKNOWN = "a user whom this container does not know"


@pytest.fixture
def own(public):
    """A directory of the user with a namespace."""
    path = public / "own"
    path.mkdir()
    os.chown(path, OWN, OWN)
    return path


@pytest.fixture
def namespace(own, public_ompbind):
    """Return a function that runs ompbind as root of a user namespace, in a directory of its user."""
    required("unshare")
    env = clean_environment(HOME=str(own), OMPBIND_RUNTIME_DIR=str(own))
    if run_as(OWN, "true", namespace=True).returncode:
        unavailable(f"user {OWN} cannot create a user namespace")
    return lambda *words: run_as(OWN, public_ompbind, *words, namespace=True, env=env, cwd=own)


@pytest.mark.parametrize("what", ["link", "file", "pipe"])
def test_a_user_namespace_does_not_make_strangers_trusted(public, own, namespace, what):
    """The owner of the root directory has the number of all users whom the namespace does not know."""
    path, target = public / "run.json", own / "target"
    assert put(what, path, target, STRANGER)
    done = namespace("run", "--report", str(path), "--", "true")
    assert (done.returncode, target.exists()) == (125, False)
    assert f"belongs to {UNKNOWN} (65534)" in one_line(done.stderr)
    assert what != "file" or path.read_text() == "theirs\n"


@pytest.mark.no_quota
def test_a_user_namespace_writes_reports_and_logs_and_reads_no_configuration_of_strangers(own, namespace):
    """A report of another user in an own directory is replaced; its owner cannot be set."""
    report, project = own / "run.json", own / "ompbind.toml"
    project.write_text("[defaults]\nranks = 2\n")
    command = ("run", "--share", "--report", str(report), "--log-dir", "logs", "--force", "--", "echo", "up")
    for owner, ranks, error in ((OWN, 2, ""), (STRANGER, 1, UNKNOWN), (OWN, 2, "")):
        os.chown(project, owner, owner)
        done = namespace(*command)
        assert (done.returncode, error in one_line(done.stderr), bool(done.stderr)) == (0, True, bool(error))
        record = json.loads(report.read_text())
        assert (record["exit_code"], len(record["ranks"]), report.stat().st_uid) == (0, ranks, OWN)
        assert (own / "logs/0.out").read_text() == "up\n"
        os.chown(report, *(STRANGER,) * 2)
        report.chmod(0o666)


@pytest.mark.part("image")
def test_reports_logs_and_configuration_work_in_a_rootless_container(public_ompbind):
    with rootless_run(OWN, public_ompbind) as (before, own):
        (own / "ompbind.toml").write_text("[defaults]\nranks = 2\n")
        os.chown(own / "ompbind.toml", OWN, OWN)
        command = [public_ompbind, "run", "--share", "--report", "run.json", "--log-dir", "logs", "--force"]
        for _ in range(2):  # the second run replaces the files of the first
            done = subprocess.run([*before, *command, "--", "echo", "up"], capture_output=True, text=True)
            assert (done.returncode, done.stderr.count("ompbind:")) == (0, 0), done.stderr
            assert json.loads((own / "run.json").read_text())["exit_code"] == 0
            assert [(own / f"logs/{rank}.out").read_text() for rank in (0, 1)] == ["up\n", "up\n"]


SET_UID = "#include <unistd.h>\nint main(void) { setuid(0); sleep(20); return 0; }"


def test_a_timeout_is_a_limit_also_for_a_rank_that_may_not_be_signalled(public_ompbind, public):
    """Such as the rank of `ompbind run -- sudo …`; an error names it."""
    path = public / "protected"
    subprocess.run([required("gcc"), "-o", path, "-x", "c", "-"], input=SET_UID, text=True, check=True)
    path.chmod(0o4755)
    command = [*as_user(NOBODY), public_ompbind, "run", "--timeout", "0.5", "--grace", "0.3", "--", path]
    with (public / "messages").open("w") as file:  # the rank keeps it open
        began_at = time.monotonic()
        done = subprocess.run(command, stdout=file, stderr=file, cwd="/", env=clean_environment(), timeout=15)
    assert (done.returncode, time.monotonic() - began_at < 10) == (125, True)
    left = re.search(r"error: cannot kill pid (\d+)", (public / "messages").read_text())
    os.kill(int(left[1]), signal.SIGKILL)
