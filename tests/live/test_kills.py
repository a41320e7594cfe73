"""Kills and signals at any moment: nothing of any rank is left, and no code tells of a success that was none.

Moments are spread evenly from the start of ompbind to some time after all ranks run; how long that takes is
measured first. OMPBIND_FAULT_ROUNDS=10 hits upon ten times as many.
"""

import fcntl
import os
import re
import signal
import subprocess
import time

import pytest

from tests.live.conftest import children_of, is_alive, keeper_of, state_of, wait_until
from tests.live.scenes import PYTHON, Scene
from tests.long import rounds

FAMILY = "setsid sleep 300 & (sleep 300 & sleep 300) & sleep 300 & wait"
"""A rank with children, grandchildren and a daemon."""

BARE = "exec sleep 300"


@pytest.fixture
def scene(tmp_path):
    one = Scene(tmp_path)
    yield one
    one.close()


def options(ranks):
    return ("-n", str(ranks), "--share")


def begin(scene, ranks, script, more=(), **extra):
    return scene.begin(*options(ranks), *more, *scene.command("sh", "-c", script), **extra)


def measure(scene, ranks):
    """Seconds from the start of ompbind until all ranks run."""
    begun = time.monotonic()
    process = begin(scene, ranks, "exec sleep 300")
    supervisor = keeper_of(process)
    wait_until(lambda: len(children_of(supervisor)) >= ranks, "all ranks started")
    took = time.monotonic() - begun
    process.kill()
    finish(process)
    scene.check_gone("measuring")
    return took


def moments(scene, ranks, times):
    """Seconds after the start at which to strike, from none to half as long again as all takes to start."""
    longest = measure(scene, ranks) * 1.5 + 0.03
    return [longest * step / times for step in range(times)]


def sleep_from(begun, moment_s):
    time.sleep(max(0.0, begun + moment_s - time.monotonic()))


def finish(process):
    """Close the files of a process that has ended or will at once; returns its code and what was said."""
    _, said = process.communicate(timeout=20)
    return process.returncode, said


