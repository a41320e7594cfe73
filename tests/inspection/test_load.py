"""Oversubscription, throttling, and processes without a plan on few CPUs: which samples are an issue.

A thread is written as its state and mask: "R0*15 S0-1" are 15 runnable threads on CPU 0 and a sleeping one.
"""

from functools import reduce
from itertools import count, cycle

import pytest

from ompbind.inspection import diagnosis, load, shared_load
from ompbind.inspection.load import (
    LoadSample,
    Streak,
    add_sample,
    find_competitors,
    find_runnable,
    make_load_issue,
)
from ompbind.inspection.rank_processes import MaskOrigin
from ompbind.inspection.verdict import Verdict
from ompbind.machine.read.linux_cgroup import Throttling
from ompbind.procfs.process_state import ProcessState, ThreadState
from ompbind.text import Severity
from tests.inspection.test_judge import ONE_EACH, TORCH, cpus, process
from tests.inspection.test_rank_processes import OWN, inspect, rank

FINE = Verdict(issues=(), summary="fine")


def sample(at_s, threads, *times, names=("server",), throttled_s=0.0, quota=None):
    items = [item.partition("*") for item in threads.split()]
    each = [text for text, _, number in items for _ in range(int(number or 1))]
    rows = zip(count(100), each, cycle(names), cycle(times or [(0.0, 0.0)]), strict=False)
    made = (
        ThreadState(tid=tid, cpus=cpus(text[1:]), state=text[0], name=name, busy_s=busy_s, delay_s=delay_s)
        for tid, text, name, (busy_s, delay_s) in rows
    )
    process = ProcessState(pid=100, parent=1, name=names[0], threads=tuple(made))
    throttling = Throttling(cgroup="c", throttled_s=throttled_s)
    return LoadSample(at_s=at_s, processes=(process,), throttling=throttling, quota=quota)


def judge(samples):
    streak = reduce(add_sample, samples, Streak())
    return FINE.add(make_load_issue(streak)) if streak.is_proof else FINE


@pytest.mark.parametrize(("threads", "quota", "mask", "number", "usable"), [
    ("R0-1*2 S0-1", None, None, 0, 0), ("R0*2", None, "0", 2, 1), ("R0*2 R1*2", None, "0-1", 4, 2),
    ("R0*5 S0-3*10", None, "0", 5, 1), ("R2*3 D2*4 T2", None, "2", 3, 1),
    # a quota gives threads fewer CPUs
    ("R0-1*2", 1.0, "0-1", 2, 1), ("R0-1*2", 1.9, "0-1", 2, 1), ("R0-1*2", 2.0, None, 0, 0),
    ("R0-1*3", 2.0, "0-1", 3, 2), ("R0", 0.5, None, 0, 0), ("R0*2", 4.0, "0", 2, 1),
    ("R0 R1", 1.0, "0-1", 2, 1),
])  # fmt: skip
def test_more_runnable_threads_than_cpus_in_their_masks_compete(threads, quota, mask, number, usable):
    found = find_competitors(None, sample(0.0, threads, quota=quota))
    shown = (str(found.cpus), len(found.threads), found.usable) if found else (None, 0, 0)
    assert shown == (mask, number, usable)


@pytest.mark.parametrize(("times", "runnable"), [
    # (CPU time, run delay) of threads on CPUs 0-1 in 10 s, as measured beside other busy processes
    ([(5.0, 5.0)] * 2 + [(0.3, 5.0)], None),  # a compressor: its third thread waits, but needs no CPU
    ([(0.4, 4.6)] * 16, 8.0),  # each waits for the others at the end of parallel loops
    ([(0.0, 10.0)] * 4, 4.0),
    ([(5.0, 5.0)] * 2 + [(1.0, 4.0)], None),  # less than 1.25 threads for each CPU
])  # fmt: skip
def test_waiting_for_others_does_not_count(times, runnable):
    threads = f"S0-1*{len(times)}"
    found = find_competitors(sample(0.0, threads), sample(10.0, threads, *times))
    assert (found and found.runnable) == (runnable and pytest.approx(runnable))


