"""`ompbind bench --dry-run`: the candidates, what cannot run, and how long a session may take."""

import re

FOUR_CORES = ("--topology", "synthetic:pack:2 core:2 pu:2")


def dry_run(ompbind, *words, code=0):
    done = ompbind("bench", "--dry-run", *words, "--", "true")
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout.splitlines()


def test_all_candidates_and_refusals_are_shown(ompbind):
    assert dry_run(ompbind, *FOUR_CORES, "--vary", "ranks=1,2,9", "--vary", "smt=1,2") == [
        "candidate         ranks  threads  CPUs of each rank  same plan",
        "1 rank, unbound       1        -  not bound          -",
        "1 rank, default       1        4  0-6:2              1 rank, smt=1",
        "1 rank, smt=2         1        8  0-7                -",
        "2 ranks, unbound      2        -  not bound          -",
        "2 ranks, default      2        2  0,2 | 4,6          2 ranks, smt=1",
        "2 ranks, smt=2        2        4  0-3 | 4-7          -",
        "",
        "cannot run:",
        "  9 ranks, default; 9 ranks, smt=2: 9 ranks do not fit on 8 CPUs (allowed: CPUs",
        "  0-7)",
        "  9 ranks, smt=1: 9 ranks do not fit on 4 CPUs (allowed: CPUs 0-7, usable with",
        "  these options: CPUs 0-6:2)",
        "",
        "time: 406 runs at most: a warm-up and 40 rounds of all candidates, then 40",
        "  rounds of the best and of unbound; about 1 h if a run takes 10 s; a clear",
        "  result needs fewer",
    ]


def test_without_any_choice_the_machine_decides(ompbind):
    lines = dry_run(ompbind, *FOUR_CORES, "--fixed-work", "--budget", "5m", "--max-rounds", "10")
    assert [line.split("  ")[0] for line in lines[1:9]] == [
        "1 rank, unbound", "1 rank, default", "1 rank, smt=all", "1 rank, bind=thread",
        "1 rank, smt=all, bind=thread", "2 ranks, unbound", "2 ranks, default", "2 ranks, smt=all",
    ]  # fmt: skip
    assert "--budget stops after 5 min" in " ".join(" ".join(lines).split())


def test_the_time_of_a_server_is_known(ompbind):
    words = ("--metric", "(.*)", "--duration", "30s", "--max-rounds", "1", "--vary", "smt=1")
    text = " ".join(dry_run(ompbind, *FOUR_CORES, *words))
    assert "time: 6 runs at most: a warm-up and 1 round of all candidates, then 1 round" in text
    assert "about 3 min if a run takes 30 s" in text


def test_a_dry_run_without_candidates_fails(ompbind):
    lines = dry_run(ompbind, *FOUR_CORES, "-n", "9", "--vary", "smt=2", code=1)
    assert lines[0] == "cannot run:"


def test_this_machine_has_candidates(ompbind):
    assert dry_run(ompbind)[1].startswith("unbound ")


def test_the_times_of_an_earlier_session_are_used(ompbind, tmp_path):
    file = tmp_path / "runs.jsonl"
    words = ("--vary", "smt=1", "--results", str(file), "--max-rounds", "1")
    ompbind("bench", "-q", *words, "--", "sleep", "0.2")
    assert re.search(r"about [12] s if a run takes 0\.2\d* s", " ".join(dry_run(ompbind, *words)))


def test_warnings_of_plans_name_their_candidates(ompbind):
    words = ("--topology", "synthetic:core:2 pu:1", "--vary", "threads=1,4")
    done = ompbind("bench", "--dry-run", *words, "--", "true")
    assert " ".join(done.stderr.split()) == (
        "ompbind: warning: rank 0 has more threads than CPUs: they will wait for each other (lower --threads)"
        " [threads=4]"
    )
    assert ompbind("bench", "--dry-run", "-q", *words, "--", "true").stderr == ""
    common = ompbind("bench", "--dry-run", *words[:2], "-t", "4", "--vary", "smt=1", "--", "true").stderr
    assert "[" not in common
    assert "more threads than CPUs" in common


def test_a_session_needs_a_command_but_shown_sessions_need_files(ompbind):
    assert "the command to start is missing" in ompbind("bench", "-n", "2").stderr
    assert "the command to start is missing" not in ompbind("bench", "--show").stderr
