"""Where the output of ranks goes: the choice of the user, as a value."""

from ompbind.record import Record


class Output(Record):
    """Where standard output and standard error of all ranks go, unless ranks inherit both.

    At least one of `tag` and `directory` is given. With `tag` every line goes to the output of ompbind, with
    its rank as a prefix; `timestamps` adds the time to the prefix. `colours` is whether the prefix is
    coloured, on standard output and on standard error. `pty` gives each rank a pseudo-terminal as standard
    output, so that programs do not buffer lines. With `directory` the output goes to the log files RANK.out
    and RANK.err there; `force` overwrites existing files.
    """

    tag: bool = False
    timestamps: bool = False
    colours: tuple[bool, bool] = (False, False)
    directory: str | None = None
    force: bool = False
    pty: bool = False

    @property
    def files_per_rank(self) -> int:
        """The number of files that ompbind has open for each running rank; its pidfd is one of them."""
        return 1 + (2 if self.tag else 0) * (2 if self.directory is not None else 1)
