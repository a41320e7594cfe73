"""`ompbind run --verify` with real ranks: bound as planned, or not."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ompbind.cpuset import CpuSet
from ompbind.execution.run_options import RunOptions
from ompbind.execution.verify.evaluate import sample_affinities
from ompbind.execution.verify.sampler import (
    FEW_STABLE_S,
    LONGEST_S,
    STABLE_S,
    AffinitySampler,
    count_masks,
    find_rank_processes,
)
from ompbind.inspection.expectation import ExpectedBinding
from ompbind.openmp.binding import Bind
from ompbind.procfs.reader import list_threads, read_memory_policy, read_processes
from tests.live.conftest import is_alive, ranks_of, required, supervisor_of, two_cpus, wait_until

LIMIT = ("--timeout", "30")
"""For runs whose test waits for a line that may not come."""

PYTHON = (sys.executable, "-I", "-S", "-c")

WIDENS = """
import os, sys, time
own, other = sys.argv[1:3]
if os.environ["RANK"] == "1":
    os.sched_setaffinity(0, {int(own), int(other)})
time.sleep(float(sys.argv[3]))
"""
"""A rank 1 that adds the CPU of rank 0 to its affinity mask."""

NARROWS = """
import os, threading, time
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
for _ in range(2):
    threading.Thread(target=time.sleep, args=(1.2,)).start()
