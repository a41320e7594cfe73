"""Habits from shells and other launchers: the message says what works with ompbind."""

import json

import pytest

from tests.cli.command_lines import call
from tests.live.conftest import one_line


@pytest.mark.parametrize(("verb", "command", "hint"), [
    ("run", "cd /tmp", "cd is a command of shells; use --chdir DIR"),
    ("exec", "-n 2 true", "write options of ompbind before --, and the command after it"),
])  # fmt: skip
def test_a_command_that_cannot_start_has_a_hint(ompbind, verb, command, hint):
    done = ompbind(verb, "--", *command.split())
    assert (done.returncode, f"hint: {hint}" in one_line(done.stderr)) == (127, True), done.stderr


@pytest.mark.parametrize(("verb", "variables", "message"), [
    ("run", "OMPBIND_PRELOAD=nothing", "OMPBIND_PRELOAD=nothing: neither a path nor one of"),
    ("run", "OMPBIND_TOPOLOGY=/none", "OMPBIND_TOPOLOGY: ranks can only run on this machine"),
    ("run", "OMPBIND_LOG_DIR=x OMPBIND_OUTPUT=inherit", "OMPBIND_LOG_DIR=x has no effect with"),
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
