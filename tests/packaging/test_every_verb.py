"""Each verb works with typical command lines, for a given Python, wheel or zipapp.

OMPTEST_COMMAND is the command line of ompbind, such as 'python3 -I -S dist/ompbind.pyz'. By default it is the
one beside the Python that runs the tests. A warning of Python is an error here.
"""

import os
import re
import shlex
import subprocess
import sys

import pytest

from ompbind.cli import VERBS
from ompbind.cli.plan import FORMATS
from tests.live.conftest import OMPBIND, clean_environment

pytestmark = pytest.mark.part("verbs")

WORDS = shlex.split(os.environ.get("OMPTEST_COMMAND", shlex.quote(OMPBIND)))
PYTHON = shlex.quote(sys.executable)
COMMAND = [os.path.abspath(word) if os.path.exists(word) else word for word in WORDS]
DUAL = "--topology 'synthetic:pack:2 numa:1 core:4 pu:2'"
SEEN = "import os, sys; print(type(sys.meta_path[0]).__name__, os.environ['PYTHONPATH'].endswith('shims'))"
BENCH = "bench --max-rounds 20 --vary bind=rank,none"
MEASURED = "--metric 'took ([0-9])' -- sh -c '[ $OMP_PROC_BIND = true ]; echo took $((1 + $?))'"

CALLS = f"""
--version                                                        ~ ^ompbind [0-9]
--help                                                           ~ ^Usage: ompbind
help run                                                         ~ --ranks
help tutorial                                                    ~ ^# Tutorial$
help search affinity mask                                        ~ ^placement:
help --mask                                                      ~ ^  more: ompbind help placement
run --help-all                                                   ~ --on-failure
run -n 2 --output tag --verify --timeout 50 -- echo hi           ~ ^.1. hi$
run -v --chdir / --output tag -- pwd                             ~ ^.0. /$
run -v --report r.json --log-dir logs -- true                    ~ ^command of every rank: true
run -n 2 --env PORT={{rank+80}} -- sh -c 'echo $PORT'            ~ ^81$
run -n 2 --dry-run -- true                                       ~ command of every rank
run --on-failure restart:1 -- sh -c 'exit 7'                     ~ with code 7 ~ 7
run --freeze-threads -- {PYTHON} -c "{SEEN}"             ~ ^TorchFinder True$
exec --bind thread -- sh -c 'echo $RANK of $WORLD_SIZE'          ~ ^0 of 1$
plan --topology sample:epyc-2p                                   ~ ^x86_64, 384 CPUs
plan -m 0-99 {DUAL}                                              ~ ^ompbind: error: CPUs 16-99 ~ 2
plan --nonsense                                                  ~ ^ompbind: error: .*--nonsense ~ 2
{BENCH} --export csv -- true                                     ~ bind
{BENCH} --results b.jsonl {MEASURED} THEN bench --show b.jsonl ~ ^recommended: default
topo                                                             ~ ^live: .* CPU
topo --format svg                                                ~ ^<svg
probe                                                            ~ thread|no OpenMP runtime
probe --format json                                              ~ ^{{
doctor -- {PYTHON} -c ''                                 ~ CPUs ~ 0 1
ps                                                               ~ runs
ps --format json                                                 ~ ^{{
stop nothing                                                     ~ no live run is named ~ 2
inspect PID                                            ~ process ~ 0 1
inspect --format json PID                              ~ ^{{ ~ 0 1
rebind --dry-run PID                                   ~ dry run: nothing was changed
config run                                                       ~ ranks
completion bash                                                  ~ ompbind
completion fish                                                  ~ ompbind
"""
"""Command lines, one or two, a pattern of their output, and exit codes other than 0."""

ROWS = [*CALLS.strip().splitlines()]
ROWS += [
    f"plan -n 2 {DUAL} --format {name} {'--rank 1' if row.ranks == 'one' else ''} ~ ."
    for name, row in FORMATS.items()
]


@pytest.fixture
def env(tmp_path):
    settings = {"PYTHONWARNINGS": "error", "XDG_CONFIG_HOME": str(tmp_path / "config"), "TERM": "xterm"}
    # PYTHONPATH would replace the package of a wheel
    return {name: value for name, value in clean_environment(**settings).items() if name != "PYTHONPATH"}


def test_each_verb_is_called():
    assert {row.split()[0] for row in ROWS} >= set(VERBS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.partition("~")[0].strip()[:60])
def test_a_command_line_works_without_warnings(tmp_path, env, row):
    text, pattern, *codes = map(str.strip, row.split(" ~ "))
    for line in text.split(" THEN "):
        words = [str(os.getpid()) if word == "PID" else word for word in shlex.split(line)]
        done = subprocess.run(
            [*COMMAND, *words], cwd=tmp_path, env=env, text=True, timeout=120,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert str(done.returncode) in (codes or ["0"])[0].split(), done.stdout
        assert re.search(pattern, done.stdout, re.MULTILINE), done.stdout
        assert not re.search("Warning|Traceback", done.stdout), done.stdout
