"""Kills and signals at any moment: no process of any rank is left, and the exit code is never a false 0.

The moments are spread evenly from the start of ompbind to some time after all ranks run; how long that takes
is measured first. OMPTEST_FAULT_ROUNDS=10 tests ten times as many moments.
"""

import contextlib
import ctypes
import fcntl
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.live.conftest import (
    OMPBIND,
    children_of,
    clean_environment,
    is_alive,
    required,
    state_of,
    supervisor_of,
    wait_until,
)
from tests.live.scenes import PYTHON
from tests.long import rounds

FAMILY = "setsid sleep 300 & (sleep 300 & sleep 300) & sleep 300 & wait"
"""A rank with children, grandchildren and a daemon."""

BARE = "exec sleep 300"


pytestmark = pytest.mark.usefixtures("stranger")


def options(ranks):
    return ("-n", str(ranks), "--share")


def begin(scene, ranks, script, more=(), **extra):
    return scene.begin(*options(ranks), *more, *scene.command("sh", "-c", script), **extra)


def measure(scene, ranks):
    """Return the seconds from the start of ompbind until all ranks run."""
    begun = time.monotonic()
    process = begin(scene, ranks, "exec sleep 300")
    supervisor = supervisor_of(process)
    wait_until(lambda: len(children_of(supervisor)) >= ranks, "all ranks started")
    took = time.monotonic() - begun
    process.kill()
    finish(process)
    scene.check_nothing_left("measuring")
    return took


def moments(scene, ranks, times):
    """Return seconds after the start at which to send a signal: from 0 to 1.5 times the time to start."""
    longest = measure(scene, ranks) * 1.5 + 0.03
    return [longest * step / times for step in range(times)]


def sleep_from(begun, moment_s):
    time.sleep(max(0.0, begun + moment_s - time.monotonic()))


def finish(process):
    """Wait for a process that is about to exit; returns its exit code and its messages."""
    _, messages = process.communicate(timeout=20)
    return process.returncode, messages


