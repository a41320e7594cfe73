"""Runs whose children are no processes, with a clock of their own: whatever happens, no run hangs.

The loop, the groups, restarts and the run itself are real. `Kernel` stands for what is below them: it ends
ranks and checks, and it is where the loop sleeps, so it sees if the loop sleeps while a rank could start.
"""

import heapq
import os
import resource
import select
import signal
import time
from contextlib import suppress
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from ompbind.commands.rank_command import RankCommand
from ompbind.execution.loop import Loop
from ompbind.execution.ranks import Processes, Run
from ompbind.execution.restarts import RestartPolicy
from ompbind.execution.run_options import RankGroup, Reporter, RunOptions
from ompbind.execution.signals import Foreground
from ompbind.execution.supervisor import run_loop
from tests.long import examples

FIRST_PID = 1 << 30  # no process has it
TICK_S = 0.0005  # between two polls
DELAYS_S = (0, 0, TICK_S, 2 * TICK_S, 3 * TICK_S, 0.003, 0.01, 0.1, 1.0)
LIVES_S = (*DELAYS_S, *[60.0] * 20)
GRACE_S, SLACK_S = 0.5, 10 * TICK_S
READY, NEVER = "", "never"


class Kernel:
    """Ends children, and lets the clock go on while the loop sleeps; `chosen` makes all choices."""

    def __init__(self, chosen):
        self.chosen = chosen
        self.time = time.monotonic()
        self.active_s = 0.0  # without pauses
        self.stopped_at = None
        self.epoll = select.epoll()
        self.events = []  # a heap: time, number, function
        self.polls = 0
        self.pipes = {}  # of children that run, by PID: what stands for a pidfd
        self.statuses = {}  # of children that have exited, but were not reaped
        self.checks = {}  # group and start of each check, by PID
        self.started = []  # ranks
        self.ready = set()  # groups
        self.run = None
        self.signals, self.signal_pipe = os.pipe()
        self.control, self.to_control = os.pipe()  # what the user does

    def later(self, act, *args):
        self.at(self.time + self.chosen.choice(DELAYS_S), act, *args)

    def at(self, when, act, *args):
        heapq.heappush(self.events, (when, len(self.events) + self.polls * 1000, lambda: act(*args)))

    def register(self, *args):
        self.epoll.register(*args)

    def unregister(self, *args):
        self.epoll.unregister(*args)

    def poll(self, limit_s):
        self.polls += 1
        assert self.polls < 5000, "the loop does not sleep"
        begun, until = self.time, self.time + limit_s
        self.advance(self.time + TICK_S)
        while True:
            while self.events and self.events[0][0] <= self.time:
                heapq.heappop(self.events)[2]()
            if (found := self.epoll.poll(0)) or until <= self.time:
                return found
            self.check_sleep(begun)
            assert self.events or limit_s < 1000, "the loop sleeps for ever"
            self.advance(min([until, *(when for when, *_ in self.events[:1])]))

    def advance(self, now):
        self.active_s += 0 if self.run.is_paused else now - self.time
        self.time = now
        for group, began in (self.checks[pid] for pid in self.checks.keys() & self.pipes.keys()):
            limit_s = self.run.options.groups[group].ready_timeout_s
            assert self.active_s - began <= limit_s + SLACK_S, "a check outlives its limit"

    def check_sleep(self, now):
        """Check what must hold whenever the loop sleeps."""
        run, groups = self.run, self.run.options.groups
        if run.shutdown.begun:
            self.stopped_at = self.stopped_at or self.time
            assert self.time < self.stopped_at + GRACE_S + SLACK_S, "SIGKILL is late"
            assert not self.checks.keys() & self.pipes.keys(), "a check outlives the request to stop"
            return
        for pid in self.checks.keys() & self.pipes.keys():
            group, _ = self.checks[pid]
            lost = {*run.groups.ranks[group]} - {child.rank for child in run.live.values()}
            assert lost <= {*run.restarts.waiting}, "a rank that has exited cannot get ready"
        if not run.is_paused:
            due = [name for name in run.groups.pending if groups[name].after in self.ready]
            due += [rank for rank, at in run.restarts.waiting.items() if at is None or at <= now]
            assert not due, "they could start"
            assert not run.waiting

    def fork(self):
        pid = FIRST_PID + len(self.started) + len(self.checks)
        self.pipes[pid] = os.pipe()
        return pid

    def spawn(self, command, *_):
        assert not self.run.is_paused
        pid = self.fork()
        self.started.append(command.rank)
        of_group = self.run.groups.ranks[command.group]
        if not command.ready and {*of_group} <= {*self.started}:
            self.ready.add(command.group)
        ends = self.time + self.chosen.choice(LIVES_S)
        self.at(ends, self.exit, pid, self.chosen.choice((0, 3 << 8, signal.SIGSEGV)))
        return pid

    def fork_check(self, commands, *_):
        group = commands[0].group
        pid, answer = self.fork(), SimpleNamespace(text=NEVER)
        self.checks[pid] = (group, self.active_s)
        when = self.time
        for act in self.chosen.choice((b"", b"pc")):
            when += self.chosen.choice(DELAYS_S)
            self.at(when, os.write, self.to_control, bytes((act,)))

        def finish(text):
            if pid in self.pipes:
                answer.text = text
                self.ready |= {group} if text == READY else set()
                self.exit(pid, 0)

        if (text := self.chosen.choice((READY, READY, READY, "wrong", NEVER, NEVER))) != NEVER:
            self.later(finish, text)
        return pid, answer

    def open_pidfd(self, pid):
        if self.chosen.random() < 0.2:
            raise OSError
        return os.dup(self.pipes[pid][0])

    def exit(self, pid, status):
        if pid in self.pipes:
            for end in self.pipes.pop(pid):
                os.close(end)
            self.statuses[pid] = status
            os.write(self.signal_pipe, b"x")

    def wait(self, pid):
        used = resource.getrusage(resource.RUSAGE_SELF)
        found = next((each for each in self.statuses if pid in (-1, each)), 0)
        if not (found or self.pipes):
            raise ChildProcessError
        return found, self.statuses.pop(found, 0), used

    def signal(self, pid, number):
        if number == signal.SIGKILL:
            self.exit(pid, number)
        elif number == signal.SIGTERM and self.chosen.random() < 0.7:
            self.later(self.exit, pid, number)
        return True


