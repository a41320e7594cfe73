"""JSON of all verbs is what programs read: it has exactly the fields of docs/schemas/, and plans stay equal.

`python -m tests.live.test_json_formats > new.json` runs the command lines of tests/live/recorded.json again.
To add a command line, add it there with an empty value.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from jsonschema import Draft7Validator  # it knows all that the schemas use
from jsonschema.exceptions import best_match

from tests.cli.command_lines import call
from tests.live.conftest import OMPBIND, RUNTIME_DIR, run_program
from tests.packaging.scripts import ROOT

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())
"""All values of command lines that depend on nothing but the options."""

SENTENCES = {"text", "found", "why", "remedy", "subject", "summary", "error", "hint"}
"""Keys whose values are sentences for people; these may be worded differently."""

SCHEMAS = {path.name: json.loads(path.read_text()) for path in (ROOT / "docs/schemas").iterdir()}


def resolve(value, name):
    """Return a part of a schema with what its references name, also in other files."""
    if isinstance(value, dict) and "$ref" in value:
        file, _, path = value["$ref"].partition("#")
        found = SCHEMAS[file or name]
        for key in filter(None, path.split("/")):
            found = found[key]
        return resolve(found, file or name)
    if isinstance(value, dict):
        return {key: resolve(inner, name) for key, inner in value.items() if key != "$defs"}
    return [resolve(inner, name) for inner in value] if isinstance(value, list) else value


def check(name, value):
    """Fail if a JSON value has other fields than the schema of a verb, or values of other types."""
    file = f"{name}.schema.json"
    error = best_match(Draft7Validator(resolve(SCHEMAS[file], file)).iter_errors(value))
    assert error is None, f"{name}: {[*error.absolute_path]}: {error.message[-300:]}"


def without_sentences(value):
    """Return a JSON value with nothing that is worded for people."""
    if isinstance(value, dict):
        return {key: "" if key in SENTENCES else without_sentences(inner) for key, inner in value.items()}
    return [without_sentences(inner) for inner in value] if isinstance(value, list) else value


def read_fixed(line):
    """Return what a command line prints that depends on nothing but the options."""
    words, option, topology = line.partition(" --topology ")
    return json.loads(call(*words.split(), option.strip(), topology, "--format", "json").stdout)


@pytest.mark.parametrize("line", RECORDED)
def test_values_are_as_recorded(line):
    value = read_fixed(line)
    check(line.split()[0], value)
    assert without_sentences(value) == RECORDED[line]


def test_every_schema_is_valid_and_every_code_is_in_one():
    for schema in SCHEMAS.values():
        Draft7Validator.check_schema(schema)
    source = "".join(path.read_text() for path in (ROOT / "ompbind").rglob("*.py"))
    codes = set(re.findall(r'\bcode="([a-z-]+)"', source))
    assert len(codes) >= 8
    text = "".join(map(json.dumps, SCHEMAS.values()))
    assert not [code for code in codes if f'{{"const": "{code}", "description": "' not in text]


@pytest.mark.parametrize("line", [
    "topo", "topo --topology sample:dgx-a100", "plan", "plan --devices auto --topology sample:dgx-a100",
    "plan -n 3 --devices gpu --near nic:0 --topology sample:dgx-a100 -- python3 x.py",
    "plan -m 0 --compat vllm", "plan --name a -- x : --name b -- y", "plan -n 2 --smt all",
    "plan --service-cores 1 --memory bind --topology sample:xeon-max-2p",
    "plan --topology sample:core-i9", "plan -n 100 --share", "probe", "doctor", "doctor -- python3 x.py",
    "doctor -- missing", "config", "config -n 2 --env A=b --env C=d", "ps",
    "inspect PID", "rebind --dry-run PID",
])  # fmt: skip
def test_verbs_print_what_their_schema_has(line, start):
    """PID is a process without children: those of this one come and go."""
    pid = start("60", program="sleep").pid if "PID" in line else 0
    verb, dashes, command = line.replace("PID", str(pid)).partition(" -- ")
    words = (*verb.split(), "--format", "json", *(("--", *command.split()) if dashes else ()))
    done = run_program(OMPBIND, *words, env={"VLLM_CPU_OMP_THREADS_BIND": "0"})
    values = [json.loads(text) for text in (done.stdout.splitlines() if verb == "probe" else [done.stdout])]
    assert values, done.stderr
    for value in values:
        check(words[0], value)


@pytest.mark.no_quota
@pytest.mark.parametrize("hold", ["--no-hold", "--hold", "--hold=fixed"])
def test_a_live_run_is_shown_as_its_schemas_say(start, tmp_path, hold):
    wait = "import sys; print('up', flush=True); sys.stdin.read()"
    options = ("--verify", "--report", tmp_path / "report.json", "--run-id", "shown", "--chdir", "/", hold)
    run = start("run", *options, "--", sys.executable, "-c", wait, stdin=subprocess.PIPE, up=1)
    shown = {verb: run_program(OMPBIND, verb, *words, "--format", "json").stdout for verb, words in (
        ("ps", ()), ("inspect", ("shown",)), ("rebind", ("shown",)))}  # fmt: skip
    run.communicate(timeout=60)
    (own,) = (each for each in json.loads(shown["ps"])["runs"] if each["run_id"] == "shown")
    assert own["hold"] == {"--hold": "answered", "--hold=fixed": "fixed"}.get(hold)
    for verb, text in {**shown, "run": (tmp_path / "report.json").read_text()}.items():
        check(verb, json.loads(text))


@pytest.mark.parametrize("words", [
    "-n 2 --share --verify -- sleep 1", "-m 9999 -- true",
    "--on-failure restart:1 --log-dir logs -- sh -c 'echo no >&2; exit 3'",
    "--timeout 0.2 -- sleep 9", "--share --verify --name a -- true : --name b -- sh -c 'kill -9 $$'",
])  # fmt: skip
def test_reports_of_runs_have_the_fields_of_their_schema(tmp_path, words):
    run_program(OMPBIND, "run", "--report", "r.json", *shlex.split(words), cwd=tmp_path)
    check("run", json.loads((tmp_path / "r.json").read_text()))


def test_sessions_of_bench_have_the_fields_of_their_schemas(tmp_path):
    """Also if a candidate fails, and if the session is resumed with more rounds."""
    line = ("bench", "--results", "b.jsonl", "--vary", "bind=rank,none", "--format", "jsonl", "--max-rounds")
    script = "test $OMP_PROC_BIND != false; echo took $((1 + $?))"
    command = ("--metric", "took ([0-9])", "--export", "json=r.json", "--", "sh", "-c", script)
    for rounds in ("3", "4"):
        done = run_program(OMPBIND, *line, rounds, *command, cwd=tmp_path, timeout=120)
        assert done.returncode == 0, done.stderr
        for text in (*done.stdout.splitlines(), *(tmp_path / "b.jsonl").read_text().splitlines()):
            check("bench", json.loads(text))
    check("bench-result", json.loads((tmp_path / "r.json").read_text()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as claims:
        os.environ[RUNTIME_DIR] = claims
        json.dump({line: without_sentences(read_fixed(line)) for line in RECORDED}, sys.stdout)
