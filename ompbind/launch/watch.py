"""The state of a run that is watched over, and how it is to be."""

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ompbind.command import RankCommand
from ompbind.errors import LaunchError
from ompbind.events import Exited, Outcome
from ompbind.launch.ears import READABLE, is_epoll_there, keep_path, make_ears
from ompbind.launch.front import Front
from ompbind.launch.ladder import Ladder
from ompbind.launch.leavings import Leavings
from ompbind.launch.limits import raise_file_limit
from ompbind.launch.terminal import Terminal
from ompbind.outputs import Output
from ompbind.record import Record

if TYPE_CHECKING:  # ranks start without it
    from ompbind.launch.pump import Outlet


ERROR = "error: "
"""What a line begins with that is told however quiet a run is to be."""


class Watch(Record):
    """How to watch over a run: seconds, None for no limit.

    `word` makes of something worth telling the text to write, `close` of the whole run what to write at its
    end; "" is nothing. `run_id` is what ranks find as
    OMPBIND_RUN_ID; with `keep_descendants` those that leave a rank's process group may live on.
    """

    front: Front
    word: Callable[[str], str]
    close: Callable[[Outcome], str]
    run_id: str
    output: Output = Output()
    grace_s: float = 10.0
    timeout_s: float | None = None
    stop_on_failure: bool = True
    stdin_first: bool = True
    keep_descendants: bool = False


class LiveRank:
    """A rank that runs: its number, when it began, and what tells of its end; -1 where that is SIGCHLD."""

    __slots__ = ("began_at", "pidfd", "rank")

    def __init__(self, rank: int, began_at: float) -> None:
        self.rank = rank
        self.began_at = began_at
        self.pidfd = -1


class Run:
    """The state of one run.

    `waiting` are the ranks to be started, last first, `live` those that run, by pid, which is their process
    group. With `alone` the only rank may have the terminal. `cut_short` is the signal that kept ranks from
    being started. `hurry` once the last rung of the ladder was taken, `given_up` once nobody waits for output
    that is still to be written. Once somebody has `asked` the run to end, `patience` is how many bytes were
    written, and when the reader is given up unless there are more by then. `unread` once a rank ended because
    the reader of its output had gone. `front_is_gone` once nobody is left to tell anything: all that remains
    is to end everything. `null` is a file that is empty, `stdout` names the pipe that ranks inherit.
    `floor_bytes` is the most memory that ompbind had while it started ranks, `oom_kills` how often the kernel
    had run out of it then, `troubles` how many of the outlet's were told.
    """

    def __init__(self, commands: Sequence[tuple[RankCommand, str]], watch: Watch) -> None:
        self.watch = watch
        self.waiting = list(reversed(commands))
        self.alone = len(commands) == 1
        self.terminal = Terminal(watch.front.group)
        self.ladder = Ladder(watch.grace_s)
        self.leavings = Leavings(watch.run_id, watch.grace_s, groups_only=watch.keep_descendants)
        self.timeout_at = None if watch.timeout_s is None else time.monotonic() + watch.timeout_s
        self.timed_out = False
        self.cut_short: int | None = None
        self.hurry = False
        self.given_up = False
        self.asked = False
        self.patience: tuple[int, float] | None = None
        self.unread = False
        self.front_is_gone = False
        self.floor_bytes = 0
        self.oom_kills: int | None = None
        self.troubles = 0
        self.limit = raise_file_limit(len(commands) * watch.output.files_of_a_rank)
        self.null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self.ears = make_ears()
        self.own_signals = -1
        self.stdout = -1 if watch.output.tag else keep_path(1)
        self.by_pidfd: dict[int, int] = {}
        self.outlet: Outlet | None = None
        self.cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
        self.live: dict[int, LiveRank] = {}
        self.exits: list[Exited] = []
        self.failures: list[LaunchError] = []

    def open_outlet(self) -> "Outlet":
        """Return what all output of ompbind goes through, and that of ranks unless they inherit it."""
        from ompbind.launch.pump import Outlet  # late: most runs have nothing to say

        if not is_epoll_there():
            raise LaunchError("output can go through ompbind on Linux only", hint="leave --output out")
        if self.outlet is None:
            ranks = sorted(command.rank for command, _ in self.waiting)
            self.outlet = Outlet(self.watch.output, ranks)
            self.ears.register(self.outlet.fileno(), READABLE)
        return self.outlet

    def say(self, line: str) -> None:
        """Say one thing on standard error, in its turn."""
        self.write(self.watch.word(line))

    def write(self, text: str) -> None:
        """Write a message on standard error, in its turn."""
        if text and is_epoll_there():
            self.open_outlet().say(text)
        elif text:
            os.write(2, f"{text}\n".encode())

    @property
    def ranks(self) -> list[int]:
        """The numbers of the ranks that run."""
        return [one.rank for one in self.live.values()]
