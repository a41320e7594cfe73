"""The promises of benchmarks, with invented numbers at and beyond each limit."""

import argparse
import subprocess

import pytest

from benchmarks.comparison import make_repetitions
from benchmarks.launchers import Unavailable, as_hwloc_set
from benchmarks.promises import (
    IMPORT_CLICK,
    LAUNCHER_LIMITS,
    STARTUP_LIMITS,
    BenchUsage,
    IdleUsage,
    WatchUsage,
    make_bench_promises,
    make_decision_promises,
    make_effect_promises,
    make_launch_promises,
    make_quiet_promises,
    make_scheduler_promises,
    make_startup_promises,
    make_watch_promises,
    median_ratio,
    print_promises,
    render_promise,
)
from benchmarks.rounds import make_name_parser, parse_counts
from benchmarks.variants import make_hand_tuning, make_shell_launcher
from ompbind import read_machine

THREE_ROUNDS = {
    ("floor", 1): (0.0, 1.0, 0.0),
    ("floor", 256): (255.0, 256.0, 25.5),
    ("ompbind", 1): (1.0, 1.0, 1.0),
    ("ompbind", 64): (1.0, 1.0, 100.0),
    ("ompbind", 256): (332.5, 332.5, 1000.0),
    ("hydra", 256): (332.5, 332.5, 0.01),
    **{(name, 64): (1 / limit, 1 / limit, None) for name, limit in LAUNCHER_LIMITS.items()},
}
WALLS = {key: times * 3 for key, times in THREE_ROUNDS.items()}
"""All promises are kept, most of them exactly at the limit, although a third of the rounds was bad."""

USAGE = {"processes": 2, "largest": 25_000_000, "rss": 0, "pss": 0, "switches": 0, "ticks": 0}


def missed(promises):
    return [promise.text for promise in promises if promise.missed]


def slower(walls, key):
    return {**walls, key: [wall and wall * 1.7 for wall in walls[key]]}


STARTS = {IMPORT_CLICK: [1.0] * 9, **{name: [limit] * 9 for name, limit in STARTUP_LIMITS.items()}}
"""Each start takes as long as it may."""


@pytest.mark.parametrize("name", STARTUP_LIMITS)
def test_a_slower_start_misses_its_own_promise(name):
    assert not missed(make_startup_promises(STARTS))
    slower_start = {**STARTS, name: [wall * 1.01 for wall in STARTS[name]]}
    assert missed(make_startup_promises(slower_start)) == [f"{name}, of import click's"]


def test_a_start_is_not_missed_in_too_few_rounds():
    slower_start = {
        name: [wall * (name != IMPORT_CLICK) + 1 for wall in walls[:5]] for name, walls in STARTS.items()
    }
    promises = list(make_startup_promises(slower_start))
    assert all(promise.above for promise in promises)
    assert not missed(promises)


def test_limits_are_higher_for_a_python_without_optimization():
    walls = {
        key: [wall and wall * 1.14 if key[0] == "ompbind" else wall for wall in WALLS[key]] for key in WALLS
    }
    hydra = "256 ranks, wall time, of hydra's"
    assert [text for text in missed(make_launch_promises(walls)) if "hydra" in text] == [hydra]
    promises = make_launch_promises(walls, optimized=False)
    assert not [text for text in missed(promises) if "hydra" in text]
    slower_still = slower(walls, ("ompbind", 256))
    assert "each further rank, of floor's" in missed(make_launch_promises(slower_still, optimized=False))


def test_promises_of_launches_are_kept_at_their_limits():
    promises = make_launch_promises(WALLS)
    assert not missed(promises)
    assert all(promise.measured is not None for promise in promises)


@pytest.mark.parametrize(
    ("key", "texts"),
    [
        (("ompbind", 64), ["openmpi's", "srun's", "hwloc's", "torchrun's"]),
        (("ompbind", 256), ["hydra's", "floor's"]),
    ],
)
def test_a_slower_ompbind_misses_promises(key, texts):
    assert [text.rpartition(" ")[2] for text in missed(make_launch_promises(slower(WALLS, key)))] == texts


@pytest.mark.parametrize("key", [key for key in WALLS if key[0] != "ompbind" and key != ("floor", 1)])
def test_each_promise_is_about_its_own_launcher(key):
    faster = {**WALLS, key: [wall and wall / 2 for wall in WALLS[key]]}
    texts = missed(make_launch_promises(faster))
    assert [text.rpartition(" ")[2] for text in texts] == [f"{key[0]}'s"]
    assert texts[0].startswith((str(key[1]), "each further"))


def test_a_promise_without_measurement_is_reported_and_not_missed(capsys):
    assert print_promises(make_launch_promises({("ompbind", 64): (0.1,)})) == 0
    output = capsys.readouterr().out
    assert "ok" not in output.split()
    assert output.count("not measured") == len(make_launch_promises({}))


def test_a_launcher_that_always_hung_is_not_measured():
    promises = make_launch_promises({**WALLS, ("openmpi", 64): (None, None, None)})
    assert [promise.text for promise in promises if promise.measured is None] == [
        "64 ranks, wall time, of openmpi's"
    ]
    assert not missed(promises)