"""
"""A program that restricts itself to one CPU, and so all threads that it creates."""

TRAP = """
#include <pthread.h>
#include <unistd.h>
static void *plain(void *_) { sleep(60); return _; }
int main(void) {
    pthread_t made;
#pragma omp parallel
    { usleep(1000); }
    pthread_create(&made, 0, plain, 0);
    usleep(1200000);
    return 0;
}
"""
"""An OpenMP program that also creates a plain thread."""


def parts(count=2):
    """Return a mask with one CPU for each of two ranks."""
    return "|".join(map(str, two_cpus()[:count]))


def words(text):
    """Return text without line breaks."""
    return " ".join(text.split())


FOR = "ompbind: verified for T s, N samples:"


def without_times(text):
    """Return the words of a message at the end of a run, with T for its seconds and N for its samples."""
    return re.sub(r"verified for [\d.]+ s, \d+ samples?:", "verified for T s, N samples:", words(text))


def widens(seconds):
    first, second = two_cpus()
    return (*PYTHON, WIDENS, str(second), str(first), str(seconds))


def test_ranks_bound_as_planned_are_one_sentence(start, tmp_path):
    report, over = tmp_path / "run.json", tmp_path / "over"
    waits = f"import os, time\nwhile not os.path.exists({str(over)!r}): time.sleep(0.05)"
    verify = ("run", "--verify", *LIMIT, "-n", "2", "-m", parts(), "--report", str(report))
    process = start(*verify, "--", *PYTHON, waits)
    line = process.stderr.readline()
    line += process.stderr.readline()
    over.touch()
    out, last = process.communicate(timeout=10)
    assert (process.returncode, out) == (0, "")
    assert without_times(last) == f"{FOR} 2 ranks, 2 threads, each on the CPUs of its rank"
    assert re.fullmatch(
        r"ompbind: verified: 2 ranks, 2 threads, each on the CPUs of its rank, \d+ s after the start",
        words(line),
    )
    verified = json.loads(report.read_text())["verified"]
    assert verified.pop("seen_s") > STABLE_S
    assert verified.pop("samples") >= 5
    ranks = verified.pop("ranks")
    assert verified == {"level": "ok", "settled": True, "calm": True, "strict": False}
    numbers = ("rank", "threads", "outside", "narrowed", "stacked")
    assert [[rank[name] for name in numbers] for rank in ranks] == [[0, 1, 0, 0, 0], [1, 1, 0, 0, 0]]
    assert ranks[0]["text"] == f"the only thread is allowed on CPU {two_cpus()[0]}"


def test_a_rank_allowed_on_the_cpus_of_another_is_reported_and_goes_on(ompbind, tmp_path):
    report = tmp_path / "run.json"
    done = ompbind(
        "run", "-q", "--verify", "-n", "2", "-m", parts(), "--report", str(report), "--", *widens(1.5)
    )
    first, second = two_cpus()
    assert done.returncode == 0
    head, titles, row, *reason = done.stderr.splitlines()
    assert head == "ompbind: warning: the threads of rank 1 do not run as planned"
    assert titles.split() == ["rank", "CPUs", "threads", "outside", "narrowed", "stacked", "runtimes"]
    assert row.split() == ["1", str(second), "1", "1", "0", "0", "-"]
    both = CpuSet((first, second))
    text = f"rank 1: the only thread may run on CPUs {both}, the rank has CPU {second}"
    assert text in words("\n".join(reason))
    assert done.stderr.count("the rank has") == 1, "reported once, immediately, and not again at the end"
    assert max(map(len, done.stderr.splitlines())) <= 80
    record = json.loads(report.read_text())
    assert (record["error"], record["exit_code"]) == (None, 0)
    good, bad = record["verified"]["ranks"]
    assert (good["level"], bad["level"], bad["outside"]) == ("ok", "problem", 1)
    assert [finding["code"] for finding in bad["findings"]] == ["outside"]


def test_strict_stops_all_ranks_immediately(ompbind, tmp_path):
    report = tmp_path / "run.json"
    begun = time.monotonic()
    done = ompbind("run", "--verify=strict", "-n", "2", "-m", parts(), "--report", str(report),
                   "--", *widens(60))  # fmt: skip
    assert done.returncode == 125
    assert time.monotonic() - begun < 5
    stderr = words(done.stderr)
    assert "warning: the threads of rank 1 do not run as planned" in stderr
    assert "ompbind: stopping ranks 0-1 with SIGTERM" in stderr
    assert "ompbind: error: --verify=strict: the threads of rank 1 did not run as planned hint:" in stderr
    record = json.loads(report.read_text())
    assert (record["exit_code"], record["error"]) == (
        125,
        "--verify=strict: the threads of rank 1 did not run as planned",
    )
    assert not [rank["pid"] for rank in record["ranks"] if is_alive(rank["pid"])]
    assert [rank["stopped"] for rank in record["ranks"]] == [True, True]
    assert record["verified"]["ranks"][1]["outside"] == 1
    assert not record["verified"]["settled"], "the run was stopped before"


def test_strict_reports_the_last_sample_at_the_end(ompbind, trap):
    """A runtime binds the initial thread to its first place, and plain threads inherit the mask."""
    first, second = two_cpus()
    places = ("--env", f"OMP_PLACES={{{first}}},{{{second}}}", "--env", "OMP_PROC_BIND=close")
    done = ompbind("run", "--verify=strict", *places, "--", trap)
    stderr = words(done.stderr)
    assert done.returncode == 125, stderr
    assert "3 of 3 threads are restricted to parts of CPUs" in stderr
    assert (
        "libgomp bound the initial thread to the first place, and new threads and processes inherit" in stderr
    )
    assert re.search(r"\n +0 .* 3 +0 +3 +2 +libgomp\n", done.stderr)
    done = ompbind("run", "--verify=strict", "--", trap)
    assert (done.returncode, without_times(done.stderr)) == (
        0,
        f"{FOR} 1 rank, 3 threads (libgomp), each on the CPUs of its rank",
    )


@pytest.fixture
def trap(tmp_path):
    """Compile the program with OpenMP."""
    source, program = tmp_path / "trap.c", tmp_path / "trap"
    source.write_text(TRAP)
    subprocess.run([required("gcc"), "-fopenmp", source, "-o", program], check=True, timeout=60)
    return str(program)


def test_a_program_that_confines_itself_is_a_note(ompbind):
    done = ompbind("run", "--verify=strict", "--", *PYTHON, NARROWS)
    first, line = done.stderr.split("note: ")
    assert done.returncode == 0
    assert without_times(first).startswith(f"{FOR} 1 rank, 3 threads, each on the CPUs of its rank")
    assert "rank 0: 3 of 3 threads are restricted to CPU" in words(line)
    assert "the process or its parent set this mask" in words(line)
    assert ompbind("run", "-q", "--verify", "--", *PYTHON, NARROWS).stderr == ""


def test_a_rank_that_was_not_sampled_has_not_failed(ompbind, tmp_path):
    report = tmp_path / "run.json"
    done = ompbind("run", "--verify=strict", "--report", str(report), "--", "true")
    assert done.returncode == 0
    assert words(done.stderr) == (
        "ompbind: not verified: rank 0 exited before ompbind could check its threads; "
        "at the start it was bound to its CPUs"
    )
    verified = json.loads(report.read_text())["verified"]
    assert (verified["settled"], verified["ranks"][0]["level"], verified["ranks"][0]["threads"]) == (
        False,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("args", "code"), [(("--timeout", "0.7"), 124), (("--on-failure", "stop"), 7), ((), signal.SIGINT)]
)
def test_what_stops_the_run_first_decides_its_exit_code(start, args, code):
    """A signal, a timeout or a failed rank stops it before threads are stable."""
    script = "[ $RANK = 0 ] && sleep 0.5 && exit 7; exec sleep 60" if code == 7 else "exec sleep 60"
    process = start(
        "run", "--verify=strict", "-n", "2", "--grace", "2", *args, "-m", parts(), "--", "sh", "-c", script
    )
    if code == signal.SIGINT:
        wait_until(lambda: len(ranks_of(process)) == 2, "both ranks")
        time.sleep(0.4)  # between two samples
        process.send_signal(signal.SIGINT)
        code = -signal.SIGINT
    _, stderr = process.communicate(timeout=10)
    assert process.returncode in (code, 130 if code < 0 else code), stderr
    assert "verified" not in stderr, "the result of a stopped run is not reported"


def test_samples_become_rare_when_threads_are_stable(start):
    process = start("run", "--verify", *LIMIT, "-n", "2", "-m", parts(), "--", "sleep", "60")
    assert process.stderr.readline().startswith("ompbind: verified: 2 ranks")
    time.sleep(0.3)
    before = switches(process)
    time.sleep(1.5)
    assert switches(process) == before
    process.send_signal(signal.SIGTERM)
    process.wait(10)


def switches(process):
    """Return the context switches of ompbind's own processes."""
    status = "".join(Path(f"/proc/{pid}/status").read_text() for pid in (process.pid, supervisor_of(process)))
    return sum(map(int, re.findall(r"ctxt_switches:\s*(\d+)", status)))


