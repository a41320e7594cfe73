"""Remarks on simulated values: what they find, and how often they find something in normal noise."""

import math
from random import Random

import pytest

from benchmarks.decision import make_candidates, make_session
from ompbind.bench.decision import conclude
from ompbind.bench.records import (
    Conditions,
    Metric,
    Phase,
    Rules,
    Run,
    Status,
    Verification,
)
from ompbind.bench.remarks import find_modes, find_outliers, find_slow_start, find_trend

MATTERS = math.log1p(0.02)
FINDERS = (find_outliers, find_slow_start, find_trend, find_modes)


def make_noise(count, seed, deviation=0.05):
    source = Random(seed)
    return [source.gauss(0, deviation) for _ in range(count)]


@pytest.mark.parametrize("count", [8, 12, 18, 40, 135])
@pytest.mark.parametrize("find", FINDERS)
def test_at_most_5_percent_of_normal_series_have_a_remark(find, count):
    series = 300
    found = sum(bool(find(make_noise(count, seed), MATTERS)) for seed in range(series))
    assert found <= 0.05 * series


@pytest.mark.parametrize("find", FINDERS)
@pytest.mark.parametrize("logs", [[], [0.0], [0.0] * 40, [0.0, 0.001] * 20])
def test_constant_and_short_series_have_no_remark(find, logs):
    assert not find(logs, MATTERS)


def test_values_of_a_uniform_distribution_are_no_two_modes():
    found = 0
    for seed in range(100):
        source = Random(seed)
        found += find_modes([source.uniform(0, 0.2) for _ in range(60)], MATTERS) is not None
    assert found <= 8


@pytest.mark.parametrize("count", [30, 40, 135])
def test_two_modes_six_deviations_apart_are_found(count):
    found = []
    for seed in range(100):
        source = Random(seed)
        logs = [source.gauss(0, 0.02) + (0.12 if source.random() < 0.35 else 0) for _ in range(count)]
        found.append(find_modes(logs, MATTERS))
    modes = [each for each in found if each]
    assert len(modes) >= 90
    assert sum(each.share for each in modes) / len(modes) == pytest.approx(0.65, abs=0.05)
    assert sum(each.high - each.low for each in modes) / len(modes) == pytest.approx(0.12, abs=0.01)


def test_outliers_are_no_mode():
    logs = make_noise(40, 1, 0.02)
    logs[3] = logs[30] = 0.5
    assert find_modes(logs, MATTERS) is None
    assert find_outliers(logs, MATTERS) == pytest.approx([0.5, 0.5], abs=0.02)


@pytest.mark.parametrize("rise", [0.15, -0.15])
def test_a_trend_is_found_with_its_size(rise):
    logs = [noise + rise * number / 40 for number, noise in enumerate(make_noise(40, 3, 0.03))]
    assert find_trend(logs, MATTERS) == pytest.approx(rise * 2 / 3, abs=0.05)


def test_a_slow_start_is_found_only_if_all_first_runs_are_slow():
    logs = make_noise(20, 4, 0.01)
    slow = [-0.2, -0.15, -0.1, *logs[3:]]
    assert find_slow_start(slow, MATTERS) == pytest.approx(0.15, abs=0.02)
    assert find_slow_start([-0.2, *logs[1:]], MATTERS) is None


def make_runs(times, *, candidates=2, **fields):
    """A session in which all candidates take the same times; fields may be functions of the run's number."""
    runs = []
    for number, time in enumerate(times, 1):
        for candidate in make_candidates(candidates):
            chosen = {key: value(candidate.name, number) for key, value in fields.items()}
            runs.append(
                Run(
                    candidate=candidate.name,
                    number=len(runs),
                    phase=Phase.CONFIRMATION if candidates == 2 else Phase.CHOICE,
                    round=number,
                    started=0.0,
                    **{"values": (time,), "wall_s": (time,)} | chosen,
                )
            )
    return make_session(make_candidates(candidates), Rules()).replace(runs=tuple(runs))


def only_for(name, value, other):
    return lambda candidate, number: value if candidate == name and number % 4 == 1 else other


def remarks(session):
    return {(each.code, each.candidate): each.text for each in conclude(session).remarks}


QUIET = [1.0 + 0.001 * (number % 3) for number in range(12)]


def test_a_quiet_session_has_no_remarks():
    assert remarks(make_runs(QUIET)) == {}


