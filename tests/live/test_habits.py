"""Habits from shells and other launchers: the message says what works with ompbind."""

import json
import sys

import pytest


@pytest.mark.parametrize("verb", ["run", "exec"])
@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (["cd", "/tmp"], 127, "hint: cd is a command of shells; use --chdir DIR"),
        (["PORT=8000", "true"], 127, "hint: set a variable with an option: --env PORT=8000"),
        (["sleep 1"], 127, "hint: write the command without quotes around all of it: -- sleep 1"),
        (["-n", "2", "true"], 127, "hint: write options of ompbind before --, and the command after it"),
        (["{script}"], 127, "hint: it has Windows line ends; remove them: sed -i 's/\\r$//' {script}"),
    ],
)
def test_a_command_that_cannot_start_has_a_hint(ompbind, tmp_path, verb, command, code, message):
    script = tmp_path / "script"
    script.write_bytes(b"#!/bin/sh\r\ntrue\r\n")
    script.chmod(0o755)
    done = ompbind(verb, "--", *(word.format(script=script) for word in command))
    assert done.returncode == code
    assert message.format(script=script) in " ".join(done.stderr.split())


@pytest.mark.parametrize("verb", ["run", "ps", "help"])
def test_help_of_a_verb(ompbind, verb):
    done = ompbind("help", verb)
    assert done.returncode == 0
    assert done.stdout == ompbind(verb, "--help").stdout


def test_help_without_a_verb_or_with_a_wrong_one(ompbind):
    assert ompbind("help").stdout == ompbind("--help").stdout
    wrong = ompbind("help", "pln")
    assert wrong.returncode == 2
    assert "no such command 'pln'" in wrong.stderr
    assert "did you mean 'plan'?" in wrong.stderr


@pytest.mark.parametrize(
    ("verb", "env", "message"),
    [
        ("run", {"OMPBIND_MASK": "0-9999"}, "OMPBIND_MASK: CPUs "),
        ("run", {"OMPBIND_MASK": "0-x"}, "OMPBIND_MASK: 'x' is not a number"),
        ("run", {"OMPBIND_PRELOAD": "nothing"}, "OMPBIND_PRELOAD=nothing: neither a path nor one of"),
        ("run", {"OMPBIND_TOPOLOGY": "/none"}, "OMPBIND_TOPOLOGY: ranks can only run on this machine"),
        (
            "run",
            {"OMPBIND_LOG_DIR": "x", "OMPBIND_OUTPUT": "inherit"},
            "OMPBIND_LOG_DIR=x has no effect with OMPBIND_OUTPUT=inherit",
        ),
        ("exec", {"OMPBIND_RANKS": "4"}, "OMPBIND_RANKS=4: no launcher has started this process"),
    ],
)
def test_an_error_names_the_variable_that_a_value_comes_from(ompbind, tmp_path, verb, env, message):
    report = tmp_path / "report.json"
    words = ["--report", str(report)] if verb == "run" else []
    done = ompbind(verb, *words, "--", "true", env=env)
    assert done.returncode == 125
    assert " ".join(done.stderr.split()).startswith(f"ompbind: error: {message}")
    if words and "'x'" not in message:
        assert json.loads(report.read_text())["error"].startswith(message)


def test_an_error_names_the_option_that_a_value_comes_from(ompbind):
    done = ompbind("exec", "-n", "4", "--", "true", env={"OMPBIND_RANKS": "5"})
    assert "error: -n 4: no launcher" in done.stderr


def test_an_error_without_an_option_lists_variables_that_may_be_the_cause(ompbind):
    done = ompbind("run", "--", "true", env={"OMPBIND_RANKS": "5000", "OMPBIND_MEMORY": "bind"})
    assert "set outside of the command line: OMPBIND_RANKS=5000" in " ".join(done.stderr.split())
    assert done.stderr.count("OMPBIND_RANKS") == 1
    assert "OMPBIND_MEMORY" not in done.stderr  # it chooses no CPUs
    for name, value in (("OMPBIND_REPORT", "/none/x.json"), ("OMPBIND_LOG_DIR", "/proc/none")):
        done = ompbind("run", "--", "true", env={name: value})
        assert f"set outside of the command line: {name}={value}" in " ".join(done.stderr.split())
    done = ompbind("plan", env={"OMPBIND_TOPOLOGY": "/x"})
    assert "set outside of the command line: OMPBIND_TOPOLOGY=/x" in " ".join(done.stderr.split())
    done = ompbind("run", "-n", "5000", "--", "true", env={"OMPBIND_RANKS": "1"})
    assert "OMPBIND_RANKS" not in done.stderr


@pytest.mark.parametrize("verb", ["run", "exec", "plan"])
def test_an_unknown_variable_is_a_warning(ompbind, verb):
    env = {
        "OMPBIND_MASKS": "0",
        "OMPBIND_RANKZ": "2",
        "OMPBIND_XYZ": "1",
        "OMPBIND_FORMAT": "table",
        "OMPBIND_RANK": "3",
    }
    done = ompbind(verb, "--", "true", env=env)
    assert done.returncode == 0
    warnings = " ".join(done.stderr.split()).split("ompbind: warning: ")[1:]
    assert [text.strip() for text in warnings] == [
        "OMPBIND_MASKS is not a variable of ompbind; did you mean OMPBIND_MASK?",
        "OMPBIND_RANKZ is not a variable of ompbind; did you mean OMPBIND_RANKS?",
        "OMPBIND_XYZ is not a variable of ompbind",
    ]


def test_an_unknown_variable_is_shown_once_and_not_with_quiet(ompbind):
    env = {"OMPBIND_MASKS": "0"}
    assert ompbind("run", "-q", "--", "true", env=env).stderr == ""
    assert ompbind("ps", env=env).stderr == ""
    rank = {"PMI_RANK": "1", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2", "PMI_SIZE": "2"}
    assert ompbind("exec", "--share", "--", "true", env={**env, **rank}).stderr == ""
    doctor = ompbind("doctor", "--format", "json", env=env)
    assert "OMPBIND_MASKS" in [issue["subject"] for issue in json.loads(doctor.stdout)["findings"]]


def test_a_nested_run_has_a_name_of_its_own(ompbind):
    read = "import os; print(os.environ['OMPBIND_RUN_ID'])"
    nested = f"{read}\nos.execvp('ompbind', ['ompbind', 'run', '--', '{sys.executable}', '-c', {read!r}])"
    outer, inner = ompbind("run", "--", sys.executable, "-uc", nested).stdout.split()
    assert outer != inner
    done = ompbind("run", "--run-id", "same", "--", "ompbind", "run", "--run-id", "same", "--", "true")
    assert done.returncode == 125
    assert "--run-id same: the enclosing run has this name" in done.stderr