def read_until(stream, text):
    """Return the words of some lines, up to the line that completes a text, or to the end."""
    found = ""
    while text not in found and (line := stream.readline()):
        found = words(f"{found} {line}")
    return found


GROWS = """
import threading, time
time.sleep(0.9)
threading.Thread(target=time.sleep, args=(60,)).start()
"""
"""A program that gets its second thread between the samples at 0.7 and 1.5 s, so it is stable at 6.3 s."""


def test_threads_are_stable_two_seconds_after_the_last_change_if_there_are_enough(start, tmp_path):
    first, second = two_cpus()
    both, options = f"{first},{second}", ("run", "--verify", "--share", *LIMIT, "--report")
    reports = [tmp_path / f"{number}.json" for number in range(3)]
    others = [
        start(*options, str(report), "-m", both, "--", *command)
        for report, command in zip(reports, (("sleep", "60"), (*PYTHON, GROWS)), strict=False)
    ]
    wait_until(lambda: all(map(ranks_of, others)), "a rank with fewer threads, and a rank that changes")
    process = start(*options, str(reports[2]), "-m", str(first), "--", "sleep", "60")
    text = read_until(process.stderr, "the start")
    assert re.search(r"^ompbind: verified: 1 rank, 1 thread, .*, [345] s after the start$", text), text
    for running in (*others, process):
        running.terminate()
        running.wait(10)
    verified = [json.loads(report.read_text())["verified"] for report in reports]
    assert [found["settled"] for found in verified] == [False, False, True]
    assert verified[2]["calm"]


