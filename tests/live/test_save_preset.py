"""A saved preset gives `ompbind plan --preset NAME` the plan of the candidate."""

import json

import pytest

from ompbind.cli.save_preset import save_preset
from tests.bench.sessions import make_candidate
from tests.cli.command_lines import read_bench

DUAL = "synthetic:pack:2 numa:2 l3:2 core:4 pu:2"
WORDS = [
    ("-n", "4", "--smt", "2", "--bind", "thread"),
    ("-n", "2", "--mask", "0-3|8-15", "--env", "A={rank}", "--env", "B=x y"),
    ("-n", "auto", "--strategy", "nodes", "--reserve", "1", "--memory", "bind", "--no-threads"),
]


def read_ranks(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["ranks"]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_the_plan_is_the_same(ompbind, tmp_path, monkeypatch, words):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    save_preset("fast", make_candidate("smt=2", options=words), read_bench())
    plan = ("plan", "--topology", DUAL, "--format", "json")
    settings = {"cwd": tmp_path, "env": {"HOME": str(tmp_path)}}
    by_preset = read_ranks(ompbind(*plan, "--preset", "fast", **settings))
    assert by_preset == read_ranks(ompbind(*plan, *words, **settings))
    assert by_preset != read_ranks(ompbind(*plan, **settings))
