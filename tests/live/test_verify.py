"""`ompbind run --verify` with real ranks: bound as planned, or not."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ompbind.cpuset import CpuSet
from ompbind.execution.run_options import RunOptions
from ompbind.execution.sampler import FEW_STABLE_S, LONGEST_S, STABLE_S, AffinitySampler
from ompbind.execution.verification import finish_verification, sample_affinities
from ompbind.inspection.diagnosis import ExpectedBinding
from ompbind.inspection.verdict import State
from ompbind.openmp.binding import Bind
from ompbind.procfs.reader import list_threads, read_memory_policy
from tests.live.conftest import one_line, ranks_of, required, two_cpus, wait_until
from tests.live.other_user import NOBODY, as_user
from tests.live.runtimes import BINDS, RUNTIMES, is_installed, path_of
from tests.live.scenes import PYTHON

LIMIT = ("--timeout", "30")
"""For runs whose test waits for a line that may not come."""


@pytest.fixture
def both():
    return ",".join(map(str, two_cpus()))


@pytest.fixture
def parts():
    return "|".join(map(str, two_cpus()))


def at_end(sentence):
    """Return a pattern for the message at the end of a run; other tests use the CPUs, too."""
    others = r"(; other processes used \d+ % of .* ran)?"
    return rf"ompbind: verified for [\d.]+ of [\d.]+ s, \d+ samples?: {re.escape(sentence)}{others}"


def test_ranks_bound_as_planned_are_one_sentence(start, tmp_path, both, parts):
    reports, over = [tmp_path / "run.json", tmp_path / "few.json"], tmp_path / "over"
    waits = f"import os, time\nwhile not os.path.exists({str(over)!r}): time.sleep(0.05)"
    command = (*LIMIT, "--share", "--", *PYTHON, waits)
    few = start("run", "--verify", "--report", str(reports[1]), "-m", both, *command)
    wait_until(lambda: ranks_of(few), "a rank with fewer threads than planned")
    process = start("run", "--verify", "--report", str(reports[0]), "-n", "2", "-m", parts, *command)
    line = process.stderr.readline() + process.stderr.readline()
    over.touch()
    out, last = process.communicate(timeout=10)
    assert (process.returncode, out) == (0, "")
    sentence = "2 ranks, 2 threads, each on the CPUs of its rank"
    assert re.fullmatch(rf"ompbind: verified: {sentence}, [345] s after the start", one_line(line))
    assert re.fullmatch(at_end(sentence.replace(", ", ", at most ", 1)), one_line(last)), last
    verified = json.loads(reports[0].read_text())["verified"]
    assert verified.pop("seen_s") > STABLE_S
    assert verified.pop("samples") >= 5
    ranks = verified.pop("ranks")
    assert verified.pop("level") in ("ok", "warning"), "other tests use the CPUs"
    assert verified == {
        "state": "ok", "reason": None, "settled": True, "calm": True, "threads": 2, "strict": False,
        "unconfirmed": [],
    }  # fmt: skip
    numbers = ("rank", "threads", "outside", "narrowed", "stacked")
    assert [[rank[name] for name in numbers] for rank in ranks] == [[0, 1, 0, 0, 0], [1, 1, 0, 0, 0]]
    few.wait(10)
    assert not json.loads(reports[1].read_text())["verified"]["settled"]


TRAP = """
#include <pthread.h>
#include <unistd.h>
static void *plain(void *_) { sleep(60); return _; }
int main(void) {
    pthread_t made;
#pragma omp parallel
    { usleep(1000); }
    pthread_create(&made, 0, plain, 0);
    usleep(1000000);
    return 0;
}
"""
"""An OpenMP program that also creates a plain thread."""


@pytest.fixture(scope="module")
def trap(tmp_path_factory):
    program = tmp_path_factory.mktemp("trap") / "program"
    compiler = [required("gcc"), "-fopenmp", "-x", "c", "-", "-o", program]
    subprocess.run(compiler, input=TRAP, text=True, check=True, timeout=60)
    return str(program)


def test_strict_reports_the_last_sample_at_the_end(ompbind, trap):
    """A runtime binds the initial thread to its first place, and plain threads inherit the mask."""
    first, second = two_cpus()
    places = ("--env", f"OMP_PLACES={{{first}}},{{{second}}}", "--env", "OMP_PROC_BIND=close")
    done = ompbind("run", "--verify=strict", *places, "--", trap)
    assert done.returncode == 125, done.stderr
    assert "3 of 3 threads are restricted to parts of CPUs" in one_line(done.stderr)
    assert "libgomp bound the initial thread" in one_line(done.stderr)
    done = ompbind("run", "--verify=strict", "--", trap)
    sentence = "1 rank, at most 3 threads (libgomp), each on the CPUs of its rank"
    assert done.returncode == 0
    assert re.fullmatch(at_end(sentence), one_line(done.stderr)), done.stderr


@pytest.mark.parametrize(("options", "before", "code"), [
    (("--bind", "thread"), ("env", "-u", "OMP_PLACES", "-u", "OMP_PROC_BIND"), 125),
    (("--bind", "exact"), ("sh", "-c", 'unset OMP_PLACES OMP_PROC_BIND; "$@"; exit $?', "sh"), 125),
    (("--service-cores", "1", "-t", "2"), ("env", "-u", "OMP_PLACES", "-u", "OMP_PROC_BIND"), 125),
    (("--service-cores", "1", "-t", "2"), (), 0),
], ids=["thread", "exact, in a descendant", "with service CPUs", "bound"])  # fmt: skip
def test_strict_fails_if_the_command_removes_the_binding(ompbind, trap, both, options, before, code):
    done = ompbind("run", "-m", both, *options, "--verify=strict", *LIMIT, "--", *before, trap)
    assert done.returncode == code, done.stderr
    assert ("are not bound to places" in one_line(done.stderr)) == bool(code)
    assert ("1 of them bound to the compute CPUs" in one_line(done.stderr)) == (not code)


STAGES = """
import ctypes, os, sys, threading, time
library = ctypes.CDLL(sys.argv[1])
for _ in range(2):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
time.sleep(4)  # until a sample has been judged
library.GOMP_parallel(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None), None, 2, 0)
time.sleep(4)
os._exit(0)
"""


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in RUNTIMES if is_installed(name)])
def test_strict_never_stops_a_program_before_or_after_its_first_region(start, both, name):
    """All modes at once; each program also has plain threads."""
    words = ("run", "--share", "--verify=strict", "-m", both, "--bind")
    command = ("--", *PYTHON, STAGES, path_of(name))
    preload = ("--preload", path_of(name))
    runs = [start(*words, bind, *more, *command) for bind in BINDS for more in ((), preload)]
    ended = [(run.wait(30), run.stderr.read()) for run in runs]
    assert [code for code, _ in ended] == [0] * len(runs), "".join(text for _, text in ended)


@pytest.mark.parametrize(("ranks", "daemon"), [
    ("2", "setsid sh {}"), ("2", "env -i /bin/sh {}"), ("1", "env -i setsid /bin/sh {}"),
])  # fmt: skip
def test_daemons_belong_to_their_rank(ompbind, tmp_path, parts, ranks, daemon):
    first, second = two_cpus()
    orphan = tmp_path / "orphan"
    orphan.write_text(f"{required('taskset')} -pc {first} $$ >/dev/null\nexec sleep 60\n")
    script = f"[ $OMPBIND_CPUS = {first} ] || ({daemon.format(orphan)} & exit); sleep 60"
    options = (*LIMIT, "--grace", "1", "-n", ranks, "-m", parts if ranks == "2" else str(second))
    done = ompbind("run", "--verify=strict", *options, "--", "sh", "-c", script)
    assert done.returncode == 125, done.stderr
    assert f"may run on CPU {first}, the rank has CPU {second}" in one_line(done.stderr)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide processes")
@pytest.mark.parametrize("script", ["exec {}", "sleep 0.4; exec {}"])
def test_ranks_that_become_another_user_are_not_seen_with_hidepid(ompbind, public, public_ompbind, script):
    """A rank that was sampled before is no proof either."""
    hide = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "sh", "-c", hide, "sh", "true"]).returncode:
        pytest.skip("needs a mount namespace and hidepid")
    program = shutil.copy(required("sleep"), public / "of-root")
    program.chmod(0o4755)
    before = ("unshare", "--mount", "--pid", "--fork", "sh", "-c", hide, "sh", *as_user(NOBODY))
    duration = "60" if script.startswith("exec") else "1.5"  # strict stops it
    command = ("--verify=strict", *LIMIT, "--", "sh", "-c", script.format(f"{program} {duration}"))
    done = ompbind("run", *command, before=before, program=public_ompbind, cwd="/")
    assert done.returncode == 125, done.stderr
    assert "ompbind: not seen: /proc does not show the threads of rank 0" in one_line(done.stderr)


@pytest.mark.two_cpus
def test_a_pool_that_follows_the_affinity_mask_is_named_with_its_remedy(start, both):
    pool = (  # hashlib releases the lock of Python
        "import hashlib, os, threading\ndef work():\n    while True: hashlib.sha256(bytes(1 << 24))\n"
        "for cpu in os.sched_getaffinity(0): threading.Thread(target=work).start()"
    )
    run = start("run", "--verify", "--share", "-m", both, "-t", "1", *LIMIT, "--", *PYTHON, pool)
    text = ""
    while "select fewer CPUs with -c" not in one_line(text):
        text += (line := run.stderr.readline())
        assert line, text
    run.terminate()
    assert "were busy than planned (1)" in one_line(text)


def test_a_quiet_run_says_nothing_if_all_is_as_planned(ompbind):
    done = ompbind("run", "--verify", "-q", "--", "true")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("before", "code"), [((), 0), (("numactl", "--interleave=all"), 125)])
def test_memory_is_verified_where_a_policy_is_planned(ompbind, tmp_path, before, code):
    if read_memory_policy(os.getpid()) is None:
        pytest.skip("needs a kernel with NUMA nodes")
    if before:
        required("numactl")
    report = tmp_path / "report.json"
    options = ("--share", "--memory", "bind", "--verify=strict", "--report", str(report), *LIMIT)
    done = ompbind("run", *options, "--", *before, "sleep", "0.5")
    assert done.returncode == code, done.stderr
    (rank,) = json.loads(report.read_text())["verified"]["ranks"]
    assert rank["memory"].startswith("interleave:" if before else "bind:")
    assert [issue["code"] for issue in rank["findings"]] == (["memory"] if before else [])


THREADS = """
import os, sys, threading
def start():
    threading.Thread(target=threading.Event().wait).start()
