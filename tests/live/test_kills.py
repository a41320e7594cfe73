"""Kills and signals at any moment: no process of any rank is left, and the exit code is never a false 0.

The moments are spread evenly from the start of ompbind to some time after all ranks run; how long that takes
is measured first. OMPTEST_FAULT_ROUNDS=10 tests ten times as many moments.
"""

import fcntl
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.live.conftest import RUNTIME_DIR, SANDBOX, children_of, supervisor_of, wait_until
from tests.long import rounds

FAMILY = "setsid sleep 300 & (sleep 300 & sleep 300) & sleep 300 & wait"
"""A rank with children, grandchildren and a daemon."""

BARE = "exec sleep 300"

pytestmark = pytest.mark.usefixtures("stranger")


def begin(scene, ranks, script, more=(), **extra):
    return scene.begin("-n", str(ranks), "--share", *more, *scene.command("sh", "-c", script), **extra)


def measure(scene, ranks, start=None):
    """Return the seconds from the start of ompbind until all ranks run; `start` starts a run for a scene."""
    begun = time.monotonic()
    process = start(scene) if start else begin(scene, ranks, BARE)
    supervisor = supervisor_of(process)
    wait_until(lambda: len(children_of(supervisor)) >= ranks, "all ranks started")
    took = time.monotonic() - begun
    process.kill()
    process.communicate(timeout=20)
    scene.check_nothing_left("measuring")
    return took


def moments(scene, ranks, times, start=None):
    """Return seconds after the start at which to send a signal: from 0 to 1.5 times the time to start."""
    longest = measure(scene, ranks, start) * 1.5 + 0.03
    return [longest * step / times for step in range(times)]