@pytest.mark.parametrize(("processes", "most"), [(("R0-1*3", "R0-1"), 3), (("R0-1", "R0-1", "R0-1"), 1)])
def test_a_pool_is_of_one_process(processes, most):
    made = tuple(sample(0.0, each).processes[0].replace(pid=pid) for pid, each in enumerate(processes))
    assert find_runnable((0.0, ()), (0.0, made)) == most


BUSY = "R0*15"
WAITS = ((0, BUSY, 0.0, 0.0, 0.0), (5, BUSY, 0.33, 4.66, 0.0), (10, BUSY, 0.66, 9.33, 0.0))


@pytest.mark.parametrize(("samples", "severity"), [
    (WAITS, "error"), (WAITS[:2], "ok"),
    ((*WAITS[:2], (9.9, BUSY, 0.66, 9.33, 0.0)), "ok"),  # over less than 10 s
    ((*WAITS[:2], (10, BUSY, 0.34, 4.67, 0.0)), "ok"),  # hardly runnable since the last sample
    ((*WAITS[:2], (10, "R0 S0*14", 0.66, 9.33, 0.0)), "error"),  # the state at one moment does not count
    ((WAITS[0], (5, "S0*15", 0.1, 0.1, 0.0), WAITS[2]), "ok"),  # not consecutive
    (tuple((at_s, BUSY, busy_s, busy_s / 2, 0.0) for at_s, _, busy_s, _, _ in WAITS), "ok"),  # 50 %
    (tuple((at_s, BUSY, busy_s, busy_s * 0.51, 0.0) for at_s, _, busy_s, _, _ in WAITS), "error"),
    # 3 threads on 2 CPUs are throttled half of the time: their own delay is no more than 50 %
    (tuple((at_s, "R0-1*3", at_s / 3, at_s * 0.66, at_s) for at_s in (0, 6, 12)), "ok"),
    # 15 threads on a CPU with a quota of half a CPU, as measured: they compete for the rest
    (tuple((at_s, BUSY, at_s / 30, at_s * 0.97, at_s / 2) for at_s in (0, 6, 12)), "error"),
    (tuple((at_s, BUSY, at_s, None, 0.0) for at_s in (0, 6, 12)), "warning"),  # the kernel counts no delay
])  # fmt: skip
def test_a_streak_of_three_samples_over_ten_seconds_is_an_issue(samples, severity):
    verdict = judge(
        sample(at_s, threads, (busy_s, delay_s), throttled_s=throttled_s)
        for at_s, threads, busy_s, delay_s, throttled_s in samples
    )
    codes = [] if severity == "ok" else ["oversubscribed"]
    assert (str(verdict.severity), [issue.code for issue in verdict.issues]) == (severity, codes)


LIGHT = [(0.02, 0.4)] * 5
"""(CPU time, run delay) in each second of helpers on CPU 0, beside busy processes of others."""


@pytest.mark.parametrize(("times", "severity", "text"), [
    ([(0.2, 0.8), *LIGHT], "warning", "perhaps for other processes"),
    (LIGHT, "warning", "perhaps for other processes"),
    ([(0.2, 0.8)] * 2, "error", "waited for each other 1.0 times"),  # both want the CPU all the time
    ([(0.19, 0.3)] * 5, "error", "waited for each other"),  # nobody else used the CPU
])  # fmt: skip
def test_threads_that_perhaps_wait_for_other_processes_only_are_no_error(times, severity, text):
    verdict = judge(
        sample(at_s, f"S0*{len(times)}", *((busy_s * at_s, delay_s * at_s) for busy_s, delay_s in times))
        for at_s in (0, 5, 10, 15)
    )
    assert (str(verdict.severity), text in verdict.text) == (severity, True), verdict.text


