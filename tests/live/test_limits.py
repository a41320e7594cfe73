"""Limits and odd surroundings: ompbind works there as well, or says in one line what it lacks."""

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.live.conftest import OMPBIND, RUNTIME_DIR, children_of, keeper_of, required, wait_until
from tests.live.scenes import PYTHON, Scene
from tests.long import rounds

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make such surroundings")


@pytest.fixture
def scene(tmp_path):
    one = Scene(tmp_path)
    yield one
    one.close()


LEAVES = "setsid sleep 300 & exit 3"
"""A rank that leaves a daemon and fails."""

LEAVES_GROUP = "sleep 300 & exit 3"
"""One that leaves a process in its group, which can be ended also where nobody tells of processes."""


class Place(NamedTuple):
    """A command that starts ompbind, what ranks do there, and how they must end."""

    before: str
    code: int = 3
    told: str = "exited with 3"
    script: str = LEAVES


SHELL = "sh -c '{}; exec \"$@\"' sh"
PLACES = {
    "standard input closed": Place(SHELL.format("exec <&-")),
    "standard output closed": Place(SHELL.format("exec >&-")),
    "standard error closed": Place(SHELL.format("exec 2>&-"), told=""),
    "all closed": Place(SHELL.format("exec <&- >&- 2>&-"), told=""),
    "a session of its own": Place("setsid -w"),
    "no terminal, no home, little else": Place("env -u HOME -u TERM -u USER -u LOGNAME"),
    "locale C": Place("env LC_ALL=C"),
    "locale POSIX, and Python does not repair it": Place(
        "env LC_ALL=POSIX PYTHONCOERCECLOCALE=0 PYTHONUTF8=0"
    ),
    "a locale that there is not": Place("env LC_ALL=xx_YY.UTF-8"),
    "SIGCHLD ignored": Place("env --ignore-signal=CHLD"),
    "SIGPIPE ignored": Place("env --ignore-signal=PIPE"),
    "SIGPIPE blocked": Place("env --block-signal=PIPE"),
    "all signals blocked": Place("env --block-signal"),
    "all signals ignored": Place("env --ignore-signal"),
    "no terminal and ignored hang-ups": Place("nohup"),
    "low priority": Place("nice -n 19"),
    "no core files": Place("prlimit --core=0"),
    "files: 16": Place("prlimit --nofile=16:16"),
    "files: 20": Place("prlimit --nofile=20:20"),
    "files: 32": Place("prlimit --nofile=32:32"),
    "files: 64": Place("prlimit --nofile=64:64"),
    "files: 10": Place("prlimit --nofile=10:10", 125, "Too many open files"),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_places(scene, place):
    check_place(scene, place)


@pytest.mark.parametrize("name", [name for name in PLACES if name.startswith(("files", "all"))])
def test_places_with_many_ranks(scene, name):
    check_place(scene, PLACES[name], 24)


def check_place(scene, place, ranks=2):
    options = ("-n", str(ranks), "--share", "--grace", "0.3")
    before = shlex.split(place.before)
    code, said, _ = scene.run(*options, *scene.command("sh", "-c", place.script), before=before)
    assert code == place.code, said
    assert place.told in said


UNSHARE = "unshare --mount sh -c '{}; exec \"$@\"' sh"
ISOLATED = {
    "pid 1 of a container": Place("unshare --pid --fork --mount-proc"),
    "pid 1 of a container with foreign /proc": Place("unshare --pid --fork"),
    "no /proc": Place(UNSHARE.format("umount -l /proc"), script=LEAVES_GROUP),
    "an empty /proc": Place(UNSHARE.format("mount -t tmpfs none /proc"), script=LEAVES_GROUP),
    "no /sys": Place(UNSHARE.format("mount -t tmpfs none /sys")),
    "read-only root": Place(UNSHARE.format("mount --bind / / && mount -o remount,bind,ro /")),
    "read-only /dev/shm": Place(UNSHARE.format("mount -t tmpfs -o ro none /dev/shm")),
    "no network": Place("unshare --net"),
}


@as_root
@pytest.mark.parametrize("place", ISOLATED.values(), ids=ISOLATED)
def test_isolated_places(scene, place):
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode:
        pytest.skip("NOTE: no namespaces here")
    check_place(scene, place)


def test_an_empty_environment(scene):
    """PATH is that of the system then; arguments alone tell the processes of the scene."""
    empty = {RUNTIME_DIR: os.environ[RUNTIME_DIR]}
    code, said, told = scene.run(*scene.command("sh", "-c", f"env; {LEAVES}"), env=empty)
    assert code == 3, said
    assert "OMPBIND_RANK=0\n" in told
    assert "HOME" not in told


@pytest.mark.parametrize("folder", ["absolute", "relative"])
def test_a_working_directory_that_is_gone(scene, folder):
    gone = scene.folder / "gone"
    gone.mkdir()
    env = scene.environment()
    if folder == "relative":
        env[RUNTIME_DIR] = "claims"
    script = f'cd "$1/gone"; rmdir "$1/gone"; exec {OMPBIND} run -n 2 -- sh -c "exit 3"'
    done = subprocess.run(
        ["sh", "-c", script, scene.word, str(scene.folder)],
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
    """Ranks have the limit that was there, and nothing of ompbind's is open in them."""
    script = "echo $(ulimit -n) $(ls /proc/self/fd)"  # of which 3 is what ls reads
    before = ("prlimit", f"--nofile={files}:{files}")
    code, said, told = scene.run(
        "-n", str(ranks), "--share", *scene.command("sh", "-c", script), before=before
    )
    assert (code, said) == (0, "")
    assert told == f"{files} 0 1 2 3\n" * ranks


def test_few_open_files_and_output_through_ompbind(scene):
    """What needs more than there are says so, and how many."""
    before = ("prlimit", "--nofile=20:20")
    options = ("-n", "24", "--share", "--output", "tag")
    code, said, _ = scene.run(*options, *scene.command("sh", "-c", LEAVES), before=before)
    assert code == 125
    assert "carrying the output of all ranks takes 112 open files, and 20 are allowed" in said


def test_more_ranks_than_open_files(scene):
    """The soft limit is raised for ompbind alone."""
    before = ("prlimit", "--nofile=256:4096")
    script = "[ $(ulimit -Sn)-$(ulimit -Hn) = 256-4096 ] || exit 7"
    code, said, _ = scene.run(
        "-n", "1000", "--share", *scene.command("sh", "-c", script), before=before, timeout_s=60
    )
    assert (code, said) == (0, "")


NOBODY = 61234 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
"""A user who has no other processes, of other workers neither."""


@as_root
@pytest.mark.parametrize("processes", [1, 2, 3, 10])
def test_few_processes_of_a_user(scene, processes):
    capabilities = "+dac_read_search,+dac_override"  # the virtual environment may be in root's home
    before = [required("setpriv"), f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    before += [f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}"]
    check_too_many(scene, [*before, "prlimit", f"--nproc={processes}"])


PIDS = Path("/sys/fs/cgroup/pids")


@pytest.fixture
def pids_group():
    """A control group of its own for the number of processes."""
    folder = next((one for one in (PIDS, PIDS.parent) if (one / "cgroup.procs").exists()), PIDS)
    group = folder / f"ompbind-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"NOTE: no control groups to be made here: {error.strerror}")
    if not (group / "pids.max").exists():
        group.rmdir()
        pytest.skip("NOTE: no control groups for numbers of processes here")
    yield group
    wait_until(lambda: not (group / "cgroup.procs").read_text(), "the group is empty")
    group.rmdir()


@as_root
@pytest.mark.parametrize("processes", [1, 2, 3, 10])
def test_few_processes_of_a_control_group(scene, pids_group, processes):
    (pids_group / "pids.max").write_text(str(processes))
    check_too_many(scene, ["sh", "-c", f'echo $$ >{pids_group}/cgroup.procs; exec "$@"', "sh"])


def check_too_many(scene, before):
    code, said, _ = scene.run(
        "-n", "20", "--share", *scene.command("sh", "-c", "exec sleep 300"), before=before
    )
    assert code == 125, said
    assert re.search("could not be started: Resource temporarily unavailable", said)
    assert "hint: the system allows no more processes" in said
    assert len(re.findall("ompbind: ", said)) == 1, said


def test_too_long_variables(scene):
    """They fit when they are given, and not when they are filled."""
    options = ("-n", "2", "--run-id", "r" * 60, "--env", "LONG=" + "{run_id}" * 2500)
    code, said, _ = scene.run(*options, *scene.command("true"))
    assert code == 126, said
    assert "rank 0: cannot execute" in said
    assert "arguments and environment are too long" in said


def test_a_thousand_ranks_and_an_interrupt(scene):
    """They start in seconds and end in seconds; nobody's code is 0."""
    begun = time.monotonic()
    process = scene.begin("-n", "1000", "--share", *scene.command("sh", "-c", "exec sleep 300"))
    supervisor = keeper_of(process)
    wait_until(lambda: len(children_of(supervisor)) == 1000, "all ranks started", 60)
    started = time.monotonic()
    wait_until(lambda: read_state(supervisor) == "S", "ompbind at rest")
    memory = {pid: read_memory(pid) for pid in (process.pid, supervisor)}
    asked = time.monotonic()
    process.send_signal(signal.SIGINT)
    code, said, _ = scene.end(process, 60)
    ended = time.monotonic()
    print(f"\n1,000 ranks: started in {started - begun:.2f} s, ended in {ended - asked:.2f} s, kB {memory}")
    assert code == 130
    assert "stopping ranks 0-999 with SIGINT" in said
    assert started - begun < 30
    assert ended - asked < 15
    assert sum(memory.values()) < 80_000


def read_state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def read_memory(pid):
    """The resident memory of a process, in kB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1])


def test_many_short_runs_beside_others(scene):
    """64 ranks that end at once, again and again, while others take the CPUs: no run hangs."""
    spin = [subprocess.Popen([*PYTHON, "while True: pass"]) for _ in range(3)]
    try:
        for _ in range(rounds(20)):
            process = scene.begin("-n", "64", "--share", *scene.command("true"), stdout=subprocess.DEVNULL)
            _, said = process.communicate(timeout=30)
            assert (process.returncode, said) == (0, "")
    finally:
        for one in spin:
            one.kill()
            one.wait()
    assert not scene.find()
