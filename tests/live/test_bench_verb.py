"""`ompbind bench --dry-run`: the candidates, what cannot run, and how long a session may take."""

import re

FOUR_CORES = ("--topology", "synthetic:pack:2 core:2 pu:2")


def dry_run(ompbind, *words, code=0):
    done = ompbind("bench", "--dry-run", *words, "--", "true")
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout


def test_all_candidates_and_refusals_are_shown(ompbind):
    lines = dry_run(ompbind, *FOUR_CORES, "--vary", "ranks=1,2,9", "--vary", "smt=1,2").splitlines()
    assert lines[:7] == [
        "candidate         ranks  threads  CPUs of each rank  same plan",
        "1 rank, unbound       1        -  not bound          -",
        "1 rank, default       1        4  0-6:2              1 rank, smt=1",
        "1 rank, smt=2         1        8  0-7                -",
        "2 ranks, unbound      2        -  not bound          -",
        "2 ranks, default      2        2  0,2 | 4,6          2 ranks, smt=1",
        "2 ranks, smt=2        2        4  0-3 | 4-7          -",
    ]
    text = " ".join(" ".join(lines[7:]).split())
    assert "cannot run: 9 ranks, default; 9 ranks, smt=2: 9 ranks do not fit on 8 CPUs" in text
    assert "runs: 246 at most: a warm-up and 40 rounds of all candidates" in text


def test_without_any_choice_the_machine_decides(ompbind):
    text = dry_run(ompbind, *FOUR_CORES, "--metric", "(.*)", "--budget", "5m", "--max-rounds", "10")
    assert [line.split("  ")[0] for line in text.splitlines()[1:9]] == [
        "1 rank, unbound", "1 rank, default", "1 rank, smt=all", "1 rank, bind=thread",
        "1 rank, smt=all, bind=thread", "2 ranks, unbound", "2 ranks, default", "2 ranks, smt=all",
    ]  # fmt: skip
    assert "--budget stops after 5 min" in " ".join(text.split())
    assert dry_run(ompbind).splitlines()[1].startswith("unbound ")


def test_the_times_of_an_earlier_session_are_used(ompbind, tmp_path):
    words = ("--vary", "smt=1", "--results", str(tmp_path / "runs.jsonl"), "--max-rounds", "1")
    assert ompbind("bench", "-q", *words, "--", "sleep", "0.1").returncode == 0
    assert re.search(r" s if a run takes 0\.[1-9]", " ".join(dry_run(ompbind, *words).split()))


def test_warnings_of_plans_name_their_candidates(ompbind):
    words = ("--topology", "synthetic:core:2 pu:1", "--vary", "threads=1,4")
    done = ompbind("bench", "--dry-run", *words, "--", "true")
    (warning,) = done.stderr.split("ompbind: ")[1:]
    assert "more threads than CPUs" in warning
    assert "[threads=4]" in warning
    assert ompbind("bench", "--dry-run", "-q", *words, "--", "true").stderr == ""


def test_what_a_session_needs(ompbind):
    assert "the command to start is missing" in ompbind("bench", "-n", "2").stderr
    assert "the command to start is missing" not in ompbind("bench", "--show").stderr
    assert "cannot run:" in dry_run(ompbind, *FOUR_CORES, "-n", "9", "--vary", "smt=2", code=1)