@pytest.mark.parametrize(
    ("ranks", "script", "times"),
    [(1, FAMILY, 60), (1, BARE, 60), (2, BARE, 40), (8, FAMILY, 30), (64, FAMILY, 6), (64, BARE, 8)],
    ids=["1 family", "1", "2", "8 families", "64 families", "64"],
)
def test_front_killed(scene, ranks, script, times):
    for moment in moments(scene, ranks, rounds(times)):
        begun = time.monotonic()
        process = begin(scene, ranks, script, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        sleep_from(begun, moment)
        process.kill()
        assert process.wait(5) == -signal.SIGKILL
        scene.check_gone(f"SIGKILL of ompbind {moment * 1000:.1f} ms after its start")


@pytest.mark.parametrize(
    ("ranks", "script", "times"),
    [(1, FAMILY, 12), (2, BARE, 12), (8, FAMILY, 6), (64, BARE, 4)],
    ids=["1 family", "2", "8 families", "64"],
)
def test_keeper_killed(scene, ranks, script, times):
    longest = measure(scene, ranks) + 0.02
    for step in range(rounds(times)):
        moment = longest * step / rounds(times)
        process = begin(scene, ranks, script)
        supervisor = wait_for_keeper(process)
        begun = time.monotonic()
        sleep_from(begun, moment)
        os.kill(supervisor, signal.SIGKILL)
        code, said, _ = scene.end(process)
        assert code == 125, said
        assert f"process {supervisor}, which held the ranks, was ended by SIGKILL" in said


def wait_for_keeper(process):
    """The keeper as soon as it is there: its first moments count here, so nobody sleeps meanwhile."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if children := children_of(process.pid):
            return children[0]
    raise AssertionError("no keeper in 20 s")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_front_asked_to_end_when_it_has_not_heard_yet_that_its_keeper_was_killed(scene, number):
    process = begin(scene, 2, FAMILY)
    supervisor = keeper_of(process)
    wait_until(lambda: len(children_of(supervisor)) >= 2, "all ranks started")
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: state_of(process.pid) == "T", "the front stopped")
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: not is_alive(supervisor), "the keeper ended")
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    code, said, _ = scene.end(process)
    assert code == 125, said
    scene.check_gone(f"SIGKILL of the keeper and {number.name}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_front_asked_to_end_while_it_kills_what_a_killed_keeper_left(scene, number):
    for step in range(rounds(6)):
        process = begin(scene, 32, FAMILY)
        supervisor = keeper_of(process)
        wait_until(lambda supervisor=supervisor: len(children_of(supervisor)) >= 32, "all ranks started")
        os.kill(supervisor, signal.SIGKILL)
        time.sleep(step * 0.001)
        process.send_signal(number)
        code, said, _ = scene.end(process)
        assert code == 125, said
        scene.check_gone(f"SIGKILL of the keeper and {number.name}")


OURS = re.compile(r"""File "[^"]*/ompbind/([a-z]+/)*[a-z]\w*[.]py\"""")
"""What a traceback has in it that comes from ompbind or what it imports, not from how Python gets there."""

CODES = {
    signal.SIGTERM: (143, -15),
    signal.SIGINT: (130, -2),
    signal.SIGHUP: (129, -1),
    signal.SIGQUIT: (131, -3),
}


def check_signalled(number, process):
    """The run ends by a signal that it gets, and at once.

    Until ompbind runs, it is Python that deals with an interrupt: it fails with code 1, or loses it.
    """
    try:
        code = process.wait(8)
    except subprocess.TimeoutExpired:
        process.terminate()
        _, said = finish(process)
        assert number == signal.SIGINT
        assert "KeyboardInterrupt" in said, f"{number.name} was lost: {said}"
        assert not OURS.search(said), said
        return
    _, said = finish(process)
    if number == signal.SIGINT and "Fatal Python error" in said:
        assert code == 1, said
        return
    assert not OURS.search(said), said
    assert code in CODES[number], (code, said)


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
@pytest.mark.parametrize(("ranks", "times"), [(1, 20), (8, 6)])
def test_signals_during_the_start(scene, number, ranks, times):
    """The code is that of the signal: ranks that were not started are no success."""
    for moment in moments(scene, ranks, rounds(times)):
        begun = time.monotonic()
        process = begin(scene, ranks, BARE)
        sleep_from(begun, moment)
        process.send_signal(number)
        check_signalled(number, process)
        scene.check_gone(f"{number.name} after {moment * 1000:.1f} ms")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_to_all_of_a_group_during_the_start(scene, number):
    """As a terminal does it, and `timeout`."""
    for moment in moments(scene, 2, rounds(12)):
        begun = time.monotonic()
        process = begin(scene, 2, BARE, process_group=0)
        sleep_from(begun, moment)
        os.killpg(process.pid, number)
        check_signalled(number, process)
        scene.check_gone(f"{number.name} after {moment * 1000:.1f} ms")


def test_signals_around_the_end(scene):
    """A run that is about to end on its own ends well or by the signal, and whole either way."""
    begun = time.monotonic()
    scene.run("-n", "2", *scene.command("true"))
    longest = (time.monotonic() - begun) * 1.2
    times = rounds(15)
    for step in range(times):
        process = scene.begin("-n", "2", *scene.command("true"))
        time.sleep(longest * step / times)
        process.terminate()
        code, said, _ = scene.end(process)
        assert code in (0, 143, -15), said


def test_front_stopped_for_a_moment(scene):
    """Whatever changes while it stands still, it goes on."""
    for moment in moments(scene, 2, rounds(8)):
        begun = time.monotonic()
        process = scene.begin(*options(2), *scene.command("sh", "-c", "sleep 0.05; exit 3"))
        sleep_from(begun, moment)
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.02)
        process.send_signal(signal.SIGCONT)
        assert scene.end(process)[0] == 3


def test_front_killed_while_it_stops_deaf_ranks(scene):
    """The grace is nobody's any more."""
    script = "trap '' TERM; touch \"$1/$RANK\"; while :; do sleep 0.05; done"
    process = begin(scene, 2, script)
    scene.wait_for("0", "1")
    process.terminate()
    time.sleep(0.1)
    process.kill()
    process.wait()
    scene.check_gone("SIGKILL during the ladder")


def test_front_killed_while_stopped_ranks_and_daemons_are_there(scene):
    script = "setsid sh -c 'kill -STOP $$' & touch \"$1/$RANK\"; kill -STOP $$"
    process = begin(scene, 4, script)
    scene.wait_for(*"0123")
    process.kill()
    process.wait()
    scene.check_gone("SIGKILL of ompbind with all ranks stopped")


