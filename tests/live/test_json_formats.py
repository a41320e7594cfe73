"""JSON of all verbs is what programs read: keys, codes and values stay as they were recorded.

`python -m tests.live.test_json_formats ompbind > tests/live/recorded.json` records them again.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cli.command_lines import call
from tests.live.conftest import OMPBIND, clean_environment, two_cpus

RECORDED = Path(__file__).with_name("recorded.json")
SENTENCES = {"text", "found", "why", "remedy", "subject", "summary", "error", "hint"}
"""Keys whose values are sentences for people; these may be worded differently."""

ENVIRONMENTS = {"env", "environment"}
"""Keys whose values have the names of variables as keys."""

DUAL = "synthetic:pack:2 numa:2 l3:2 core:4 pu:2"
HYBRID = "synthetic:pack:1 l3:1 core:4 pu:1"
FIXED = [
    ["topo", "--topology", DUAL],
    *([*words.split(), "--topology", DUAL] for words in """
plan
plan -n 4
plan -n 3 -s spread -t 4 --bind thread
plan -n auto -s nodes --reserve 1 --memory bind
plan -n auto -s l3 --smt all --bind core
plan -n 2 -m 0-3|8-15 --smt 1 --bind exact
plan -n 2 -m node:1 --sibling last --smt 1
plan -n 2 --compat vllm
plan -n 2 --omp-runtime llvm --bind exact --memory interleave
""".strip().splitlines()),
    *([*words.split(), "--topology", HYBRID] for words in """
plan -n 5 --share
plan -n 2 -m 0-1|2-9 --allow-partial
plan -n 2 --bind none --reserve-total 1
plan -n 2 -s all
""".strip().splitlines()),
]  # fmt: skip
"""Command lines whose values depend on nothing but the options."""

LIVE = [["topo"], ["plan", "-n", "2"], ["probe"], ["doctor", "--", "python3", "x.py"]]
"""Command lines whose values depend on this machine: only their structure is compared."""

WAITING = "import sys, time; print(1, flush=True); sys.stdin.read()"


def without_sentences(value):
    """Return a JSON value with nothing that is worded for people."""
    if isinstance(value, dict):
        return {key: "" if key in SENTENCES else without_sentences(inner) for key, inner in value.items()}
    return [without_sentences(inner) for inner in value] if isinstance(value, list) else value


def find_keys(value, path=""):
    """Return every key of a JSON value with where it is, as in "ranks[].env"."""
    if isinstance(value, dict):
        inside = (
            find_keys(inner, f"{path}.{key}") for key, inner in value.items() if key not in ENVIRONMENTS
        )
        return {f"{path}.{key}" for key in value}.union(*inside)
    return (
        set().union(*(find_keys(inner, f"{path}[]") for inner in value)) if isinstance(value, list) else set()
    )


def read_output(program, words, env):
    """Run a verb with --format json, and read its one JSON value; `probe` prints a value per line."""
    args = [words[0], "--format", "json", *words[1:]]
    if program:
        done = subprocess.run([*program, *args], capture_output=True, text=True, env=env, timeout=60)
    else:  # in this process
        done = call(*args)
    text = done.stdout
    return [json.loads(line) for line in text.splitlines()] if words[0] == "probe" else json.loads(text)


def record_values(program, words, env):
    return without_sentences(read_output(program, words, env))


def record_keys(program, words, env):
    return sorted(find_keys(read_output(program, words, env)))


def record_run(program, env):
    """Return the keys of all verbs that show a run, and of the report of that run."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.json")
        words = [*f"run -n 1 --verify --report {report} --run-id shown --".split(), sys.executable, "-c"]
        run = subprocess.Popen(
            [*program, *words, WAITING],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env,
        )  # fmt: skip
        assert run.stdout.readline() == b"1\n"
        keys = {
            verb: record_keys(program, [verb, *more], env)
            for verb, more in (("ps", []), ("inspect", ["shown"]))
        }
        run.communicate(timeout=60)
        return {**keys, "report": sorted(find_keys(json.loads(report.read_text())))}


def read_recorded(kind):
    return json.loads(RECORDED.read_text())[kind]


def check_keys(keys, recorded):
    """Compare keys; those of list items are missing where a list is empty on this machine."""
    assert set(keys) <= set(recorded)
    assert all("[]" in key for key in set(recorded) - set(keys))


@pytest.mark.parametrize("words", FIXED, ids=" ".join)
def test_values_are_as_recorded(words):
    assert record_values([], words, None) == read_recorded("fixed")[" ".join(words)]


@pytest.mark.parametrize("words", LIVE, ids=" ".join)
def test_keys_are_as_recorded(words):
    if "-n" in words:
        two_cpus()
    check_keys(record_keys([OMPBIND], words, clean_environment()), read_recorded("live")[" ".join(words)])


@pytest.mark.no_quota
def test_keys_of_runs_are_as_recorded():
    recorded = read_recorded("run")
    for verb, keys in record_run([OMPBIND], clean_environment()).items():
        check_keys(keys, recorded[verb])


if __name__ == "__main__":
    environment = dict(os.environ)
    values = {
        "fixed": {" ".join(words): record_values(sys.argv[1:], words, environment) for words in FIXED},
        "live": {" ".join(words): record_keys(sys.argv[1:], words, environment) for words in LIVE},
        "run": record_run(sys.argv[1:], environment),
    }
    json.dump(values, sys.stdout)
