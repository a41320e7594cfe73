"""`ompbind inspect --watch` on terminals and in pipes."""

import os
import re
import shlex
import signal
import struct
import termios
from fcntl import ioctl

import pytest

from tests.live.conftest import OMPBIND, open_terminals, two_cpus, wait_until
from tests.live.test_terminal import Terminal

SPIN = "import os, time; os.write(1, b'up\\n'); end = time.time() + 300\nwhile time.time() < end: pass"
SEEN = ("--run-id", "seen", "--share")
WATCH = (OMPBIND, "inspect", "seen", "--watch=0.2")
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
"""Escape sequences: show and leave the alternate screen."""

HIDE, SHOW = b"\x1b[?25l", b"\x1b[?25h"
"""Escape sequences: hide and show the cursor."""


class Screen(Terminal):
    """A terminal with an alternate screen, of so many columns and lines."""

    def __init__(self, *command, size=(80, 24)):
        super().__init__(*command, term="xterm")
        self.resize(*size)
        self.modes = termios.tcgetattr(self.master)

    def resize(self, columns, lines):
        ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read_view(self):
        for words in (ENTER, HIDE, b"rank 0 of run seen: "):
            self.read_until(words)

    def check_restored(self):
        for words in (SHOW, LEAVE):
            self.read_until(words)
        assert termios.tcgetattr(self.master) == self.modes


@pytest.fixture
def terminal():
    yield from open_terminals(Screen)


@pytest.mark.parametrize("by", ["\x03", signal.SIGTERM, signal.SIGHUP, "close"], ids=repr)
def test_the_terminal_is_restored(terminal, live, by):
    live(*SEEN)
    seen = terminal(*WATCH)
    seen.read_view()
    if by == "close":
        os.close(seen.master)
        seen.master = os.open(os.devnull, os.O_RDONLY)  # the fixture closes it
        wait_until(lambda: os.waitpid(seen.pid, os.WNOHANG)[0], "the view exits")
        return
    if isinstance(by, str):
        seen.type(by)
    else:
        os.kill(seen.pid, by)
    seen.check_restored()
    assert seen.wait() == 0


def test_a_stopped_view_leaves_the_terminal(terminal, live):
    live(*SEEN)
    script = f"set -m; {shlex.join(WATCH)}; echo stopped; read line; fg; echo $?"
    seen = terminal("bash", "--norc", "-c", script)
    seen.read_view()
    seen.type("\x1a")
    seen.check_restored()
    seen.read_until(b"stopped")
    seen.type("\n")
    seen.read_view()
    seen.type("\x03")
    seen.check_restored()
    seen.read_until(b"0\r\n")


def test_views_follow_the_size_of_the_terminal_and_the_last_one_stays(terminal, live):
    running = live(*SEEN, "-n", "2", ranks=2)
    seen = terminal(*WATCH, size=(60, 10))
    for words in (b"  every 0.2 s", b"2 ranks with 2 threads: no errors", b" more lines; --problems shows"):
        seen.read_until(words)
    seen.resize(100, 40)
    seen.read_until(b"rank 1 of run seen")
    running.terminate()
    seen.check_restored()
    for words in (b"rank 0 of run seen", b"ompbind: no processes left to watch"):
        seen.read_until(words)
    assert seen.wait() == 0


def test_a_pipe_gets_one_view_after_the_other(start, live):
    running = live(*SEEN, "-m", str(two_cpus()[0]), code=SPIN)
    watch = start("inspect", "seen", "--watch", "0.2")
    views = [watch.stdout.readline() for _ in range(40)]
    assert sum("every 0.2 s" in line for line in views) >= 2
    assert "\x1b" not in "".join(views)
    uses = [int(found[1]) for line in views if (found := re.search(r" R +(\d+)%$", line))]
    assert max(uses) > 5, views  # the machine may be busy, but this thread always runs
    running.terminate()
    running.wait()
    assert (watch.wait(20), watch.stderr.read()) == (0, "ompbind: no processes left to watch\n")
