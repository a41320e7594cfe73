"""The ranks of a run, from their start to their exit and restart, and the state that belongs to them.

All children are in one table: a helper that is not there counts as an orphan of a rank, and is killed.
"""

import os
import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ompbind.commands.rank_variables import OMPBIND_ATTEMPT
from ompbind.cpuset import CpuSet, named
from ompbind.errors import LaunchError
from ompbind.execution.groups import Answer, Check, Groups
from ompbind.execution.job_control import Terminal
from ompbind.execution.loop import Loop
from ompbind.execution.orphans import REAPED_AT_ONCE, OrphanTracker, Owner, signal_parent, signal_rank
from ompbind.execution.outcome import KIB, HeldCalls, RankExit, make_usage, render_exit, render_exit_status
from ompbind.execution.output.run_output import RunOutput
from ompbind.execution.restarts import Restarts
from ompbind.execution.run_options import Reporter, RunOptions
from ompbind.execution.shutdown import Shutdown
from ompbind.execution.signals import HOLD_S, TERMINATION_SIGNALS, TTY_SIGNALS, Foreground, signal_name
from ompbind.execution.spawn import FileLimit, SetMask, StartCommands, spawn
from ompbind.machine.read.linux_cgroup import read_throttling
from ompbind.machine.read.root import DirectoryRoot
from ompbind.procfs.parsers import parse_run_delay_s
from ompbind.procfs.reader import read_if_allowed

if TYPE_CHECKING:
    from ompbind.execution.sampler import AffinitySampler

ROOT = DirectoryRoot("/")


class RankChild:
    """A running rank: which attempt it is (from 1), when it started, and the signals that it was sent.

    `pidfd` is -1 if only SIGCHLD reports its exit.
    """

    def __init__(self, rank: int, attempt: int, started_at: float) -> None:
        self.rank = rank
        self.attempt = attempt
        self.owner: Owner = (rank, attempt)
        self.started_at = started_at
        self.signals: set[int] = set()
        self.pidfd = -1


def _fork_check(*args: Any) -> tuple[int, Answer]:
    from ompbind.execution.readiness import fork_check  # noqa: PLC0415 - door: --ready

    return fork_check(*args)


class Processes(NamedTuple):
    """How a run starts, signals and reaps its children; in a test these may be no processes."""

    spawn: Callable[..., int] = spawn
    fork_check: Callable[..., tuple[int, Answer]] = _fork_check
    open_pidfd: Callable[[int], int] = lambda pid: os.pidfd_open(pid)  # some systems have none
    wait: Callable[[int], tuple[int, int, resource.struct_rusage]] = lambda pid: os.wait4(
        pid, os.WNOHANG | os.WUNTRACED
    )
    signal: Callable[[int, int], bool] = signal_rank