def test_front_killed_with_daemons_of_clean_environments(scene):
    script = "env -i setsid sh -c 'touch $1/$2; sleep 300; :' $0 $1 $RANK & sleep 300"
    process = begin(scene, 4, script)
    scene.wait_for(*"0123")
    process.kill()
    process.wait()
    scene.check_gone("SIGKILL of ompbind")


TALK = "setsid sleep 300 & while :; do echo words; echo more >&2; done"
"""A rank that writes without end and has a daemon."""


@pytest.mark.parametrize("victim", ["front", "keeper"])
@pytest.mark.parametrize("mode", [("--output", "tag"), ("--log-dir", "logs"), ("--output", "tag", "--pty")])
def test_killed_while_output_goes_through_it(scene, victim, mode):
    for step in range(rounds(2)):
        more = [word.replace("logs", f"{scene.folder}/logs{step}") for word in mode]
        process = begin(scene, 2, TALK, more, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        supervisor = keeper_of(process)
        wait_until(lambda supervisor=supervisor: len(children_of(supervisor)) == 2, "all ranks started")
        time.sleep(0.02 * step)
        os.kill(process.pid if victim == "front" else supervisor, signal.SIGKILL)
        assert process.wait(5) == (-9 if victim == "front" else 125)
        scene.check_gone(f"SIGKILL of the {victim}")


@pytest.fixture
def full():
    """A pipe that is full, and that nobody reads."""
    reader, writer = os.pipe()
    os.write(writer, b"x" * fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ))
    yield writer
    os.close(reader)
    os.close(writer)


MODES = pytest.mark.parametrize("mode", [(), ("--output", "tag")], ids=["inherit", "tag"])


@MODES
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_readers_that_stand_still(scene, full, number, mode):
    """Who does not read what ompbind says holds up that alone, until it is asked to end."""
    script = f"""setsid sleep 300 & touch "$1/$RANK"; [ $RANK = 0 ] && {BARE}
        while [ ! -e "$1/0" ]; do sleep 0.02; done; exit 3"""
    process = begin(scene, 2, script, mode, stdout=full, stderr=full)
    supervisor = keeper_of(process)
    scene.wait_for("0", "1")
    wait_until(lambda: set(scene.find()) == {process.pid, supervisor}, "only ompbind is left")
    time.sleep(0.1)
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(5) == (3 if number != signal.SIGKILL else -9)
    scene.check_gone(f"{number.name}, with a full pipe")


@MODES
@pytest.mark.parametrize(
    ("options", "number", "code"),
    [((), signal.SIGTERM, 143), ((), signal.SIGINT, 130), (("--timeout", "0.3"), 0, 124)],
    ids=["SIGTERM", "SIGINT", "timeout"],
)
def test_one_request_to_end_is_enough_when_nobody_reads(scene, full, mode, options, number, code):
    options = (*mode, "--grace", "0.3", *options)
    process = begin(scene, 2, f'touch "$1/$RANK"; {BARE}', options, stdout=full, stderr=full)
    scene.wait_for("0", "1")
    process.send_signal(number)
    assert process.wait(5) == code
    scene.check_gone("a request to end, with a full pipe")


@pytest.mark.parametrize("first", ["front", "keeper"])
def test_front_killed_with_a_chain_of_daemons(scene, first):
    """What is never there for long is caught also when one of both has been killed."""
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
    supervisor = keeper_of(process)
    scene.wait_for("0", "1")
    os.kill(process.pid if first == "front" else supervisor, signal.SIGKILL)
    assert process.wait(5) == (-9 if first == "front" else 125)
    scene.check_gone(f"SIGKILL of the {first}")


def test_a_run_in_a_run_ends_with_it(scene):
    """Fronts and keepers inside ranks are descendants as all others are."""
    inner = 'exec ompbind run --share -n 2 -- sh -c "setsid sleep 300 & touch $1/$RANK-\\$RANK; sleep 300" $0'
    process = begin(scene, 2, inner)
    scene.wait_for("0-0", "0-1", "1-0", "1-1")
    process.kill()
    process.wait()
    scene.check_gone("SIGKILL of the outer run")


def test_keepers_have_a_name_that_no_killall_of_ompbind_means(scene):
    process = begin(scene, 1, BARE)
    supervisor = keeper_of(process)
    wait_until(lambda: is_alive(supervisor) and len(children_of(supervisor)) == 1, "the rank")
    for path in ("comm", "cmdline"):
        with open(f"/proc/{supervisor}/{path}", "rb") as file:
            assert b"ompbind" not in file.read()
    process.terminate()
    assert scene.end(process)[0] == 143
