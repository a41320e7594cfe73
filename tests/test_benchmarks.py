"""What benchmarks promise of numbers: made-up ones, at and past every limit."""

import argparse
import math
import random
import statistics
import subprocess

import pytest

from benchmarks.arms import make_hands, start_each
from benchmarks.effect import make_place
from benchmarks.launchers import Missing, as_hwloc_set
from benchmarks.promises import (
    Quiet,
    judge_effect,
    judge_launch,
    judge_quiet,
    median_interval,
    median_ratio,
    render_promise,
    tell_promises,
)
from benchmarks.rounds import counts, names
from ompbind import read_machine

WALLS = {
    ("floor", 1): (0.0, 1.0, 0.0),
    ("floor", 256): (255.0, 256.0, 25.5),
    ("ompbind", 1): (1.0, 1.0, 1.0),
    ("ompbind", 64): (0.7, 0.7, 70.0),
    ("ompbind", 256): (409.0, 409.0, 1000.0),
    ("hydra", 64): (0.5, 0.5, 0.5),
    ("hydra", 256): (409.0, 409.0, 409.0),
    **{(name, 64): (1.0, 1.0, None) for name in ("openmpi", "srun", "hwloc", "torchrun")},
}
"""Everything is kept, most of it just so, though one round of three was bad."""

QUIET = {"processes": 2, "largest": 25_000_000, "rss": 0, "pss": 0, "switches": 0, "ticks": 0}


def missed(promises):
    return [one.text for one in promises if one.missed]


def slower(walls, key):
    return {**walls, key: [one and one * 1.7 for one in walls[key]]}


def test_promises_of_launches_are_kept_at_their_limits():
    promises = judge_launch(WALLS)
    assert not missed(promises)
    assert all(one.measured is not None for one in promises)


@pytest.mark.parametrize(
    ("key", "texts"),
    [
        (("ompbind", 64), ["openmpi's", "srun's", "hwloc's", "torchrun's", "hydra's"]),
        (("ompbind", 256), ["floor's", "hydra's"]),
        (("ompbind", 1), []),
    ],
)
def test_a_slower_ompbind_misses_them(key, texts):
    assert [text.rpartition(" ")[2] for text in missed(judge_launch(slower(WALLS, key)))] == texts


@pytest.mark.parametrize("key", [key for key in WALLS if key[0] != "ompbind" and key[1] > 1])
def test_each_promise_is_about_its_own_launcher(key):
    faster = {**WALLS, key: [one and one / 2 for one in WALLS[key]]}
    texts = missed(judge_launch(faster))
    assert [text.rpartition(" ")[2] for text in texts] == [f"{key[0]}'s"]
    assert texts[0].startswith((str(key[1]), "each further"))


def test_what_was_not_measured_is_said_and_not_missed(capsys):
    assert tell_promises(judge_launch({("ompbind", 64): (0.1,)})) == 0
    told = capsys.readouterr().out
    assert "ok" not in told.split()
    assert told.count("not measured") == len(judge_launch({}))


def test_a_launcher_that_always_hung_is_not_measured():
    promises = judge_launch({**WALLS, ("openmpi", 64): (None, None, None)})
    assert [one.text for one in promises if one.measured is None] == ["64 ranks, wall time, of openmpi's"]
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
    measured = [Quiet(ranks=64, **QUIET), Quiet(ranks=256, **{**QUIET, **changes})]
    assert missed(judge_quiet(measured)) == texts
    assert tell_promises(judge_quiet(measured)) == len(texts)
    assert capsys.readouterr().out.count("MISSED") == len(texts)


def test_lines_on_promises_fit_the_page():
    for one in (*judge_launch(WALLS), *judge_quiet([Quiet(ranks=64, **QUIET)]), *judge_launch({})):
        assert len(render_promise(one)) <= 80


@pytest.mark.parametrize(
    ("cpu", "text"), [(0, "0x00000001"), (31, "0x80000000"), (33, "0x00000002,0x00000000")]
)
def test_sets_as_hwloc_writes_them(cpu, text):
    assert as_hwloc_set(cpu) == text


def test_counts_are_in_order_and_at_least_one():
    assert counts("64,1,64") == (1, 64)
    with pytest.raises(ValueError, match="0"):
        counts("0,1")


@pytest.mark.parametrize(("count", "first"), [(8, 1), (9, 1), (11, 1), (12, 2), (21, 5), (31, 8), (101, 38)])
def test_the_median_lies_between_two_of_the_numbers(count, first):
    numbers = list(range(1, count + 1))
    random.Random(count).shuffle(numbers)
    assert median_interval(numbers) == (first, count + 1 - first)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_too_few_numbers_say_nothing_of_the_median(count):
    assert median_interval([1.0] * count) == (0.0, math.inf)