def test_a_ratio_is_the_median_within_rounds():
    assert median_ratio((1, 20, 4, None, 5), (1, 10, 1, 1, None)) == 2
    assert median_ratio((1,), (None,)) is None
    assert median_ratio((), (1, 2)) is None


@pytest.mark.parametrize(
    ("changes", "texts"),
    [
        ({}, []),
        ({"largest": 25_000_001}, ["largest process, resident"]),
        ({"rss": 192 * 40_000 + 1000}, ["resident memory, each further rank"]),
        ({"rss": 192 * 40_000}, []),
        ({"switches": 1}, ["wake-ups"]),
        ({"ticks": 1}, ["ticks of CPU time"]),
    ],
)
def test_promises_of_quiet_runs(changes, texts, capsys):
    measured = [
        IdleUsage(ranks=64, **USAGE),
        IdleUsage(ranks=256, **{**USAGE, **changes}),
    ]
    assert missed(make_quiet_promises(measured)) == texts
    assert print_promises(make_quiet_promises(measured)) == len(texts)
    assert capsys.readouterr().out.count("MISSED") == len(texts)


def test_promises_of_live_views():
    usages = [
        WatchUsage(ranks=4, threads=16, interval_s=2.0, percent=0.99),
        WatchUsage(ranks=64, threads=8, interval_s=7.0, percent=1.01),
    ]
    assert missed(list(make_watch_promises(usages))) == ["64 ranks of 8 threads, watched"]


BENCH_WALLS = {"bench": [0.001] * 9, "ompbind run": [0.01] * 9}


@pytest.mark.parametrize(
    ("bench_ms", "grown", "left", "texts"),
    [
        (12.0, 14_999_999, 0, []),
        (12.1, 0, 0, ["a run of bench, beyond ompbind run"]),
        (1.0, 15_000_001, 0, ["memory of bench, 1,000 runs"]),
        (1.0, 0, 1, ["descriptors, children, files left"]),
    ],
)
def test_promises_of_runs_of_bench(bench_ms, grown, left, texts):
    walls = {**BENCH_WALLS, "bench": [bench_ms / 1000] * 9}
    assert missed(make_bench_promises(walls, BenchUsage(runs=500, grown=grown, left=left))) == texts


def test_lines_on_promises_fit_the_page():
    for promise in (
        *make_bench_promises(BENCH_WALLS, BenchUsage(runs=1, grown=0, left=0)),
        *make_launch_promises(WALLS),
        *make_quiet_promises([IdleUsage(ranks=64, **USAGE)]),
        *make_watch_promises([WatchUsage(ranks=1024, threads=1024, interval_s=300.0, percent=99.99)]),
        *make_launch_promises({}),
        *make_startup_promises(STARTS),
    ):
        assert len(render_promise(promise)) <= 80


@pytest.mark.parametrize(
    ("cpu", "text"), [(0, "0x00000001"), (31, "0x80000000"), (33, "0x00000002,0x00000000")]
)
def test_cpu_sets_in_hwloc_notation(cpu, text):
    assert as_hwloc_set(cpu) == text


def test_counts_are_sorted_and_at_least_one():
    assert parse_counts("64,1,64") == (1, 64)
    with pytest.raises(ValueError, match="0"):
        parse_counts("0,1")


ARMS = ("ompbind", "openmpi", "torchrun", "taskset", "default")
NOISE = (0.97, 0.98, 0.99, 1.0, 1.0, 1.01, 1.02, 1.03, 1.04)


def effect(**slower):
    """Return times of nine noisy rounds; `slower` are variants that take so many times as long."""
    return {("triad", variant): [slower.get(variant, 1.0) * noise for noise in NOISE] for variant in ARMS}


@pytest.mark.parametrize(
    ("slower", "words"),
    [
        ({}, ["ok"] * 4),
        ({"ompbind": 1.02}, ["ok"] * 4),
        ({"ompbind": 1.03}, ["MISSED"] * 4),
        ({"openmpi": 0.97}, ["MISSED", "ok", "ok", "ok"]),
        ({"torchrun": 0.97}, ["ok", "MISSED", "ok", "ok"]),
        ({"taskset": 0.97, "openmpi": 0.99}, ["ok", "ok", "MISSED", "ok"]),
        ({"default": 0.97, "taskset": 2.0}, ["ok", "ok", "ok", "MISSED"]),
    ],
)
def test_promises_of_effect_are_against_each_other_variant(slower, words, capsys):
    """Noise that affects a whole round cancels, because ratios are within rounds."""
    promises = list(make_effect_promises(effect(**slower)))
    assert [render_promise(promise).split()[0] for promise in promises] == words
    assert print_promises(promises) == ("MISSED" in words)
    assert len(max(capsys.readouterr().out.splitlines(), key=len)) <= 80


