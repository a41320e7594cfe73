"""The output of a run: messages of ompbind, and the output of ranks unless they inherit standard output."""

import errno
import os
import select
import stat
from collections.abc import Mapping

from ompbind.execution.loop import Loop
from ompbind.execution.output.multiplexer import Output, OutputMultiplexer
from ompbind.execution.run_options import Reporter


class RunOutput:
    """The output of one run, opened at the first write.

    Everything goes through `multiplexer`, None until then. `reader_closed` is true after SIGPIPE has killed a
    rank because the reader of its output has closed the pipe.
    """

    def __init__(
        self, output: Output | None, labels: Mapping[int, str], reporter: Reporter, loop: Loop
    ) -> None:
        self.multiplexer: OutputMultiplexer | None = None
        self.reader_closed = False
        self._output = output
        self._labels = labels
        self._reporter = reporter
        self._loop = loop
        self._stdout = -1 if output and output.tag else _open_pipe_path(1)
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
        """Open the multiplexer, unless it is open already; raises LaunchError."""
        if self.multiplexer is None:
            self.multiplexer = OutputMultiplexer(self._output, self._labels)
            self._loop.listen(self.multiplexer.fileno(), self._forward)
        return self.multiplexer

    def message(self, line: str) -> None:
        """Write a message about one event to standard error, after what was written before; "" for none."""
        self.write(self._reporter.message(line) if line else "")

    def write(self, text: str) -> None:
        """Write text to standard error, after what was written before."""
        if text:
            self.open().write_message(text)

    def _forward(self) -> None:
        """Forward output without waiting."""
        if self.multiplexer:
            self.multiplexer.forward_ready()
            self.report_write_errors()

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
            is_closed = self.goes_to_pipe and not _has_reader(self._stdout)
        self.reader_closed = self.reader_closed or is_closed


def _open_pipe_path(number: int) -> int:
    """Return an O_PATH descriptor of a pipe, which does not keep it open; -1 if `number` is no pipe."""
    try:
        is_pipe = stat.S_ISFIFO(os.fstat(number).st_mode)
        return os.open(f"/proc/self/fd/{number}", os.O_PATH | os.O_CLOEXEC) if is_pipe else -1
    except OSError:
        return -1


def _has_reader(path_fd: int) -> bool:
    """Return whether a pipe has a reader, given a result of `_open_pipe_path`; True if that is unknown."""
    try:
        file = os.open(f"/proc/self/fd/{path_fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return error.errno != errno.ENXIO
    poller = select.poll()
    poller.register(file, 0)
    events = poller.poll(0)  # POLLERR if the pipe has no reader
    os.close(file)
    return not events
