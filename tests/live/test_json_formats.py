"""JSON of all verbs is what programs read: keys, codes and values stay as they were recorded.

`python -m tests.live.test_json_formats > new.json` runs the command lines of tests/live/recorded.json again.
To add a command line, add it there with an empty value.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cli.command_lines import call
from tests.live.conftest import OMPBIND, RUNTIME_DIR, run_program, start_program, two_cpus

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())
"""All values of `fixed` command lines; the keys of `live` ones and of a run, which depend on the machine."""

SENTENCES = {"text", "found", "why", "remedy", "subject", "summary", "error", "hint"}
"""Keys whose values are sentences for people; these may be worded differently."""

ENVIRONMENTS = {"env", "environment"}
"""Keys whose values have the names of variables as keys."""


def without_sentences(value):
    """Return a JSON value with nothing that is worded for people."""
    if isinstance(value, dict):
        return {key: "" if key in SENTENCES else without_sentences(inner) for key, inner in value.items()}
    return [without_sentences(inner) for inner in value] if isinstance(value, list) else value


def find_keys(value, path=""):
    """Return every key of a JSON value with where it is, as in "ranks[].env"."""
    if isinstance(value, list):
        return set().union(*(find_keys(inner, f"{path}[]") for inner in value))
    found = set()
    for key, inner in value.items() if isinstance(value, dict) else ():
        found |= {f"{path}.{key}", *(() if key in ENVIRONMENTS else find_keys(inner, f"{path}.{key}"))}
    return found


def read_fixed(line):
    """Return the values of a command line that depend on nothing but the options."""
    words, option, topology = line.partition(" --topology ")
    done = call(*words.split(), option.strip(), topology, "--format", "json")
    return without_sentences(json.loads(done.stdout))


def read_keys(line):
    """Return the keys of what a verb prints on this machine; `probe` prints a value per line."""
    verb, *rest = line.split()
    text = run_program(OMPBIND, verb, "--format", "json", *rest).stdout
    return find_keys(json.loads(f"[{','.join(text.splitlines())}]" if verb == "probe" else text))


def read_run():
    """Return the keys of all verbs that show a run, and of the report of that run."""
    wait = "import sys; print(1, flush=True); sys.stdin.read()"
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.json")
        words = ("run", "-n", "1", "--verify", "--report", str(report), "--run-id", "shown", "--")
        run = start_program(OMPBIND, *words, sys.executable, "-c", wait, stdin=subprocess.PIPE)
        assert run.stdout.readline() == "1\n"
        keys = {line.split()[0]: read_keys(line) for line in ("ps", "inspect shown")}
        run.communicate(timeout=60)
        return {**keys, "report": find_keys(json.loads(report.read_text()))}


def check_keys(keys, recorded):
    """Compare keys; those of list items are missing where a list is empty on this machine."""
    assert keys <= {*recorded}
    assert all("[]" in key for key in {*recorded} - keys)


@pytest.mark.parametrize("line", RECORDED["fixed"])
def test_values_are_as_recorded(line):
    assert read_fixed(line) == RECORDED["fixed"][line]


@pytest.mark.parametrize("line", RECORDED["live"])
def test_keys_are_as_recorded(line):
    if "-n" in line:
        two_cpus()
    check_keys(read_keys(line), RECORDED["live"][line])


@pytest.mark.no_quota
def test_keys_of_runs_are_as_recorded():
    for verb, keys in read_run().items():
        check_keys(keys, RECORDED["run"][verb])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as claims:
        os.environ[RUNTIME_DIR] = claims
        values = {
            "fixed": {line: read_fixed(line) for line in RECORDED["fixed"]},
            "live": {line: sorted(read_keys(line)) for line in RECORDED["live"]},
            "run": {verb: sorted(keys) for verb, keys in read_run().items()},
        }
    json.dump(values, sys.stdout)
