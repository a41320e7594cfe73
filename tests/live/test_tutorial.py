"""docs/tutorial.md can be followed from top to bottom: its programs run, and print what the page shows."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
from contextlib import suppress

import pytest

from tests.live.conftest import clean_environment, required, two_cpus
from tests.test_docs import ROOT, sessions

PAGE = ROOT / "docs/tutorial.md"
SECTIONS = {part.partition("\n")[0]: part for part in PAGE.read_text().split("\n## ")}
SERVER = "A web server"
NUMBERS = r"\d+ MB/s|requests/s: [\d.]+|[\d.]+( of [\d.]+)? s, \d+ samples?|\d+ threads, each|pid \d+"
OTHERS = r"; other processes used .*|ompbind: (stopping|verified: .* after the start|warning: rank).*\n"
"""What a page does not show: rank 0 may exit first, and beside other programs a run takes longer."""


def commands_of(section):
    """Yield (command, what the page shows) for each command of a section that this file runs."""
    for session in sessions.SESSION.finditer(section):
        if session["reason"] == "tests/live/test_tutorial.py":
            for command in sessions.COMMAND.finditer(session["text"]):
                yield command["line"], command["printed"]


def lines_of(text):
    """Return the lines without what differs between two runs; ranks, and threads, print them in any order."""
    text = re.sub(OTHERS, "", re.sub(NUMBERS, "N", re.sub("\n  ", " ", text)))
    return sorted(re.sub(r"^(thread .* CPU) \d+", r"\1 N", line) for line in text.splitlines())


def is_shown(shown, printed):
    if os.cpu_count() != 2:
        return True  # the page shows a machine with two CPUs
    return lines_of(printed) == lines_of(shown)


@pytest.fixture
def here(tmp_path):
    two_cpus()
    return {
        "cwd": shutil.copytree(ROOT / "docs/examples", tmp_path / "tutorial"),
        "env": clean_environment(),
        "text": True, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT,
    }  # fmt: skip


TITLES = [title for title, section in SECTIONS.items() if title != SERVER and [*commands_of(section)]]


@pytest.mark.parametrize("title", TITLES)
def test_each_step_prints_what_the_page_shows(title, here):
    for command, shown in commands_of(SECTIONS[title]):
        if command.startswith("gcc"):
            required("gcc")
        done = subprocess.run(command, shell=True, timeout=60, **here)
        assert done.returncode == 0, done.stdout
        assert is_shown(shown, done.stdout), (command, done.stdout)


def is_free(port):
    with socket.socket() as server, suppress(OSError):
        server.bind(("127.0.0.1", port))
        return True


def test_the_servers_answer_until_they_are_stopped(start, here):
    ports = range(20_000 + os.getpid() % 9_000, 32_000)  # the kernel gives none of these to other tests
    base = next(port for port in ports if is_free(port) and is_free(port + 1))
    section = SECTIONS[SERVER].replace("8000", str(base)).replace("8001", str(base + 1))
    (line, started), (load, answered) = commands_of(section)
    server = start(*shlex.split(line)[1:], **here)
    printed = server.stdout.readline() + server.stdout.readline()
    assert is_shown(started, printed), printed
    answers = subprocess.run(load, shell=True, timeout=60, **here).stdout
    assert is_shown(answered, answers), answers
    server.send_signal(signal.SIGINT)
    assert f"^C{server.stdout.read()}" in section
