"""`ompbind inspect --watch` on terminals and in pipes."""

import re
import signal
import struct
import termios
from fcntl import ioctl

import pytest

from tests.live.conftest import OMPBIND, two_cpus

SPIN = "import os, time; os.write(1, b'up\\n'); end = time.time() + 300\nwhile time.time() < end: pass"
SEEN = ("--run-id", "seen", "--share")


def test_views_on_a_terminal_replace_each_other_and_follow_its_size(terminal, live):
    running = live(*SEEN, "-n", "2", ranks=2)
    seen = terminal(OMPBIND, "inspect", "seen", "--watch=0.2", term="xterm")
    ioctl(seen.master, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 60, 0, 0))
    for words in ("\x1b[2J", "  every 0.2 s", "2 ranks with 2 threads: no errors", " more lines; --problems"):
        seen.read_until(words.encode())
    ioctl(seen.master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    seen.read_until(b"rank 1 of run seen")
    running.terminate()
    seen.read_until(b"ompbind: no processes left to watch")
    assert seen.wait() == 0


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=repr)
def test_a_view_ends_by_a_signal(start, live, by):
    live(*SEEN)
    seen = start("inspect", "seen", "--watch=0.2")
    seen.stdout.readline()
    seen.send_signal(by)
    assert seen.wait(20) == 0


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
