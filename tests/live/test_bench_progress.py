"""What a session shows while it runs: a line on a terminal, nothing in a pipe, events with --format jsonl."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from tests.live.conftest import clean_environment

SESSION = """
import os, signal, sys, threading
from ompbind.bench.run_candidate import catch_interrupts
from ompbind.bench.session import SessionLoop
from ompbind.bench.progress import open_progress
from tests.bench.sessions import *

stop, quiet = int(sys.argv[1]), sys.argv[2:] == ['--quiet']

def start(candidate, number, round_number):
    assert threading.active_count() == 1
    if number == stop:
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    return make_run(candidate, number, round_number)

session = make_session()
with open_progress(quiet=quiet, budget_s=None) as show, catch_interrupts():
    save = lambda event: None
    loop = SessionLoop(session, make_starts(session), start, save, show_start=show, find_next=find_next)
    loop.run()
print("|" + loop.session.ended, file=sys.stderr)
"""


def start_session(*options, stop=-1, **settings):
    words = [sys.executable, "-c", SESSION, str(stop), *options]
    env = {**clean_environment(TERM="xterm"), "PYTHONPATH": os.getcwd()}
    return subprocess.run(words, text=True, check=True, timeout=30, env=env, **settings)


def run_on_terminal(columns, *options, **settings):
    """Return what a session writes to a terminal of a width."""
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    before = termios.tcgetattr(terminal)
    with open(screen, "rb", closefd=True) as written:
        start_session(*options, stdin=terminal, stderr=terminal, stdout=terminal, **settings)
        assert termios.tcgetattr(terminal) == before
        os.close(terminal)
        data = b""
        while True:
            try:
                data += written.read1(1 << 16)
            except OSError:  # the terminal is closed, and everything is read
                return data.decode()


CURSOR = r"\x1b\[\?25[lh]"


def read_lines(text, columns):
    """Return the texts that followed each other on the line, and the text after the line was removed."""
    shown, _, after = re.sub(CURSOR, "", text).rpartition("\r\n\r\x1b[1A\x1b[2K")
    *lines, last = shown.split("\r\x1b[2K")
    assert last == lines[-1]  # drawn again before it is removed
    assert max(map(len, lines)) < columns
    assert "\x1b" not in "".join([*lines, after])
    return [*lines, after]


@pytest.mark.parametrize("columns", [40, 160])
def test_a_line_is_replaced_before_each_run_and_removed_at_the_end(columns):
    text = run_on_terminal(columns)
    texts = read_lines(text, columns)
    assert len(texts) == 3 * 6 + 1
    assert texts[0].startswith("warm-up: ")
    assert ["at most" in line for line in texts[:3]] == [False, True, True]
    assert [part.split(":")[0] for part in texts[3:-1]] == [f"round {n // 3}/40" for n in range(3, 18)]
    assert texts[-1] == "|decided\r\n"
    assert re.findall(CURSOR, text)[-1] == "\x1b[?25h", "the cursor is visible"
    name = "(unbound|default|smt=2)"
    full = rf"round 2/40: {name} \(1 s\), at most 1 min left, best so far: {name}"
    assert bool(re.fullmatch(full, texts[6])) == (columns == 160)


def test_an_interrupt_removes_the_line():
    texts = read_lines(run_on_terminal(80, stop=7), 80)
    assert len(texts) == 8 + 1
    assert texts[-1].endswith("|interrupted\r\n")


def test_quiet_sessions_show_no_line():
    assert run_on_terminal(80, "--quiet") == "|decided\r\n"


def test_without_a_terminal_a_note_says_how_long_it_takes():
    done = start_session(capture_output=True)
    note = "a run takes 1 s, so the session takes 2 min at most; a clear result needs less"
    assert " ".join(done.stderr.split()) == f"ompbind: note: {note} |decided"
    assert done.stdout == ""
