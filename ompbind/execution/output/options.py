"""What becomes of what ranks write: the user's choice, as a value."""

from ompbind.record import Record


class Output(Record):
    """Where standard output and standard error of all ranks go, unless ranks inherit both.

    With `tag` every line comes out with the number of its rank before it, with `timestamps` the time as well;
    `colours` tells for standard output and standard error whether the tag is coloured; `pty` gives ranks a
    pseudo-terminal to write standard output to, so that they send every line at once. With `folder` the bytes
    go to the files RANK.out and RANK.err there, over existing ones only with `force`. Both may be given, and
    one of them is.
    """

    tag: bool = False
    timestamps: bool = False
    colours: tuple[bool, bool] = (False, False)
    folder: str | None = None
    force: bool = False
    pty: bool = False

    @property
    def files_of_a_rank(self) -> int:
        """The files that ompbind has open for each rank while it runs, one of them for its end."""
        return 1 + (2 if self.tag else 0) * (2 if self.folder is not None else 1)