@pytest.mark.parametrize(
    ("ranks", "script", "times"),
    [(1, FAMILY, 60), (1, BARE, 60), (2, BARE, 40), (8, FAMILY, 30), (64, FAMILY, 6), (64, BARE, 8)],
    ids=["1 family", "1", "2", "8 families", "64 families", "64"],
)
def test_foreground_killed(scene, ranks, script, times):
    for moment in moments(scene, ranks, rounds(times)):
        begun = time.monotonic()
        process = begin(scene, ranks, script, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        sleep_from(begun, moment)
        process.kill()
        assert process.wait(20) == -signal.SIGKILL
        scene.check_nothing_left(f"SIGKILL of ompbind {moment * 1000:.1f} ms after its start")


@pytest.mark.parametrize(
    ("ranks", "script", "times"),
    [(1, FAMILY, 12), (2, BARE, 12), (8, FAMILY, 6), (64, BARE, 4)],
    ids=["1 family", "2", "8 families", "64"],
)
def test_supervisor_killed(scene, ranks, script, times):
    longest = measure(scene, ranks) + 0.02
    for step in range(rounds(times)):
        moment = longest * step / rounds(times)
        process = begin(scene, ranks, script)
        supervisor = wait_for_supervisor(process)
        begun = time.monotonic()
        sleep_from(begun, moment)
        os.kill(supervisor, signal.SIGKILL)
        code, messages, _ = scene.end(process)
        assert code == 125, messages
        assert f"the supervisor (pid {supervisor}) was killed by SIGKILL" in messages


def wait_for_supervisor(process):
    """Return the supervisor as soon as it exists, without sleeping: its first moments are tested."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if children := children_of(process.pid):
            return children[0]
    raise AssertionError("no supervisor in 20 s")


def test_supervisor_killed_before_the_foreground_has_run(scene):
    """The ranks are its children by then; they are killed all the same."""
    for _ in range(rounds(10)):
        process = begin(scene, 2, FAMILY)
        supervisor = wait_for_supervisor(process)
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda supervisor=supervisor: len(children_of(supervisor)) >= 2, "all ranks started")
        os.kill(supervisor, signal.SIGKILL)
        wait_until(lambda supervisor=supervisor: not is_alive(supervisor), "the supervisor exited")
        process.send_signal(signal.SIGCONT)
        assert scene.end(process)[0] == 125


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_to_the_foreground_before_it_notices_that_the_supervisor_was_killed(scene, number):
    process = begin(scene, 2, FAMILY)
    supervisor = supervisor_of(process)
    wait_until(lambda: len(children_of(supervisor)) >= 2, "all ranks started")
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: state_of(process.pid) == "T", "the foreground process stopped")
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: not is_alive(supervisor), "the supervisor exited")
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    code, messages, _ = scene.end(process)
    assert code == 125, messages
    scene.check_nothing_left(f"SIGKILL of the supervisor and {number.name}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_to_the_foreground_while_it_kills_the_ranks_of_a_killed_supervisor(scene, number):
    for step in range(rounds(6)):
        process = begin(scene, 32, FAMILY)
        supervisor = supervisor_of(process)
        wait_until(lambda supervisor=supervisor: len(children_of(supervisor)) >= 32, "all ranks started")
        os.kill(supervisor, signal.SIGKILL)
        time.sleep(step * 0.001)
        process.send_signal(number)
        code, messages, _ = scene.end(process)
        assert code == 125, messages
        scene.check_nothing_left(f"SIGKILL of the supervisor and {number.name}")


OURS = re.compile(r"""File "[^"]*/ompbind/([a-z]+/)*[a-z]\w*[.]py\"""")
"""A line of a traceback from a module of ompbind, not from the start of Python before its import."""

OF_PYTHON = ("Fatal Python error", "failed to set __main__.__loader__")
"""Messages of a Python that an interrupt stops before it executes the script."""

CODES = {
    signal.SIGTERM: (143, -15),
    signal.SIGINT: (130, -2),
    signal.SIGHUP: (129, -1),
    signal.SIGQUIT: (131, -3),
}


def check_signalled(number, process):
    """Check that a signal ends the run at once.

    Before ompbind runs, Python handles an interrupt: it exits with code 1, or loses the interrupt.
    """
    try:
        code = process.wait(8)
    except subprocess.TimeoutExpired:
        process.terminate()
        _, messages = finish(process)
        assert number == signal.SIGINT
        assert "KeyboardInterrupt" in messages, f"{number.name} was lost: {messages}"
        assert not OURS.search(messages), messages
        return
    _, messages = finish(process)
    if number == signal.SIGINT and any(text in messages for text in OF_PYTHON):
        assert code == 1, messages
        return
    assert not OURS.search(messages), messages
    assert code in CODES[number], (code, messages)


@pytest.mark.parametrize("action", [signal.SIG_DFL, signal.SIG_IGN])
def test_an_interrupt_has_its_inherited_action_before_modules_are_imported(tmp_path, action):
    """A package of the same name shows what the script has done before it imports ompbind."""
    (tmp_path / "ompbind").mkdir()
    show = "import _signal\nprint(_signal.getsignal(_signal.SIGINT))\nraise SystemExit"
    (tmp_path / "ompbind/__init__.py").write_text(show)
    done = subprocess.run(
        [OMPBIND],
        env=clean_environment(PYTHONPATH=str(tmp_path)),
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, action),
    )
    assert done.stdout.strip() == str(int(action)), done.stderr


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
@pytest.mark.parametrize(("ranks", "times"), [(1, 20), (8, 6)])
def test_signals_during_the_start(scene, number, ranks, times):
    """The exit code is that of the signal, even if no rank was started."""
    for moment in moments(scene, ranks, rounds(times)):
        begun = time.monotonic()
        process = begin(scene, ranks, BARE)
        sleep_from(begun, moment)
        process.send_signal(number)
        check_signalled(number, process)
        scene.check_nothing_left(f"{number.name} after {moment * 1000:.1f} ms")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_to_all_of_a_group_during_the_start(scene, number):
    """As a terminal and `timeout` send them."""
    for moment in moments(scene, 2, rounds(12)):
        begun = time.monotonic()
        process = begin(scene, 2, BARE, process_group=0)
        sleep_from(begun, moment)
        os.killpg(process.pid, number)
        check_signalled(number, process)
        scene.check_nothing_left(f"{number.name} after {moment * 1000:.1f} ms")


def test_signals_around_the_end(scene):
    """A run that is about to finish succeeds or is stopped by the signal; no process is left either way."""
    begun = time.monotonic()
    scene.run("-n", "2", *scene.command("true"))
    longest = (time.monotonic() - begun) * 1.2
    times = rounds(15)
    for step in range(times):
        process = scene.begin("-n", "2", *scene.command("true"))
        time.sleep(longest * step / times)
        process.terminate()
        code, messages, _ = scene.end(process)
        assert code in (0, 143, -15), messages


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_although_the_pipe_to_the_supervisor_is_full(scene, number):
    """As after hundreds of thousands of other signals, while the supervisor is stopped."""
    process = begin(scene, 2, f'touch "$1/$RANK"; {BARE}')
    supervisor = supervisor_of(process)
    scene.wait_for("0", "1")
    os.kill(supervisor, signal.SIGSTOP)
    wait_until(lambda: state_of(supervisor) == "T", "the supervisor stopped")
    fill(process.pid, bytes((signal.SIGWINCH,)))
    process.send_signal(number)
    time.sleep(0.1)
    os.kill(supervisor, signal.SIGCONT)
    code, messages, _ = scene.end(process)
    assert code == 128 + number, messages
    assert f"stopping ranks 0-1 with {number.name}" in messages


def fill(pid, byte):
    """Fill the only pipe that a process has besides its standard files."""
    directory = f"/proc/{pid}/fd"
    others = [name for name in os.listdir(directory) if int(name) > 2]
    (path,) = {
        f"{directory}/{name}" for name in others if os.readlink(f"{directory}/{name}").startswith("pipe:")
    }
    pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, byte)
    os.close(pipe)


def test_foreground_stopped_for_a_moment(scene):
    """It handles all events that came while it was stopped."""
    for moment in moments(scene, 2, rounds(8)):
        begun = time.monotonic()
        process = scene.begin(*options(2), *scene.command("sh", "-c", "sleep 0.05; exit 3"))
        sleep_from(begun, moment)
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.02)
        process.send_signal(signal.SIGCONT)
        assert scene.end(process)[0] == 3


def test_foreground_killed_while_ranks_that_ignore_sigterm_are_stopped(scene):
    """Ranks are killed at once, without a grace period."""
    script = "trap '' TERM; touch \"$1/$RANK\"; while :; do sleep 0.05; done"
    process = begin(scene, 2, script)
    scene.wait_for("0", "1")
    process.terminate()
    time.sleep(0.1)
    process.kill()
    process.wait()
    scene.check_nothing_left("SIGKILL during the escalation")


def test_foreground_killed_with_stopped_ranks_and_daemons(scene):
    script = "setsid sh -c 'kill -STOP $$' & touch \"$1/$RANK\"; kill -STOP $$"
    process = begin(scene, 4, script)
    scene.wait_for(*"0123")
    process.kill()
    process.wait()
    scene.check_nothing_left("SIGKILL of ompbind with all ranks stopped")


def test_foreground_killed_with_daemons_that_cleared_their_environment(scene):
    script = "env -i setsid sh -c 'touch $1/$2; sleep 300; :' $0 $1 $RANK & sleep 300"
    process = begin(scene, 4, script)
    scene.wait_for(*"0123")
    process.kill()
    process.wait()
    scene.check_nothing_left("SIGKILL of ompbind")


WRITES = "setsid sleep 300 & while :; do echo words; echo more >&2; done"
"""A rank that writes all the time and has a daemon."""


@pytest.mark.parametrize("victim", ["foreground", "supervisor"])
@pytest.mark.parametrize("mode", [("--output", "tag"), ("--log-dir", "logs"), ("--output", "tag", "--pty")])
def test_killed_while_it_forwards_output(scene, victim, mode):
    for step in range(rounds(2)):
        more = [word.replace("logs", f"{scene.directory}/logs{step}") for word in mode]
        process = begin(scene, 2, WRITES, more, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        supervisor = supervisor_of(process)
        wait_until(lambda supervisor=supervisor: len(children_of(supervisor)) == 2, "all ranks started")
        time.sleep(0.02 * step)
        os.kill(process.pid if victim == "foreground" else supervisor, signal.SIGKILL)
        assert process.wait(20) == (-9 if victim == "foreground" else 125)
        scene.check_nothing_left(f"SIGKILL of the {victim}")


@pytest.fixture
def full():
    """A full pipe that no process reads."""
    reader, writer = os.pipe()
    os.write(writer, b"x" * fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ))
    yield writer
    os.close(reader)
    os.close(writer)


MODES = pytest.mark.parametrize("mode", [(), ("--output", "tag")], ids=["inherit", "tag"])


@MODES
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_readers_that_do_not_read(scene, full, number, mode):
    """ompbind waits for a reader of its messages after all ranks have exited, until it gets a signal."""
    script = f"""setsid sleep 300 & touch "$1/$RANK"; [ $RANK = 0 ] && {BARE}
        while [ ! -e "$1/0" ]; do sleep 0.02; done; exit 3"""
    process = begin(scene, 2, script, mode, stdout=full, stderr=full)
    supervisor = supervisor_of(process)
    scene.wait_for("0", "1")
    wait_until(lambda: set(scene.find()) == {process.pid, supervisor}, "only ompbind is left")
    time.sleep(0.1)
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(20) == (3 if number != signal.SIGKILL else -9)
    scene.check_nothing_left(f"{number.name}, with a full pipe")


@MODES
@pytest.mark.parametrize(
    ("options", "number", "code"),
    [((), signal.SIGTERM, 143), ((), signal.SIGINT, 130), (("--timeout", "0.3"), 0, 124)],
    ids=["SIGTERM", "SIGINT", "timeout"],
)
def test_one_request_to_stop_is_enough_without_a_reader(scene, full, mode, options, number, code):
    options = (*mode, "--grace", "0.3", *options)
    process = begin(scene, 2, f'touch "$1/$RANK"; {BARE}', options, stdout=full, stderr=full)
    scene.wait_for("0", "1")
    process.send_signal(number)
    assert process.wait(20) == code
    scene.check_nothing_left("a request to stop, with a full pipe")


def test_a_second_signal_within_half_a_second_does_not_drop_output(scene):
    script = f"""head -c 30000 /dev/zero | tr '\\0' x; echo; touch "$1/written"; {BARE}"""
    process = begin(scene, 1, script, ("--output", "tag"))
    fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
    scene.wait_for("written")
    supervisor = supervisor_of(process)
    process.terminate()
    wait_until(lambda: not children_of(supervisor), "the rank exited")
    process.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.2)  # it waits for the reader
    code, messages, stdout = scene.end(process)
    assert (code, stdout) == (143, f"[0] {'x' * 30000}\n"), messages


@pytest.mark.parametrize("first", ["foreground", "supervisor"])
def test_killed_with_a_chain_of_daemons(scene, first):
    """Daemons that fork and exit all the time are killed too after either process was killed."""
    script = """
