"""`ompbind inspect --watch` on terminals, which a terminal emulator reads, and in pipes."""

import copy
import os
import re
import select
import shlex
import signal
import struct
import sys
import termios
import time
from fcntl import ioctl

import pyte
import pytest
from pyte.modes import DECAWM, DECTCEM

from tests.live.conftest import (
    OMPBIND,
    clean_environment,
    open_terminals,
    start_in_terminal,
    two_cpus,
    wait_until,
)

WAIT = "import os, time; os.write(1, b'up\\n'); time.sleep(300)"
SPIN = "import os, time; os.write(1, b'up\\n'); end = time.time() + 300\nwhile time.time() < end: pass"
ALTERNATE = 1049 << 5


class Emulator(pyte.Screen):
    """A terminal with an alternate screen, which pyte lacks."""

    def set_mode(self, *modes, **options):
        if 1049 in modes:
            self.normal = copy.deepcopy(self.buffer), self.cursor.x, self.cursor.y
            self.erase_in_display(2)
        super().set_mode(*modes, **options)

    def reset_mode(self, *modes, **options):
        super().reset_mode(*modes, **options)
        if 1049 in modes:
            buffer, self.cursor.x, self.cursor.y = self.normal
            self.buffer.clear()
            self.buffer.update(buffer)

    @property
    def text(self):
        return "\n".join(line.rstrip() for line in self.display).rstrip()


class Terminal:
    """A command in the foreground of a new terminal."""

    def __init__(self, *command, size=(80, 24), **env):
        env = clean_environment(**{"TERM": "xterm", "LC_ALL": "C.UTF-8", **env})
        self.pid, self.master = start_in_terminal(command, env)
        self.screen = Emulator(*size)
        self.stream = pyte.ByteStream(self.screen)
        self.output = b""
        self.resize(*size)
        self.screen.draw("before")
        self.modes = termios.tcgetattr(self.master)

    def resize(self, columns, lines):
        self.screen.resize(lines, columns)
        ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self, timeout_s=0.05):
        """Read what was written; return False if the terminal is closed."""
        if not select.select([self.master], [], [], timeout_s)[0]:
            return True
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:
            return False
        self.output += data
        self.stream.feed(data)
        return bool(data)

    def read_until(self, holds, what):
        return wait_until(lambda: self.read() and holds(self.screen.text), f"{what} in\n{self.screen.text}")

    def type(self, text):
        os.write(self.master, text.encode())

    def wait(self):
        """Read until the command exits; return its exit code."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            self.read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.read()
                return os.waitstatus_to_exitcode(status)
        raise AssertionError(f"it did not exit:\n{self.screen.text}")

    def check_restored(self):
        """Fail if the terminal is not as it was before the command."""
        assert ALTERNATE not in self.screen.mode
        assert {DECAWM, DECTCEM} <= self.screen.mode
        assert not self.screen.cursor.hidden
        assert self.screen.text.startswith("before")
        assert termios.tcgetattr(self.master) == self.modes


@pytest.fixture
def terminal():
    yield from open_terminals(Terminal)


@pytest.fixture
def run(start):
    """Start a run with the name "seen", and wait until its ranks are up."""

    def begin(*options, code=WAIT):
        process = start("run", "--run-id", "seen", "--share", *options, "--", sys.executable, "-c", code)
        assert process.stdout.readline() == "up\n"
        return process

    return begin


WATCH = (OMPBIND, "inspect", "seen", "--watch=0.2")


def has_rank(text):
    return re.search(r"^rank 0 of run seen: ", text, re.M)


@pytest.mark.parametrize("by", ["\x03", signal.SIGTERM, signal.SIGHUP, "close"], ids=repr)
def test_the_terminal_is_restored(terminal, run, by):
    run()
    seen = terminal(*WATCH)
    seen.read_until(has_rank, "the rank")
    assert seen.screen.cursor.hidden
    assert ALTERNATE in seen.screen.mode
    if by == "close":
        os.close(seen.master)
        seen.master = os.open(os.devnull, os.O_RDONLY)  # the fixture closes it
        wait_until(lambda: os.waitpid(seen.pid, os.WNOHANG)[0], "the view exits")
        return
    if isinstance(by, str):
        seen.type(by)
    else:
        os.kill(seen.pid, by)
    assert seen.wait() == 0
    seen.check_restored()
    assert seen.screen.text.removesuffix("^C") == "before"


def test_the_terminal_is_restored_after_an_error(terminal, run, claims):
    run()
    seen = terminal(OMPBIND, "inspect", "--all", "--watch=0.2")
    seen.read_until(has_rank, "the rank")
    claims.rename(claims.with_name("moved"))
    claims.touch()
    assert seen.wait() == 2
    seen.check_restored()
    assert "ompbind: error: cannot read" in seen.screen.text
    claims.unlink()
    claims.with_name("moved").rename(claims)


def test_a_stopped_view_leaves_the_terminal(terminal, run):
    run()
    script = f"set -m; {shlex.join(WATCH)}; echo stopped; read line; fg; echo done $?"
    seen = terminal("bash", "--norc", "-c", script)
    seen.read_until(has_rank, "the rank")
    seen.type("\x1a")
    seen.read_until(lambda text: "stopped" in text, "the shell continues")
    seen.check_restored()
    seen.type("\n")
    seen.read_until(has_rank, "the rank again")
    assert ALTERNATE in seen.screen.mode
    seen.type("\x03")
    seen.read_until(lambda text: "done 0" in text, "the view exits")
    seen.check_restored()


def test_views_follow_the_size_of_the_terminal_and_the_last_one_stays(terminal, run):
    running = run("-n", "2")
    seen = terminal(*WATCH, size=(60, 10))
    seen.read_until(lambda text: re.search(r"^\.\.\. \d+ more lines", text, re.M), "a view that is cut")
    title = r"\d\d:\d\d:\d\d  every 0.2 s\n2 ranks with 2 threads: no errors"
    seen.read_until(lambda text: re.match(title, text), "the title, after a view of another size")
    seen.resize(100, 40)
    seen.read_until(lambda text: "rank 1 of run seen" in text and "more lines" not in text, "both ranks")
    running.terminate()
    assert seen.wait() == 0
    seen.check_restored()
    assert has_rank(seen.screen.text)
    assert "ompbind: no processes left to watch" in seen.screen.text


def test_a_pipe_gets_one_view_after_the_other(start, run):
    running = run("-m", str(two_cpus()[0]), code=SPIN)
    watch = start("inspect", "seen", "--watch", "0.2")
    views = [watch.stdout.readline() for _ in range(40)]
    assert sum("every 0.2 s" in line for line in views) >= 2
    assert "\x1b" not in "".join(views)
    uses = [int(found[1]) for line in views if (found := re.search(r" R +(\d+)%$", line))]
    assert max(uses) > 5, views  # the machine may be busy, but this thread always runs
    running.terminate()
    running.wait()
    assert (watch.wait(20), watch.stderr.read()) == (0, "ompbind: no processes left to watch\n")
