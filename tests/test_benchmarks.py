"""What benchmarks promise of numbers: made-up ones, at and past every limit."""

import pytest

from benchmarks.launchers import as_hwloc_set
from benchmarks.promises import (
    Quiet,
    judge_launch,
    judge_quiet,
    median_ratio,
    render_promise,
    tell_promises,
)
from benchmarks.rounds import counts

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
