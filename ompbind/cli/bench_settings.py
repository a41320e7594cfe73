"""The typed settings of `bench`."""

from collections.abc import Callable, Mapping, Sequence

from ompbind.cli.settings import Settings
from ompbind.execution.run_options import RankGroup
from ompbind.record import Record


class BenchSettings(Record):
    """What `bench` needs beside its planning settings; the fields are the options of the same names.

    `parse_again` returns the settings of the same command line with more options after its own, of each
    group. `parts` are the planning settings of the groups, `groups` is how they are started, and `command`
    has all words after the first `--`.
    """

    planning: Settings
    parts: tuple[Settings, ...]
    groups: Mapping[str, RankGroup]
    until: str | None
    command: tuple[str, ...]
    parse_again: Callable[[Sequence[Sequence[str]]], "BenchSettings"]
    vary: tuple[tuple[str, tuple[str, ...]], ...]
    max_rounds: int
    budget: float | None
    matters: float
    seed: int | None
    metric: tuple[str, ...]
    higher: bool
    timeout: float | None
    grace: float
    format: str
    results: str | None
    show: bool
    fail_above: float | None
    export: tuple[tuple[str, str], ...]
    dry_run: bool

    @property
    def has_same_work(self) -> bool:
        """Whether candidates with different numbers of ranks do the same work, so they can be compared."""
        return bool(self.metric)
