"""Limits and unusual environments: ompbind works there too, or reports in one line what is missing."""

import errno
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.live.conftest import OMPBIND, RUNTIME_DIR, children_of, required, supervisor_of, wait_until
from tests.live.scenes import PYTHON
from tests.long import rounds

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can create such environments")


LEAVES = "setsid sleep 300 & exit 3"
"""A rank that leaves a daemon and fails."""

LEAVES_GROUP = "sleep 300 & exit 3"
"""A rank that leaves a process in its group, which can be stopped without /proc."""


class ProcessSetting(NamedTuple):
    """A command that starts ompbind, the expected exit code and message, and the script of the ranks."""

    before: str
    code: int = 3
    message: str = "exited with code 3"
    script: str = LEAVES


SHELL = "sh -c '{}; exec \"$@\"' sh"
SURROUNDINGS = {
    "standard input closed": ProcessSetting(SHELL.format("exec <&-")),
    "standard output closed": ProcessSetting(SHELL.format("exec >&-")),
    "standard error closed": ProcessSetting(SHELL.format("exec 2>&-"), message=""),
    "all closed": ProcessSetting(SHELL.format("exec <&- >&- 2>&-"), message=""),
    "a session of its own": ProcessSetting("setsid -w"),
    "no terminal, no home, little else": ProcessSetting("env -u HOME -u TERM -u USER -u LOGNAME"),
    "locale C": ProcessSetting("env LC_ALL=C"),
    "locale POSIX, without coercion by Python": ProcessSetting(
        "env LC_ALL=POSIX PYTHONCOERCECLOCALE=0 PYTHONUTF8=0"
    ),
    "a locale that does not exist": ProcessSetting("env LC_ALL=xx_YY.UTF-8"),
    "SIGCHLD ignored": ProcessSetting("env --ignore-signal=CHLD"),
    "SIGPIPE ignored": ProcessSetting("env --ignore-signal=PIPE"),
    "SIGPIPE blocked": ProcessSetting("env --block-signal=PIPE"),
    "all signals blocked": ProcessSetting("env --block-signal"),
    "all signals ignored": ProcessSetting("env --ignore-signal"),
    "no terminal and ignored hang-ups": ProcessSetting("nohup"),
    "low priority": ProcessSetting("nice -n 19"),
    "no core files": ProcessSetting("prlimit --core=0"),
    "files: 16": ProcessSetting("prlimit --nofile=16:16"),
    "files: 20": ProcessSetting("prlimit --nofile=20:20"),
    "files: 32": ProcessSetting("prlimit --nofile=32:32"),
    "files: 64": ProcessSetting("prlimit --nofile=64:64"),
    "files: 10": ProcessSetting("prlimit --nofile=10:10", 125, "Too many open files"),
}


@pytest.mark.parametrize("surroundings", SURROUNDINGS.values(), ids=SURROUNDINGS)
def test_surroundings(scene, surroundings):
    check_surroundings(scene, surroundings)


@pytest.mark.parametrize("name", [name for name in SURROUNDINGS if name.startswith(("files", "all"))])
def test_surroundings_with_many_ranks(scene, name):
    check_surroundings(scene, SURROUNDINGS[name], 24)


def check_surroundings(scene, surroundings, ranks=2):
    options = ("-n", str(ranks), "--share", "--grace", "0.3")
    before = shlex.split(surroundings.before)
    code, messages, _ = scene.run(*options, *scene.command("sh", "-c", surroundings.script), before=before)
    assert code == surroundings.code, messages
    assert surroundings.message in messages


UNSHARE = "unshare --mount sh -c '{}; exec \"$@\"' sh"
ISOLATED = {
    "pid 1 of a container": ProcessSetting("unshare --pid --fork --mount-proc"),
    "pid 1 of a container with foreign /proc": ProcessSetting("unshare --pid --fork"),
    "no /proc": ProcessSetting(UNSHARE.format("umount -l /proc"), script=LEAVES_GROUP),
    "an empty /proc": ProcessSetting(UNSHARE.format("mount -t tmpfs none /proc"), script=LEAVES_GROUP),
    "no /sys": ProcessSetting(UNSHARE.format("mount -t tmpfs none /sys")),
    "read-only root": ProcessSetting(UNSHARE.format("mount --bind / / && mount -o remount,bind,ro /")),
    "read-only /dev/shm": ProcessSetting(UNSHARE.format("mount -t tmpfs -o ro none /dev/shm")),
    "no network": ProcessSetting("unshare --net"),
}


