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

import pytest

from tests.live.conftest import SANDBOX, children_of, state_of, supervisor_of, wait_until
from tests.live.other_user import as_user

LEAVES = "setsid sleep 300 & exit 3"
"""A rank that leaves a daemon and fails."""

LEAVES_GROUP = "sleep 300 & exit 3"
"""A rank that leaves a process in its group, which can be stopped without /proc."""

SURROUNDINGS = """
all closed                    | sh -c 'exec <&- >&- 2>&-; exec "$@"' sh
standard input closed         | sh -c 'exec <&-; exec "$@"' sh
standard output closed        | sh -c 'exec >&-; exec "$@"' sh
little in the environment     | env -u HOME -u TERM -u USER -u LOGNAME
locale POSIX without coercion | env LC_ALL=POSIX PYTHONCOERCECLOCALE=0 PYTHONUTF8=0
a locale that does not exist  | env LC_ALL=xx_YY.UTF-8
SIGCHLD ignored               | env --ignore-signal=CHLD
all signals blocked           | env --block-signal
all signals ignored           | env --ignore-signal
files: 16                     | prlimit --nofile=16:16
"""
QUICK = ("all", "locale", "SIGCHLD", "little", "files: 16")


def surroundings(text, quick=()):
    for line in text.strip().splitlines():
        name, _, command = line.partition("|")
        is_long = quick and not name.startswith(quick)
        yield pytest.param(command.strip(), id=name.strip(), marks=[pytest.mark.long] * bool(is_long))


@pytest.mark.parametrize("command", [*surroundings(SURROUNDINGS, QUICK)])
@pytest.mark.parametrize("ranks", [2, pytest.param(24, marks=pytest.mark.long)])
def test_surroundings(scene, command, ranks):
    if "PYTHONUTF8=0" in command and not sys.prefix.isascii():
        pytest.skip("needs an environment at an ASCII path: else Python does not start in this locale")
    check_surroundings(scene, command, ranks)


def check_surroundings(scene, before, ranks=2, script=LEAVES):
    options = ("-n", str(ranks), "--share", "--grace", "0.1")
    code, messages, _ = scene.run(*options, *scene.command("sh", "-c", script), before=shlex.split(before))
    assert code == 3, messages
    assert "exited with code 3" in messages or "2>&-" in before


