"""`ompbind stop` with real runs."""

import ctypes
import os
import random
import re
import signal
import time
from pathlib import Path

import pytest

from ompbind.commands.rank_variables import SUPERVISOR_NAME
from ompbind.procfs.reader import read_stat
from ompbind.registry.registry import read_live_runs
from tests.live.conftest import children_of, one_line, ranks_of, state_of, supervisor_of, wait_until
from tests.live.other_user import NOBODY, as_user, unavailable
from tests.long import rounds

WAIT = "echo up; while :; do sleep 0.05; done"
WAIT_FOR_OTHER = f'trap \'touch "$0/$1"; until [ -e "$0/$2" ]; do sleep 0.02; done; exit 7\' TERM; {WAIT}'
"""A rank that exits after SIGTERM when another rank has got it too."""


@pytest.fixture
def live(start):
    """Start a run with this name, as a job that can be stopped; wait until the script of its ranks runs."""

    def begin(name, *options, script=(WAIT,), ranks=1):
        words = ("-n", str(ranks), *options, "--", "sh", "-c", *script)
        return start("run", "-q", "--share", "--run-id", name, *words, up=ranks, process_group=0)

    return begin


@pytest.mark.parametrize(
    ("script", "code"), [(WAIT, 143), (f"trap '' TERM; {WAIT}", 137), (f"trap 'exit 7' TERM; {WAIT}", 7)]
)
def test_a_run_is_stopped_and_its_exit_code_is_shown_as_on_the_page(ompbind, live, script, code):
    page = (Path(__file__).parents[2] / "docs/queue.md").read_text()
    shown = page.partition("$ ompbind stop nightly\n")[2].partition("```")[0].replace("143", str(code))
    process = live("nightly", "--grace", "0.2" if code == 137 else "60", script=(script,), ranks=2)
    other, pid = live("other"), {7: process.pid, 137: supervisor_of(process)}.get(code)
    done = ompbind("stop", str(pid or "night"))
    assert (done.returncode, process.wait(5)) == (0, code)
    printed = (done.stderr + done.stdout).replace(str(process.pid), "30960")
    assert re.sub(r"\d\.\d s", "0.1 s", printed) == shown
    assert other.poll() is None
    assert "other" in ompbind("ps").stdout


def test_several_runs_are_stopped_together(ompbind, live, tmp_path):
    names = ("one", "two")
    scripts = [(WAIT_FOR_OTHER, str(tmp_path), *pair) for pair in (names, names[::-1])]
    processes = [live(script[2], "--grace", "60", script=script) for script in scripts]
    done = ompbind("stop", "one", "two", "one")
    assert sorted(line.split()[1] for line in done.stdout.splitlines()) == ["one", "two"]
    assert [process.wait(5) for process in processes] == [7, 7]


def test_a_session_of_bench_is_stopped_at_any_moment(ompbind, start, claims, tmp_path):
    chosen, words = random.Random(1), ("--max-rounds", "1000", "--run-id", "tuning", "--", "sleep", "0.1")
    for _ in range(rounds(10)):
        process = start("bench", "-q", *words, env={"TMPDIR": str(tmp_path)})
        wait_until(lambda: read_live_runs(str(claims)), "the session is registered")
        time.sleep(chosen.random() / 2)
        done = ompbind("stop", "tuning")
        output, _ = process.communicate(timeout=20)
        assert (done.returncode, process.returncode, "interrupted" in output) == (0, 143, True), done.stderr
        assert done.stdout.startswith("run tuning exited with code 143, ")
        assert (os.listdir(claims), os.listdir(tmp_path)) == ([], [])


def test_what_cannot_be_stopped_is_an_error(ompbind, start, live):
    kept, rank = live("kept"), start("exec", "--run-id", "rank", "--share", "--", "sh", "-c", WAIT, up=1)
    group = ("--name", "web", "--", "sh", "-c", WAIT, ":", "--name", "load", "--", "sleep", "60")
    start("run", "-q", "--share", "--run-id", "both", *group, up=1)
    own = f"has started it hint: stop its launcher, as with scancel or Ctrl-C, or use 'kill {rank.pid}'"
    for verb, word, code, text in (
        ("stop", "rank", 1, own), ("stop", str(rank.pid), 1, own), ("stop", "", 2, "no run is given"),
        ("stop", "nothing", 2, "no live run is named 'nothing' hint: no run was stopped; 'ompbind ps'"),
        ("stop", "web", 2, "no live run is named 'web' hint: it is a group of run both: name the run"),
        ("inspect", "load", 2, "no live run is named 'load' hint: it is a group of run both: name the run"),
    ):  # fmt: skip
        done = ompbind(verb, *word.split())
        assert (done.returncode, text in one_line(done.stderr)) == (code, True), done
    assert (rank.poll(), kept.poll()) == (None, None)


