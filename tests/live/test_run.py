"""`ompbind run` with real children: binding, exit codes, signals, orphans."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ompbind.registry.registry import read_live_runs
from tests.live.conftest import allowed_list, children_of, ranks_of, state_of, supervisor_of, wait_until


def test_variables_are_set_and_cleared(ompbind):
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    inherited = {"GOMP_CPU_AFFINITY": "0-99", "OMP_NUM_THREADS": "64", "OMPBIND_RANKS": "1"}
    done = ompbind("run", "-t", "3", "--run-id", "my run", "--", sys.executable, "-c", code, env=inherited)
    env = json.loads(done.stdout)
    assert (env["OMP_NUM_THREADS"], env["OMPBIND_WORKER_NAME"]) == ("3", "my run-rank-0")
    assert not {"GOMP_CPU_AFFINITY", "OMPBIND_RANKS"} & env.keys()
    messages = " ".join(done.stderr.split())
    assert "cleared GOMP_CPU_AFFINITY=0-99; replaced OMP_NUM_THREADS=64 (now 3)" in messages


@pytest.mark.two_cpus
def test_standard_input_goes_to_the_first_rank(ompbind):
    script = "printf '%s:%s\n' $RANK \"$(cat)\""
    for option, expected in (("first", ["0:words", "1:"]), ("none", ["0:", "1:"])):
        options = ("-n", "2", "--stdin", option)
        done = ompbind("run", *options, "--", "sh", "-c", script, stdin=None, input="words")
        assert sorted(done.stdout.splitlines()) == expected


def test_signals_that_were_ignored_stay_ignored_but_not_those_that_python_ignores(ompbind):
    script = "kill -HUP $PPID; kill -HUP $$; grep -E 'SigIgn|SigBlk' /proc/self/status"
    done = ompbind("run", "--", "sh", "-c", script, before=("nohup",))
    masks = dict(line.split(":\t") for line in done.stdout.splitlines())
    assert int(masks["SigIgn"], 16) & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1) == 0
    assert (int(masks["SigBlk"], 16), done.returncode) == (0, 0)


SIGNALLED = """
import os, signal, sys, time
def show(number, frame):
    os.write(1, f"{os.environ['RANK']} {number}\\n".encode())
    if number in (2, 3, 15):
        sys.exit(100 + number)
for number in map(int, sys.argv[1:] or (1, 2, 3, 10, 12, 15)):
    signal.signal(number, show)
os.write(1, b"up\\n")
while True:  # short sleeps: Python may start a sleep just before it handles a signal
    time.sleep(0.05)
