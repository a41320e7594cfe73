"""How a run with --verify ends: the table in docs/verify.md, with real ranks for each of its rows."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.live.conftest import SANDBOX, one_line, ranks_of, supervisor_of, two_cpus, unavailable, wait_until

PAGE = (Path(__file__).parents[2] / "docs/verify.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.partition("\n| how the run exits |")[2].partition("\n\n")[0].splitlines()[2:]
]

PROGRAM = """
import os, signal, sys, time
over, cpus, code = sys.argv[1:]
rank, attempt = int(os.environ["RANK"]), os.environ["OMPBIND_ATTEMPT"]
signal.signal(signal.SIGINT, signal.SIG_DFL)
def wait():
    while not os.path.exists(over): time.sleep(0.01)
def leave():
    os.sched_setaffinity(0, map(int, cpus.split(",")))
def count_waits():
    text = open(f"/proc/{os.getppid()}/status").read()
    return int(text.partition("\\nvoluntary_ctxt_switches:")[2].split()[0])
def sleep_for(samples):
    before = count_waits()
    while count_waits() < before + samples: time.sleep(0.01)
print("up", flush=True)
exec(code)
"""
"""A rank, and what its code can call. The supervisor wakes up for nothing but a sample while ranks run."""


def count_waits(pid):
    """Return how often a supervisor has slept; 1000 after its exit."""
    with suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text()
        return int(re.search(r"\nvoluntary_ctxt_switches:\s*(\d+)", status)[1])
    return 1000


class Ending:
    """A run that is ended in some way; its ranks wait for the file `over`, `errors` has its messages."""

    def __init__(self, process, errors, over, run_ompbind):
        self.process, self.errors, self.over, self.run_ompbind = process, errors, over, run_ompbind

    def after_ups(self, number=2):
        assert [self.process.stdout.readline() for _ in range(number)] == ["up\n"] * number

    def after_samples(self):
        """Wait until ranks were sampled: the supervisor sleeps at most twice before its first sample."""
        self.after_ups()
        supervisor = supervisor_of(self.process)
        before = count_waits(supervisor)
        wait_until(lambda: count_waits(supervisor) >= before + 4, "two samples")

    def after(self, text):
        """Wait until a message has a text, or the run has exited."""
        wait_until(lambda: text in self.errors.read_text() or self.process.poll() is not None, text)


def start_only(_):
    """The run ends by itself."""


def send(number):
    return lambda ending: (ending.after_samples(), ending.process.send_signal(number))


def insist(ending):
    send(signal.SIGTERM)(ending)
    ending.after("with SIGTERM")
    time.sleep(0.6)  # a request that comes earlier counts as the same
    ending.process.send_signal(signal.SIGTERM)


def stop(ending):
    ending.after_samples()
    ending.run_ompbind("stop", "ends")


def finish_after(text=""):
    """Let the ranks go on after a message, or once they were sampled."""
    return lambda ending: (ending.after(text) if text else ending.after_samples(), ending.over.touch())


finish = finish_after()


def interrupt_early(ending):
    ending.after_ups(1)
    ending.process.send_signal(signal.SIGTERM)


def kill_supervisor(ending):
    ending.after_ups()
    wait_until(lambda: len(ranks_of(ending.process)) == 2, "both ranks")
    os.kill(supervisor_of(ending.process), signal.SIGKILL)


HIDDEN = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc; exec "$@"', "sh")
FOREIGN = ("unshare", "--pid", "--fork", "--kill-child")
"""Programs before ompbind that hide all processes, or show others in their place."""

EPOLL_WAIT = {"x86_64": "232"}.get(os.uname().machine, "22")
FAILING = (sys.executable, SANDBOX, str(errno.ENOSYS), EPOLL_WAIT, "--")
"""A program before ompbind, whose supervisor then fails after the start of its first rank."""

FOREVER = "time.sleep(60)"
ERROR, UNSEEN = "do not run as planned", "not seen"
CASES = {
    "all ranks exited with 0": ("wait()", finish),
    "all ranks exited with 0 before the first sample": (["true"], start_only),
    "a rank exited with 3, the others were stopped": (f"wait(); rank or sys.exit(3); {FOREVER}", finish),
    "a rank was killed by SIGKILL": (f"wait(); rank or os.kill(os.getpid(), 9); {FOREVER}", finish),
    "`--timeout`": (FOREVER, start_only, "--timeout=1"),
    "the group of `--until` exited with 0": ({"a": FOREVER, "b": "wait()"}, finish, "--until=b"),
    "Ctrl-C": (FOREVER, send(signal.SIGINT)),
    "SIGTERM": (FOREVER, send(signal.SIGTERM)),
    "a second signal, because ranks ignored the first": (
        f"signal.signal(signal.SIGTERM, signal.SIG_IGN); {FOREVER}", insist, "--grace=30",
    ),
    "`ompbind stop`": (FOREVER, stop),
    "SIGTERM before all ranks had started": (
        {"a": FOREVER, "b": ""}, interrupt_early, "--ready=exec:false",
    ),
    "a group was not ready in time": (
        {"a": FOREVER, "b": ""}, start_only, "--ready=exec:false", "--ready-timeout=0.3",
    ),
    "a later rank could not be executed": (["./app"], start_only),
    "ompbind itself failed after a rank had started": (FOREVER, start_only),
    "the command was not found": (["no-such-command"], start_only),
    "there was an error": ("rank and leave(); wait()", finish_after(ERROR)),
    "rank 0 exited with 3, and rank 1 had an error": (
        "rank or sys.exit(3); leave(); wait()", finish_after(ERROR), "--on-failure=continue",
    ),
    "there was an error, then the group of `--until` exited with 0": (
        {"a": f"leave(); sleep_for(5); open(over, 'w'); {FOREVER}", "b": "wait()"},
        start_only, "--until=b",
    ),
    "there was an error before a restart": (
        "if rank: wait()\nelif attempt == '2': open(over, 'w')\n"
        "else: leave(); sleep_for(5); sys.exit(1)",
        start_only, "--on-failure=restart:1",
    ),
    "there was an error in the last sample only, long after the start": (
        "wait(); leave(); sleep_for(1)", finish_after("verified: 2 ranks"),
    ),
    "`/proc` does not show the ranks": (
        "if attempt == '1': time.sleep(0.6); sys.exit(1)", start_only, "--on-failure=restart:1",
    ),
    "`/proc` does not show the ranks, and one exited with 3": (
        "rank or sys.exit(3); wait()", finish_after(UNSEEN), "--on-failure=continue",
    ),
    "the supervisor was killed": (FOREVER, kill_supervisor),
}  # fmt: skip
"""For each row of the table what the ranks do, how the test ends the run, and options."""


SAID = {
    "there was an error": "rank 1 do not run as .*rank 1: the only thread may run on CPUs .* rank has CPU",
    "rank 0 exited with 3, and rank 1 had an error":
        r"rank 1 had errors \(outside\) in the last sample; rank 0 exited with code 3",
    "there was an error, then the group of `--until` exited with 0": "rank 0 do not run as .* a 0 ",
}  # fmt: skip
"""What is printed too."""


def make_words(scene, what, options):
    """Return the words of a run: `what` is a command, or the code of all ranks, or of each group."""
    first, second = map(str, two_cpus())
    python = ["--", sys.executable, "-I", "-S", "-c", PROGRAM, str(scene / "over"), f"{first},{second}"]
    if isinstance(what, dict):
        until = [word for word in options if word.startswith("--until")]
        first_options = [word for word in options if word not in until]
        before, after = ["--name=a", *first_options, f"-m{first}"], ["--name=b", *until, f"-m{second}"]
        return [*before, *python, what["a"], ":", *after, *python, what["b"]]
    if what == ["./app"]:
        options = [f"--chdir={scene}/{{rank}}"]
        for rank, text in enumerate(("#!/bin/sh\nsleep 60\n", "\0")):
            (scene / str(rank)).mkdir()
            (scene / str(rank) / "app").write_text(text)
            (scene / str(rank) / "app").chmod(0o755)
    command = ["--", *what] if isinstance(what, list) else [*python, what]
    return ["-n2", f"-m{first}|{second}", *options, *command]


def list_cases():
    """Return each row in both modes; where strict changes no exit code, only long runs test both."""
    for row in ROWS:
        yield pytest.param(row, "--verify strict", id=f"{row[0]}, strict")
        yield pytest.param(row, "--verify", id=row[0], marks=[pytest.mark.long] * (row[1] == row[2]))


@pytest.mark.parametrize(("row", "mode"), [*list_cases()])
def test_each_run_has_the_exit_code_last_line_and_report_of_the_table(start, ompbind, tmp_path, row, mode):
    name, relaxed, strict, line, state = row
    what, act, *options = CASES[name]
    report, path, before = tmp_path / "report.json", tmp_path / "errors", FAILING if "itself" in name else ()
    if "/proc" in name:
        before = FOREIGN if name.endswith("the ranks") else HIDDEN
        if os.geteuid() or subprocess.run([*before, "true"]).returncode:
            unavailable("needs namespaces, which takes root")
    options = [*mode.split(), f"--report={report}", *make_words(tmp_path, what, options)]
    with path.open("w") as file:
        run = start("run", "--run-id=ends", *options, before=before, stderr=file)
    act(Ending(run, path, tmp_path / "over", ompbind))
    run.communicate(timeout=30)
    errors, code = path.read_text(), int(strict if mode.endswith("strict") else relaxed)
    assert run.returncode in (code, 128 - code), errors
    starts = ("ompbind: verified", "ompbind: not as planned", "ompbind: not seen")
    last = [one_line(part) for part in re.split(r"\n(?=\S)", errors) if part.startswith(starts)][-1]
    assert last.startswith(f"ompbind: {line.strip('`')}"), errors
    if state == "no report":
        assert not report.exists()
        return
    record = json.loads(report.read_text())
    verified = record["verified"]
    assert (record["exit_code"], verified["state"]) == (code, state.strip("`"))
    assert ("not started" in last) == (len(record["ranks"]) < len(verified["ranks"]))
    assert (verified["reason"] is None) == (verified["state"] != "not seen")
    assert all(rank["state"] in ("ok", "error", "not seen") for rank in verified["ranks"])
    assert all((rank["reason"] is None) == (rank["state"] != "not seen") for rank in verified["ranks"])
    messages, error = one_line(errors), record["error"] or ""
    assert f"ompbind: error: {error}" in messages or not error
    assert error.startswith("--verify=strict: ") == (code == 125 and relaxed != "125")
    assert re.search(SAID.get(name, ""), messages), messages
    if name == "there was an error":
        bad = verified["ranks"][1]
        assert errors.count("the rank has") == 1, "reported once, immediately, and not again at the end"
        assert (bad["level"], bad["outside"], bad["findings"][0]["code"]) == ("problem", 1, "outside")


def test_each_row_of_the_table_is_tested():
    assert [row[0] for row in ROWS] == [*CASES]
