"""A command that does not exist gets a hint, if its first word would have worked in a shell."""

import pytest

from ompbind.errors import CommandNotFoundError
from ompbind.programs.find_command import find_command, find_script_error


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("cd", "use --chdir DIR"),
        ("cd /tmp", "use --chdir DIR"),
        ("PORT=8000", "--env PORT=8000"),
        ("NAMES=a b", "--env 'NAMES=a b'"),
        ("sleep 1", "without quotes around all of it: -- sleep 1"),
        ("{directory}/sleep 1", "without quotes around all of it: -- {directory}/sleep 1"),
        ("echo $RANK; date", "needs a shell: -- sh -c 'echo $RANK; date'"),
        ("sleep 1 && date", "-- sh -c 'sleep 1 && date'"),
        ("sleep 1 | cat", "-- sh -c 'sleep 1 | cat'"),
        ("no-such 1 >file", "-- sh -c 'no-such 1 >file'"),
        ("for i in 1 2; do echo $i; done", "-- sh -c 'for i in"),
        ("cd /tmp && ls", "-- sh -c 'cd /tmp && ls'"),
        ("date;ls", "-- sh -c 'date;ls'"),
        ("PORT=8000 sleep 1 & date", "-- sh -c 'PORT=8000 sleep 1 & date'"),
        ("URL=a&b", "--env 'URL=a&b'"),
        ("--mask=0|1", "options of ompbind before --"),
        ("no-such 1", "install it, or add its directory to PATH"),
        ("PORT-1=8000", "install it, or add its directory to PATH"),
        ("-n", "options of ompbind before --"),
        ("--mask=0", "options of ompbind before --"),
        ("source env.sh", "use sh -c 'source ...'"),
        ("file", "write ./file"),
        ("{directory}/none", "there is no such file"),
    ],
)
def test_words_of_shells_have_a_hint(tmp_path, monkeypatch, word, hint):
    tool = tmp_path / "sleep"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    word, hint = word.format(directory=tmp_path), hint.format(directory=tmp_path)
    with pytest.raises(CommandNotFoundError) as caught:
        find_command(word, {"PATH": f"/none:{tmp_path}" if word != "file" else "/none"})
    assert caught.value.message == f"command not found: {word}"
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"#!/bin/sh\n", None),
        (b"#!/bin/sh -e\n", None),
        (b"\x7fELF", None),
        (b"", None),
        (b"#!/bin/sh\r\n", "ends with a carriage return"),
        (b"#! /bin/sh -e\r\n", "ends with a carriage return"),
        (b"#!/usr/bin/env python3\r\n", "ends with a carriage return"),
        (b"#!/none/sh\n", "its interpreter '/none/sh' does not exist"),
        (b"#!\t/none/sh -e", "its interpreter '/none/sh' does not exist"),
    ],
)
def test_the_first_lines_of_scripts(tmp_path, line, problem):
    script = tmp_path / "script"
    script.write_bytes(line)
    error = find_script_error(str(script))
    assert error is None if problem is None else error is not None and problem in error.message
    assert find_script_error(str(tmp_path / "none")) is None
