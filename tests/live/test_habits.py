"""Habits from shells and other launchers: the message says what works with ompbind."""

import json
import os

import pytest

from tests.cli.command_lines import call
from tests.live.conftest import one_line


@pytest.mark.parametrize(("line", "late"), [
    ("run echo up --verify", "--verify"), ("exec echo --smt=2 -q", "--smt=2"), ("run -q echo --verify", ""),
    ("run -- echo --verify", ""), ("run echo x -n 4 --timeout 5 --no-verify", ""), ("run echo –n 2", ""),
    ("run --report=--no-smt --dry-run -q -- echo -n --report --verify", ""), ("run echo ompbind --smt", ""),
    ("run echo a : -n 1 echo b", "':' and -n"), ("run --no-name echo : -n", ""), ("exec echo : -n 1", ""),
    ("plan echo -n 2 --dry-run", "-n"),
])  # fmt: skip
def test_an_option_after_the_command_is_given_to_it_and_may_cause_a_warning(tmp_path, ompbind, line, late):
    done = ompbind(*line.split(), cwd=tmp_path)
    assert (done.returncode, os.listdir(tmp_path)) == (0, [])
    assert "--dry-run" in line or f"echo {done.stdout}" == f"{line[line.index('echo') :]}\n"
    what = "is after the command, so it is an option of echo (write options of"
    what = "are words of the command echo, and begin no group (groups have" if ":" in late else what
    text = f"ompbind: warning: {late} {what}"
    assert one_line(done.stderr)[: len(text)] == (text if late else "")


@pytest.mark.parametrize(("verb", "variables", "message"), [
    ("run", "OMPBIND_PRELOAD=nothing", "OMPBIND_PRELOAD=nothing: neither a path nor one of"),
    ("run", "OMPBIND_TOPOLOGY=/none", "OMPBIND_TOPOLOGY: ranks can only run on this machine"),
    ("run", "OMPBIND_LOG_DIR=x OMPBIND_OUTPUT=inherit", "OMPBIND_LOG_DIR=x has no effect with"),
    ("run", "OMPBIND_STRATEGY=--verify", "OMPBIND_STRATEGY: '--verify' is not a strategy"),
    ("exec", "OMPBIND_RANKS=4", "OMPBIND_RANKS=4: no launcher has started this process"),
])  # fmt: skip
def test_an_error_names_the_variable_that_a_value_comes_from(tmp_path, verb, variables, message):
    report = tmp_path / "report.json"
    options = ["--report", str(report)] if verb == "run" else []
    done = call(verb, *options, "--", "true", **dict(word.split("=") for word in variables.split()))
    assert done.returncode == 125
    assert one_line(done.stderr).startswith(f"ompbind: error: {message}")
    assert not report.exists() or json.loads(report.read_text())["error"].startswith(message)


def test_an_error_without_an_option_lists_variables_that_may_be_the_cause(ompbind):
    done = call("run", "--", "true", OMPBIND_RANKS="5000", OMPBIND_MEMORY="bind")
    assert "set outside of the command line: OMPBIND_RANKS=5000" in one_line(done.stderr)
    assert "OMPBIND_MEMORY" not in done.stderr  # it chooses no CPUs
    done = ompbind("run", "--", "true", env={"OMPBIND_LOG_DIR": "/proc/none"})
    assert "set outside of the command line: OMPBIND_LOG_DIR=/proc/none" in one_line(done.stderr)
    done = call("run", "-n", "5000", "--", "true", OMPBIND_RANKS="1")
    assert "OMPBIND_RANKS" not in done.stderr


def test_an_unknown_variable_is_a_warning(ompbind):
    env = {"OMPBIND_MASKS": "0", "OMPBIND_XYZ": "1", "OMPBIND_FORMAT": "table", "OMPBIND_RANK": "3"}
    for verb in ("run", "exec"):
        done = ompbind(verb, "--", "true", env=env)
        assert done.returncode == 0
        assert [text.strip() for text in one_line(done.stderr).split("ompbind: warning: ")[1:]] == [
            "OMPBIND_MASKS is not a variable of ompbind; did you mean OMPBIND_MASK?",
            "OMPBIND_XYZ is not a variable of ompbind",
        ]
    assert ompbind("run", "-q", "--", "true", env=env).stderr == ""
    rank = {"PMI_RANK": "1", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2", "PMI_SIZE": "2"}
    assert ompbind("exec", "--share", "--", "true", env={**env, **rank}).stderr == "", "only rank 0 warns"