ROWS = [
    (
        {"conditions": only_for("default", Conditions(throttled_s=0.25, throttled_periods=3), Conditions())},
        ("throttled", ""),
        "the CPU quota stopped threads in 3 of 24 runs, 0.75 s in all",
    ),
    (
        {"conditions": only_for("default", Conditions(stolen_s=0.2), Conditions(stolen_s=0.009))},
        ("stolen", ""),
        "the hypervisor took CPU time in 3 of 24 runs, 0.6 s in all",
    ),
    (
        {"conditions": only_for("unbound", Conditions(other_runs=2), Conditions())},
        ("other-runs", ""),
        "other runs were live during 3 of 24 runs",
    ),
    (
        {"conditions": only_for("unbound", Conditions(oom_kills=1), Conditions())},
        ("out-of-memory", "unbound"),
        "the kernel killed 3 processes because memory was used up",
    ),
    (
        {"conditions": lambda name, _: Conditions(frequency_mhz=3000 if name == "default" else 2100)},
        ("frequency", ""),
        "CPU frequencies differ: 2100 MHz (unbound) to 3000 MHz (default)",
    ),
    (
        {
            "conditions": only_for(
                "unbound", Conditions(governor="powersave"), Conditions(governor="schedutil")
            )
        },
        ("governor", ""),
        "the frequency governor changed: powersave, schedutil",
    ),
    (
        {
            "status": lambda name, number: Status.INVALID if (name, number) == ("default", 3) else Status.OK,
            "reason": only_for("default", "", "a thread may run on CPU 7"),
        },
        ("invalid", "default"),
        "1 of 12 runs was not bound as planned: a thread may run on CPU 7",
    ),
    (
        {"verification": only_for("default", Verification.UNSEEN, Verification.NOT_CHECKED)},
        ("unseen", "default"),
        "binding not verified: 3 runs shorter than a sample",
    ),
    (
        {"values": only_for("default", (0.0,), (1.0,))},
        ("not-positive", "default"),
        "3 values of 12 cannot be compared: a ratio needs positive numbers",
    ),
    (
        {"values": lambda name, number: (1.7 if (name, number) == ("default", 5) else 1 + number % 3 / 100,)},
        ("outliers", "default"),
        "1 of 12 values is an outlier: 1.68 times the median",
    ),
    (
        {
            "values": lambda name, number: (
                1.3 if name == "default" and number <= 3 else 1 + number % 3 / 100,
            )
        },
        ("slow-start", "default"),
        "the first 3 runs are the slowest, by 29 % in the median",
    ),
    (
        {"values": lambda name, number: (1 + number / 100 if name == "default" else 1.0,)},
        ("drift", "default"),
        "the values rose by 6 % during the session",
    ),
    (
        {"values": lambda _, number: (1 - number / 100,)},
        ("drift", ""),
        "the values of 2 candidates fell by 6 % during the session; ratios within rounds are not affected",
    ),
    (
        {"values": lambda name, number: (1.2 if name == "default" and number in (2, 5, 6, 11) else 1.0,)},
        ("two-modes", "default"),
        "two modes: 33 % of the values are 1.20 times the others",
    ),
]


@pytest.mark.parametrize(
    ("fields", "key", "text"), ROWS, ids=["-".join(filter(None, row[1])) for row in ROWS]
)
def test_remarks(fields, key, text):
    found = remarks(make_runs(QUIET, **fields))
    assert found.get(key) == text
    assert {code for code, _ in found} <= {key[0], "outliers"}


def test_few_rounds():
    assert remarks(make_runs(QUIET[:5])) == {("few-rounds", "default"): "too few rounds for an interval: 5"}
    many = remarks(make_runs(QUIET[:5], candidates=5))
    assert many == {("few-rounds", ""): "too few rounds for intervals: 5"}


def test_a_throughput_starts_slowly_if_it_is_low():
    low = make_runs(QUIET, values=lambda name, number: (0.7 if name == "default" and number <= 3 else 1.0,))
    assert ("slow-start", "default") not in remarks(low)
    assert ("slow-start", "default") in remarks(low.replace(metrics=(Metric(higher=True),)))


def test_warm_ups_are_not_judged():
    session = make_runs(QUIET, conditions=lambda *_: Conditions(other_runs=1))
    warm = session.replace(runs=tuple(run.replace(phase=Phase.WARM_UP) for run in session.runs))
    assert {code for code, _ in remarks(warm)} == {"few-rounds"}
