"""The state of a supervised run: one object per part, such as children, shutdown and output."""

import os
import signal
import time
from collections.abc import Sequence

from ompbind.cpuset import named
from ompbind.execution.accounting import Accounting
from ompbind.execution.children import Children
from ompbind.execution.job_control import EmptyInput, Terminal
from ompbind.execution.orphans import OrphanTracker
from ompbind.execution.poller import make_poller
from ompbind.execution.process_pair import Foreground
from ompbind.execution.rlimits import FileLimit
from ompbind.execution.run_options import RunOptions
from ompbind.execution.run_output import RunOutput
from ompbind.execution.shutdown import Shutdown

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:  # no run needs the interface, few are verified
    from ompbind.execution.reporter import Reporter
    from ompbind.execution.verify.sampler import AffinitySampler


class RunState:
    """The parts of one run; no part is replaced while the run lasts.

    `ranks` are in the order of their start. `cpus` is the affinity mask that ompbind was started with, None
    on systems without affinity masks. `empty_input` is for ranks that do not get standard input.
    """

    def __init__(
        self, ranks: Sequence[int], options: RunOptions, foreground: Foreground, reporter: "Reporter"
    ) -> None:
        self.options = options
        self.foreground = foreground
        self.reporter = reporter
        self.terminal = Terminal(foreground.group)
        self.cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
        self.limit = FileLimit(len(ranks) * options.files_per_rank)
        self.empty_input = EmptyInput(traced=options.stdin_first and len(ranks) > 1 and os.isatty(0))
        self.poller = make_poller()

        self.children = Children(ranks, self.poller, self.limit)
        self.shutdown = Shutdown(options.grace_s, options.timeout_s)
        self.output = RunOutput(options.output, sorted(ranks), self.poller, reporter)
        self.accounting = Accounting()
        self.sampler = _make_sampler(options)
        self.orphans = OrphanTracker(options.run_id, options.grace_s, groups_only=options.keep_descendants)

    @property
    def can_report(self) -> bool:
        """Return whether messages about ranks still have a reader."""
        return not (self.output.reader_closed or self.shutdown.foreground_exited)

    def stop(self, first: signal.Signals) -> None:
        """Start the escalation with the signal `first`, or send its next signal; start no more ranks."""
        cancelled = self.children.cancel_waiting()
        if cancelled:
            self.shutdown.note_start_interrupted(first)
            if not self.shutdown.error:
                self.output.message(f"not starting {named('rank', cancelled)}")
        self.send(self.shutdown.escalation.request(first, time.monotonic()))

    def send(self, number: signal.Signals | None) -> None:
        """Send a signal of the escalation, if any, to all ranks and report it."""
        live = self.children.ranks
        if number is None or not (live or self.orphans.any_left):
            return
        if not live:
            number = signal.SIGKILL  # orphans have had SIGTERM already; the next check kills them
        self.children.signal(number)
        self.children.signal(signal.SIGCONT)  # a stopped process acts on no signal but SIGKILL
        self.shutdown.note_sent(number)
        targets = named("rank", live.values()) if live else "processes left by ranks"
        if not (self.shutdown.error or self.output.reader_closed):
            self.output.message(f"stopping {targets} with {number.name}")


def _make_sampler(options: RunOptions) -> "AffinitySampler | None":
    if options.expected is None:
        return None
    from ompbind.execution.verify.sampler import AffinitySampler  # late: few runs are verified

    planned = {rank: (expected.cpus, threads) for rank, (expected, threads) in options.expected.items()}
    return AffinitySampler(planned, options.run_id)
