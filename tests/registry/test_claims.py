"""The text of claims, and which live runs count as other runs."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.errors import OmpbindError
from ompbind.planning.other_runs import NAMED_RUNS, LiveRun, find_other_runs
from ompbind.planning.request import Hold
from ompbind.registry.claims import (
    HEAD,
    RANKS_LIMIT,
    TEXT_LIMIT,
    make_text,
    open_claim,
    parse_text,
    read_exit,
    write_claim,
)
from ompbind.registry.registry import render_ignored
from ompbind.text import NAME_LIMIT, clean_name
from tests.planning.test_conflicts import live, plan


def claimant(**changes):
    return LiveRun(run_id="mine", pid=1, uid=0, started=5, claimed=EMPTY).replace(**changes)


def test_the_runs_in_which_a_run_starts_are_not_others():
    outer, inner = live("0", "outer"), live("1", "inner", parent_run_id="outer")
    beside, loop = live("2", "beside", parent_run_id="outer"), live("3", "loop", parent_run_id="loop")
    foreign = live("4", "inner", uid=5)
    runs = (outer, inner, beside, loop, foreign)
    for parent, others in (
        ("inner", (beside, loop, foreign)),
        ("outer", (inner, beside, loop, foreign)),
        ("loop", (outer, inner, beside, foreign)),
        ("", runs),
    ):
        assert find_other_runs(runs, claimant(parent_run_id=parent)) == others


def test_ranks_of_one_job_are_not_others_unless_of_another_user():
    mine, foreign = live("0", "mine"), live("1", "mine", uid=5)
    assert find_other_runs((mine, foreign), claimant(placement_index=1)) == (foreign,)
    assert [claimant(placement_index=1).is_same_job(run) for run in (mine, foreign)] == [True, False]
    assert find_other_runs((mine, foreign), claimant()) == (mine, foreign)


names = st.text(min_size=1, max_size=NAME_LIMIT).map(clean_name)
sets = st.sets(st.integers(0, 8191), max_size=40).map(CpuSet)
holds = st.sampled_from([None, *Hold])


@given(names, names | st.just(""), st.lists(st.tuples(st.integers(0, 99), sets)), sets, holds)
def test_written_claims_can_be_read(name, parent_run_id, ranks, cpus, hold):
    run = LiveRun(
        run_id=name, pid=3, uid=1000, started=1_700_000_000, ranks=tuple(ranks), claimed=cpus, avoided=cpus,
        parent_run_id=parent_run_id, pid_space=4026531836, hold=hold,
    )  # fmt: skip
    text = make_text(run)
    assert parse_text(text, 1000) == run
    of_old_version = text.replace(f"\nhold {hold}\n", "\n")
    assert parse_text(of_old_version, 1000) == run.replace(hold=None)
    assert parse_text(make_text(run)[:-1], 1000) is None


def test_long_claims_leave_single_ranks_out():
    ranks = tuple((rank, CpuSet((rank % 8,))) for rank in range(60_000))
    run = live("0-7", ranks=ranks)
    text = make_text(run)
    assert len(text.encode()) <= TEXT_LIMIT
    assert parse_text(text, 0) == run.replace(ranks=())
    largest = live("0-8191", ranks=tuple((cpu, CpuSet((cpu,))) for cpu in range(8192)))
    assert parse_text(make_text(largest), 0) == largest
    assert parse_text(make_text(largest), 0, with_ranks=False) == largest.replace(ranks=())


GOOD = make_text(live("0-3"))
keys = st.sampled_from(["run", "pid", "started", "inside", "held", "avoided", "rank", "hold", "new"])
values = st.text() | st.sampled_from(["0-3", "0 1-2", "-1", "9" * 40, "1e9", "²", "0-99999", "x"])


@given(st.lists(st.tuples(keys, values)))
def test_any_text_is_a_usable_run_or_none(pairs):
    text = GOOD + "".join(f"{key} {value}\n" for key, value in pairs)
    run = parse_text(text, 7)
    if run is None:
        return
    assert run.uid == 7
    assert run.run_id.isprintable()
    try:
        made = plan("avoid", run)
    except OmpbindError as error:
        assert error.message.isprintable()
    else:
        assert all(note.text.isprintable() for note in made.notes)


@pytest.mark.parametrize("text", [
    "", "\n", f"{HEAD}\n", GOOD.replace(" 2\n", " 1\n", 1), GOOD.replace("pid", "dip"),
    GOOD.replace("held 0-3", "held 0-8192"), GOOD.replace("rank 0 0-3", "rank 0 3-0"),
    GOOD.replace("held 0-3", "held 0-6:2"), GOOD.replace("held 0-3", "held 0-3" + ",0" * 20_000),
    GOOD + "rank 0 0\n" * (RANKS_LIMIT + 1),
])  # fmt: skip
def test_invalid_claims(text):
    assert parse_text(text, 0) is None


def test_claims_of_older_versions_are_valid():
    run = live("0", "old", restarts=5).replace(bind="rank")
    lines = [line for line in make_text(run).splitlines() if not line.startswith(("restarts", "bind"))]
    assert parse_text("\n".join([*lines, ""]), 0) == run.replace(restarts=0, bind="")


@pytest.mark.parametrize("name", ["serve", "a\nrestarts 7", "x" * 300])
def test_restarts_and_the_exit_code_can_be_changed_in_place(tmp_path, name):
    handle = os.open(tmp_path, os.O_RDONLY)
    run = live("0-3", clean_name(name), restarts=5)
    claim = write_claim(run, handle, str(tmp_path))
    (path,) = tmp_path.iterdir()
    opened = open_claim(str(path))
    assert (parse_text(path.read_text(), run.uid), read_exit(opened)) == (run, None)
    for count in (10**12 - 1, 0, 10**15):
        claim.publish_restarts(count)
        assert path.read_text() == make_text(run.replace(restarts=count))
    claim.publish_exit(7)
    claim.release()
    assert (read_exit(opened), path.exists()) == (7, False)
    os.close(opened)
    os.close(handle)


def test_a_sentence_names_some_claims_that_do_not_count_and_counts_the_others():
    ignored = [(f"ompbind-{number}", "why") for number in range(1, NAMED_RUNS + 2)]
    named = ", ".join(f"ompbind-{number} (why)" for number in range(1, NAMED_RUNS + 1))
    assert render_ignored(ignored[:1], "/d") == "1 claim in /d does not count: ompbind-1 (why)"
    assert render_ignored(ignored[:-1], "/d") == f"{NAMED_RUNS} claims in /d do not count: {named}"
    assert render_ignored(ignored, "/d") == f"{NAMED_RUNS + 1} claims in /d do not count: {named}, 1 more"
    assert render_ignored([], "/d") == ""