@as_root
@pytest.mark.parametrize("surroundings", ISOLATED.values(), ids=ISOLATED)
def test_isolated_surroundings(scene, surroundings):
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode:
        pytest.skip("NOTE: no namespaces here")
    check_surroundings(scene, surroundings)


def test_an_empty_environment(scene):
    """PATH is then the default of the system; processes of the scene are found by their arguments alone."""
    empty = {RUNTIME_DIR: os.environ[RUNTIME_DIR]}
    code, messages, stdout = scene.run(*scene.command("sh", "-c", f"env; {LEAVES}"), env=empty)
    assert code == 3, messages
    assert "OMPBIND_RANK=0\n" in stdout
    assert "HOME" not in stdout


@pytest.mark.parametrize("runtime_dir", ["absolute", "relative"])
def test_a_deleted_working_directory(scene, runtime_dir):
    gone = scene.directory / "gone"
    gone.mkdir()
    env = scene.environment()
    if runtime_dir == "relative":
        env[RUNTIME_DIR] = "claims"
    script = f'cd "$1/gone"; rmdir "$1/gone"; exec {OMPBIND} run -n 2 -- sh -c "exit 3"'
    done = subprocess.run(
        ["sh", "-c", script, scene.marker, str(scene.directory)],
        env=env,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 3, done.stderr
    assert not scene.find()


@pytest.mark.parametrize("ranks", [2, 64])
@pytest.mark.parametrize("files", [16, 20, 32, 64])
def test_few_open_files(scene, files, ranks):
    """Ranks have the original limit, and inherit no file of ompbind."""
    script = "echo $(ulimit -n) $(ls /proc/self/fd)"  # 3 is the directory that ls reads
    before = ("prlimit", f"--nofile={files}:{files}")
    code, messages, stdout = scene.run(
        "-n", str(ranks), "--share", *scene.command("sh", "-c", script), before=before
    )
    assert (code, messages) == (0, "")
    assert stdout == f"{files} 0 1 2 3\n" * ranks


def test_few_open_files_and_forwarded_output(scene):
    """An error says how many files are needed."""
    before = ("prlimit", "--nofile=20:20")
    options = ("-n", "24", "--share", "--output", "tag")
    code, messages, _ = scene.run(*options, *scene.command("sh", "-c", LEAVES), before=before)
    assert code == 125
    assert "forwarding the output of all ranks needs 112 open files, 20 are allowed" in messages


def test_more_ranks_than_open_files(scene):
    """The soft limit is raised for ompbind only."""
    before = ("prlimit", "--nofile=256:4096")
    script = "[ $(ulimit -Sn)-$(ulimit -Hn) = 256-4096 ] || exit 7"
    code, messages, _ = scene.run(
        "-n", "1000", "--share", *scene.command("sh", "-c", script), before=before, timeout_s=60
    )
    assert (code, messages) == (0, "")


NOBODY = 61234 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
"""A user without other processes, different for each worker of the test run."""


@as_root
@pytest.mark.parametrize("processes", [1, 2, 3, 10])
def test_few_processes_of_a_user(scene, processes):
    capabilities = "+dac_read_search,+dac_override"  # the virtual environment may be in root's home
    before = [required("setpriv"), f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    before += [f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}"]
    if subprocess.run([*before, "true"], capture_output=True).returncode:
        assert not os.environ.get("OMPTEST_ALL"), "CI must permit capabilities"
        pytest.skip("NOTE: root lacks capabilities here, as in a container")
    check_too_many(scene, [*before, "prlimit", f"--nproc={processes}"])


PIDS = Path("/sys/fs/cgroup/pids")


@pytest.fixture
def pids_group():
    """Create a cgroup with a pids controller."""
    parent = next((path for path in (PIDS, PIDS.parent) if (path / "cgroup.procs").exists()), PIDS)
    group = parent / f"ompbind-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"NOTE: no cgroup can be created here: {error.strerror}")
    if not (group / "pids.max").exists():
        group.rmdir()
        pytest.skip("NOTE: no pids controller here")
    yield group
    wait_until(lambda: not (group / "cgroup.procs").read_text(), "the group is empty")
    group.rmdir()


@as_root
@pytest.mark.parametrize("processes", [1, 2, 3, 10])
def test_few_processes_of_a_cgroup(scene, pids_group, processes):
    (pids_group / "pids.max").write_text(str(processes))
    check_too_many(scene, ["sh", "-c", f'echo $$ >{pids_group}/cgroup.procs; exec "$@"', "sh"])


def check_too_many(scene, before):
    code, messages, _ = scene.run(
        "-n", "20", "--share", *scene.command("sh", "-c", "exec sleep 300"), before=before
    )
    assert code == 125, messages
    assert re.search("cannot start( the run)?: Resource temporarily unavailable", messages)
    assert "hint: no more processes are allowed" in messages
    assert len(re.findall("ompbind: ", messages)) == 1, messages


def test_too_long_variables(scene):
    """They fit as they are given, but not after placeholders are filled."""
    options = ("-n", "2", "--run-id", "r" * 60, "--env", "LONG=" + "{run_id}" * 2500)
    code, messages, _ = scene.run(*options, *scene.command("true"))
    assert code == 126, messages
    assert "rank 0: cannot execute" in messages
    assert "arguments and environment are too long" in messages


def test_a_thousand_ranks_and_an_interrupt(scene):
    """They start in seconds and exit in seconds; the exit code is not 0."""
    begun_at = time.monotonic()
    process = scene.begin("-n", "1000", "--share", *scene.command("sh", "-c", "exec sleep 300"))
    supervisor = supervisor_of(process)
    wait_until(lambda: len(children_of(supervisor)) == 1000, "all ranks started", 60)
    started_at = time.monotonic()
    wait_until(lambda: read_state(supervisor) == "S", "ompbind sleeps")
    memory = {pid: read_memory(pid) for pid in (process.pid, supervisor)}
    requested_at = time.monotonic()
    process.send_signal(signal.SIGINT)
    code, messages, _ = scene.end(process, 60)
    stopped_at = time.monotonic()
    start_s, stop_s = started_at - begun_at, stopped_at - requested_at
    print(f"\n1,000 ranks: started in {start_s:.2f} s, stopped in {stop_s:.2f} s, kB {memory}")
    assert code == 130
    assert "stopping ranks 0-999 with SIGINT" in messages
    assert start_s < 30
    assert stop_s < 15
    assert sum(memory.values()) < 80_000


def read_state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def read_memory(pid):
    """Return the resident memory of a process in kB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1])


def test_many_short_runs_beside_others(scene):
    """64 ranks that exit at once, again and again, while other processes use the CPUs: no run hangs."""
    busy = [subprocess.Popen([*PYTHON, "while True: pass"]) for _ in range(3)]
    try:
        for _ in range(rounds(20)):
            process = scene.begin("-n", "64", "--share", *scene.command("true"), stdout=subprocess.DEVNULL)
            _, messages = process.communicate(timeout=30)
            assert (process.returncode, messages) == (0, "")
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert not scene.find()


SANDBOX = str(Path(__file__).with_name("sandboxed.py"))
NO_BINDING = (
    sys.executable,
    SANDBOX,
    str(errno.EPERM),
    {"x86_64": "203"}.get(os.uname().machine, "122"),
    "--",
)
"""Start a command in a sandbox that refuses sched_setaffinity, as some containers do."""


@pytest.mark.parametrize("verb", ["run", "exec"])
@pytest.mark.parametrize("mask", ["none", "all"])
def test_ranks_that_need_no_binding_start_where_binding_is_refused(ompbind, verb, mask):
    options = ("-n", "2", "--share", "-s", "all") if verb == "run" and mask == "all" else ()
    done = ompbind(verb, "-m", mask, *options, "--", "sh", "-c", "echo started", before=NO_BINDING)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) == {"started"}


@pytest.mark.parametrize("verb", ["run", "exec"])
def test_where_binding_is_refused_the_hint_says_what_works(ompbind, verb):
    cpu = min(os.sched_getaffinity(0))
    done = ompbind(verb, "-m", str(cpu), "--", "true", before=NO_BINDING)
    message = " ".join(done.stderr.split())
    assert done.returncode == 125
    assert f"cannot bind to CPU {cpu}: Operation not permitted hint: sched_setaffinity is refused" in message
    assert ompbind(verb, "-m", "none", "--", "true", before=NO_BINDING).returncode == 0