ISOLATED = """
pid 1 of a container                | unshare --pid --fork --mount-proc
pid 1 with foreign /proc            | unshare --pid --fork
no /proc                            | unshare --mount sh -c 'umount -l /proc; exec "$@"' sh
an empty /proc                      | unshare --mount sh -c 'mount -t tmpfs none /proc; exec "$@"' sh
no /sys                             | unshare --mount sh -c 'mount -t tmpfs none /sys; exec "$@"' sh
read-only root        | unshare --mount sh -c 'mount --bind / / && mount -o remount,bind,ro /; exec "$@"' sh
list of lxcfs         | unshare --mount env -C /sys/devices/system/cpu \
    sh -c 'mount --bind cpu0/topology/core_id online; exec taskset -c 1 "$@"' sh
read-only /dev/shm    | unshare --mount sh -c 'mount -t tmpfs -o ro none /dev/shm; exec "$@"' sh
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can create such environments")
@pytest.mark.parametrize("command", [*surroundings(ISOLATED)])
def test_isolated_surroundings(scene, command):
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode:
        pytest.skip("needs namespaces, which takes root or user namespaces")
    script = LEAVES_GROUP if re.search("(umount|tmpfs).* /proc", command) else LEAVES
    check_surroundings(scene, command, script=script)


@pytest.mark.no_quota
@pytest.mark.parametrize("limits", ["16:16", pytest.param("20:20", marks=pytest.mark.long), "64:4096"])
def test_few_open_files(scene, limits):
    """Ranks have the original limits, also if ompbind raises its own, and inherit no file of ompbind."""
    script = "echo $(ulimit -Sn):$(ulimit -Hn) $(ls /proc/self/fd)"  # 3 is the directory that ls reads
    words = ("-n", "64", "--share", *scene.command("sh", "-c", script))
    code, messages, stdout = scene.run(*words, before=("prlimit", f"--nofile={limits}"))
    assert (code, messages, stdout) == (0, "", f"{limits} 0 1 2 3\n" * 64)


@pytest.mark.parametrize(("files", "options", "message"), [
    (10, (), "Too many open files"),
    (20, ("--output", "tag"), "forwarding the output of all ranks needs 112 open files, 20 are allowed"),
])  # fmt: skip
def test_too_few_open_files_are_an_error(scene, files, options, message):
    # Python reads the script: a shell that pip's script may start with needs more files
    before = ("prlimit", f"--nofile={files}:{files}", sys.executable)
    options = ("-n", "24", "--share", *options)
    code, messages, _ = scene.run(*options, *scene.command("sh", "-c", LEAVES), before=before)
    assert (code, message in messages) == (125, True), messages


OTHER_USER = 61234 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
"""A user without other processes, different for each worker of the test run."""


@pytest.mark.no_quota
@pytest.mark.parametrize(("processes", "left"), [(1, 0), (3, 2), (10, 9)])
def test_few_processes_of_a_user(scene, public, public_ompbind, monkeypatch, processes, left):
    monkeypatch.setenv("OMPBIND_RUNTIME_DIR", str(public))
    command = scene.command("sh", "-c", "exec sleep 300")
    how = {"before": [*as_user(OTHER_USER), "prlimit", f"--nproc={processes}"], "program": public_ompbind}
    code, messages, _ = scene.run("-n", "20", "--share", *command, cwd="/", **how)
    assert code == 125, messages
    assert re.search("cannot start( the run)?: Resource temporarily unavailable", messages)
    assert "hint: no more processes are allowed" in messages
    limit = f"of user {OTHER_USER} leaves {left} of {processes} processes and threads; programs will fail"
    assert limit in messages
    assert re.findall("ompbind: (warning)?", messages) == ["warning", ""], messages


@pytest.mark.parametrize("ranks", [200, pytest.param(1000, marks=pytest.mark.long)])
def test_many_ranks_and_an_interrupt(scene, ranks):
    begun_at = time.monotonic()
    process = scene.begin("-n", str(ranks), "--share", *scene.command("sh", "-c", "exec sleep 300"))
    supervisor = supervisor_of(process)
    wait_until(lambda: len(children_of(supervisor)) == ranks, "all ranks started", 60)
    started_at = time.monotonic()
    wait_until(lambda: state_of(supervisor) == "S", "ompbind sleeps")
    status = "".join(Path(f"/proc/{pid}/status").read_text() for pid in (process.pid, supervisor))
    requested_at = time.monotonic()
    process.send_signal(signal.SIGINT)
    code, messages, _ = scene.end(process, 60)
    assert (code, f"stopping ranks 0-{ranks - 1} with SIGINT" in messages) == (130, True)
    assert started_at - begun_at < 30
    assert time.monotonic() - requested_at < 15
    assert sum(map(int, re.findall(r"VmRSS:\s+(\d+) kB", status))) < 80_000


SET_AFFINITY = {"x86_64": "203"}.get(os.uname().machine, "122")
NO_BINDING = (sys.executable, SANDBOX, str(errno.EPERM), SET_AFFINITY, "--")
"""Start a command in a sandbox that refuses sched_setaffinity, as some containers do."""


@pytest.mark.two_cpus
@pytest.mark.parametrize("verb", ["run", "exec"])
def test_where_binding_is_refused_the_hint_says_what_works(ompbind, verb):
    cpu = min(os.sched_getaffinity(0))
    done = ompbind(verb, "-m", str(cpu), "--", "true", before=NO_BINDING)
    assert done.returncode == 125
    message = " ".join(done.stderr.split())
    assert f"cannot bind to CPU {cpu}: Operation not permitted hint: sched_setaffinity is refused" in message
    for mask in ("none", "all"):
        options = ("-n", "2", "--share", "-s", "all") if verb == "run" and mask == "all" else ()
        done = ompbind(verb, "-m", mask, *options, "--", "sh", "-c", "echo started", before=NO_BINDING)
        assert (done.returncode, done.stderr, {*done.stdout.split()}) == (0, "", {"started"})