class Run:
    """The parts of one run; no part is replaced while the run lasts.

    `children` are all running children of the supervisor by PID, which is also the number of their process
    group. `waiting` are ranks to be started, in this order. `exits` are the last exits of ranks that do not
    run, in the order in which they came. `signals` were received and not handled yet. `received_at` is when
    a signal came last, by its number and whether the foreground process got it; `delayed` are to be sent.
    `cpus` is the affinity mask that ompbind was started with, and `set_mask` sets that of a thread;
    `count_held` returns the calls that --hold has answered. `empty_input` is for ranks that do not get
    standard input. `input_rank` is the rank that gets it, in its first attempt, None for no rank; `has_input`
    is whether that is more than /dev/null. `is_paused` is true between Ctrl-Z and the signal that continues
    the job. `peak_bytes` is the peak memory of this process at the last start of a rank. `oom_kills` and
    `throttling` are what the cgroup had counted when all ranks had started, and before.
    """

    def __init__(
        self, starts: StartCommands, options: RunOptions, foreground: Foreground, reporter: Reporter,
        loop: Loop | None = None, processes: Processes | None = None,
    ) -> None:  # fmt: skip
        ranks = tuple(starts)
        self.starts = starts
        self.options = options
        self.foreground = foreground
        self.reporter = reporter
        self.loop = loop or Loop()
        self.processes = processes or Processes()
        self.children: dict[int, RankChild | Check] = {}
        self.groups = Groups(starts, options)
        self.waiting: list[int] = []
        self.exits: list[RankExit] = []
        self.signals: list[int] = []
        self.received_at: dict[tuple[int, bool], float] = {}
        self.delayed: list[int] = []
        self.is_paused = False
        self.is_single = len(ranks) == 1
        self.terminal = Terminal(foreground.group)
        self.cpus = CpuSet(os.sched_getaffinity(0))
        self.set_mask: SetMask = os.sched_setaffinity
        self.count_held: Callable[[], HeldCalls] | None = None
        self.limit = FileLimit(len(ranks) * options.files_per_rank, required=options.files_per_rank > 1)
        shares_terminal = options.stdin_first and len(ranks) > 1 and os.isatty(0)
        self.empty_input = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self.input_rank = ranks[0] if options.stdin_first and not shares_terminal else None
        self.has_input = self.input_rank is not None and not os.path.sameopenfile(0, self.empty_input)
        self.restarts = Restarts()
        self.shutdown = Shutdown(options.grace)
        labels = {rank: command.label or str(rank) for rank, (command, _) in sorted(starts.items())}
        self.output = RunOutput(options.output, labels, reporter, self.loop)
        self.peak_bytes = 0
        self.oom_kills: int | None = None
        self.throttling = read_throttling(ROOT) if options.has_quota else None
        self.sampler: AffinitySampler | None = None
        if options.expected is not None:
            from ompbind.execution import sampler  # noqa: PLC0415 - door: --verify

            planned = {rank: (found.cpus, threads) for rank, (found, threads) in options.expected.items()}
            self.sampler = sampler.AffinitySampler(planned, options.run_id)
        self.orphans = OrphanTracker(options.run_id, options.grace, groups_only=options.keep_descendants)

    @property
    def live(self) -> dict[int, RankChild]:
        """The running ranks by PID."""
        return {pid: child for pid, child in self.children.items() if isinstance(child, RankChild)}

    @property
    def checks(self) -> list[Check]:
        """The running checks of groups."""
        return [child for child in self.children.values() if isinstance(child, Check)]

    @property
    def has_unfinished(self) -> bool:
        """Return whether ranks run, or wait for their first start or for a restart."""
        return bool(self.live or self.waiting or self.restarts.waiting or self.groups.pending)

    @property
    def can_report(self) -> bool:
        """Return whether messages about ranks still have a reader."""
        return not (self.output.reader_closed or self.shutdown.foreground_exited)

    def start_next(self) -> bool:
        """Start one rank, or a check, whose turn has come; returns False if no rank can start now."""
        if self.is_paused:
            return False
        if not self.waiting:
            for group in self.groups.take_unchecked():
                self._start_check(group)
            self.waiting += self.groups.take_due()
        if self.waiting:
            self._start(self.waiting.pop(0))
            return True
        if last := self._find_restart():
            self._start(last.rank, last)
            return True
        self.loop.call_at(self.restarts.next_at, self._wake_up)
        return False

    def _start_check(self, group: str) -> None:
        self.leave_rank_cpus()
        commands = [self.starts[rank][0] for rank in sorted(self.groups.ranks[group])]
        pid, answer = self.processes.fork_check(commands, self.output, self.foreground.signal_mask)
        expires_at = self.loop.now() + self.options.groups[group].ready_timeout_s
        check = Check(group, answer, expires_at, partial(self.processes.signal, pid, signal.SIGKILL))
        self.loop.call_at(expires_at, check.expire)
        self._add_child(pid, check)
        for rank_exit in tuple(self.exits):
            self._stop_if_unready(rank_exit.rank)

    def set_paused(self, paused: bool) -> None:
        """Pause or continue the run: no rank starts during a pause, and the time of checks stands still."""
        if paused == self.is_paused:
            return
        self.is_paused = paused
        for check in self.checks:
            check.expires_at += -self.loop.now() if paused else self.loop.now()
            self.loop.call_at(None if paused else check.expires_at, check.expire)

    def _wake_up(self) -> None:
        """End the sleep of the loop, as a rank may start again."""

    def _find_restart(self) -> RankExit | None:
        """Return the last exit of a rank that starts again now: its wait is over, nothing of it is left."""
        due = self.restarts.take_due(self.loop.now())
        if due and not self.orphans.any_left:  # else they were just looked for
            self.stop_orphans()  # the check after the exit may have missed some
        for rank in due:
            last = next(rank_exit for rank_exit in self.exits if rank_exit.rank == rank)
            if self.output.end_streams(rank) and not self.orphans.has_left((rank, last.attempt)):
                return last
        return None

    def _start(self, rank: int, last: RankExit | None = None) -> None:
        command, path = self.starts[rank]
        attempt, heading = 1, ""
        if last:
            attempt = last.attempt + 1
            command = command.replace(env={**command.env, OMPBIND_ATTEMPT: str(attempt)})
            at, how = time.strftime("%Y-%m-%d %H:%M:%S"), f"attempt {last.attempt} {render_exit_status(last)}"
            heading = f"--- ompbind: {command.name}, attempt {attempt}, {at}; {how} ---"  # in log files
        try:
            out, err = self.output.open_streams(rank, heading)
            files = (-1 if rank == self.input_rank and not last else self.empty_input, out, err)
            started_at = self.loop.now()
            try:
                with self.limit:
                    terminal = self.terminal if self._gets_terminal() else None
                    pid = self.processes.spawn(command, path, self.foreground, files, terminal, self.set_mask)
            finally:
                self.output.close_streams(out, err)
        except LaunchError as error:
            self.stop_for(error)
            return
        self.peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
        self._add_child(pid, RankChild(rank, attempt, started_at))
        if last:
            self.exits.remove(last)
            self.restarts.note_start(last)
            if self.sampler:
                self.sampler.begin_again(self.loop.now(), rank)
            if self.options.publish_restarts:
                self.options.publish_restarts(self.restarts.count)

    def _gets_terminal(self) -> bool:
        is_for_terminal = self.options.output is None and not self.output.goes_to_pipe
        is_alone = self.is_single and self.options.stdin_first
        return is_alone and self.terminal.is_given_at_start(self.foreground, writes_there=is_for_terminal)

    def _add_child(self, pid: int, child: RankChild | Check) -> None:
        self.children[pid] = child
        try:
            child.pidfd = self.processes.open_pidfd(pid)
        except (OSError, AttributeError):
            return  # SIGCHLD reports its exit too, but not which of several ranks exited first

        def handle_exit() -> None:
            if not self.reap(pid):  # a debugger that traces it has yet to reap it
                self._close_pidfd(child)

        self.loop.listen(child.pidfd, handle_exit)
        if self.limit.is_near_limit(child.pidfd):
            self._close_pidfd(child)

    def _close_pidfd(self, child: RankChild | Check) -> None:
        """Rely on SIGCHLD alone for the exit of a child."""
        if child.pidfd >= 0:
            self.loop.ignore(child.pidfd)
            os.close(child.pidfd)
            child.pidfd = -1

    def reap(self, pid: int) -> bool:
        """Reap a child, -1 for any, and handle its exit or stop; returns False if no child has changed state.

        A child that is not in the table is an orphan: only its zombie is removed.
        """
        schedstat = read_if_allowed(pid, "schedstat") if pid > 0 else None  # gone with the zombie
        try:
            found, status, used = self.processes.wait(pid)
        except ChildProcessError:
            return False
        child = self.children.get(found)
        if os.WIFSTOPPED(status):
            if isinstance(child, RankChild):
                self._handle_stop(child, found, os.WSTOPSIG(status))
            return found != 0
        if found:
            self.orphans.check_requested = True
        if child:
            self._close_pidfd(child)
            del self.children[found]
            self.orphans.groups[found] = child.owner
        if isinstance(child, Check):
            self.loop.call_at(None, child.expire)
            error = self.groups.finish_check(child)
            if error and not self.shutdown.begun:
                self.stop_for(error)
        elif child:
            has_code, wall_s = os.WIFEXITED(status), self.loop.now() - child.started_at
            rank_exit = RankExit(
                rank=child.rank,
                pid=found,
                code=os.WEXITSTATUS(status) if has_code else None,
                signal=None if has_code else os.WTERMSIG(status),
                usage=make_usage(used, wall_s, self.peak_bytes),
                delay_s=parse_run_delay_s(schedstat or b""),
                stopped=self.shutdown.begun,
                attempt=child.attempt,
                started=time.time() - wall_s,
                label=self.starts[child.rank][0].label,
            )
            self._handle_exit(child, rank_exit)
        return found != 0

    def reap_children(self) -> None:
        """Reap children after SIGCHLD; if there may be more, SIGCHLD is sent again."""
        for _ in range(REAPED_AT_ONCE):
            if not self.reap(-1):
                return
        signal.raise_signal(signal.SIGCHLD)

    def _handle_stop(self, child: RankChild, pid: int, number: int) -> None:
        if self.is_single:
            self.terminal.handle_stop(pid, number, self.foreground.pid)
        elif number in TTY_SIGNALS:
            rank = f"{self.starts[child.rank][0].name} (pid {pid})"
            text = "only a single rank can use the terminal (-n 1 starts a single rank)"
            self.output.message(f"{rank} is stopped by {signal_name(number)}: {text}")

    def _handle_exit(self, child: RankChild, rank_exit: RankExit) -> None:
        self.exits.append(rank_exit)
        was_interrupted = self.terminal.take_back(rank_exit.pid) and rank_exit.signal == signal.SIGINT
        if was_interrupted:
            # Ctrl-C is for the whole job, as a loop in a script
            signal_parent(self.foreground.pid, signal.SIGINT, group=self.foreground.group)
        if not (rank_exit.status == 0 or self.shutdown.error or self.shutdown.foreground_exited):
            requested = was_interrupted or rank_exit.status - 128 in child.signals
            self._handle_failure(rank_exit, requested=requested)
        self._stop_if_unready(rank_exit.rank)
        group = self.starts[rank_exit.rank][0].group
        if self.options.until == group and not self.shutdown.begun:
            ranks = {*(child.rank for child in self.live.values()), *self.waiting, *self.restarts.waiting}
            self.shutdown.until_reached = ranks.isdisjoint(self.groups.ranks[group])
            if self.shutdown.until_reached and self.has_unfinished:
                self.output.message(f"all ranks of group {group} have exited (--until)")
                self.stop(signal.SIGTERM)

    def _handle_failure(self, rank_exit: RankExit, *, requested: bool) -> None:
        """Report a rank that has failed; let it wait for its restart, or stop the others.

        `requested` is whether the user has sent it the signal that it exited by.
        """
        if rank_exit.signal == signal.SIGPIPE:
            self.output.note_broken_pipe()
        group, next_step = self.options.groups[self.starts[rank_exit.rank][0].group], ""
        if group.restart and not (rank_exit.stopped or self.output.reader_closed):
            now = self.loop.now()
            next_step = f"; {self.restarts.schedule(group.restart, rank_exit, now, requested=requested)}"
        has_several_ranks = len(self.exits) > 1 or self.has_unfinished
        # "stopping rank … with SIGTERM" was reported before, so an exit by that signal is no news.
        is_expected = rank_exit.stopped and rank_exit.signal in (*TERMINATION_SIGNALS, signal.SIGKILL)
        if (has_several_ranks or next_step) and not (self.output.reader_closed or is_expected):
            self.output.message(render_exit(rank_exit) + next_step)
        if rank_exit.rank in self.restarts.waiting:
            if rank_exit.attempt == 1 and rank_exit.rank == self.input_rank and self.has_input:
                self.output.message(f"only the first attempt of rank {rank_exit.rank} gets standard input")
        elif group.stop_on_failure and self.has_unfinished and not self.shutdown.begun:
            self.stop(signal.SIGTERM)

    def _stop_if_unready(self, rank: int) -> None:
        """Stop the run if a rank that does not start again has exited before its group was ready."""
        command, _ = self.starts[rank]
        is_awaited = command.group in self.groups.awaited and rank not in self.restarts.waiting
        if is_awaited and not self.shutdown.begun:
            text = f"{command.name} exited before group {command.group} was ready"
            self.stop_for(LaunchError(text, hint="its output may say why; --ready says what is awaited"))

    def stop_orphans(self) -> None:
        """Find orphans and signal them; all descendants if all ranks were killed."""
        all_killed = self.shutdown.kill_sent or self.shutdown.foreground_exited
        owners = {pid: child.owner for pid, child in self.children.items()}
        self.output.message(self.orphans.stop(owners, kill=all_killed))
        self.loop.call_at(self.orphans.next_check_at(self.loop.now()), self.stop_orphans)

    def cancel_starts(self) -> list[int]:
        """Start no more ranks for the first time; returns the ranks that were waiting."""
        cancelled, self.waiting = [*self.waiting, *self.groups.cancel()], []
        for check in self.checks:
            check.kill()
        return cancelled

    def stop_for(self, error: LaunchError) -> None:
        """Stop the run because of an error of ompbind itself."""
        self.shutdown.error = self.shutdown.error or error
        self.stop(signal.SIGTERM)

    def stop(self, first: int) -> None:
        """Start the escalation with the signal `first`, or send its next signal; start no more ranks."""
        cancelled = self.cancel_starts()
        if cancelled:
            self.shutdown.start_interrupted_by = self.shutdown.start_interrupted_by or first
            if not self.shutdown.error:
                self.output.message(f"not starting {named('rank', cancelled)}")
        failed = self.restarts.cancel()
        if failed and not self.shutdown.error:
            self.output.message(f"not starting {named('rank', failed)} again")
        self._send(self.shutdown.request(first, self.loop.now()))

    def _send_next(self) -> None:
        self._send(self.shutdown.take_next(self.loop.now()))

    def _send(self, number: int | None) -> None:
        """Send a signal of the escalation, if any, to all ranks and report it."""
        self.loop.call_at(self.shutdown.due_at, self._send_next)
        ranks = [child.rank for child in self.live.values()]
        if number is None or not (ranks or self.orphans.any_left):
            return
        if not ranks:
            number = signal.SIGKILL  # orphans have had SIGTERM already; the next check kills them
        self.signal_ranks(number)
        self.signal_ranks(signal.SIGCONT)  # a stopped process acts on no signal but SIGKILL
        self.shutdown.kill_sent = number == signal.SIGKILL
        self.orphans.check_requested = True
        targets = named("rank", ranks) if ranks else "processes left by ranks"
        if not (self.shutdown.error or self.output.reader_closed):
            self.output.message(f"stopping {targets} with {signal_name(number)}")

    def signal_ranks(self, number: int) -> None:
        """Signal every running rank, and its process group, in a job of Slurm after HOLD_S."""
        for child in self.live.values():
            child.signals.add(number)
        if self.options.is_in_slurm_job and not self.delayed:
            self.loop.call_at(self.loop.now() + HOLD_S, self._send_delayed)
        self.delayed = [*(other for other in self.delayed if other != number), number]
        if number == signal.SIGKILL or not self.options.is_in_slurm_job:
            self._send_delayed()

    def _send_delayed(self) -> None:
        """Send signals to ranks, but none that Slurm has sent to all processes: ranks have it."""
        since = self.loop.now() - 2 * HOLD_S
        for number in self.delayed:
            times = [self.received_at.pop((number, is_foreground), 0) for is_foreground in (True, False)]
            if not (self.options.is_in_slurm_job and min(times) > since):
                protected = [pid for pid in self.live if not self.processes.signal(pid, number)]
                if protected and number == signal.SIGKILL:
                    self._leave(protected)
        self.delayed = []

    def _leave(self, protected: list[int]) -> None:
        """Wait no longer for ranks that this user may not kill, as of sudo: --timeout and stop are limits."""
        text = f"cannot kill {named('pid', protected)}: this user has no permission to"
        hint = f"stop it as its user, for example: sudo kill {protected[0]}"
        self.shutdown.error = self.shutdown.error or LaunchError(text, hint=hint)
        for pid in protected:
            self._close_pidfd(self.children.pop(pid))
            self.orphans.unkillable.add(pid)

    def leave_rank_cpus(self) -> None:
        """Leave the CPUs of the last started rank: return to the CPUs that ompbind was started with."""
        with suppress(OSError):  # all of them went offline: this process stays on the CPUs of that rank
            self.set_mask(0, self.cpus)
