"""Habits from shells and other launchers: the message says what works with ompbind."""

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