def test_threads_that_a_quota_stops_wait():
    verdict = judge(sample(s, "R0-1*2", (s / 2, s / 2), throttled_s=s, quota=1.5) for s in (0, 6, 12, 18))
    assert verdict.severity is Severity.ERROR
    assert "CPUs 0-1 (the CPU quota gives the time of 1) in 4" in verdict.text


def test_ranks_that_share_cpus_get_a_warning_that_names_them():
    samples = [sample(at_s, BUSY, (at_s / 15, at_s * 14 / 15)) for at_s in (0, 6, 12, 18)]
    issue = make_load_issue(reduce(add_sample, samples, Streak()), is_own=False)
    assert issue.severity is Severity.WARNING
    assert "the processes are server (100) with 15 threads; use no more threads than CPUs" in issue.text


@pytest.mark.parametrize(("masks", "library", "env", "is_advised"), [
    ("0*2", TORCH, {}, True), ("0", TORCH, {}, False), ("0*2", "/lib/libc.so.6", {}, False),
    ("0*2", TORCH, {"GOMP_SPINCOUNT": "0"}, False), ("0*2", TORCH, {"KMP_LIBRARY": "serial"}, False),
    ("0*2", TORCH, {"OMPBIND_RANK": ""}, False),  # a process that ompbind has not started
])  # fmt: skip
def test_ranks_that_may_spin_get_the_advice_to_wait_passively(masks, library, env, is_advised):
    made = process(masks, library, **{"OMPBIND_RANK": "0", **env})
    assert ("OMP_WAIT_POLICY=passive" in diagnosis.advise_waiting([made])) == is_advised
    if len(made.threads) > 1:
        rows = [sample(at_s, BUSY, (at_s / 15, at_s * 14 / 15)) for at_s in (0, 6, 12, 18)]
        rows = [row.replace(processes=(made.replace(threads=row.processes[0].threads),)) for row in rows]
        assert ("OMP_WAIT_POLICY=passive" in judge(rows).text) == is_advised


def test_a_shorter_streak_is_a_warning_if_it_covers_a_fifth_of_the_run():
    streak = Streak()
    rows = ((0, 1, False), (0.5, 1, False), (1.5, 7.5, True), (1.5, 7.6, False), (11, 12, False))
    for at_s, run_s, is_issue in rows:
        streak = add_sample(streak, sample(at_s, BUSY, (at_s / 15, at_s * 14 / 15)))
        assert streak.is_most_of(run_s) == is_issue
        if is_issue:
            found = load.make_load_issue(streak)
            assert (found.severity, "in 3 samples over 1.5 s" in found.text) == (Severity.WARNING, True)


@pytest.mark.parametrize(("names", "pool"), [
    ("redis-server io_thd_1 io_thd_2 io_thd_3", "3 threads 'io_thd_*' of redis-server (100)"),
    ("python3 python3 bio_0", "2 threads 'python3' of python3 (100)"),
])  # fmt: skip
def test_threads_with_numbered_names_are_one_pool(names, pool):
    names = names.split()
    samples = (sample(at_s, f"R0*{len(names)}", (at_s / 9, at_s), names=names) for at_s in (0, 6, 12))
    assert f"likely pool: {pool}" in judge(samples).issues[0].text


def throttled(cgroup="a", periods=5, throttled_periods=3, throttled_s=0.25):
    counts = {"periods": periods, "throttled_periods": throttled_periods, "throttled_s": throttled_s}
    return Throttling(cgroup=cgroup, **counts)