@pytest.mark.long
def test_threads_that_are_not_stable_are_verified_after_a_minute(start):
    code = """
import threading, time
while True:
    threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
    time.sleep(0.5)
"""
    process = start("run", "--verify", "--timeout", "90", "-m", parts(1), "--", *PYTHON, code)
    text = read_until(process.stderr, "after 6")
    assert re.search(r"but their number or masks still change after 6[0-2] s$", text), text


SAMPLED = """
import os, sys, time
def count_waits():
    text = open(f"/proc/{os.getppid()}/status").read()
    return text.partition("\\nvoluntary_ctxt_switches:")[2].split()[0]
def wait_for_sample():
    before = count_waits()
    while count_waits() == before:
        time.sleep(0.01)
"""
"""The start of a rank that can wait until it is sampled: the supervisor wakes up for nothing else."""


def test_a_rank_is_outside_its_cpus_only_after_two_samples(ompbind, tmp_path):
    first, second = two_cpus()
    code = f"""{SAMPLED}
time.sleep(0.2)
os.sched_setaffinity(0, {{{first}, {second}}})
wait_for_sample()
os.sched_setaffinity(0, {{{second}}})
wait_for_sample()
"""
    report = tmp_path / "run.json"
    strict = ("run", "--verify=strict", *LIMIT, "-m", str(second), "--report", str(report))
    done = ompbind(*strict, "--", *PYTHON, code)
    assert (done.returncode, "warning" in done.stderr) == (0, False), done.stderr
    verified = json.loads(report.read_text())["verified"]
    assert (verified["samples"] >= 2, verified["ranks"][0]["outside"]) == (True, 0)


def test_an_error_of_strict_keeps_the_exit_code_of_a_failed_rank(ompbind, tmp_path):
    """The only rank fails after the first sample in which it is outside its CPUs."""
    first, second = two_cpus()
    code = f"""{SAMPLED}
time.sleep(0.8)  # the next samples come 1.5 and 3.1 s after the start
os.sched_setaffinity(0, {{{first}, {second}}})
wait_for_sample()
sys.exit(7)
"""
    report = tmp_path / "run.json"
    strict = ("run", "--verify=strict", *LIMIT, "-m", str(second), "--report", str(report))
    done = ompbind(*strict, "--", *PYTHON, code)
    assert "warning: the threads of rank 0 do not run as planned" in words(done.stderr)
    assert done.returncode == 7, done.stderr
    record = json.loads(report.read_text())
    assert (record["exit_code"], record["error"]) == (7, None)


SHORT_WAITS = str(Path(__file__).with_name("short_waits.py"))


def test_a_note_that_is_new_is_reported(start, tmp_path):
    """The second attempt of a rank restricts itself to a part of its CPUs."""
    first, second = two_cpus()
    fail = tmp_path / "fail"
    code = f"""
import os, sys, time
if os.environ["OMPBIND_ATTEMPT"] == "1":
    while not os.path.exists({str(fail)!r}):
        time.sleep(0.02)
    sys.exit(3)
os.sched_setaffinity(0, {{{first}}})
time.sleep(60)
"""
    options = ("run", "--verify", *LIMIT, "--on-failure", "restart", "-m", f"{first},{second}", "-t", "1")
    process = start(*options, "--", *PYTHON, code, before=(sys.executable, SHORT_WAITS, "0.02"))
    assert "note" not in read_until(process.stderr, "the start")
    fail.touch()
    text = read_until(process.stderr, "this mask")
    assert f"note: rank 0: the only thread is restricted to CPU {first} out of" in text


@pytest.mark.parametrize("output", ["tag", "files", "tag,files"])
def test_the_result_is_written_between_the_lines_of_ranks(ompbind, tmp_path, output):
    logs = ("--log-dir", str(tmp_path / "logs")) if "files" in output else ()
    script = "for i in 1 2 3 4 5; do echo $i; sleep 0.3; done"
    done = ompbind(
        "run", "--verify", "--output", output, *logs, "-n", "2", "-m", parts(), "--", "sh", "-c", script
    )
    assert done.returncode == 0
    assert re.fullmatch(
        rf"{FOR} 2 ranks, \d threads, each on the CPUs of its rank", without_times(done.stderr)
    )
    lines = [f"[{rank}] {i}" for rank in range(2) for i in range(1, 6)]
    assert sorted(done.stdout.splitlines()) == (lines if "tag" in output else [])
    if logs:
        assert (tmp_path / "logs/1.out").read_text() == "1\n2\n3\n4\n5\n"