@st.composite
def make_groups(draw):
    names = "abcd"[: draw(st.integers(1, 4))]
    sizes = [draw(st.integers(1, 3)) for _ in names]
    checked = {name for name in names if draw(st.booleans())}
    groups = {
        name: RankGroup(
            stop_on_failure=draw(st.booleans()),
            restart=draw(st.sampled_from((None, RestartPolicy(limit=2, first_wait_s=TICK_S)))),
            after=draw(st.sampled_from(("", *names[:number])))
            if draw(st.booleans())
            else names[number - 1 : number],
            ready_timeout_s=draw(st.sampled_from((TICK_S, 0.01, 2.0))),
        )
        for number, name in enumerate(names)
    }
    owners = [name for name, size in zip(names, sizes, strict=True) for _ in range(size)]
    starts = {}
    for rank, name in enumerate(owners):
        ready = "exec:true" if name in checked else ""
        command = RankCommand(rank=rank, group=name, ready=ready, argv=("x",), env={}, cpus=None)
        starts[rank] = (command, "x")
    until = draw(st.sampled_from(("", "", *names)))
    return starts, RunOptions(run_id="x", groups=groups, until=until, grace=GRACE_S, stdin_first=False)


@examples(10)
@given(made=make_groups(), chosen=st.randoms(use_true_random=False))
def test_a_run_with_groups_always_ends(made, chosen):
    starts, options = made
    opened = {*os.listdir("/proc/self/fd")}
    try:
        kernel = Kernel(chosen)
        processes = Processes(kernel.spawn, kernel.fork_check, kernel.open_pidfd, kernel.wait, kernel.signal)
        foreground = Foreground(pid=1, group=1, pipe=-1, signal_mask=frozenset(), default_tty_signals=())
        loop = Loop(kernel, lambda: kernel.time)
        run = kernel.run = Run(starts, options, foreground, Reporter(), loop, processes)
        loop.listen(kernel.signals, lambda: (os.read(kernel.signals, 99), run.reap_children()))
        users = {b"p": lambda: run.set_paused(True), b"c": lambda: run.set_paused(False),
                 b"s": lambda: run.stop(signal.SIGTERM)}  # fmt: skip
        loop.listen(kernel.control, lambda: [users[bytes((each,))]() for each in os.read(kernel.control, 99)])
        for act in chosen.choice((b"", b"", b"pc", b"s", b"ss")):
            kernel.later(os.write, kernel.to_control, bytes((act,)))
        kernel.at(kernel.time + 100, os.write, kernel.to_control, b"c")
        run_loop(run)
        assert not (kernel.pipes.keys() - kernel.checks.keys()), "ranks are left"
        assert not run.has_unfinished
        assert run.shutdown.begun or {*kernel.started} == {*starts}
    finally:
        for number in {*os.listdir("/proc/self/fd")} - opened:
            with suppress(OSError):
                os.close(int(number))
