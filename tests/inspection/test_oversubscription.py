"""Oversubscription: which consecutive samples of threads are an issue.

A thread is written as its state and mask: "R0*15 S0-1" are 15 runnable threads on CPU 0 and a sleeping one.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.inspection.oversubscription import (
    LoadSample,
    Streak,
    add_sample,
    find_competitors,
    judge_load,
)
from ompbind.inspection.verdict import Verdict
from ompbind.machine.sources.linux.cgroup import Throttling
from ompbind.procfs.process_state import ProcessState, ThreadState
from ompbind.text import Severity

FINE = Verdict(issues=(), summary="fine")


def server(threads, busy_s=0.0, delay_s=0.0, *, files=(), **env):
    """Return a process; all its threads have used and waited for the same time."""
    each = [
        item.partition("*")[0] for item in threads.split() for _ in range(int(item.partition("*")[2] or 1))
    ]
    return ProcessState(
        pid=100,
        parent=1,
        name="server",
        threads=tuple(
            ThreadState(
                tid=100 + i, name="worker", cpus=CpuSet.from_list(text[1:]), state=text[0],
                busy_s=busy_s, delay_s=delay_s,
            )
            for i, text in enumerate(each)
        ),
        files=files,
        variables=tuple(env.items()),
    )  # fmt: skip


def judge(*samples, **options):
    """Judge samples of (time, threads, CPU time, run delay, throttled time) of one process."""
    streak = Streak()
    for at_s, threads, busy_s, delay_s, throttled_s in samples:
        processes = (server(threads, busy_s, delay_s, **options),)
        throttling = Throttling(cgroup="c", throttled_s=throttled_s)
        streak = add_sample(streak, LoadSample(at_s=at_s, processes=processes, throttling=throttling))
    return judge_load(FINE, streak)


CROWDS = [
    ("R0", None, 0),
    ("R0 S0*20", None, 0),
    ("R0-1*2 S0-1", None, 0),
    ("R0*2", "0", 2),
    ("R0-1*3", "0-1", 3),
    ("R0*2 R1*2", "0-1", 4),
    ("R0*5 S0-3*10", "0", 5),
    ("R0*2 R0-1", "0", 2),
    ("R0 R1 R0-1", "0-1", 3),
    ("R2*3 D2*4 T2", "2", 3),
]


@pytest.mark.parametrize(("threads", "cpus", "number"), CROWDS)
def test_more_runnable_threads_than_cpus_in_their_masks_compete(threads, cpus, number):
    competitors = find_competitors(None, LoadSample(at_s=0, processes=(server(threads),)))
    assert (competitors and str(competitors.cpus), len(competitors.threads) if competitors else 0) == (
        cpus,
        number,
    )


BUSY = "R0*15"
WAITS = ((0, BUSY, 0.0, 0.0, 0.0), (5, BUSY, 0.33, 4.66, 0.0), (10, BUSY, 0.66, 9.33, 0.0))
HISTORIES = [
    # samples, severity
    (WAITS, "error"),
    (WAITS[:2], "ok"),
    (WAITS[:1], "ok"),
    ((*WAITS[:2], (9.9, BUSY, 0.66, 9.33, 0.0)), "ok"),  # over less than 10 s
    ((*WAITS[:2], (10, BUSY, 0.34, 4.67, 0.0)), "ok"),  # hardly runnable since the last sample
    ((*WAITS[:2], (10, "R0 S0*14", 0.66, 9.33, 0.0)), "error"),  # the state at one moment does not count
    ((WAITS[0], (5, "S0*15", 0.1, 0.1, 0.0), WAITS[2]), "ok"),  # not consecutive
    (tuple((at_s, BUSY, busy_s, busy_s / 2, 0.0) for at_s, _, busy_s, _, _ in WAITS), "ok"),  # 50 %
    (tuple((at_s, BUSY, busy_s, busy_s * 0.51, 0.0) for at_s, _, busy_s, _, _ in WAITS), "error"),
    (tuple((at_s, BUSY, 0.0, at_s, 0.0) for at_s in (0, 6, 12)), "error"),  # waits, and never runs
    # 3 threads on 2 CPUs are throttled half of the time: their own delay is no more than 50 %
    (tuple((at_s, "R0-1*3", at_s / 3, at_s * 0.66, at_s) for at_s in (0, 6, 12)), "ok"),
    (tuple((at_s, "R0-1*3", at_s / 3, at_s * 0.66, 0) for at_s in (0, 6, 12)), "error"),
    # 15 threads on a CPU with a quota of half a CPU, as measured: they compete for the rest
    (tuple((at_s, BUSY, at_s / 30, at_s * 0.97, at_s / 2) for at_s in (0, 6, 12)), "error"),
    (tuple((at_s, BUSY, at_s, None, 0.0) for at_s in (0, 6, 12)), "warning"),  # the kernel counts no delay
]


@pytest.mark.parametrize(("samples", "severity"), HISTORIES)
def test_a_streak_of_three_samples_over_ten_seconds_is_an_issue(samples, severity):
    verdict = judge(*samples)
    assert (str(verdict.severity), [issue.code for issue in verdict.issues]) == (
        severity,
        [] if severity == "ok" else ["oversubscribed"],
    )


def test_the_text_has_the_numbers_and_the_likely_pool():
    torch = {"files": ("/v/torch/lib/libgomp.so.1",), "OMP_NUM_THREADS": "1"}
    (issue,) = judge(*WAITS, **torch).issues
    assert issue.threads == 15
    assert issue.text == (
        "on average 15.0 threads were runnable on CPU 0 in 3 samples over 10 s, and waited 14.1 times as "
        "long as they ran; likely pool: 15 threads 'worker' of server (100), which has loaded libgomp and "
        "was executed with OMP_NUM_THREADS=1; use no more threads than CPUs"
    )
    unmeasured = judge(*((at_s, BUSY, at_s, None, 0.0) for at_s in (0, 6, 12))).text
    assert "the kernel does not count how long they waited" in unmeasured
    assert "; likely pool: 15 threads 'worker' of server (100); " in unmeasured


def test_a_thread_that_has_started_between_two_samples_counts_from_its_start():
    streak = add_sample(Streak(), LoadSample(at_s=0, processes=(server("R0*2"),)))
    streak = add_sample(streak, LoadSample(at_s=5, processes=(server("R0*4", 1.0, 3.0),)))
    assert (streak.samples, streak.busy_s, streak.delay_s) == (2, 4.0, 12.0)


LOADS = st.tuples(st.floats(0.1, 20), st.floats(0, 10), st.floats(0, 10))


@given(st.lists(LOADS, max_size=8))
def test_an_error_needs_three_consecutive_samples_with_a_waiting_crowd(loads):
    streak, at_s, busy_s, delay_s, history = Streak(), 0.0, 0.0, 0.0, []
    for step_s, used_s, waited_s in loads:
        at_s, busy_s, delay_s = at_s + step_s, busy_s + used_s, delay_s + waited_s
        streak = add_sample(streak, LoadSample(at_s=at_s, processes=(server("R0*4", busy_s, delay_s),)))
        runnable = 4 * (used_s + waited_s) / step_s
        history.append((at_s, not history or (runnable > 0.99 and waited_s > 0.49 * used_s)))
    if judge_load(FINE, streak).severity is not Severity.OK:
        last = history[-streak.samples :]
        assert len(last) >= 3
        assert last[-1][0] - last[0][0] >= 10
        assert all(competes for _, competes in last)
    assert judge_load(FINE, streak).severity in (Severity.OK, Severity.ERROR)