def test_daemons_belong_to_their_rank(ompbind):
    """A daemon has lost its parent, and left the process group and session of its rank."""
    first, second = two_cpus()
    escaped = f"setsid sh -c 'taskset -pc {first} $$ >/dev/null; sleep 60' & exit"
    script = f"[ $RANK = 0 ] || ({escaped}); sleep 60"
    required("taskset")
    done = ompbind(
        "run", "--verify=strict", *LIMIT, "--grace", "1", "-n", "2", "-m", parts(), "--", "sh", "-c", script
    )
    assert done.returncode == 125
    assert f"may run on CPU {first}, the rank has CPU {second}" in words(done.stderr)


@pytest.mark.parametrize(
    ("ranks", "daemon"),
    [("2", "env -i {0} {1} & exit"), ("1", "env -i setsid {0} {1} & exit")],
    ids=["in the process group", "of the only rank"],
)
def test_daemons_without_environment_are_found(ompbind, tmp_path, ranks, daemon):
    first, second = two_cpus()
    mask = parts() if ranks == "2" else str(second)
    orphan = tmp_path / "orphan"
    orphan.write_text(f"#!/bin/sh\n{required('taskset')} -pc {first} $$ >/dev/null\nexec sleep 60\n")
    script = f"[ $OMPBIND_CPUS = {first} ] || ({daemon.format('/bin/sh', orphan)}); sleep 60"
    done = ompbind(
        "run", "--verify=strict", *LIMIT, "--grace", "1", "-n", ranks, "-m", mask, "--", "sh", "-c", script
    )
    assert done.returncode == 125, done.stderr
    assert f"may run on CPU {first}, the rank has CPU {second}" in words(done.stderr)


def test_a_rank_whose_initial_thread_has_exited_is_sampled(ompbind):
    code = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(1,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""
    done = ompbind("run", "--verify", "-m", parts(1), "--", sys.executable, "-c", code)
    assert without_times(done.stderr).startswith(f"{FOR} 1 rank, 1 thread, each on the CPUs"), done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make namespaces")
@pytest.mark.parametrize(
    "before",
    [
        ("unshare", "--pid", "--fork", "--kill-child"),
        ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc; exec "$@"', "sh"),
    ],
    ids=["foreign", "empty"],
)
@pytest.mark.parametrize("strict", [False, True])
def test_a_proc_that_shows_no_rank_is_reported_and_proves_nothing(ompbind, tmp_path, before, strict):
    required("unshare")
    if subprocess.run([*before, "true"], capture_output=True).returncode:
        pytest.skip("NOTE: no namespaces here")
    report = tmp_path / "run.json"
    verify = "--verify=strict" if strict else "--verify"
    command = ("-n", "2", "-m", parts(), "--", "sleep", "0.7")
    done = ompbind("run", verify, "--report", str(report), *command, before=before)
    reason = "could not be sampled: their threads are not visible in /proc"
    message = f"ompbind: not verified: ranks 0-1 {reason}"
    proof = "ompbind: error: --verify=strict: ranks 0-1 could not be sampled hint: mount a /proc"
    assert done.returncode == (125 if strict else 0)
    assert words(done.stderr).startswith(f"{message} {proof}" if strict else message)
    assert ("error" in done.stderr) == strict
    ranks = json.loads(report.read_text())["verified"]["ranks"]
    assert [rank["level"] for rank in ranks] == [None, None]
    assert ranks[0]["text"] == "could not be sampled: its threads are not visible in /proc"


def test_many_ranks(start):
    process = start("run", "--verify", *LIMIT, "--share", "-n", "64", "-t", "1", "--", "sleep", "60")
    line = process.stderr.readline()
    assert line.startswith("ompbind: verified: 64 ranks, 64 threads, each on the CPUs of its rank")
    process.send_signal(signal.SIGTERM)
    process.wait(10)


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("--verify", "strict", "--", "true"), 0, "not verified: rank 0 exited"),
        (("--verify", "--", "true"), 0, "not verified: rank 0 exited"),
        (("--verify", "-q", "--", "true"), 0, ""),
        (("--verify", "true"), 125, "'true' is not strict: write --verify or --verify=strict;"),
        (("--verify=hard", "--", "true"), 125, "'hard' is not strict"),
        (("--verify", "--", "no-such-command"), 127, "command not found"),
    ],
)
def test_the_forms_of_the_option(ompbind, args, code, message):
    done = ompbind("run", *args)
    assert done.returncode == code
    assert (message in words(done.stderr)) if message else done.stderr == ""