def test_runs_of_other_users_are_refused(ompbind, live, public, public_ompbind, monkeypatch):
    monkeypatch.setenv("OMPBIND_RUNTIME_DIR", str(public))
    process = live("of-root")
    done = ompbind("stop", "of-root", before=as_user(NOBODY), program=public_ompbind)
    assert (done.returncode, "belongs to user root" in done.stderr) == (1, True)
    assert process.poll() is None


def pause(process, what):
    """Pause a run as Ctrl-Z does, or stop its foreground process, its supervisor or its ranks by SIGSTOP."""
    if what == "Ctrl-Z":
        process.send_signal(signal.SIGTSTP)
        pids = [process.pid, *ranks_of(process)]
    else:
        supervisor = supervisor_of(process)
        pids = {"foreground": [process.pid], "supervisor": [supervisor], "ranks": children_of(supervisor)}
        pids = pids.get(what) or [process.pid, supervisor]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
    # D: the child that a shell has forked is stopped before it executes sleep
    wait_until(lambda: state_of(pids[0]) == "T" and {*map(state_of, pids)} <= {*"TD"}, "it is paused")


@pytest.mark.parametrize("what", ["Ctrl-Z", "foreground", "supervisor", "both", "ranks"])
def test_a_paused_run_is_continued_and_stopped(ompbind, live, what):
    process = live("paused", "--grace", "60", script=(f"trap 'exit 7' TERM; {WAIT}",), ranks=2)
    other = live("other")
    pause(process, what)
    done = ompbind("stop", "paused", "other")
    assert (done.returncode, process.wait(5), other.wait(5)) == (0, 7, 143)
    said = "is paused: continuing and stopping it"
    assert (said in one_line(done.stderr), "stopping run other" in done.stderr) == (what != "ranks", True)
    assert "run paused exited with code 7, " in done.stdout


def test_a_run_that_waits_and_a_session_are_continued_and_stopped(ompbind, start, live, claims):
    live("kept")
    words = ("bench", "-q", "--max-rounds", "1000", "--run-id", "tuning", "--", "sleep", "0.2")
    session = start(*words, process_group=0)
    words = ("run", "--exclusive", "--wait", "--run-id", "waiting", "--", "true")
    waiting = start(*words, process_group=0)
    wait_until(lambda: {"waits", "tuning"} <= {*ompbind("ps").stdout.split()}, "both are registered")
    time.sleep(random.random() / 2)
    os.killpg(session.pid, signal.SIGTSTP)
    waiting.send_signal(signal.SIGTSTP)
    wait_until(lambda: state_of(session.pid) == state_of(waiting.pid) == "T", "both are paused")
    done = ompbind("stop", "waiting", "tuning")
    assert (done.returncode, waiting.wait(5), session.wait(10)) == (0, -15, 143), done
    assert "run waiting has exited, " in done.stdout
    assert one_line(done.stderr).count("is paused: continuing and stopping it") == 2


def test_a_run_that_does_not_exit_is_an_error_after_a_while(ompbind, live):
    """A debugger holds its supervisor, which SIGCONT does not continue."""
    process = live("held", "--grace", "0")
    supervisor = supervisor_of(process)
    wait_until(lambda: read_stat(supervisor).name == SUPERVISOR_NAME, "it has its name")
    if ctypes.CDLL(None).ptrace(16, supervisor, None, None):  # PTRACE_ATTACH
        unavailable("this system permits no ptrace")
    os.waitpid(supervisor, 0)  # it is held
    done = ompbind("stop", "held")
    assert done.returncode == 1
    text = f"run held (pid {process.pid}) has not exited 5 s after SIGTERM"
    hint = f"'kill -KILL {supervisor}' kills it and its ranks"
    assert (text in one_line(done.stderr), hint in one_line(done.stderr)) == (True, True), done
    os.kill(supervisor, signal.SIGKILL)
    os.waitpid(supervisor, 0)
    assert process.wait(5) == 125
