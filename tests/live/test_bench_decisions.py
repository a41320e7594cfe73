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


@pytest.fixture(scope="module")
def heat(tmp_path_factory):
    """Return the OpenMP program of the page."""
    program = tmp_path_factory.mktemp("heat") / "heat"
    words = [required("gcc"), "-O2", "-fopenmp", EXAMPLES / "heat.c", "-o", program]
    subprocess.run(words, check=True, timeout=60)
    return str(program)


def bench(ompbind, *words, env=None):
    """Run a session on two CPUs; return what it exports as JSON, and its results by candidate."""
    on_two = (required("taskset"), "-c", ",".join(map(str, two_cpus())))
    done = ompbind("bench", "--export", "json", *words, env=env, before=on_two, timeout=100)
    assert done.returncode == 0, done.stderr
    session = json.loads(done.stdout)
    return session, {each["candidate"]: each for group in session["groups"] for each in group["comparisons"]}


@pytest.mark.long
@pytest.mark.alone
def test_two_bound_ranks_are_best_if_threads_wait_for_each_other(ompbind, heat):
    """Without binding, each of the two ranks has a thread for each CPU, and threads wait without sleeping."""
    session, results = bench(ompbind, "-n", "2", "--max-rounds", "12", "--budget", "40", "--", heat, *WORK)
    found = results["default"]
    assert (found["result"], found["fresh"], session["groups"][0]["choice"]) == ("best", True, "default")
    assert found["ratio"] > 1.3
    assert found["interval"][0] > 1


@pytest.mark.long
@pytest.mark.alone
def test_equal_candidates_are_not_best(ompbind, heat):
    """One of 20 sessions may find a difference by chance. Two in a row must not."""
    words = ("-n", "1", "--bind", "none", "--max-rounds", "12", "--budget", "20", "--", heat, *WORK)
    found = []
    while len(found) < 2 and {*found}.isdisjoint(("no real difference", "not known yet")):
        _, results = bench(ompbind, *words, env={"OMP_WAIT_POLICY": "passive"})
        assert results["default"]["rounds"] >= 8
        found.append(results["default"]["result"])
    assert found[-1] in ("no real difference", "not known yet")


def test_the_known_best_value_is_found_and_saved_as_a_preset(ompbind, tmp_path):
    file = tmp_path / "ompbind.toml"
    file.touch(mode=0o600)
    words = ("-n", "1", "--vary", "env=BLOCK=16,BLOCK=64", "--metric", "speed: ([0-9.]+)", "--higher")
    words += ("--config", str(file), "--save-preset", "fast", "--")
    session, results = bench(ompbind, *words, sys.executable, "-S", str(EXAMPLES / "known.py"))
    assert results["env=BLOCK=64"]["result"] == "best"
    assert 1.1 < results["env=BLOCK=64"]["ratio"] < 1.3
    assert "best" not in (results["env=BLOCK=16"]["result"], results["default"]["result"])
    assert "BLOCK=64" in " ".join(session["recommended"][0]["command"])
    assert '[preset.fast.env]\nBLOCK = "64"' in file.read_text()
    again = ompbind("bench", *words, "touch", str(tmp_path / "ran"))
    assert again.returncode == 2
    assert "preset 'fast' is already defined" in " ".join(again.stderr.split())
    assert not (tmp_path / "ran").exists()