def test_a_result_within_chance_is_unsure_and_not_missed():
    times = effect()
    times["triad", "ompbind"] = [1.1] * 8 + [1.04]
    times["triad", "taskset"] = [1.0] * 8 + [1.03]
    (found,) = (promise for promise in make_effect_promises(times) if "taskset" in promise.text)
    assert render_promise(found).split()[0] == "unsure"
    assert not found.missed
    (missed,) = (
        promise
        for promise in make_effect_promises({**times, ("triad", "taskset"): [1.0] * 9})
        if promise.missed
    )
    assert "taskset" in missed.text


def test_few_rounds_miss_nothing():
    times = {key: found[:7] for key, found in effect(ompbind=3.0).items()}
    assert [render_promise(promise).split()[0] for promise in make_effect_promises(times)] == ["unsure"] * 4


def test_disturbed_rounds_are_dropped():
    times = {**effect(), ("triad", "openmpi"): [None] * 9, ("triad", "taskset"): [0.5, None, *NOISE[2:]]}
    openmpi, _, taskset, _ = make_effect_promises(times)
    assert openmpi.measured is None
    assert (taskset.measured, taskset.low) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("layout", "slower", "words"),
    [
        ("ompbind", 1.04, ["ok", "ok"]),
        ("ompbind", 1.06, ["MISSED", "MISSED"]),
        ("vllm-gomp", 0.9, ["MISSED", "ok"]),
        ("vllm-omp", 0.9, ["ok", "MISSED"]),
        ("shared", 0.5, ["ok", "ok"]),
    ],
)
def test_promises_about_a_busy_scheduler_are_against_each_layout_of_vllm(layout, slower, words, capsys):
    times = {name: list(NOISE) for name in ("vllm-gomp", "vllm-omp", "ompbind", "shared")}
    times[layout] = [slower * noise for noise in NOISE]
    promises = list(make_scheduler_promises(times))
    assert [render_promise(promise).split()[0] for promise in promises] == words
    assert print_promises(promises) == ("MISSED" in words)
    assert len(max(capsys.readouterr().out.splitlines(), key=len)) <= 80


@pytest.mark.parametrize(
    ("text", "halves"),
    [
        ("pack:1 core:2 pu:1", [(0,), (1,)]),
        ("pack:1 core:5 pu:2", [(0, 2), (4, 6)]),
        ("pack:2 core:2 pu:2", [(0, 2), (4, 6)]),
    ],
)
def test_with_settings_by_hand_each_rank_has_half_of_the_cores(text, halves):
    tuning = make_hand_tuning(read_machine(f"synthetic:{text}"), "torchrun")
    assert (list(tuning.halves), tuning.threads) == (halves, len(halves[0]))


def test_each_half_is_on_one_node_for_any_numbering():
    machine = read_machine("synthetic:numa:2 core:2 pu:1")
    low, high = machine.nodes
    swapped = machine.replace(nodes=(low.replace(cpus=high.cpus), high.replace(cpus=low.cpus)))
    assert make_hand_tuning(swapped, "").halves == ((2, 3), (0, 1))


def test_threads_by_hand_are_within_the_quota():
    machine = read_machine("synthetic:pack:1 core:8 pu:1")
    threads = [make_hand_tuning(machine.replace(quota=quota), "").threads for quota in (None, 16.0, 5.0, 0.5)]
    assert threads == [4, 4, 2, 1]


@pytest.mark.parametrize(
    ("wrong", "total", "result"),
    [
        (0, 100, "ok"),
        (5, 100, "ok"),
        (6, 100, "unsure"),
        (13, 100, "MISSED"),
        (60, 1000, "unsure"),
        (75, 1000, "MISSED"),
        (0, 0, "-"),
    ],
)
def test_wrong_decisions_miss_a_promise_only_if_there_are_surely_too_many(wrong, total, result):
    (promise,) = make_decision_promises({"false best": (wrong, total)})
    assert render_promise(promise).split()[0] == result
    assert promise.missed == (result == "MISSED")


def test_one_core_is_too_few():
    with pytest.raises(Unavailable, match="only one core"):
        make_hand_tuning(read_machine("synthetic:pack:1 core:1 pu:2"), "")


def test_a_shell_starts_each_copy_with_its_own_prefix_and_returns_failures():
    def run(code):
        before = make_shell_launcher(["A=1", "A=2"])
        return subprocess.run([*before, "/bin/sh", "-c", code], capture_output=True, text=True)

    done = run("echo $A $B")
    assert (sorted(done.stdout.split()), done.returncode) == (["1", "2"], 0)
    assert [run(f"exit $((A == {copy} ? 3 : 0))").returncode for copy in (1, 2)] == [3, 3]


@pytest.mark.parametrize(
    ("slower", "divisor", "samples"), [(3.0, 1, 3), (3.1, 2, 1), (59, 20, 1), (9000, 20, 1)]
)
def test_a_slow_variant_does_a_part_of_the_work(slower, divisor, samples):
    repetitions = make_repetitions(500, slower)
    assert (repetitions.divisor, repetitions.samples) == (divisor, samples)
    assert make_repetitions(2, 9000).divisor == 2


def test_unknown_names_are_refused():
    assert make_name_parser(("a", "b"))("b") == ("b",)
    with pytest.raises(argparse.ArgumentTypeError, match="unknown: c; known are a, b"):
        make_name_parser(("a", "b"))("a,c")
