"""The state of a run that is watched over, and how it is to be."""

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ompbind.errors import LaunchError
from ompbind.execution.job_control import Terminal
from ompbind.execution.orphans import Leavings
from ompbind.execution.outcome import Exited, Outcome
from ompbind.execution.output.options import Output
from ompbind.execution.poller import READABLE, is_epoll_there, keep_path, make_ears
from ompbind.execution.process_pair import Front
from ompbind.execution.rlimits import raise_file_limit
from ompbind.execution.shutdown import Ladder
from ompbind.planning.rank_command import RankCommand
from ompbind.record import Record

if TYPE_CHECKING:  # ranks start without it
    from ompbind.execution.output.multiplexer import Outlet
    from ompbind.execution.verify.sampler import Settling, Verify
    from ompbind.inspection.verification import Verified


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
    verify: "Verify | None" = None


class LiveRank:
    """A rank that runs: its number, when it began, and what tells of its end; -1 where that is SIGCHLD."""

    __slots__ = ("began_at", "pidfd", "rank")

    def __init__(self, rank: int, began_at: float) -> None:
        self.rank = rank
        self.began_at = began_at
        self.pidfd = -1


class Run:
    """The state of one run; times are seconds of a monotonic clock."""

    def __init__(self, commands: Sequence[tuple[RankCommand, str]], watch: Watch) -> None:
        self.watch = watch
        self.waiting = list(reversed(commands))  # the ranks to be started, last first
        self.live: dict[int, LiveRank] = {}  # those that run, by pid, which is their process group
        self.exits: list[Exited] = []
        self.failures: list[LaunchError] = []  # why ompbind itself gives up
        self.alone = len(commands) == 1  # only then a rank may have the terminal
        self.terminal = Terminal(watch.front.group)
        self.leavings = Leavings(watch.run_id, watch.grace_s, groups_only=watch.keep_descendants)

        self.ladder = Ladder(watch.grace_s)
        self.timeout_at = None if watch.timeout_s is None else time.monotonic() + watch.timeout_s
        self.timed_out = False
        self.asked_at: float | None = None  # when somebody asked the run to end, or time was up
        self.cut_short: int | None = None  # the signal that kept ranks from being started
        self.hurry = False  # the last rung of the ladder was taken
        self.front_is_gone = False  # nobody is left to tell anything: all that remains is to end everything

        self.cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
        self.limit = raise_file_limit(len(commands) * watch.output.files_of_a_rank)
        self.null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self.ears = make_ears()
        self.by_pidfd: dict[int, int] = {}

        self.outlet: Outlet | None = None
        self.stdout = -1 if watch.output.tag else keep_path(1)  # names the pipe that ranks inherit
        self.unread = False  # a rank ended because the reader of its output had gone
        self.patience: tuple[int, float] | None = None  # bytes written, and when there have to be more
        self.given_up = False  # nobody waits any longer for output that is still to be written
        self.troubles = 0  # how many of the outlet's were told

        self.settling: Settling | None = None  # what was seen of threads so far, where that is wanted
        self.verified: Verified | None = None  # what that means
        self.told: frozenset[tuple[int, str]] = frozenset()  # the problems that were told
        self.unverified: LaunchError | None = None  # why ompbind ends the run for it

        self.floor_bytes = 0  # the most memory that ompbind had while it started ranks
        self.oom_kills: int | None = None  # how many there had been when all ranks were started

    def open_outlet(self) -> "Outlet":
        """Return what all output of ompbind goes through, and that of ranks unless they inherit it."""
        from ompbind.execution.output.multiplexer import Outlet  # late: most runs have nothing to say

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