def wait_for_supervisor(process):
    """Return the supervisor as soon as it exists, without sleeping: its first moments are tested."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if children := children_of(process.pid):
            return children[0]
    raise AssertionError("no supervisor in 20 s")


def check_kill(scene, victim, moment, process):
    """Kill a process of ompbind, or request a stop, some time after its start; nothing may be left."""
    supervisor = wait_for_supervisor(process) if victim == "supervisor" else None
    time.sleep(moment)
    if supervisor:
        os.kill(supervisor, signal.SIGKILL)
        code, messages, _ = scene.end(process)
        assert code == 125, messages
        assert f"the supervisor (pid {supervisor}) was killed by SIGKILL" in messages
        return
    send = os.killpg if victim == "group" else os.kill
    send(process.pid, signal.SIGTERM if victim == "signal" else signal.SIGKILL)
    assert process.wait(20) in ((143, -15) if victim == "signal" else (-9,))
    scene.check_nothing_left(f"{victim} {moment * 1000:.1f} ms after the start of ompbind")


WRITES = "setsid sleep 300 & while :; do echo words; echo more >&2; done"
"""A rank that writes all the time and has a daemon."""


@pytest.mark.parametrize(("victim", "ranks", "script", "times", "options"), [
    ("foreground", 1, FAMILY, 40, ""), ("foreground", 8, FAMILY, 20, ""), ("foreground", 64, BARE, 6, ""),
    ("supervisor", 1, FAMILY, 12, ""), ("supervisor", 8, FAMILY, 6, ""), ("group", 2, FAMILY, 20, ""),
    ("foreground", 2, WRITES, 4, "--output tag"), ("supervisor", 2, WRITES, 4, "--log-dir {}/logs --force"),
    ("supervisor", 2, WRITES, 4, "--output tag --pty"),
    pytest.param("foreground", 2, WRITES, 4, "--output tag --pty", marks=pytest.mark.long),
    pytest.param("foreground", 64, FAMILY, 6, "", marks=pytest.mark.long),
])  # fmt: skip
def test_killed_at_any_moment(scene, victim, ranks, script, times, options):
    """The supervisor leaves the process group before it starts a rank."""
    more = options.format(scene.directory).split()
    for moment in moments(scene, ranks, rounds(times)):
        process = begin(scene, ranks, script, more, process_group=0, stdout=subprocess.DEVNULL)
        check_kill(scene, victim, moment, process)


OURS = re.compile(r"""File "[^"]*/ompbind/([a-z]+/)*[a-z]\w*[.]py\"""")
"""A line of a traceback from a module of ompbind, not from the start of Python before its import."""

OF_PYTHON = ("Fatal Python error", "failed to set __main__.__loader__")
"""Messages of a Python that an interrupt stops before it executes the script."""

ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def check_signalled(number, process):
    """Check that a signal ends the run at once.

    Before ompbind runs, Python handles an interrupt: it exits with code 1, or loses the interrupt.
    """
    is_lost = False
    try:
        _, messages = process.communicate(timeout=8)
    except subprocess.TimeoutExpired:
        is_lost = True
        process.terminate()
        _, messages = process.communicate(timeout=20)
    assert not OURS.search(messages), messages
    if is_lost:
        assert number == signal.SIGINT
        assert "KeyboardInterrupt" in messages, f"{number.name} was lost: {messages}"
    elif number == signal.SIGINT and any(text in messages for text in OF_PYTHON):
        assert process.returncode == 1, messages
    else:
        assert process.returncode in (128 + number, -number), messages


@pytest.mark.parametrize(("number", "ranks", "times"), [
    (signal.SIGTERM, 1, 20), (signal.SIGINT, 8, 12),
    *(pytest.param(number, 1, 20, marks=pytest.mark.long) for number in ENDS),
    *(pytest.param(number, 8, 10, marks=pytest.mark.long) for number in ENDS),
])  # fmt: skip
@pytest.mark.parametrize("is_group", [False, True])
def test_signals_during_the_start(scene, number, ranks, times, is_group):
    """The exit code is that of the signal, even if no rank was started. A terminal signals a whole group."""
    for moment in moments(scene, ranks, rounds(times)):
        process = begin(scene, ranks, BARE, process_group=0)
        time.sleep(moment)
        (os.killpg if is_group else os.kill)(process.pid, number)
        check_signalled(number, process)
        scene.check_nothing_left(f"{number.name} after {moment * 1000:.1f} ms")


STOP = [signal.SIGTERM, signal.SIGKILL]


@pytest.mark.parametrize(("names", "numbers", "script"), [
    ("0 1 2 3", STOP, "trap '' TERM; touch \"$1/$RANK\"; while :; do sleep 0.05; done"),
    ("0 1 2 3", STOP, "setsid sh -c 'kill -STOP $$' & touch \"$1/$RANK\"; kill -STOP $$"),
    ("0 1 2 3", STOP,
     'for i in $(seq 16); do env -i setsid sh -c "sleep 300; :" $0 & done; touch "$1/$RANK"; sleep 300'),
    ("0-0 0-1 1-0 1-1", [signal.SIGKILL],
     'exec ompbind run --share -n 2 -- sh -c "setsid sleep 300 & touch $1/$RANK-\\$RANK; sleep 300" $0'),
], ids=["ignore signals", "stopped ranks and daemons", "bare daemons", "inner run"])  # fmt: skip
def test_foreground_killed_after_a_request_to_stop_or_around_a_run(scene, names, numbers, script):
    process = begin(scene, 4 if numbers is STOP else 2, script)
    scene.wait_for(*names.split())
    for number in numbers:
        process.send_signal(number)
    process.wait()
    scene.check_nothing_left("SIGKILL", within_s=4)


@pytest.fixture
def full():
    reader, writer = os.pipe()
    os.write(writer, b"x" * fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ))
    yield writer
    os.close(reader)
    os.close(writer)


@pytest.mark.no_quota
@pytest.mark.parametrize(("exits", "options", "number", "code"), [
    (True, (), signal.SIGTERM, 3), (True, ("--output", "tag"), signal.SIGINT, 3),
    (True, (), signal.SIGKILL, -9), (False, (), signal.SIGTERM, 143),
    (False, ("--output", "tag"), signal.SIGINT, 130), (False, ("--timeout", "0.3"), 0, 124),
])  # fmt: skip
def test_readers_that_do_not_read(scene, full, exits, options, number, code):
    """After all ranks have exited, ompbind waits for a reader; one request to stop is always enough."""
    fails = f'[ $RANK = 0 ] && {BARE}; while [ ! -e "$1/0" ]; do sleep 0.02; done; exit 3'
    script = f'setsid sleep 300 & touch "$1/$RANK"; {fails if exits else BARE}'
    process = begin(scene, 2, script, ("--grace", "0.3", *options), stdout=full, stderr=full)
    supervisor = supervisor_of(process)
    scene.wait_for("0", "1")
    if exits:
        wait_until(lambda: set(scene.find()) == {process.pid, supervisor}, "only ompbind is left")
        time.sleep(0.1)
        assert process.poll() is None
    process.send_signal(number)
    assert process.wait(20) == code
    scene.check_nothing_left("a signal, with a full pipe")


RENAME = 264 if os.uname().machine == "x86_64" else 38
"""The number of renameat: who calls it has a file with a name that it means to remove."""

KILLED_AT = {
    "the claim of a run": ({}, ".new"), "the report of a run": ({RUNTIME_DIR: "/no/such"}, ".tmp"),
}  # fmt: skip


@pytest.mark.parametrize("moment", KILLED_AT)
def test_the_next_run_removes_files_that_a_killed_run_has_left(ompbind, claims, tmp_path, moment):
    env, end = KILLED_AT[moment]

    def list_files():
        own = [*tmp_path.iterdir(), *claims.iterdir()]
        return sorted(name for path in own if "ompbind-" in (name := path.name))

    words = ("run", "-n", "1", "--report", "run.json", "--", "true")
    ompbind(*words, before=(sys.executable, SANDBOX, "kill", str(RENAME), "--"), env=env, cwd=tmp_path)
    (left,) = list_files()
    assert left.endswith(end)
    assert ompbind(*words, cwd=tmp_path).returncode == 0
    assert list_files() == []