"""
"""A rank that prints each of some signals, and exits after a termination signal."""


def begin(start, *numbers, ranks=2, **options):
    words = ("-n", str(ranks), "--", sys.executable, "-c", SIGNALLED, *(f"{number}" for number in numbers))
    return start("run", *words, up=ranks, **options)


@pytest.mark.two_cpus
@pytest.mark.parametrize("last", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT])
def test_signals_are_forwarded_to_every_rank_and_the_code_after_a_request_to_stop_is_returned(start, last):
    others = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT, signal.SIGHUP]
    process = begin(start, *others, last)
    for number in others:
        process.send_signal(number)
        expected = {number, signal.SIGCONT} if number == signal.SIGHUP else {number}
        found = [process.stdout.readline() for _ in range(2) for _ in expected]
        assert sorted(found) == sorted(f"{rank} {each}\n" for rank in range(2) for each in expected)
    process.send_signal(last)
    stdout, messages = process.communicate(timeout=20)
    lines = re.sub(f". {signal.SIGCONT}\n", "", stdout)  # sent with the request: a rank may be stopped
    assert sorted(lines.splitlines()) == [f"0 {last}", f"1 {last}"], messages
    assert process.returncode == 100 + last


COUNT_SIGNALS = """
import signal
numbers = {signal.SIGRTMIN, signal.SIGRTMIN + 1, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print("up", flush=True)
while (number := signal.sigwaitinfo(numbers).si_signo) != signal.SIGTERM:
    print(number, flush=True)
print("SIGTERM", signal.sigtimedwait(numbers, 0.6))
"""
"""Counts signals; the kernel queues each SIGRTMIN."""


@pytest.mark.parametrize("order", ["foreground supervisor rank", "rank supervisor foreground", "supervisor"])
def test_a_signal_that_slurm_sends_to_all_processes_of_a_job_is_not_sent_again(start, order):
    env = {"SLURM_JOB_ID": "1"}
    process = start("run", "--", sys.executable, "-S", "-c", COUNT_SIGNALS, env=env, up=1)
    pids = {"foreground": process.pid, "supervisor": supervisor_of(process), "rank": ranks_of(process)[0]}
    first = signal.SIGRTMIN
    for name in order.split():
        os.kill(pids[name], first)
    os.kill(process.pid, first + 1)  # only the foreground process has it: it is forwarded
    assert {process.stdout.readline() for _ in range(2)} == {f"{first}\n", f"{first + 1}\n"}
    for name in order.split():
        os.kill(pids[name], signal.SIGTERM)
    assert process.communicate(timeout=20)[0] == "SIGTERM None\n"
    assert process.returncode == 0


@pytest.mark.two_cpus
def test_stopping_and_continuing_the_run_stops_and_continues_the_ranks(start):
    process = begin(start, process_group=0)
    children = ranks_of(process)
    assert allowed_list(process.pid) == allowed_list(os.getpid())
    assert [os.getpgid(pid) for pid in children] == children
    assert len({allowed_list(pid) for pid in children}) == 2
    process.send_signal(signal.SIGTSTP)
    wait_until(lambda: all(state_of(pid) == "T" for pid in (*children, process.pid)), "everything stopped")
    process.send_signal(signal.SIGCONT)
    wait_until(lambda: all(state_of(pid) == "S" for pid in children), "ranks continued")


def test_a_run_that_is_continued_before_it_could_be_stopped_goes_on(start):
    """As on a busy machine: the supervisor reads both signals at once."""
    process = begin(start, signal.SIGUSR1, ranks=1, process_group=0)
    supervisor, none_pending = supervisor_of(process), f"\nShdPnd:\t{0:016x}\n"
    os.kill(supervisor, signal.SIGSTOP)
    status = Path(f"/proc/{process.pid}/status")
    for number in (signal.SIGTSTP, signal.SIGCONT):
        process.send_signal(number)
        wait_until(lambda: none_pending in status.read_text(), "it has forwarded the signal")
    os.kill(supervisor, signal.SIGCONT)
    process.terminate()
    assert process.wait(20) == 143


@pytest.mark.two_cpus
@pytest.mark.parametrize("before", [
    (), ("bash", "-c", 'set -m; { "$@" & } & wait; exec sleep 60', "bash"),
], ids=["a session of its own", "a job whose shell has exited, in a session that goes on"])  # fmt: skip
def test_a_run_without_a_process_that_could_continue_it_is_not_stopped(start, claims, before):
    begin(start, before=before, start_new_session=True)
    (run,) = read_live_runs(str(claims))
    (supervisor,) = children_of(run.pid)
    os.kill(run.pid, signal.SIGTSTP)
    time.sleep(0.2)
    stopped = [pid for pid in (run.pid, *children_of(supervisor)) if state_of(pid) == "T"]
    os.kill(run.pid, signal.SIGKILL)
    assert not stopped


def test_only_ranks_keep_standard_output_open(start):
    process = start("run", "--", "sh", "-c", "exec >&-; exec sleep 300")
    assert select.select([process.stdout], [], [], 20)[0], "nobody has it open any more"
    assert (process.stdout.read(), process.poll()) == ("", None)


@pytest.mark.parametrize(("stream", "args", "code"), [
    ("stderr", "run -- none", 127), ("stderr", "run -v -- true", 0), ("stdout", "plan", 2),
])  # fmt: skip
def test_messages_that_cannot_be_written_change_no_code_but_output_does(ompbind, stream, args, code):
    with open("/dev/full", "w") as full:
        pipes = {"capture_output": False, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: full}
        done = ompbind(*args.split(), **pipes)
    assert done.returncode == code
    assert stream == "stderr" or "No space left" in done.stderr
