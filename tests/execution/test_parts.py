"""Parts of starting and stopping that need no process: escalation, finding commands, errors of exec."""

import os
import resource
import signal

import pytest

from ompbind.cpuset import CpuSet
from ompbind.errors import CommandNotExecutableError, CommandNotFoundError, LaunchError
from ompbind.execution import spawn
from ompbind.execution.affinity import WorkingDirectory, exec_error
from ompbind.execution.shutdown import Escalation
from ompbind.execution.signals import signal_name
from ompbind.execution.spawn import find_executable
from ompbind.planning.rank_command import RankCommand
from ompbind.programs.find_command import find_command


def send_all(first):
    escalation, sent = Escalation(grace_s=5), []
    for now in range(4):
        number = escalation.request(first, now)
        sent.append((number and signal_name(number), escalation.due_at))
    return sent


def test_two_requests_at_once_are_one():
    escalation = Escalation(grace_s=5)
    assert escalation.request(signal.SIGTERM, 10.0) == signal.SIGTERM
    assert escalation.request(signal.SIGTERM, 10.1) is None
    assert escalation.due_at == 15.0
    assert escalation.request(signal.SIGTERM, 11.0) == signal.SIGKILL


def test_each_signal_is_sent_once_and_the_last_is_sigkill():
    assert send_all(signal.SIGINT) == [("SIGINT", 5), ("SIGTERM", 6), ("SIGKILL", None), (None, None)]
    assert send_all(signal.SIGTERM) == [("SIGTERM", 5), ("SIGKILL", None), (None, None), (None, None)]


@pytest.fixture
def directory(tmp_path):
    for name, mode in (("good", 0o755), ("plain", 0o644)):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(mode)
    (tmp_path / "sub").mkdir()
    return tmp_path


def test_commands_are_found_by_path(directory):
    env = {"PATH": f"/nowhere:{directory}"}
    assert find_command("good", env) == str(directory / "good")
    assert find_command(str(directory / "good"), {}) == str(directory / "good")


@pytest.mark.parametrize(
    ("name", "error", "code"),
    [
        ("nosuch", CommandNotFoundError, 127),
        ("", CommandNotFoundError, 127),
        ("{directory}/nosuch", CommandNotFoundError, 127),
        ("{directory}/sub", CommandNotExecutableError, 126),
    ],
)
def test_missing_commands(directory, name, error, code):
    with pytest.raises(error) as caught:
        find_command(name.format(directory=directory), {"PATH": str(directory)})
    assert caught.value.launch_code == code


def test_a_file_without_execute_permission_is_another_error(directory):
    for name in ("plain", str(directory / "plain")):
        with pytest.raises(CommandNotExecutableError, match="permission denied"):
            find_command(name, {"PATH": str(directory)})


@pytest.mark.parametrize(
    ("number", "code", "message"),
    [
        (2, 127, "interpreter"),
        (7, 126, "too long"),
        (8, 126, "not a program"),
        (13, 126, "Permission denied"),
    ],
)
def test_exec_errors_say_what_is_wrong(number, code, message):
    error = exec_error("/etc/passwd", number)
    assert error.launch_code == code
    assert message in error.message
    assert exec_error("/nowhere", 2).message == "command not found: /nowhere"


def make_rank(directory, *argv):
    return RankCommand(rank=1, argv=argv, env={"PATH": "bin"}, cpus=None, directory=str(directory))


def test_spawn_are_found_from_the_directory_of_the_rank(directory):
    (directory / "bin").mkdir()
    (directory / "bin/tool").symlink_to("../good")
    before = os.getcwd()
    assert find_executable(make_rank(directory, "./good")) == "./good"
    assert find_executable(make_rank(directory, "tool")) == "bin/tool"
    assert os.getcwd() == before


def test_an_executable_is_searched_once_for_ranks_that_find_the_same(directory, monkeypatch):
    searched = []

    def find(command):
        searched.append(command.rank)
        return find_executable(command)

    monkeypatch.setattr(spawn, "find_executable", find)
    for name in ("bin", "sub/bin"):
        (directory / name).mkdir(parents=True, exist_ok=True)
        (directory / name / "tool").symlink_to(directory / "good")
    first, other = make_rank(directory, "tool"), make_rank(directory / "sub", "./bin/tool")
    absolute = {"PATH": str(directory / "bin")}
    different = (first, first, other, first.replace(env=absolute), other.replace(argv=("bin/tool",)), other)
    commands = [command.replace(rank=rank) for rank, command in enumerate(different)]
    found = spawn.find_starts(commands)
    assert [path for _, path in found.values()] == [find_executable(command) for command in commands]
    assert [command for command, _ in found.values()] == commands
    assert searched == [0, 2, 3, 4]


def test_ranks_with_the_same_cpus_do_not_start_directly_after_each_other(directory):
    rank = make_rank(directory, "./good")
    cpus = [CpuSet.from_list(text) for text in ("0", "0", "0", "1", "1", "2")]
    commands = [rank.replace(rank=number, cpus=some) for number, some in enumerate(cpus)]
    assert [*spawn.find_starts(commands)] == [0, 3, 5, 1, 4, 2]


def test_a_search_for_spawn_without_free_files_is_an_error_with_a_hint(directory):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(LaunchError, match="cannot supervise the run: Too many open files") as caught:
            find_executable(make_rank(directory, "./good"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert "ulimit -n" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "argv", "error", "message"),
    [
        ("none", "x", LaunchError, "rank 1: cannot change to directory {path}: No such file or directory"),
        ("good", "x", LaunchError, "rank 1: cannot change to directory {path}: Not a directory"),
        ("\0", "x", LaunchError, "rank 1: cannot change to directory {path}: "),  # and Python's reason
        ("sub", "./good", CommandNotFoundError, "rank 1: command not found: ./good"),
    ],
)
def test_a_directory_that_cannot_be_used_is_an_error_of_the_rank(directory, name, argv, error, message):
    path = directory / name
    with pytest.raises(error) as caught:
        find_executable(make_rank(path, argv))
    assert caught.value.message.startswith(message.format(path=path))


def test_the_directory_is_restored_even_if_it_was_removed(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with WorkingDirectory(str(tmp_path)):
        assert os.getcwd() == str(tmp_path)
    with pytest.raises(FileNotFoundError):
        os.getcwd()
