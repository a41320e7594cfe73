"""Each verb works with a typical command line; a warning of Python is an error here."""

import os
import sys

import pytest

from ompbind.cli.verbs import VERBS
from ompbind.report.export.formats import FORMATS
from tests.live.conftest import claims, ompbind

__all__ = ["claims", "ompbind"]  # fixtures

pytestmark = pytest.mark.part("pythons")

DUAL = "synthetic:pack:2 numa:1 core:4 pu:2"
PLAN = ("plan", "-n", "2", "--topology", DUAL)
ECHO = ("--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE")
HERE = "PID"
"""Stands for the process of the test."""

CALLS = [
    (["--version"], "ompbind"),
    (["--help"], "Usage: ompbind"),
    (["help", "run"], "--ranks"),
    (["run", "--help"], "Usage: ompbind run"),
    (["run", "--help-all"], "--on-failure"),
    (["run", *ECHO], "rank 0 of 1\n"),
    (["run", "-n", "2", "--output", "tag", "--verify", "--timeout", "50", *ECHO], "rank 1 of 2\n"),
    (["run", "-n", "2", "--report", "report.json", "--log-dir", "logs", *ECHO], ""),
    (["run", "-n", "2", "--env", "PORT={rank+80}", "--", "sh", "-c", "echo $PORT"], "81\n"),
    (["run", "-n", "2", "--dry-run", *ECHO], "command of every rank"),
    (["exec", *ECHO], "rank 0 of 1\n"),
    (["exec", "--bind", "thread", *ECHO], "rank 0 of 1\n"),
    *(
        ([*PLAN, "--format", name, *(["--rank", "1"] if row.ranks == "one" else [])], "")
        for name, row in FORMATS.items()
    ),
    ([*PLAN, "-m", "node:0-1", "--compare", "balanced,spread"], "spread"),
    (["bench", "--max-rounds", "2", "--vary", "bind=rank,none", "--export", "csv", "--", "true"], "bind"),
    *((["topo", "--format", name], "") for name in ("tree", "table", "json", "svg")),
    (["probe"], "thread"),
    (["probe", "--format", "json"], "{"),
    (["doctor", "--", sys.executable, "-c", ""], ""),
    (["ps"], ""),
    (["ps", "--format", "json"], "["),
    (["inspect", HERE], "pid"),
    (["inspect", "--format", "json", HERE], "{"),
    (["config", "run"], "ranks"),
    *((["completion", shell], "ompbind") for shell in ("bash", "zsh", "fish")),
]  # fmt: skip
"""Command lines, each with a part of its output."""


def test_each_verb_is_called():
    assert {words[0] for words, _ in CALLS} >= set(VERBS)


@pytest.mark.parametrize(("words", "printed"), CALLS, ids=[" ".join(words)[:60] for words, _ in CALLS])
def test_each_verb_works_without_warnings(ompbind, tmp_path, words, printed):
    words = [str(os.getpid()) if word == HERE else word for word in words]
    done = ompbind(*words, cwd=tmp_path, env={"PYTHONWARNINGS": "error"})
    assert done.returncode in ((0, 1) if words[0] in ("doctor", "inspect") else (0,)), done.stderr
    assert printed in done.stdout
    assert "Warning" not in done.stderr
    assert "Traceback" not in done.stderr