@pytest.mark.parametrize(("count", "often"), [(8, 0.992), (9, 0.996), (20, 0.997), (21, 0.993)])
def test_the_interval_has_the_median_as_often_as_it_says(count, often):
    """Also of numbers that are far from normal; the median of these is ln 2."""
    draw = random.Random(count)
    found = [median_interval([draw.expovariate(1) for _ in range(count)]) for _ in range(4000)]
    inside = statistics.mean(low <= math.log(2) <= high for low, high in found)
    assert inside == pytest.approx(often, abs=0.003)


ARMS = ("ompbind", "openmpi", "torchrun", "taskset", "default")
NOISE = (0.97, 0.98, 0.99, 1.0, 1.0, 1.01, 1.02, 1.03, 1.04)


def effect(**slower):
    """Times of nine noisy rounds; all arms are equal but for those that take so many times as long."""
    return {("triad", arm): [slower.get(arm, 1.0) * noise for noise in NOISE] for arm in ARMS}


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
def test_promises_of_effect_are_against_each_other_arm(slower, words, capsys):
    """Noise that hits all of a round is none, as ratios are within rounds."""
    promises = list(judge_effect(effect(**slower)))
    assert [render_promise(one).split()[0] for one in promises] == words
    assert tell_promises(promises) == ("MISSED" in words)
    assert len(max(capsys.readouterr().out.splitlines(), key=len)) <= 80


def test_what_chance_explains_is_unsure_and_not_missed():
    times = effect()
    times["triad", "ompbind"] = [1.1] * 8 + [1.04]
    times["triad", "taskset"] = [1.0] * 8 + [1.03]
    (found,) = (one for one in judge_effect(times) if "taskset" in one.text)
    assert render_promise(found).split()[0] == "unsure"
    assert not found.missed
    (missed,) = (one for one in judge_effect({**times, ("triad", "taskset"): [1.0] * 9}) if one.missed)
    assert "taskset" in missed.text


def test_few_rounds_miss_nothing():
    times = {key: found[:7] for key, found in effect(ompbind=3.0).items()}
    assert [render_promise(one).split()[0] for one in judge_effect(times)] == ["unsure"] * 4


def test_rounds_that_were_disturbed_are_left_out():
    times = {**effect(), ("triad", "openmpi"): [None] * 9, ("triad", "taskset"): [0.5, None, *NOISE[2:]]}
    openmpi, _, taskset, _ = judge_effect(times)
    assert openmpi.measured is None
    assert (taskset.measured, taskset.low) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("text", "halves"),
    [
        ("pack:1 core:2 pu:1", [(0,), (1,)]),
        ("pack:1 core:5 pu:2", [(0, 2), (4, 6)]),
        ("pack:2 core:2 pu:2", [(0, 2), (4, 6)]),
    ],
)
def test_by_hand_each_rank_has_half_of_the_cores(text, halves):
    hands = make_hands(read_machine(f"synthetic:{text}"), "torchrun")
    assert (list(hands.halves), hands.threads) == (halves, len(halves[0]))


def test_halves_by_hand_are_of_one_node_each_whatever_the_numbers():
    machine = read_machine("synthetic:numa:2 core:2 pu:1")
    low, high = machine.nodes
    swapped = machine.replace(nodes=(low.replace(cpus=high.cpus), high.replace(cpus=low.cpus)))
    assert make_hands(swapped, "").halves == ((2, 3), (0, 1))


def test_threads_by_hand_are_within_the_quota():
    machine = read_machine("synthetic:pack:1 core:8 pu:1")
    counts = [make_hands(machine.replace(quota=quota), "").threads for quota in (None, 16.0, 5.0, 0.5)]
    assert counts == [4, 4, 2, 1]


def test_one_core_is_too_few():
    with pytest.raises(Missing, match="only one core"):
        make_hands(read_machine("synthetic:pack:1 core:1 pu:2"), "")


def test_a_shell_starts_each_copy_with_its_own_words_and_tells_of_failures():
    def run(code):
        before = start_each(["A=1", "A=2"])
        return subprocess.run([*before, "/bin/sh", "-c", code], capture_output=True, text=True)

    done = run("echo $A $B")
    assert (sorted(done.stdout.split()), done.returncode) == (["1", "2"], 0)
    assert [run(f"exit $((A == {one} ? 3 : 0))").returncode for one in (1, 2)] == [3, 3]


@pytest.mark.parametrize(
    ("slower", "less", "samples"), [(3.0, 1, 3), (3.1, 2, 1), (59, 20, 1), (9000, 20, 1)]
)
def test_what_is_slow_does_a_part_of_the_work(slower, less, samples):
    place = make_place(500, slower)
    assert (place.less, place.samples) == (less, samples)
    assert make_place(2, 9000).less == 2


def test_names_are_those_that_are_known():
    assert names(("a", "b"))("b") == ("b",)
    with pytest.raises(argparse.ArgumentTypeError, match="nothing is called c: there are a, b"):
        names(("a", "b"))("a,c")