def test_only_run_has_the_option(ompbind):
    done = ompbind("exec", "--verify", "--", "true")
    assert done.returncode == 125
    assert "no such option" in done.stderr


THREADS = """
import os, sys, threading
ends = []
def start():
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    ends.append((end, thread))
def stop():
    end, thread = ends.pop(0)
    end.set()
    thread.join()
    while os.path.exists(f"/proc/self/task/{thread.native_id}"):
        pass
def narrow():
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
for line in sys.stdin:
    globals()[line.strip()]()
    print(flush=True)
"""
"""A program that starts and stops threads by commands on standard input."""


class Child:
    """Such a program, and a sampler with a simulated clock."""

    def __init__(self, cpus, threads):
        self.process = subprocess.Popen(
            [*PYTHON, THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.now = 0.0
        # A second rank is planned, so that other children of this process are not attributed to rank 0.
        self.sampler = AffinitySampler({0: (cpus, threads), 1: (cpus, threads)}, "run")
        self.sampler.begin(self.now)

    def do(self, word):
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        self.process.stdout.readline()

    def move(self, cpus):
        """Set the affinity mask of all its threads."""
        for tid in list_threads(self.process.pid):
            os.sched_setaffinity(tid, cpus)

    def sample(self):
        """Take the next sample when it is due, and return the time."""
        self.now = self.sampler.due_at
        self.sampler.sample({self.process.pid: 0}, self.now)
        self.sampler.schedule_next(self.now, 0.0)
        return round(self.now, 1)


@pytest.fixture
def make_child():
    """Start such a program with two threads besides its initial thread."""
    made = []

    def make(threads=1, cpus=None):
        child = Child(CpuSet(os.sched_getaffinity(0)) if cpus is None else cpus, threads)
        made.append(child)
        child.do("start")
        child.do("start")
        return child

    yield make
    for child in made:
        child.process.kill()
        child.process.communicate()


def sample_until_complete(child, between=lambda: None):
    times = []
    while not child.sampler.complete:
        times.append(child.sample())
        between()
    return times


def test_intervals_double_until_threads_are_stable(make_child):
    child = make_child()
    assert sample_until_complete(child) == [0.1, 0.3, 0.7, 1.5, 3.1]
    assert (child.sampler.complete, child.sampler.stable) == (True, True)
    (snapshot,) = child.sampler.snapshots.values()
    (process,) = snapshot.processes
    assert (round(snapshot.seen_s, 1), len(process.threads)) == (3.1, 3)


def test_a_rank_with_fewer_threads_than_planned_is_waited_for(make_child):
    child = make_child(threads=4)
    assert sample_until_complete(child) == [0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 12.7]
    assert 6.3 < FEW_STABLE_S < 12.7


def test_threads_that_are_replaced_by_similar_threads_are_stable(make_child):
    child = make_child()

    def exchange():
        child.do("start")
        child.do("stop")

    child.sample()
    before = tids(child)
    assert sample_until_complete(child, exchange)[-1] == 3.1
    assert tids(child) & before == {child.process.pid}, "only the initial thread is the same"


def tids(child):
    return set(list_threads(child.process.pid))


def test_sampling_ends_after_a_minute_if_threads_are_not_stable(make_child):
    child = make_child()
    times = sample_until_complete(child, lambda: child.do("start"))
    assert times[-1] == LONGEST_S
    assert (child.sampler.complete, child.sampler.stable) == (True, False)


def test_a_changed_mask_is_detected(make_child):
    two_cpus()
    child = make_child()
    changed = iter([False, False, True])
    times = sample_until_complete(child, lambda: child.do("narrow") if next(changed, False) else None)
    assert times[-1] == 6.3, "a change before the sample at 1.5 s is not stable at 3.1 s"


def test_threads_have_escaped_after_two_samples(make_child):
    first, _ = two_cpus()
    child = make_child(cpus=CpuSet([first]))
    child.sample()
    assert child.sampler.escaped == frozenset()
    child.sample()
    assert child.sampler.escaped == {0}


def test_read_memory_policy():
    command = [required("numactl"), "--membind=0", "--", "sleep", "60"]
    bound, free = subprocess.Popen(command), subprocess.Popen(["sleep", "60"])
    try:
        assert wait_until(lambda: read_memory_policy(bound.pid) == "bind:0", "the policy of the program")
        assert read_memory_policy(free.pid) == "default"
    finally:
        for child in (bound, free):
            child.kill()
            child.wait()
    assert read_memory_policy(bound.pid) is None


def test_processes_that_have_exited_are_not_found():
    child = subprocess.Popen(["true"])
    wait_until(lambda: not is_alive(child.pid), "its exit")
    pids_by_rank = find_rank_processes(read_processes(), {child.pid: 0}, "run")
    assert pids_by_rank == {0: set()}
    child.wait()
    assert not count_masks([child.pid])


@pytest.mark.parametrize(("before", "code"), [((), 0), (("numactl", "--interleave=all"), 125)])
def test_memory_is_verified_where_a_policy_is_planned(ompbind, tmp_path, before, code):
    if read_memory_policy(os.getpid()) is None:
        pytest.skip("this kernel knows no NUMA nodes")
    if before:
        required("numactl")
    report = tmp_path / "report.json"
    options = ("--share", "--memory", "bind", "--verify=strict", "--report", str(report), *LIMIT)
    done = ompbind("run", *options, "--", *before, "sleep", "0.6")
    assert done.returncode == (0 if code == 0 else done.returncode), done.stderr
    (rank,) = json.loads(report.read_text())["verified"]["ranks"]
    assert rank["memory"].startswith("interleave:" if before else "bind:")
    assert [issue["code"] for issue in rank["findings"]] == (["memory"] if before else [])
    assert ("memory policy bind:" in words(done.stderr)) == (not before)
    assert done.returncode == code


UNBOUND = """
#include <unistd.h>
int main(void) {
#pragma omp parallel num_threads(2)
    { usleep(1000); }
    sleep(1);
    return 0;
}
"""
"""An OpenMP program with two threads."""


@pytest.mark.parametrize("mode", ["thread", "exact"])
@pytest.mark.parametrize("descendant", [False, True])
def test_strict_fails_if_the_command_removes_the_binding(ompbind, tmp_path, mode, descendant):
    program = tmp_path / "omp"
    compiler = [required("gcc"), "-fopenmp", "-x", "c", "-", "-o", program]
    subprocess.run(compiler, input=UNBOUND, text=True, check=True, timeout=60)
    mask = ",".join(map(str, two_cpus()))
    remove = ("env", "-u", "OMP_PLACES", "-u", "OMP_PROC_BIND", str(program))
    command = ("sh", "-c", '"$@"; exit $?', "sh", *remove) if descendant else remove
    done = ompbind("run", "-m", mask, "--bind", mode, "--verify=strict", *LIMIT, "--", *command)
    assert done.returncode == 125, done.stderr
    assert "2 of 2 threads" in words(done.stderr)
    assert "are not bound to places" in words(done.stderr)
    assert "executed without OMP_PLACES and without OMP_PROC_BIND" in words(done.stderr)


@pytest.mark.parametrize(
    ("remove", "code"),
    [
        ((), 0),
        (("env", "-u", "OMP_PLACES", "-u", "OMP_PROC_BIND"), 125),
    ],
)
def test_a_worker_on_service_cpus_is_an_error(ompbind, tmp_path, remove, code):
    program = tmp_path / "omp"
    compiler = [required("gcc"), "-fopenmp", "-x", "c", "-", "-o", program]
    subprocess.run(compiler, input=UNBOUND, text=True, check=True, timeout=60)
    mask = ",".join(map(str, two_cpus()))
    options = ("-m", mask, "--service-cores", "1", "-t", "2", "--verify=strict")
    done = ompbind("run", *options, *LIMIT, "--", *remove, str(program))
    assert done.returncode == code, done.stderr
    assert ("are not bound to places" in words(done.stderr)) == bool(remove)
    assert ("1 of them bound to places" in words(done.stderr)) == (not remove)


class FakeRun:
    """A run of one rank, of which samples are taken when a test asks for them; it notes what is reported."""

    def __init__(self, child, cpus):
        self.child = child
        self.set_cpus(cpus)
        live = {child.pid: 0}
        self.children = SimpleNamespace(live=live, ranks=live, has_failed_rank=False)
        self.shutdown = SimpleNamespace(begun=False, error=None)
        self.output = SimpleNamespace(write=lambda text: None)
        self.reporter = self
        self.can_report = True
        self.reported = []

    def set_cpus(self, cpus):
        expected = ExpectedBinding(rank=0, cpus=cpus, places=(), bind=Bind.RANK)
        self.options = RunOptions(run_id="run", expected={0: (expected, 1)}, strict=True)

    def verified(self, result):
        self.reported.append("error" if result.errors else "ok")

    def stop(self, number):
        self.shutdown.begun = True


def test_threads_that_leave_their_rank_late_stop_a_strict_run(make_child):
    first, second = two_cpus()
    child = make_child()
    run, sampler = FakeRun(child.process, CpuSet((first,))), child.sampler
    run.sampler = sampler
    sampler.complete = True  # its threads have been stable for long
    child.move({first})
    sample_affinities(run)
    sample_affinities(run)
    assert run.reported == ["ok"]
    child.move({second})
    sample_affinities(run)
    assert run.reported == ["ok"], "one sample is not enough"
    assert sampler.findings.unconfirmed, "so the next sample comes soon"
    sample_affinities(run)
    assert run.reported == ["ok", "error"]
    assert run.shutdown.begun
    assert sampler.error.message == "--verify=strict: the threads of rank 0 did not run as planned"
    sample_affinities(run)
    assert (sampler.due_at, sampler.samples) == (None, 4), "a run that is being stopped is not sampled"


@pytest.mark.long
def test_a_real_server_is_verified_until_a_late_thread_moves_itself(ompbind):
    first, second = two_cpus()
    code = f"""
import os, threading, time
time.sleep(14)
def leave():
    os.sched_setaffinity(0, {{{first}, {second}}})
    time.sleep(60)
threading.Thread(target=leave).start()
"""
    done = ompbind("run", "-m", str(first), "--verify=strict", "--", *PYTHON, code, timeout=90)
    assert done.returncode == 125, done.stderr
    assert "ompbind: verified: 1 rank, 1 thread" in words(done.stderr)
    assert f"1 of 2 threads may run on CPUs {first}-{second}, the rank has CPU {first}" in words(done.stderr)


@pytest.mark.long
def test_a_helper_in_only_the_last_sample_does_not_fail_a_strict_run(ompbind):
    first, second = two_cpus()
    script = f"sleep 5.2; taskset -c {second} sleep 2"  # samples are taken 3.1 and 6.3 s after the start
    done = ompbind("run", "-m", str(first), "--verify=strict", "--", "sh", "-c", script, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_more_busy_threads_than_cpus_stop_a_strict_run(ompbind):
    code = "import os\nfor _ in range(3): os.fork()\nwhile True: pass"
    verify = ("-m", str(two_cpus()[0]), "--verify=strict", "--grace", "1")
    done = ompbind("run", *verify, "--", *PYTHON, code, timeout=90)
    assert done.returncode == 125, done.stderr
    assert "threads were runnable on CPU" in words(done.stderr)
    assert "likely pool: 1 thread 'python" in words(done.stderr)