import os, sys, time
over = time.monotonic() + 8
if os.fork():
    open(sys.argv[2] + "/" + os.environ["RANK"], "w")
    time.sleep(300)
while time.monotonic() < over and not os.fork():
    os.setsid()
os._exit(0)
"""
    process = scene.begin(*options(2), *scene.command(*PYTHON, script), stderr=subprocess.DEVNULL)
    supervisor = supervisor_of(process)
    scene.wait_for("0", "1")
    os.kill(process.pid if first == "foreground" else supervisor, signal.SIGKILL)
    assert process.wait(20) == (-9 if first == "foreground" else 125)
    scene.check_nothing_left(f"SIGKILL of the {first}")


CHAIN = """
#include <signal.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>
int main(int count, char **paths)
{
	time_t end = time(NULL) + 60;
	signal(SIGTERM, SIG_IGN);
	if (fork()) return 0;
	while (time(NULL) < end) {
		if (access(paths[1], F_OK) == 0) return creat(paths[2], 0600) < 0;
		if (fork()) _exit(0);
		setsid();
	}
}
"""
"""A chain of daemons, each of which exits sooner than all processes can be read from /proc.

Arguments: a file whose existence ends the chain, and a file to write then.
"""


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    path = tmp_path_factory.mktemp("chain") / "chain"
    command = [required("gcc"), "-O1", "-o", str(path), "-x", "c", "-"]
    subprocess.run(command, input=CHAIN, text=True, check=True, timeout=60)
    return path


@pytest.mark.alone
@pytest.mark.parametrize("victim", ["foreground", "supervisor", ""])
def test_many_chains_of_daemons_that_outrun_a_search(scene, chain, victim):
    """They are killed after either process was killed, and after the rank has exited.

    Finding them takes long if other programs use the CPUs, so --grace, its limit, is long too.
    """
    end = "sleep 300" if victim else "exit 0"
    script = f'for _ in $(seq 8); do {chain} "$1/over" "$1/outlived" & done; wait; touch "$1/up"; {end}'
    grace = "10" if victim else "2"  # without a victim, ompbind waits before it kills
    process = begin(scene, 1, script, ("--grace", grace), stderr=subprocess.DEVNULL)
    supervisor = supervisor_of(process)
    scene.wait_for("up")
    if victim:
        os.kill(process.pid if victim == "foreground" else supervisor, signal.SIGKILL)
    try:
        assert process.wait(30) == {"foreground": -9, "supervisor": 125, "": 0}[victim]
        wait_until(lambda: not is_alive(supervisor), "the supervisor exited")
    finally:
        (scene.directory / "over").touch()  # a chain that is left slows down all other tests
    time.sleep(0.1)
    assert not (scene.directory / "outlived").exists()


PTRACE_CONT, PTRACE_SEIZE, PTRACE_O_TRACEEXIT = 7, 0x4206, 0x40
UNKILLABLE = 'setsid sleep 300 >/dev/null 2>&1 & echo $! >"$1/.pid"; mv "$1/.pid" "$1/pid"; sleep 300'


@pytest.mark.parametrize("victim", ["foreground", "supervisor"])
def test_what_cannot_be_killed_is_reported(scene, victim):
    """A debugger stops a process that was killed before it exits: it stays until the debugger lets it go."""
    process = begin(scene, 1, UNKILLABLE, ("--grace", "0.3"))
    supervisor = supervisor_of(process)
    scene.wait_for("pid")
    (daemon,) = scene.pids("pid")
    libc = ctypes.CDLL(None)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(PTRACE_SEIZE, daemon, None, PTRACE_O_TRACEEXIT):
        pytest.skip("tracing is not allowed here")
    try:
        os.kill(process.pid if victim == "foreground" else supervisor, signal.SIGKILL)
        _, messages = process.communicate(timeout=10)
    finally:
        os.waitpid(daemon, 0)  # until it is stopped before its exit
        libc.ptrace(PTRACE_CONT, daemon, None, None)
    assert process.returncode == (-9 if victim == "foreground" else 125)
    assert f"cannot kill pid {daemon}, left behind by a rank" in messages
    scene.check_nothing_left(f"SIGKILL of the {victim}")


def test_foreground_killed_with_many_daemons_without_environment(scene):
    """They are killed at once, not one after the other."""
    script = 'for i in $(seq 64); do env -i setsid sh -c "sleep 300; :" $0 & done; touch "$1/up"; sleep 300'
    process = begin(scene, 1, script)
    scene.wait_for("up")
    process.kill()
    process.wait()
    scene.check_nothing_left("SIGKILL of ompbind", within_s=0.8)


def test_a_run_within_a_run_is_killed_with_it(scene):
    """The foreground process and supervisor of a run inside a rank are descendants as all others."""
    inner = 'exec ompbind run --share -n 2 -- sh -c "setsid sleep 300 & touch $1/$RANK-\\$RANK; sleep 300" $0'
    process = begin(scene, 2, inner)
    scene.wait_for("0-0", "0-1", "1-0", "1-1")
    process.kill()
    process.wait()
    scene.check_nothing_left("SIGKILL of the outer run")


def names_of(pid):
    """Return the names by which programs find a process: comm, and the command line."""
    return "".join(Path(f"/proc/{pid}/{file}").read_text() for file in ("comm", "cmdline"))


def test_killall_ompbind_does_not_match_the_supervisor(scene):
    process = begin(scene, 1, BARE)
    supervisor = supervisor_of(process)
    wait_until(lambda: is_alive(supervisor) and len(children_of(supervisor)) == 1, "the rank")
    # The supervisor takes its name after it has started the first rank.
    for path in (Path(f"/proc/{supervisor}/{name}") for name in ("comm", "cmdline")):
        wait_until(lambda path=path: b"ompbind" not in path.read_bytes(), "the name of the supervisor")
    process.terminate()
    assert scene.end(process)[0] == 143