def narrow():
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
for line in sys.stdin:
    globals()[line.strip()]()
    print(flush=True)
"""
"""A program that starts threads by commands on standard input."""


class Child:
    """Such a program with two more threads, the only rank of a run; its sampler has a simulated clock."""

    def __init__(self, cpus, threads):
        self.process = subprocess.Popen(
            [*PYTHON, THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.now = 0.0
        # A second rank is planned, so that other children of this process are not attributed to rank 0.
        self.sampler = AffinitySampler({0: (cpus, threads), 1: (cpus, threads)}, "run")
        self.sampler.begin(self.now)
        self.do("start")
        self.do("start")
        # what a supervisor has, with notes of what is reported
        self.live = {self.process.pid: SimpleNamespace(rank=0)}
        self.exits, self.reap_children = (), lambda: None
        self.shutdown = SimpleNamespace(begun=False, error=None)
        self.output = SimpleNamespace(write=lambda text: None)
        self.reporter, self.can_report, self.reported, self.last = self, True, [], None
        self.expect(cpus)

    def expect(self, cpus):
        expected = ExpectedBinding(rank=0, cpus=cpus, places=(), bind=Bind.RANK)
        self.options = RunOptions(run_id="run", expected={0: (expected, 1)}, strict=True)

    def do(self, word):
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        self.process.stdout.readline()

    def move(self, cpus):
        for tid in list_threads(self.process.pid):
            os.sched_setaffinity(tid, cpus)

    def sample(self):
        """Take the next sample when it is due, and return the time."""
        self.now = self.sampler.sample_at
        self.sampler.sample({self.process.pid: 0}, self.now)
        self.sampler.schedule_next(self.now, 0.0)
        return round(self.now, 1)

    def check(self):
        """Take the next sample now, and report what it shows."""
        if self.sampler.sample_at is not None:
            self.sampler.sample_at = 0.0
        sample_affinities(self)

    def verified(self, result):
        codes = [issue.code for checked in result.ranks for issue in (checked.verdict or result).issues]
        text = " ".join(code for code in codes if code != "others")
        if text != self.last or "others" not in codes:  # other tests use the CPUs, too
            self.reported.append(text)
        self.last = text

    def stop(self, number):
        self.shutdown.begun = True


@pytest.fixture
def make_child():
    made = []

    def make(threads=1, cpus=None):
        made.append(Child(CpuSet(os.sched_getaffinity(0)) if cpus is None else CpuSet(cpus), threads))
        return made[-1]

    yield make
    for child in made:
        child.process.kill()
        child.process.communicate()


@pytest.mark.two_cpus
@pytest.mark.parametrize(("threads", "between", "last"), [
    (1, [], 3.1), (4, [], 12.7),  # fewer threads than planned
    (1, ["", "", "narrow"], 6.3),  # a change before the sample at 1.5 s is not stable at 3.1 s
    (1, ["start"] * 99, LONGEST_S),
])  # fmt: skip
def test_intervals_double_until_threads_are_stable(make_child, threads, between, last):
    assert 6.3 < FEW_STABLE_S < 12.7
    child, times, words = make_child(threads), [], iter(between)
    while not child.sampler.complete:
        times.append(child.sample())
        if word := next(words, ""):
            child.do(word)
    assert times == [time for time in (0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 12.7, 25.5, 51.1, 60.0) if time <= last]
    assert child.sampler.stable == (last < LONGEST_S)
    assert len(child.sampler.ranks[0].processes[0].threads) >= 3
    before = child.now
    assert 3 < child.sample() - before <= 30, "then samples are rare"


def test_what_changes_later_is_reported_after_two_samples_and_stops_a_strict_run(make_child):
    both = first, second = two_cpus()
    child = make_child(cpus=both)
    child.sampler.complete = True  # its threads have been stable for long
    masks = [both] * 2 + [{first}] * 4
    for mask, reported in zip(masks, ([""], [], [], ["confined"], [], []), strict=True):  # once each
        child.move(mask)
        child.reported.clear()
        child.check()
        assert child.reported == reported
    child.expect(CpuSet((second,)))
    child.check()
    assert child.sampler.findings.unconfirmed, "so the next sample comes soon"
    finish_verification(child)
    assert ("outside" in child.reported, child.sampler.stopped) == (False, False), "the end of the run"
    child.check()
    assert (child.reported[-1], child.shutdown.begun) == ("outside", True)
    violation = finish_verification(child).violation
    assert violation.message == "--verify=strict: the threads of rank 0 did not run as planned"
    samples = child.sampler.samples
    child.check()
    assert (child.sampler.due_at, child.sampler.samples) == (None, samples), "a stopped run is not sampled"


def test_an_attempt_that_exits_before_the_start_is_complete_is_judged_as_a_run(make_child):
    first, second = two_cpus()
    child = make_child(cpus=(first,))
    child.sampler.begin(time.monotonic())
    child.move({second})
    child.check()
    assert child.reported == [], "one sample is no proof yet"
    child.sampler.begin_again(time.monotonic(), 0)
    child.exits = (SimpleNamespace(rank=0, failed=False),)
    (rank,) = finish_verification(child).ranks
    assert (child.reported[-1], rank.attempt, rank.verdict, rank.state) == ("outside", 2, None, State.ERROR)
    assert [(attempt, issue.code) for attempt, issue in rank.past] == [(1, "outside")]


def test_the_restart_of_another_rank_makes_no_proof_of_one_sample(make_child):
    first, second = two_cpus()
    child = make_child(cpus=(first,))
    child.move({first})
    child.check()
    child.sampler.begin_again(time.monotonic(), 1)
    child.move({second})
    child.check()
    assert not child.sampler.complete
    result = finish_verification(child)
    assert (result.state, [issue.code for _, issue in result.unconfirmed]) == (State.OK, ["outside"])


def test_strict_stops_no_run_whose_last_rank_has_just_exited(make_child):
    first, second = two_cpus()
    child = make_child(cpus=(first,))
    child.sampler.begin(time.monotonic())
    child.move({second})
    child.check()
    child.reap_children = child.live.clear
    child.check()
    assert (child.reported[-1], child.sampler.stopped) == ("outside", False)


def test_a_thread_that_starts_between_two_samples_is_seen(make_child):
    child = make_child()
    child.check()
    samples, child.sampler.sample_at = child.sampler.samples, float("inf")
    sample_affinities(child)
    assert child.sampler.samples == samples, "only counted"
    most = child.sampler.most_threads
    child.do("start")
    sample_affinities(child)
    assert (child.sampler.samples, child.sampler.most_threads) == (samples + 1, most + 1)


def test_a_cpuset_that_changes_is_named(cgroup, both, start, ompbind):
    tops = ("/sys/fs/cgroup/cpuset", "/sys/fs/cgroup")
    directory, before = cgroup(dict.fromkeys(tops, ("cpuset.cpus", both)))
    (directory / "cpuset.mems").write_text(Path("/sys/devices/system/node/has_memory").read_text())
    first, second = two_cpus()
    process = start("run", "-n", "2", "--verify", *LIMIT, "--", "sleep", "30", before=before)
    assert "verified: 2 ranks" in one_line(process.stderr.readline() + process.stderr.readline())
    (directory / "cpuset.cpus").write_text(str(first))
    lines = []
    while not lines or (lines[-1] and not lines[-1].startswith("ompbind: rank 1")):
        lines.append(process.stderr.readline())
    inspected = ompbind("inspect", "--all").stdout
    process.send_signal(signal.SIGTERM)
    text = one_line("".join(lines) + process.stderr.read())
    assert f"the cpuset of {directory} has changed from CPUs {CpuSet((first, second))} to CPU {first}" in text
    assert f"rank 1: the only thread may run on CPU {first}, the rank has CPU {second}" in text
    assert f"the cpuset of {directory} allows only CPU {first}" in one_line(inspected)
    assert "not as planned, seen for" in text


@pytest.mark.long
@pytest.mark.parametrize("limits", [False, True])
def test_more_busy_processes_than_cpus_stop_a_strict_run(ompbind, quota, both, limits):
    mask, forks, before = (both, 1, quota(1)) if limits else (both.partition(",")[0], 3, ())
    options = ("-m", mask, "--verify=strict", "--grace", "1", "--timeout", "50")
    code = f"import os, time\nfor _ in range({forks}): os.fork()\nend_s = time.monotonic() + %d\n"
    code += "while time.monotonic() < end_s: pass"
    done = ompbind("run", *options, "--", *PYTHON, code % 60, before=before, timeout=90)
    assert done.returncode == 125, done.stderr
    assert "threads were runnable on CPU" in one_line(done.stderr)
    assert ("the CPU quota gives the time of 1) in" in one_line(done.stderr)) == limits
    done = ompbind("run", *options, "--", *PYTHON, code % 6, before=before, timeout=90)
    assert done.returncode == 0, "less than 10 seconds are a warning"
    assert "warning: rank 0: on average" in one_line(done.stderr)
