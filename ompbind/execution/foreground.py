"""The foreground process of a run, as its supervisor knows it: a record."""

from ompbind.execution.signal_pipe import BACKGROUND
from ompbind.record import Record


class Foreground(Record):
    """The process that the user started: its pid, its process group, and the pipe with its signals.

    The pipe ends with the foreground process. Once the supervisor has closed it, that process ends the
    supervisor when it is asked to stop. `mask` are the signals that were blocked when ompbind was started,
    `unchanged` those of `BACKGROUND` that were not ignored then.
    """

    pid: int
    group: int
    pipe: int
    mask: frozenset[int]
    unchanged: tuple[int, ...]

    @property
    def may_ask(self) -> bool:
        """Tell whether ranks are stopped, as is usual, when they want the terminal in the background."""
        return set(self.unchanged) == set(BACKGROUND) and self.mask.isdisjoint(BACKGROUND)
