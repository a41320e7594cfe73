"""Parts of starting ranks: order, directory, commands, errors of exec, node masks, stops before the start."""

import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.commands.rank_command import RankCommand
from ompbind.cpuset import CpuSet
from ompbind.errors import CommandNotFoundError, LaunchError
from ompbind.execution import spawn
from ompbind.execution.spawn import (
    exec_error,
    find_executable,
    fork_child,
    set_affinity,
    wait_for_exec,
    working_directory,
)
from ompbind.execution.syscalls import find_numbers, make_mask, parse_mask


@pytest.mark.parametrize(("path", "number", "code", "message"), [
    ("/etc/passwd", 2, 127, "interpreter"), ("/etc/passwd", 7, 126, "too long"),
    ("/etc/passwd", 8, 126, "not a program"), ("/etc/passwd", 13, 126, "Permission denied"),
    ("/nowhere", 2, 127, "command not found: /nowhere"),
])  # fmt: skip
def test_exec_errors_say_what_is_wrong(path, number, code, message):
    error = exec_error(path, number)
    assert error.launch_code == code
    assert message in error.message


def test_an_affinity_mask_that_the_kernel_reduces_is_an_error(monkeypatch):
    masks = iter([{0, 1, 2, 3}, {1}])
    monkeypatch.setattr(spawn.os, "sched_getaffinity", lambda tid: next(masks))
    with pytest.raises(LaunchError, match="requested CPUs 1-2, the kernel allows only 1"):
        set_affinity(CpuSet((1, 2)), 0, lambda tid, cpus: None)


def test_a_rank_that_is_stopped_before_it_runs_its_command_is_continued():
    def act():
        os.kill(os.getpid(), signal.SIGSTOP)
        return b"7"

    pid, pipe = fork_child(act)
    assert wait_for_exec(pid, pipe) == b"7"
    os.waitpid(pid, 0)


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "good").write_text("#!/bin/sh\n")
    (tmp_path / "good").chmod(0o755)
    (tmp_path / "sub").mkdir()
    return tmp_path


def make_rank(directory, *argv):
    return RankCommand(rank=1, argv=argv, env={"PATH": "bin"}, cpus=None, directory=str(directory))


def test_commands_are_found_from_their_directory_and_equal_cpus_do_not_start_after_each_other(directory):
    (directory / "bin").mkdir()
    (directory / "bin/tool").symlink_to("../good")
    rank = make_rank(directory, "tool")
    commands = [
        rank.replace(rank=number, cpus=CpuSet([cpu])) for number, cpu in enumerate((0, 0, 0, 1, 1, 2))
    ]
    starts = spawn.find_starts(commands)
    assert ([*starts], {path for _, path in starts.values()}) == ([0, 3, 5, 1, 4, 2], {"bin/tool"})


@pytest.mark.parametrize(("name", "argv", "error", "message"), [
    ("none", "x", LaunchError, "rank 1: cannot change to directory {path}: No such file or directory"),
    ("\0", "x", LaunchError, "rank 1: cannot change to directory {path}: "),  # and Python's reason
    ("sub", "./good", CommandNotFoundError, "rank 1: command not found: ./good"),
])  # fmt: skip
def test_a_directory_that_cannot_be_used_is_an_error_of_the_rank(directory, name, argv, error, message):
    path = directory / name
    with pytest.raises(error) as caught:
        find_executable(make_rank(path, argv))
    assert caught.value.message.startswith(message.format(path=path))


def test_the_directory_is_restored_even_if_it_was_removed(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with working_directory(str(tmp_path)):
        assert os.getcwd() == str(tmp_path)
    with pytest.raises(FileNotFoundError):
        os.getcwd()


@pytest.mark.parametrize(("program", "numbers"), [
    (("x86_64", 8, "x86_64-linux-gnu"), (239, 238)), (("i686", 8, "x86_64-linux-gnu"), (239, 238)),
    (("x86_64", 4, "i386-linux-gnu"), (275, 276)), (("x86_64", 4, "x86_64-linux-gnux32"), None),
    (("aarch64", 8), (236, 237)), (("aarch64", 4, "arm-linux-gnueabihf"), (320, 321)),
    (("armv7l", 4), (320, 321)), (("riscv64", 8), (236, 237)), (("loongarch64", 8), (236, 237)),
    (("ppc64le", 8), (260, 261)), (("s390x", 8), (269, 270)), (("m68k", 4), None),
])  # fmt: skip
def test_numbers_of_system_calls(program, numbers):
    found = find_numbers(*program)
    assert found == numbers if numbers is None else found[:2] == numbers


@pytest.mark.parametrize(("nodes", "word_bytes", "byteorder", "expected"), [
    ((0, 9, 64), 8, "little", {0: 1, 1: 2, 8: 1}), ((0, 9, 64), 8, "big", {7: 1, 6: 2, 15: 1}),
    ((0, 9, 33), 4, "big", {3: 1, 2: 2, 7: 2}), ((1023,), 8, "big", {120: 128}),
])  # fmt: skip
def test_masks_are_words_of_bits(nodes, word_bytes, byteorder, expected):
    mask = make_mask(CpuSet(nodes), 128, word_bytes, byteorder)
    assert len(mask) == 128
    assert {position: byte for position, byte in enumerate(mask) if byte} == expected


@given(st.frozensets(st.integers(0, 1023)), st.sampled_from((4, 8)), st.sampled_from(("little", "big")))
def test_masks_are_read_as_they_are_written(nodes, size, order):
    assert parse_mask(make_mask(CpuSet(nodes), 128, size, order), size, order) == CpuSet(nodes)