@pytest.mark.parametrize(("measured", "issues"), [
    ([], []), ([throttled(throttled_periods=0)] * 3, []),
    ([throttled()] * 2, ["ranks 0-1 of run job in 3 of 5 periods (0.25 s"]),
    ([throttled()] * 3, ["ranks 0-1 of run job and process 20 (other) in 3 of 5 periods"]),
    ([throttled(), throttled(throttled_periods=0), throttled("b", periods=9)],
     ["throttled rank 0 of run job in 3 of 5", "throttled process 20 (other) in 3 of 9"]),
])  # fmt: skip
def test_each_throttled_cgroup_has_one_warning(measured, issues):
    ranks = rank(0, "0-1", pid=12), rank(1, "2-3", pid=13)
    groups = inspect(*OWN, *ranks, process("0-3", pid=20, name="other", parent=1)).groups
    found = list(shared_load.find_throttled(zip(groups, measured, strict=False)))
    assert all(issue.code == "throttled" and issue.severity is Severity.WARNING for issue in found)
    assert all(text in issue.text for issue, text in zip(found, issues, strict=True))


CLOSE = {"OMP_PROC_BIND": "close"}
PARENT = process("0", TORCH, pid=50, **CLOSE)
SET_ITSELF = process("0", TORCH, pid=50)  # with os.environ: its children show the variable


def users(origin, number=4, mask="0", allowed="0-3", busy=1, **more):
    """Return workers with the mask of a parent; without an origin, each has narrowed itself."""
    workers = [process(mask, TORCH, pid=60 + i, parent=50, **more) for i in range(number)]
    own = cpus(mask), cpus(allowed)
    origins = [MaskOrigin(process=origin or worker, allowed=own[1]) for worker in workers]
    pairs = zip(workers, origins, strict=True)
    return [((worker, own[0], each), busy) for worker, each in pairs]


@pytest.mark.parametrize(("users", "severity", "text"), [
    (users(PARENT), "error", "in python (50) with OMP_PROC_BIND=close, libgomp bound the initial thread"),
    (users(process("0", TORCH, pid=50, **ONE_EACH)), "error", "'ompbind rebind 50' gives it the CPUs"),
    (users(SET_ITSELF, **CLOSE), "error", "in python (50) with OMP_PROC_BIND=close"),
    (users(None, 2, **CLOSE), "error", "'ompbind rebind 60 61' gives each its own CPUs"),
    (users(process("0", pid=50, name="taskset -c")), "warning", "taskset -c (50): the process or its"),
    # it inherits what bash has
    (users(process("0", pid=50, name="bash"), **CLOSE), "warning", "if this is not intended"),
    (users(SET_ITSELF, busy=0), "note", "4 processes are restricted"),
    (users(PARENT, busy=0), "note", "OMP_PROC_BIND=close"),
    (users(PARENT, 1, busy=3), "", ""),  # the verdict of the process itself has this
    (users(PARENT, 2, mask="0-1"), "", ""),  # a place for each
    (users(PARENT, 3, mask="0-1"), "error", "3 busy processes"), (users(PARENT, allowed="0"), "", ""),
    (users(PARENT, allowed=""), "", ""),  # unknown
])  # fmt: skip
def test_processes_on_fewer_cpus_than_they_could_use(users, severity, text):
    issues = list(shared_load.find_shared_cpus(users))
    assert [str(issue.severity) for issue in issues] == ([severity] if severity else [])
    assert text in "".join(issue.text for issue in issues)


@pytest.mark.parametrize(("before", "now", "used_s", "busy"), [
    ("R", "R", 0.0, 1), ("S", "R", 0.02, 0), ("S", "S", 0.03, 1), ("R", "S", 0.0, 0), ("", "R", 0.0, 1),
    ("", "S", 9.0, 0),
])  # fmt: skip
def test_threads_that_wait_for_work_are_not_busy(before, now, used_s, busy):
    read = process("0", pid=5)
    first, second = (
        read.replace(threads=(read.threads[0].replace(state=state, busy_s=busy_s),))
        for state, busy_s in ((before, 9.0), (now, 9.0 + used_s))
    )
    assert shared_load.count_busy(second, [first] if before else [], 0.5) == busy
