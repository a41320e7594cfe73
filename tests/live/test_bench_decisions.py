"""Sessions of `ompbind bench` with real programs and a known answer: it is found, and nothing else is."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.conftest import required, two_cpus

EXAMPLES = Path(__file__).parent.parent.parent / "docs/examples"

WORK = ("100", "512")
"""Steps, each with a parallel region, and the side of the plate: 30 ms with one thread."""

NOT_BEST = ("no real difference", "not known yet")


@pytest.fixture(scope="module")
def heat(tmp_path_factory):
    """Return the OpenMP program of the page."""
    program = tmp_path_factory.mktemp("heat") / "heat"
    source = EXAMPLES / "heat.c"
    subprocess.run([required("gcc"), "-O2", "-fopenmp", source, "-o", program], check=True, timeout=60)
    return str(program)


def bench(ompbind, *words, env=None):
    """Return what a session on two CPUs exports as JSON; it must have no message."""
    on_two = (required("taskset"), "-c", ",".join(map(str, two_cpus())))
    done = ompbind("bench", "--quiet", "--export", "json", *words, env=env, before=on_two, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def find_results(session):
    return {each["candidate"]: each for group in session["groups"] for each in group["comparisons"]}


@pytest.mark.alone
def test_two_bound_ranks_are_best_if_threads_wait_for_each_other(ompbind, heat):
    """Without binding, each of the two ranks has a thread for each CPU, and threads wait without sleeping."""
    session = bench(ompbind, "-n", "2", "--max-rounds", "12", "--budget", "40", "--", heat, *WORK)
    found = find_results(session)["default"]
    assert found["result"] == "best", session
    assert found["ratio"] > 1.3
    assert found["interval"][0] > 1
    assert found["fresh"]
    assert session["groups"][0]["choice"] == "default"
    assert [each["command"] for each in session["recommended"]] == [
        ["ompbind", "run", "--ranks", "2", "--", heat, *WORK]
    ]


@pytest.mark.alone
def test_equal_candidates_are_not_best(ompbind, heat):
    """With --bind none, a rank has the CPUs of the command without ompbind, and as many threads.

    One of 20 sessions may find a difference by chance. Two in a row must not.
    """
    words = ("-n", "1", "--bind", "none", "--max-rounds", "12", "--budget", "20", "--", heat, *WORK)
    for _ in range(2):
        session = bench(ompbind, *words, env={"OMP_WAIT_POLICY": "passive"})
        found = find_results(session)["default"]
        assert found["rounds"] >= 8
        if found["result"] in NOT_BEST:
            break
    assert found["result"] in NOT_BEST, session
    assert session["groups"][0]["choice"] in ("unbound", None)


def test_the_known_best_value_is_found(ompbind):
    words = ("-n", "1", "--vary", "env=BLOCK=16,BLOCK=64", "--metric", "speed: ([0-9.]+)", "--higher")
    session = bench(ompbind, *words, "--", sys.executable, str(EXAMPLES / "known.py"))
    results = find_results(session)
    assert results["env=BLOCK=64"]["result"] == "best"
    assert 1.1 < results["env=BLOCK=64"]["ratio"] < 1.3
    assert "best" not in (results["env=BLOCK=16"]["result"], results["default"]["result"])
    assert "BLOCK=64" in " ".join(session["recommended"][0]["command"])
