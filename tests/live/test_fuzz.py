"""Random command lines: a plan or an error that says what is wrong, and nothing is started."""

import os
import random
import sys

import pytest

from ompbind.cli import PLANNING
from ompbind.cli import main as command_line
from ompbind.cli.options import find_options
from ompbind.errors import MaskError, OmpbindError
from ompbind.registry.registry import DIRECTORY_VARIABLE
from tests.long import FUZZED

PARTS = 10
WORDS = (
    "", "0", "1", "2", "007", "-1", "1.5", "1h30m", "9" * 30, "auto", "all", "none", "x", "é", "\udc80",
    "a\nb", "\x1b[2J", "0-1", "0|1", "0-15:2", "0x3", "node:0", "socket:0", "core:0.core:1", "l3:#0",
    "^0", "0-", "1-0", "0,,1", "|", "A=1", "A", "=", "A={rank}", "{rank+8000}", "{nothing}", "--", "-",
    "-n", "-np", "--help", "'", "$(id)", "a,b", "tcmalloc", "./lib", "strict", "tag", "inherit", "files",
    "numa", "json", "vllm", "sleep 1",
)  # fmt: skip
"""Values, right and wrong, for any option."""

SOURCES = ("live", "synthetic:pack:2 core:4 pu:2", "synthetic:pu:x", "/none", "")
COMMANDS = ([], ["true"], ["--", "true"], ["--", "sh", "-c", "exit 1"], ["--"], ["-n", "2", "true"])
STARTING = ("os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "subprocess.Popen", "os.system")
"""Audit events of Python when a process or program starts."""

watched = {"started": None}


def note_start(event, args):
    if watched["started"] is not None and event in STARTING:
        watched["started"].append((event, args))


sys.addaudithook(note_start)  # it cannot be removed


@pytest.fixture
def started(monkeypatch, tmp_path):
    """The list of what is started; files could only be written to an empty directory."""
    monkeypatch.chdir(tmp_path)
    for name in set(os.environ) - {DIRECTORY_VARIABLE}:
        if name.startswith("OMPBIND_"):
            monkeypatch.delenv(name)
    monkeypatch.setitem(watched, "started", [])
    return watched["started"]


def make_words(rng, option):
    """Return the words of an occurrence of an option, in one of its forms, sometimes misspelled."""
    name = rng.choice(option.names)
    if rng.random() < 0.1:
        return [] if option.name == "dry_run" else [option.reset_name]
    if rng.random() < 0.05:
        name = name[:-1] or name
    if option.is_flag or (option.bare is not None and rng.random() < 0.5):
        return [name]
    value = rng.choice(WORDS) + (rng.choice(WORDS) if rng.random() < 0.2 else "")
    if option.name == "topology":
        value = rng.choice(SOURCES)
    elif option.words and rng.random() < 0.6:
        value = rng.choice(option.words)
    return [f"{name}={value}"] if rng.random() < 0.3 else [name, value]


def make_line(rng):
    verb = rng.choice(PLANNING)
    options = rng.choices(find_options(verb), k=rng.randrange(6))
    words = [word for option in options for word in make_words(rng, option)]
    return [verb, *([] if verb == "plan" else ["--dry-run"]), *words, *rng.choice(COMMANDS)]


@pytest.mark.parametrize("part", range(PARTS))
def test_command_lines(started, capsys, part):
    rng = random.Random(part)
    for _ in range(FUZZED // PARTS):
        line = make_line(rng)
        try:
            code = command_line.run_words(line)
        except OmpbindError as error:
            assert error.message.strip(), line
            if isinstance(error, MaskError):
                assert 0 <= error.span[0] <= error.span[1] <= len(error.text) + 1, line
        except BaseException as error:
            raise AssertionError(line) from error
        else:
            out = capsys.readouterr().out
            assert out, line
            assert code == int(line[0] == "bench" and out.startswith("cannot run")), line
        assert not started, line
