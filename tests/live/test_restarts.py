"""--on-failure restart: real ranks that fail, what they leave, and what stops a run that waits."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.live.conftest import children_of, is_alive, state_of, supervisor_of, wait_until

SHORT_WAITS = str(Path(__file__).with_name("short_waits.py"))
NEVER_S = 300
"""A wait that no test can wait for."""

FAIL = 'echo $OMPBIND_ATTEMPT $$ >>"$1/$RANK"; '
"""The start of a script that notes its attempts in a file."""

pytestmark = pytest.mark.usefixtures("stranger")


def begin(scene, script, *options, ranks=1, wait_s=0.02, limit="", **settings):
    words = ("-n", str(ranks), "--share", "--on-failure", f"restart{limit}", *options)
    before = (sys.executable, SHORT_WAITS, str(wait_s))
    return scene.begin(*words, *scene.command("sh", "-c", script), before=before, **settings)


def run(scene, script, *options, **settings):
    return scene.end(begin(scene, script, *options, **settings))


def attempts(scene, rank=0):
    """Return the attempts that a rank has noted, and their PIDs."""
    path = scene.directory / str(rank)
    lines = path.read_text().splitlines() if path.exists() else []
    return [tuple(map(int, line.split())) for line in lines]


def wait_for_attempts(scene, count, rank=0):
    wait_until(lambda: len(attempts(scene, rank)) >= count, f"{count} attempts")


def wait_for_failure(scene, process, live=0):
    """Wait until rank 0 has exited and `live` other ranks run; returns the supervisor."""
    supervisor = supervisor_of(process)
    wait_for_attempts(scene, 1)
    failed = attempts(scene)[0][1]
    wait_until(lambda: failed not in children_of(supervisor), "the rank exited")
    wait_until(lambda: len(children_of(supervisor)) == live, "only the other ranks run")
    return supervisor


def test_a_failed_rank_starts_again_on_its_cpus_and_others_go_on(scene):
    script = """echo $OMPBIND_ATTEMPT $$ $(taskset -cp $$ | sed "s/.*: //") >>"$1/$RANK"
        echo out $OMPBIND_ATTEMPT
        [ $RANK = 1 ] && while [ ! -e "$1/over" ]; do sleep 0.02; done
        [ $RANK = 1 ] && exit 0
        [ $OMPBIND_ATTEMPT -lt 4 ] && exit $OMPBIND_ATTEMPT
        touch "$1/over"
    """
    report = scene.directory / "report.json"
    code, messages, stdout = run(scene, script, "--report", str(report), "-v", ranks=2)
    assert code == 0, messages
    assert "standard input" not in messages
    assert sorted(stdout.split()) == sorted(["out"] * 5 + ["1", "1", "2", "3", "4"])
    rows = map(str.split, (scene.directory / "0").read_text().splitlines())
    numbers, pids, cpus = zip(*rows, strict=True)
    assert (numbers, len(set(cpus))) == (("1", "2", "3", "4"), 1)
    assert (scene.directory / "1").read_text().startswith("1 ")
    first, other = json.loads(report.read_text())["ranks"]
    assert (first["exit_code"], first["pid"]) == (0, first["attempts"][-1]["pid"])
    found = [(start["attempt"], start["exit_code"], str(start["pid"])) for start in first["attempts"]]
    assert found == list(zip((1, 2, 3, 4), (1, 2, 3, 0), pids, strict=True))
    times = [start["started"] for start in first["attempts"]]
    assert times == sorted(times)
    assert len(other["attempts"]) == 1
    assert "exited with code 2; attempt 3 starts in 0.04 s" in messages


@pytest.mark.parametrize(("number", "found"), [(signal.SIGTERM, 143), (signal.SIGUSR1, 138)])
def test_a_killed_rank_starts_again_unless_by_a_signal_from_the_user(scene, number, found):
    process = begin(scene, f"{FAIL} exec sleep 300")
    for count in (1, 2):
        wait_for_attempts(scene, count)
        os.kill(attempts(scene)[-1][1], signal.SIGKILL)
    wait_for_attempts(scene, 3)
    process.send_signal(number)
    code, messages, _ = scene.end(process)
    assert code == found, messages
    assert "was killed by SIGKILL; attempt 2 starts in 0.02 s" in messages
    assert ("it does not start again after a signal from you" in messages) == (number == signal.SIGUSR1)
    assert [attempt for attempt, _ in attempts(scene)] == [1, 2, 3]


DAEMON = 'setsid sh -c \'trap "" TERM; echo $$ >"$1/$2"; while :; do sleep 0.05; done\' $0 "$1" daemon$RANK &'
"""A daemon that ignores SIGTERM, and writes its PID to a file."""


def test_all_processes_of_an_attempt_are_gone_before_the_next(scene):
    script = f"""
        if [ $OMPBIND_ATTEMPT = 1 ]; then
            {DAEMON}
            while [ ! -s "$1/daemon0" ] || [ ! -s "$1/daemon1" ]; do sleep 0.02; done
            [ $RANK = 0 ] && exit 3
            while [ ! -e "$1/over" ]; do sleep 0.02; done
            exit 0
        fi
        kill -0 $(cat "$1/daemon0") && echo daemon of rank 0 >>"$1/alive"
        kill -0 $(cat "$1/daemon1") && echo daemon of rank 1 >>"$1/alive"
        touch "$1/over"
    """
    code, messages, _ = run(scene, script, "--grace", "0.3", ranks=2)
    assert code == 0, messages
    assert (scene.directory / "alive").read_text() == "daemon of rank 1\n"


@pytest.mark.parametrize(("options", "number", "code", "ranks"), [
    ((), signal.SIGTERM, 3, 1), ((), signal.SIGINT, 3, 2), (("--timeout", "0.5"), 0, 124, 2),
    ((), None, 3, 2),
], ids=["SIGTERM", "SIGINT", "timeout", "last failure of rank 1"])  # fmt: skip
def test_what_stops_a_run_cancels_a_restart(scene, options, number, code, ranks):
    script = f"""{FAIL} [ $RANK = 0 ] && exit 3
        while [ ! -e "$1/go" ]; do sleep 0.02; done; exit 127"""
    process = begin(scene, script, *options, ranks=ranks, wait_s=NEVER_S)
    wait_for_failure(scene, process, live=ranks - 1)
    (scene.directory / "go").touch() if number is None else process.send_signal(number)
    found, messages, _ = scene.end(process)
    assert found == code, messages
    assert "not starting rank 0 again" in messages
    assert len(attempts(scene)) == 1


@pytest.mark.parametrize(("victim", "ranks"), [("foreground", 1), ("supervisor", 2)])
def test_killed_while_a_restart_waits(scene, victim, ranks):
    script = f"setsid sleep 300 & {FAIL} [ $RANK = 1 ] && exec sleep 300; exit 3"
    process = begin(scene, script, ranks=ranks, wait_s=NEVER_S, stderr=subprocess.DEVNULL)
    supervisor = supervisor_of(process)
    wait_for_attempts(scene, 1)
    wait_until(lambda: not is_alive(attempts(scene)[0][1]), "the rank exited")
    os.kill(process.pid if victim == "foreground" else supervisor, signal.SIGKILL)
    assert process.wait(20) == (-9 if victim == "foreground" else 125)
    scene.check_nothing_left(f"SIGKILL of the {victim}")


def test_a_run_that_waits_sleeps_and_keeps_its_claim(scene, ompbind):
    cpu = str(min(os.sched_getaffinity(0)))
    process = begin(scene, f"{FAIL} [ $OMPBIND_ATTEMPT = 2 ] && sleep 300; exit 3", "-m", cpu, wait_s=1.2)
    supervisor = wait_for_failure(scene, process)
    wait_until(lambda: state_of(supervisor) == "S", "the supervisor waits")
    before = read_activity(supervisor), read_activity(process.pid)
    time.sleep(0.3)
    assert len(attempts(scene)) == 1
    assert (read_activity(supervisor), read_activity(process.pid)) == before, "it wakes up"
    (claim,) = scene.claims()
    assert (claim.pid, claim.restarts) == (process.pid, 0)
    wait_for_attempts(scene, 2)
    wait_until(lambda: scene.claims()[0].restarts == 1, "the restart was published")
    (record,) = json.loads(ompbind("ps", "--format", "json").stdout)["runs"]
    assert record["restarts"] == 1
    assert "attempt 2: CPU" in ompbind("inspect", str(process.pid)).stdout
    assert os.sched_getaffinity(supervisor) == os.sched_getaffinity(0), "it left the CPU of the rank"
    process.terminate()
    scene.end(process)


def read_activity(pid):
    """Return how often the only thread of a process has waited, and its CPU time in ticks."""
    text = Path(f"/proc/{pid}/status").read_text()
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return text.split("\nvoluntary_ctxt_switches:")[1].split()[0], times


def test_only_the_first_attempt_gets_standard_input(scene):
    script = f'{FAIL} cat >>"$1/input"; [ $OMPBIND_ATTEMPT = 3 ]'
    process = begin(scene, script, stdin=subprocess.PIPE)
    _, messages = process.communicate("words\n", timeout=20)
    assert process.returncode == 0, messages
    assert (scene.directory / "input").read_text() == "words\n"
    assert messages.count("only the first attempt of rank 0 gets standard input") == 1


@pytest.mark.parametrize("mode", [(), ("--output", "tag,files")], ids=["files", "tag,files"])
def test_log_files_have_a_line_before_each_attempt_and_used_up_restarts_stop_the_run(scene, mode):
    logs = scene.directory / "logs"
    script = f"""{FAIL} [ $RANK = 1 ] && exec sleep 300
        printf 'out %s' $OMPBIND_ATTEMPT; echo err $OMPBIND_ATTEMPT >&2; exit $OMPBIND_ATTEMPT"""
    code, messages, _ = run(scene, script, "--log-dir", str(logs), *mode, limit=":2", ranks=2)
    assert code == 3, messages
    assert [number for number, _ in attempts(scene)] == [1, 2, 3]
    assert "exited with code 3; it does not start again after 3 attempts" in messages
    assert "stopping rank 1 with SIGTERM" in messages
    for kind in ("out", "err"):
        first, second, third = (logs / f"0.{kind}").read_text().split("\n--- ")
        assert first.strip() == f"{kind} 1"
        assert second.startswith("ompbind: rank 0, attempt 2, 20")
        assert second.strip().endswith(f"; attempt 1 exited with code 1 ---\n{kind} 2")
        assert third.strip().endswith(f"; attempt 2 exited with code 2 ---\n{kind} 3")
    if not mode:
        assert "its last lines: err 3 ompbind" in messages, "only those of the last attempt"


def test_an_attempt_starts_after_the_output_of_the_last_was_read(scene):
    """A reader that does not read holds up restarts, as it holds up ranks; nothing is mixed up."""
    script = f"""{FAIL} [ $OMPBIND_ATTEMPT = 2 ] && echo second && exit 0
        i=0; while [ $i -lt 8000 ]; do echo "line $i of the first attempt"; i=$((i+1)); done; exit 3"""
    process = begin(scene, script, "--output", "tag")
    wait_for_failure(scene, process)
    time.sleep(0.3)
    assert len(attempts(scene)) == 1
    code, _, stdout = scene.end(process)
    assert code == 0
    expected = [f"[0] line {i} of the first attempt" for i in range(8000)]
    assert stdout.splitlines() == [*expected, "[0] second"]


def test_files_do_not_leak(scene):
    options = ("--output", "tag,files", "--pty", "--log-dir", f"{scene.directory}/logs")
    script = f"{FAIL} [ $OMPBIND_ATTEMPT = 51 ] && exec sleep 300; exit 3"
    process = begin(scene, script, *options, wait_s=0, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    supervisor = supervisor_of(process)
    wait_for_attempts(scene, 51)
    wait_until(lambda: state_of(supervisor) == "S", "the supervisor waits")
    assert len(os.listdir(f"/proc/{supervisor}/fd")) < 35
    process.terminate()
    scene.end(process)
