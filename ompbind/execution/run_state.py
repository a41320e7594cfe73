"""The state of a run that is supervised: one object for each part of it, which alone changes that part."""

import os
import signal
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ompbind.cpuset import named
from ompbind.execution.accounting import Accounting
from ompbind.execution.children import Children
from ompbind.execution.job_control import Terminal
from ompbind.execution.orphans import OrphanTracker
from ompbind.execution.poller import make_poller
from ompbind.execution.process_pair import Foreground
from ompbind.execution.rlimits import FileLimit
from ompbind.execution.run_options import RunOptions
from ompbind.execution.run_output import RunOutput
from ompbind.execution.shutdown import Shutdown

if TYPE_CHECKING:  # no run needs the interface, few are verified
    from ompbind.execution.reporter import Reporter
    from ompbind.execution.verify.sampler import Sampler


class Run:
    """The parts of one run; none of them is ever replaced.

    `ranks` are in the order of their start; `cpus` is where ompbind itself may run.
    """

    def __init__(
        self, ranks: Sequence[int], options: RunOptions, foreground: Foreground, reporter: "Reporter"
    ) -> None:
        self.options = options
        self.foreground = foreground
        self.reporter = reporter
        self.terminal = Terminal(foreground.group)
        self.cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
        self.limit = FileLimit(len(ranks) * options.files_of_a_rank)
        self.null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self.poller = make_poller()

        self.children = Children(ranks, self.poller, self.limit)
        self.shutdown = Shutdown(options.grace_s, options.timeout_s)
        self.output = RunOutput(options.output, sorted(ranks), self.poller, reporter)
        self.accounting = Accounting()
        self.sampler = _make_sampler(options)
        self.orphans = OrphanTracker(options.run_id, options.grace_s, groups_only=options.keep_descendants)

    @property
    def is_heard(self) -> bool:
        """Tell whether anybody still wants to hear what there is to say of ranks."""
        return not (self.output.is_unread or self.shutdown.foreground_is_gone)

    def stop(self, first: signal.Signals) -> None:
        """Begin the ladder with a signal, or take its next rung."""
        left_out = self.children.leave_out()
        if left_out:
            self.shutdown.note_cut(first)
            if not self.shutdown.error:
                self.output.message(f"not starting {named('rank', left_out)}")
        self.send_rung(self.shutdown.escalation.ask(first, time.monotonic()))

    def send_rung(self, rung: signal.Signals | None) -> None:
        """Send a rung of the ladder to all that is left, then say so."""
        live = self.children.ranks
        if rung is None or not (live or self.orphans.due):
            return
        if not live:
            rung = signal.SIGKILL  # what ranks left has had SIGTERM already, and is killed at the next look
        self.children.signal(rung)
        self.children.signal(signal.SIGCONT)
        self.shutdown.note_sent(rung)
        who = named("rank", live.values()) if live else "what ranks left behind"
        if not (self.shutdown.error or self.output.is_unread):
            self.output.message(f"stopping {who} with {rung.name}")


def _make_sampler(options: RunOptions) -> "Sampler | None":
    if options.expected is None:
        return None
    from ompbind.execution.verify.sampler import Sampler  # late: few runs are verified

    planned = {rank: (expected.cpus, threads) for rank, (expected, threads) in options.expected.items()}
    return Sampler(planned, options.run_id)
