"""The state of a supervised run: one object per part, such as children, shutdown and output."""

import os
import signal
import time
from typing import Protocol

from ompbind.cpuset import named
from ompbind.errors import LaunchError
from ompbind.execution.children import Children
from ompbind.execution.group_starts import GroupStarts
from ompbind.execution.job_control import EmptyInput, Terminal
from ompbind.execution.orphans import OrphanTracker
from ompbind.execution.outcome import Accounting
from ompbind.execution.output.run_output import RunOutput
from ompbind.execution.poller import make_poller
from ompbind.execution.process_pair import Foreground
from ompbind.execution.restarts import Restarts
from ompbind.execution.rlimits import FileLimit
from ompbind.execution.run_options import RankGroup, Reporter, RunOptions
from ompbind.execution.shutdown import Shutdown
from ompbind.execution.signals import signal_name
from ompbind.execution.spawn import StartCommands
from ompbind.inspection.verdict import VerificationResult


class Sampler(Protocol):
    """What a run knows of the `AffinitySampler` of --verify; `verify.evaluate` knows the rest."""

    due_at: float | None
    error: LaunchError | None
    verified: VerificationResult | None

    def begin(self, now: float) -> None:
        """Schedule the first sample, after all ranks have started."""

    def begin_again(self, rank: int, now: float) -> None:
        """Verify from the start, after a rank was restarted."""

    def is_due(self, now: float) -> bool:
        """Return whether it is time for a sample."""


class RunState:
    """The parts of one run; no part is replaced while the run lasts.

    `cpus` is the affinity mask that ompbind was started with, None on systems without affinity masks.
    `empty_input` is for ranks that do not get standard input. `input_rank` is the rank that gets it, in its
    first attempt, None for no rank; `has_input` is whether that is more than /dev/null. `is_paused` is true
    between Ctrl-Z and the signal that continues the job.
    """

    def __init__(
        self, starts: StartCommands, options: RunOptions, foreground: Foreground, reporter: Reporter
    ) -> None:
        ranks = tuple(starts)
        self.starts = starts
        self.group_starts = GroupStarts(starts, options)
        self.is_paused = False
        self.options = options
        self.foreground = foreground
        self.reporter = reporter
        self.terminal = Terminal(foreground.group)
        self.cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
        self.limit = FileLimit(len(ranks) * options.files_per_rank)
        shares_terminal = options.stdin_first and len(ranks) > 1 and os.isatty(0)
        self.empty_input = EmptyInput(traced=shares_terminal)
        self.input_rank = ranks[0] if options.stdin_first and not shares_terminal else None
        self.has_input = self.input_rank is not None and not os.path.sameopenfile(0, self.empty_input.file)
        self.poller = make_poller()

        self.children = Children(len(ranks), self.poller, self.limit)
        self.restarts = Restarts()
        chosen = options.supervision
        self.shutdown = Shutdown(chosen.grace, chosen.timeout)
        labels = {rank: command.label or str(rank) for rank, (command, _) in sorted(starts.items())}
        self.output = RunOutput(options.output, labels, self.poller, reporter)
        self.accounting = Accounting(has_quota=options.has_quota)
        self.sampler: Sampler | None = None
        if options.expected is not None:
            from ompbind.execution.verify.sampler import AffinitySampler  # noqa: PLC0415 - door: --verify

            planned = {rank: (found.cpus, threads) for rank, (found, threads) in options.expected.items()}
            self.sampler = AffinitySampler(planned, options.run_id)
        self.orphans = OrphanTracker(options.run_id, chosen.grace, groups_only=chosen.keep_descendants)

    @property
    def has_unfinished(self) -> bool:
        """Return whether ranks run, or wait for their first start or for a restart."""
        return self.children.has_unfinished or bool(self.restarts.waiting or self.group_starts.pending)

    def stop_if_unready(self, rank: int) -> None:
        """Stop the run if a rank that does not start again has exited before its group was ready."""
        command, _ = self.starts[rank]
        is_awaited = self.group_starts.is_awaited(command.group) and rank not in self.restarts.waiting
        if is_awaited and not self.shutdown.begun:
            text = f"{command.name} exited before group {command.group} was ready"
            hint = "its output may say why; --ready says what is awaited"
            self.shutdown.note_error(LaunchError(text, hint=hint))
            self.stop(signal.SIGTERM)

    def is_group_running(self, group: str) -> bool:
        """Return whether ranks of a group run, or wait for a start."""
        ranks = {*self.children.ranks.values(), *self.children.waiting, *self.restarts.waiting}
        return group in self.group_starts.pending or any(
            self.starts[rank][0].group == group for rank in ranks
        )

    def group_of(self, rank: int) -> RankGroup:
        """Return the options of the group of a rank."""
        return self.options.groups[self.starts[rank][0].group]

    @property
    def can_report(self) -> bool:
        """Return whether messages about ranks still have a reader."""
        return not (self.output.reader_closed or self.shutdown.foreground_exited)

    def stop_orphans(self) -> None:
        """Find orphans and signal them; all descendants if all ranks were killed."""
        all_killed = self.shutdown.kill_sent or self.shutdown.foreground_exited
        own = {**self.children.owners, **self.group_starts.owners}
        self.output.message(self.orphans.stop(own, kill=all_killed))

    def cancel_starts(self) -> list[int]:
        """Start no more ranks for the first time; returns the ranks that were waiting."""
        return [*self.children.cancel_waiting(), *self.group_starts.cancel()]

    def stop(self, first: int) -> None:
        """Start the escalation with the signal `first`, or send its next signal; start no more ranks."""
        cancelled = self.cancel_starts()
        if cancelled:
            self.shutdown.note_start_interrupted(first)
            if not self.shutdown.error:
                self.output.message(f"not starting {named('rank', cancelled)}")
        failed = self.restarts.cancel()
        if failed and not self.shutdown.error:
            self.output.message(f"not starting {named('rank', failed)} again")
        self.send(self.shutdown.escalation.request(first, time.monotonic()))

    def send(self, number: int | None) -> None:
        """Send a signal of the escalation, if any, to all ranks and report it."""
        live = self.children.ranks
        if number is None or not (live or self.orphans.any_left):
            return
        if not live:
            number = signal.SIGKILL  # orphans have had SIGTERM already; the next check kills them
        self.children.signal(number)
        self.children.signal(signal.SIGCONT)  # a stopped process acts on no signal but SIGKILL
        self.shutdown.kill_sent = number == signal.SIGKILL
        targets = named("rank", live.values()) if live else "processes left by ranks"
        if not (self.shutdown.error or self.output.reader_closed):
            self.output.message(f"stopping {targets} with {signal_name(number)}")
