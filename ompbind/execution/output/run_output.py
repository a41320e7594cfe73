"""The output of a run: messages of ompbind, and the output of ranks unless they inherit standard output."""

import os
from collections.abc import Mapping

from ompbind.errors import LaunchError
from ompbind.execution.output.multiplexer import Output, OutputMultiplexer
from ompbind.execution.poller import READABLE, Poller, has_epoll, has_reader, open_pipe_path
from ompbind.execution.run_options import Reporter


class RunOutput:
    """The output of one run, opened at the first write.

    Everything goes through `multiplexer`, None until then. `reader_closed` is true after SIGPIPE has killed a
    rank because the reader of its output has closed the pipe.
    """

    def __init__(
        self, output: Output | None, labels: Mapping[int, str], poller: Poller, reporter: Reporter
    ) -> None:
        self.multiplexer: OutputMultiplexer | None = None
        self.reader_closed = False
        self._output = output
        self._labels = labels
        self._poller = poller
        self._reporter = reporter
        self._stdout = -1 if output and output.tag else open_pipe_path(1)
        self._reported = 0  # how many of `write_errors` were reported

    @property
    def goes_to_pipe(self) -> bool:
        """Return whether ranks inherit a pipe as standard output."""
        return self._stdout >= 0

    @property
    def write_errors(self) -> tuple[str, ...]:
        """Sentences that say which output could not be written, and why."""
        return self.multiplexer.write_errors if self.multiplexer else ()

    def open(self) -> OutputMultiplexer:
        """Open the multiplexer, unless it is open already; raises LaunchError on systems without epoll."""
        if not has_epoll():
            raise LaunchError("only Linux can forward the output of ranks", hint="leave out --output")
        if self.multiplexer is None:
            self.multiplexer = OutputMultiplexer(self._output, self._labels)
            self._poller.register(self.multiplexer.fileno(), READABLE)
        return self.multiplexer

    def message(self, line: str) -> None:
        """Write a message about one event to standard error, after what was written before; "" for none."""
        self.write(self._reporter.message(line) if line else "")

    def write(self, text: str) -> None:
        """Write text to standard error, after what was written before."""
        if text and has_epoll():
            self.open().write_message(text)
        elif text:
            os.write(2, f"{text}\n".encode())

    def forward(self) -> tuple[int, ...]:
        """Forward output without waiting; returns ranks whose pseudo-terminal has no reader any more."""
        if self.multiplexer is None:
            return ()
        self.multiplexer.forward_ready()
        self.report_write_errors()
        return self.multiplexer.take_broken_pty_ranks()

    def report_write_errors(self) -> None:
        """Report the write errors that were not reported before."""
        for write_error in self.write_errors[self._reported :]:
            self._reported += 1
            self.write(self._reporter.error(write_error))

    def note_broken_pipe(self) -> None:
        """Note that SIGPIPE has killed a rank; a reader that has closed the pipe wants no messages either."""
        if self.multiplexer:
            is_closed = self.multiplexer.broken
        else:
            is_closed = self.goes_to_pipe and not has_reader(self._stdout)
        self.reader_closed = self.reader_closed or is_closed
