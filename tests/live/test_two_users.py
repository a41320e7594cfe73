"""Two users: what one user does in a directory that both may write to has no effect on runs of the other.

The tests run as root, and the other user is user 65534.
"""

import ctypes
import fcntl
import json
import os
import pwd
import resource
import stat
import struct
import subprocess
import tempfile
import time
import tracemalloc
from pathlib import Path

import pytest

from ompbind.cpuset import CpuSet
from ompbind.errors import ClaimError, LaunchError, RequestError
from ompbind.execution.output.log_files import LogDirectory
from ompbind.execution.report_file import prepare_report, write_report
from ompbind.planning.other_runs import LiveRun
from ompbind.planning.request import Sharing
from ompbind.registry import claim_files
from ompbind.registry.claim_format import TEXT_LIMIT, make_text
from ompbind.registry.registry import Registry, make_run_identity, read_claim_list
from tests.live.conftest import is_alive, ranks_of, supervisor_of, wait_until
from tests.live.other_user import NOBODY, call_as_nobody, finish, start_as_nobody

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

WAIT = ("--", "sh", "-c", "echo up; read x")


@pytest.fixture
def directory():
    """Yield a directory that all users can enter; `make_shared` makes directories there."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


def make_shared(directory, kind):
    """Make a directory: sticky as /tmp, open for all users, or of the other user."""
    path = directory / "shared"
    path.mkdir()
    path.chmod({"sticky": 0o1777, "open": 0o777, "theirs": 0o755}[kind])
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


def describe(path):
    status = path.lstat()
    return status.st_ino, status.st_mode, status.st_uid, status.st_size, status.st_mtime_ns


def make_precious(directory):
    path = directory / "precious"
    path.write_text("precious")
    path.chmod(0o600)
    return path


def finish_run(process):
    """Let the rank exit, and return the exit code."""
    process.stdin.write("\n")
    process.stdin.close()
    return process.wait(30)


PUTS = [put_file, put_link, put_pipe]


@pytest.mark.parametrize("how", PUTS)
@pytest.mark.parametrize("kind", ["sticky", "open", "theirs"])
def test_what_is_put_at_the_name_of_the_report_during_a_run_is_replaced(start, directory, kind, how):
    precious, path = make_precious(directory), make_shared(directory, kind) / "run.json"
    process = start("run", "--report", str(path), *WAIT, stdin=subprocess.PIPE)
    assert process.stdout.readline() == "up\n"
    assert json.loads(path.read_text())["error"] == "the run has not finished"
    assert call_as_nobody(put, how, path) == (kind != "sticky")
    assert finish_run(process) == 0
    status = path.lstat()
    assert (status.st_uid, stat.filemode(status.st_mode)) == (0, "-rw-r--r--")
    assert json.loads(path.read_text())["exit_code"] == 0
    assert precious.read_text() == "precious"
    assert os.listdir(path.parent) == ["run.json"]


@pytest.mark.parametrize("how", [*PUTS, os.mkdir])
@pytest.mark.parametrize("kind", ["sticky", "open", "theirs"])
def test_what_is_there_before_the_start_is_refused(ompbind, directory, kind, how):
    precious, path = make_precious(directory), make_shared(directory, kind) / "run.json"
    assert call_as_nobody(put, how, path)
    before = describe(path)
    done = ompbind("run", "--report", str(path), "--", "touch", str(directory / "started"))
    assert (done.returncode, (directory / "started").exists()) == (125, False)
    text = " ".join(done.stderr.split())
    it = "this symbolic link" if how is put_link else "it"
    assert f"{it} belongs to user {NOBODY}, in a directory" in text or "it is a directory" in text
    assert describe(path) == before
    assert precious.read_text() == "precious"


def test_a_link_of_the_other_user_to_a_descriptor_is_refused(directory):
    path = make_shared(directory, "sticky") / "run.json"
    assert call_as_nobody(put, lambda link: link.symlink_to("/proc/self/fd/1"), path)
    with pytest.raises(RequestError, match=f"this symbolic link belongs to user {NOBODY}"):
        prepare_report(str(path))


@pytest.mark.parametrize("options", [("--report", "{}/link/run.json"), ("--log-dir", "{}/link/logs")])
def test_a_link_of_the_other_user_on_the_path_is_refused(ompbind, directory, options):
    shared, own = make_shared(directory, "sticky"), directory / "own"
    own.mkdir()
    assert call_as_nobody(put, lambda link: link.symlink_to(own), shared / "link")
    done = ompbind("run", *(word.format(shared) for word in options), "--", "true")
    assert done.returncode == 125
    text = " ".join(done.stderr.split())
    assert "symbolic link on its path is not safe" in text
    assert "only you can write to" in text or "choose another directory with --log-dir" in text
    assert os.listdir(own) == []


def test_own_links_and_files_in_a_shared_directory_are_used(directory):
    shared, own = make_shared(directory, "sticky"), directory / "own"
    own.mkdir()
    (shared / "link").symlink_to(own / "run.json")
    (shared / "old.json").write_text("before")
    (shared / "old.json").chmod(0o604)
    for name in ("link", "old.json"):
        write_report(prepare_report(str(shared / name)), "{}")
    assert (own / "run.json").read_text() == "{}\n"
    assert (shared / "old.json").read_text() == "{}\n"
    assert stat.S_IMODE((shared / "old.json").stat().st_mode) == 0o604


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


def test_a_file_in_place_is_not_exchanged_either(directory):
    """A file in a directory that cannot be written: its owner exchanges it for a link meanwhile."""
    precious, shared = make_precious(directory), make_shared(directory, "theirs")
    path = shared / "run.json"
    path.write_text("before")
    file = prepare_report(str(path))
    assert call_as_nobody(put, put_link, path)
    write_report(file, "{}")
    assert (precious.read_text(), path.is_symlink(), path.read_text()) == ("precious", False, "{}\n")


def pack_acl(*users):
    """Return a POSIX access control list that lets some users read and write."""
    entries = [(1, 6, -1), *((2, 6, uid) for uid in users), (4, 4, -1), (16, 6, -1), (32, 0, -1)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)


def read_all(paths):
    """Return the paths that can be read."""
    return [str(path) for path in paths if os.access(path, os.R_OK)]


@pytest.mark.parametrize("imposed", ["group", "list"])
def test_what_a_run_writes_in_a_directory_of_the_other_user_is_as_private_as_umask_says(
    ompbind, directory, imposed
):
    shared = make_shared(directory, "theirs")
    if imposed == "group":
        shared.chmod(0o2755)
    else:
        try:
            os.setxattr(shared, "system.posix_acl_default", pack_acl(NOBODY))
        except OSError as error:
            pytest.skip(f"no access control lists here: {error}")
    options = ("--log-dir", str(shared / "logs/sub"), "--report", str(shared / "run.json"))
    done = ompbind("run", "-n", "1", *options, "--", "echo", "secret", preexec_fn=lambda: os.umask(0o027))
    assert (done.returncode, done.stderr) == (0, "")
    paths = [shared / name for name in ("logs/sub/0.out", "logs/sub/0.err", "run.json", "logs", "logs/sub")]
    assert [path.stat().st_gid for path in paths] == [0] * 5
    assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o640] * 3 + [0o750] * 2
    assert call_as_nobody(read_all, paths) == []


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("how", PUTS)
def test_log_files_of_the_other_user_are_not_used(directory, how, late):
    precious, shared = make_precious(directory), make_shared(directory, "sticky")
    logs = LogDirectory(str(shared), [0], force=True) if late else None
    assert call_as_nobody(put, how, shared / "0.out")
    with pytest.raises(LaunchError, match="not a regular file|belongs to user"):
        logs.open(0, "out") if logs else LogDirectory(str(shared), [0], force=True)
    assert precious.read_text() == "precious"
    if how is put_file:
        assert (shared / "0.out").read_text() == "of the other user"


@pytest.mark.parametrize("options", [("--report", "{}/0.out"), ("--log-dir", "{}", "--force")])
def test_hard_links_in_a_shared_directory_are_refused(ompbind, directory, options):
    """The kernel lets a user make hard links to files of others if `protected_hardlinks` is 0."""
    precious, shared = make_precious(directory), make_shared(directory, "sticky")
    os.link(precious, shared / "0.out")
    done = ompbind("run", "-n", "1", *(word.format(shared) for word in options), "--", "echo", "x")
    assert done.returncode == 125
    assert "it has several names (hard links)" in " ".join(done.stderr.split())
    assert precious.read_text() == "precious"


def test_the_last_lines_of_a_rank_are_read_from_its_own_file(directory):
    shared = make_shared(directory, "open")
    logs = LogDirectory(str(shared), [0], force=False)
    os.close(logs.open(0, "err"))
    assert call_as_nobody(put, put_file, shared / "0.err")
    assert logs.read_tail(0, 100) == (b"", True)


def test_a_pipe_without_a_reader_is_waited_for_until_a_limit(start, directory):
    path = directory / "pipe"
    os.mkfifo(path)
    begun = time.monotonic()
    process = start("run", "--timeout", "0.1", "--grace", "0.5", "--report", str(path), "--", "sleep", "60")
    assert process.wait(20) == 124
    assert time.monotonic() - begun < 10
    said = " ".join(process.stderr.read().split())
    assert "no process has opened the pipe for reading in 0.5 s" in said
    assert f"start the reader first, for example: cat {path} > run.json &" in said


def test_a_pipe_whose_reader_reads_nothing_is_given_up(directory):
    path = directory / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(LaunchError, match=r"has read nothing for 0\.1 s"):
        write_report(prepare_report(str(path)), "x" * 200_000, 0.1)
    os.close(reader)


def test_a_stop_request_ends_the_wait_for_a_reader(start, directory):
    path = directory / "pipe"
    os.mkfifo(path)
    process = start("run", "--grace", "1", "--report", str(path), "--", "true")
    supervisor = supervisor_of(process)
    wait_until(lambda: not ranks_of(process), "the rank has exited")
    process.terminate()
    assert process.wait(20) != 0
    wait_until(lambda: not is_alive(supervisor), "the supervisor has exited")


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
def test_claims_of_the_other_user_cost_little(directory, texts):
    shared = make_shared(directory, "sticky")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMPBIND_RUNTIME_DIR", str(shared))
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
    assert "more" in registry.ignored
    assert used_s < 0.5
    assert peak_bytes < 4 << 20


CLONE_NEWUSER, PR_SET_DUMPABLE = 0x10000000, 4


def write_in_user_namespace(path):
    """Write a report in a new user namespace, in which only the current user has a number, 1000."""
    uid, libc = os.geteuid(), ctypes.CDLL(None)
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # a process that has changed its user may not write its map
    if libc.unshare(CLONE_NEWUSER):
        return "no user namespace"
    Path("/proc/self/uid_map").write_text(f"1000 {uid} 1")
    try:
        write_report(prepare_report(str(path)), "{}")
    except (LaunchError, RequestError) as error:
        return error.message
    return os.stat("/").st_uid


def test_links_of_root_are_followed_in_a_user_namespace(directory):
    """There, root has the number of an unknown user."""
    path = make_shared(directory, "theirs") / "run.json"
    (directory / "link").symlink_to("shared")
    result = call_as_nobody(write_in_user_namespace, directory / "link/run.json")
    if result == "no user namespace":
        pytest.skip(result)
    assert result == 65534
    assert path.read_text() == "{}\n"


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
    monkeypatch.setattr(claim_files, "LOCK_TIMEOUT_S", 0.1)
    monkeypatch.setenv("OMPBIND_RUNTIME_DIR", str(shared))
    with pytest.raises(ClaimError) as caught, Registry(Sharing.AVOID, make_run_identity("mine")):
        pass
    assert f"process {pid} of user {pwd.getpwuid(NOBODY).pw_name} has kept" in caught.value.message
    assert os.listdir(shared) == []
    finish(*other)


def test_a_claim_that_cannot_be_read_is_named(directory):
    shared = make_shared(directory, "sticky")
    path = shared / "ompbind-0-1-x.run"
    path.write_text(CLAIM)
    path.chmod(0o600)
    assert read_claim_list(str(shared)).ignored == ()  # it is not locked: removed
    path.write_text(CLAIM)
    path.chmod(0o600)
    for name in ("young", "old"):
        (shared / f"ompbind-0-1-{name}.new").touch(0o600)
    os.utime(shared / "ompbind-0-1-old.new", (1, 1))
    found = call_as_nobody(read_claim_list, str(shared))
    assert (found.runs, found.ignored) == ((), ((path.name, "Permission denied"),))
