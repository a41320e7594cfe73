"""The parts of launching that need no process: the ladder, finding commands, failures."""

import signal

import pytest

from ompbind.errors import CommandNotExecutableError, CommandNotFoundError
from ompbind.execution.affinity import exec_error
from ompbind.execution.shutdown import Escalation
from ompbind.programs.which import find_command


def climb(first):
    escalation, sent = Escalation(grace_s=5), []
    for now in range(4):
        number = escalation.ask(first, now)
        sent.append((number and number.name, escalation.due_at))
    return sent


def test_the_same_request_twice_is_one():
    escalation = Escalation(grace_s=5)
    assert escalation.ask(signal.SIGTERM, 10.0) is signal.SIGTERM
    assert escalation.ask(signal.SIGTERM, 10.1) is None
    assert escalation.due_at == 15.0
    assert escalation.ask(signal.SIGTERM, 11.0) is signal.SIGKILL


def test_each_rung_is_taken_once_and_the_last_is_kill():
    assert climb(signal.SIGINT) == [("SIGINT", 5), ("SIGTERM", 6), ("SIGKILL", None), (None, None)]
    assert climb(signal.SIGTERM) == [("SIGTERM", 5), ("SIGKILL", None), (None, None), (None, None)]


@pytest.fixture
def folder(tmp_path):
    for name, mode in (("good", 0o755), ("plain", 0o644)):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(mode)
    (tmp_path / "sub").mkdir()
    return tmp_path


def test_commands_are_found_by_path(folder):
    env = {"PATH": f"/nowhere:{folder}"}
    assert find_command("good", env) == str(folder / "good")
    assert find_command(str(folder / "good"), {}) == str(folder / "good")


@pytest.mark.parametrize(
    ("name", "error", "code"),
    [
        ("nosuch", CommandNotFoundError, 127),
        ("", CommandNotFoundError, 127),
        ("{folder}/nosuch", CommandNotFoundError, 127),
        ("{folder}/sub", CommandNotExecutableError, 126),
    ],
)
def test_commands_that_are_not_there(folder, name, error, code):
    with pytest.raises(error) as caught:
        find_command(name.format(folder=folder), {"PATH": str(folder)})
    assert caught.value.launch_code == code


def test_files_without_permission_are_told_apart(folder):
    for name in ("plain", str(folder / "plain")):
        with pytest.raises(CommandNotExecutableError, match="permission denied"):
            find_command(name, {"PATH": str(folder)})


@pytest.mark.parametrize(
    ("number", "code", "message"),
    [
        (2, 127, "interpreter"),
        (7, 126, "too long"),
        (8, 126, "not a program"),
        (13, 126, "Permission denied"),
    ],
)
def test_exec_errors_mean_something(number, code, message):
    error = exec_error("/etc/passwd", number)
    assert error.launch_code == code
    assert message in error.message
    assert exec_error("/nowhere", 2).message == "command not found: /nowhere"
