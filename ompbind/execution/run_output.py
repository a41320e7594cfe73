"""What a run writes: messages of ompbind, and the output of ranks where they do not inherit it."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ompbind.errors import LaunchError
from ompbind.execution.poller import READABLE, has_reader, is_epoll_there, keep_path

if TYPE_CHECKING:  # most runs have nothing to say
    from ompbind.execution.output.multiplexer import OutputMultiplexer
    from ompbind.execution.output.options import Output
    from ompbind.execution.poller import Poller
    from ompbind.execution.reporter import Reporter


class RunOutput:
    """The output of one run, opened when there is something to write.

    `multiplexer` is what everything goes through, None as long as nothing does. `is_unread` tells that a rank
    ended because the reader of its output had gone.
    """

    def __init__(
        self, output: "Output | None", ranks: Sequence[int], poller: "Poller", reporter: "Reporter"
    ) -> None:
        self.multiplexer: OutputMultiplexer | None = None
        self.is_unread = False
        self._output = output
        self._ranks = ranks
        self._poller = poller
        self._reporter = reporter
        self._stdout = -1 if output and output.tag else keep_path(1)
        self._reported = 0  # how many troubles of the outlet were told

    @property
    def goes_to_pipe(self) -> bool:
        """Tell whether ranks inherit a pipe as standard output."""
        return self._stdout >= 0

    @property
    def troubles(self) -> tuple[str, ...]:
        """What could not be written, and why."""
        return self.multiplexer.troubles if self.multiplexer else ()

    def open(self) -> "OutputMultiplexer":
        """Open what everything goes through, unless it is open already; raises LaunchError."""
        from ompbind.execution.output.multiplexer import (
            OutputMultiplexer,  # late: most runs have nothing to say
        )

        if not is_epoll_there():
            raise LaunchError("output can go through ompbind on Linux only", hint="leave --output out")
        if self.multiplexer is None:
            self.multiplexer = OutputMultiplexer(self._output, self._ranks)
            self._poller.register(self.multiplexer.fileno(), READABLE)
        return self.multiplexer

    def message(self, line: str) -> None:
        """Tell one event on standard error, in its turn."""
        self.write(self._reporter.message(line))

    def write(self, text: str) -> None:
        """Write text on standard error, in its turn."""
        if text and is_epoll_there():
            self.open().say(text)
        elif text:
            os.write(2, f"{text}\n".encode())

    def work(self) -> tuple[int, ...]:
        """Pass on what can be; returns ranks to get SIGPIPE: nobody reads the pseudo-terminal of these."""
        if self.multiplexer is None:
            return ()
        self.multiplexer.work()
        self.report_troubles()
        return self.multiplexer.broken_pty_ranks()

    def report_troubles(self) -> None:
        """Tell what could not be written and was not told yet."""
        for trouble in self.troubles[self._reported :]:
            self._reported += 1
            self.write(self._reporter.error(trouble))

    def note_broken_pipe(self) -> None:
        """Note that SIGPIPE has ended a rank: who closes a pipe wants to hear no more."""
        gone = (
            self.multiplexer.broken
            if self.multiplexer
            else self.goes_to_pipe and not has_reader(self._stdout)
        )
        self.is_unread = self.is_unread or gone
