"""What can go wrong.

Every class owns two exit codes: `launch_code` for `run` and `exec`, whose other codes belong to the
command (as with `env`, `nohup` and `timeout`), and `exit_code` for the verbs that only show
something. Every error may carry a `hint`: the next step that would work.
"""


class OmpbindError(Exception):
    """Something that ompbind can explain: what was wrong, where, and what would work."""

    exit_code = 2
    launch_code = 125

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class RequestError(OmpbindError):
    """The request contradicts itself; no machine is needed to see it."""


class MaskError(OmpbindError):
    """A mask that cannot be used, with the place in its text that is at fault.

    `span` is the first and one past the last character of `text` at fault. `suggestion` is the text of a
    mask, as close to this one as possible, that the one who raises the error takes; "" is none.
    """

    suggestion = ""

    def __init__(self, message: str, *, text: str, span: tuple[int, int], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.text = text
        self.span = span


class MachineError(OmpbindError):
    """The machine, or a recording of one, could not be read."""


class PlanError(OmpbindError):
    """The request cannot be met on this machine."""


class ClaimError(OmpbindError):
    """What other runs on this machine use cannot be told, or they cannot be told what this one will."""


class LaunchError(OmpbindError):
    """A rank could not be started, or not bound as planned."""


class CommandNotExecutableError(LaunchError):
    """The command was found but cannot be executed."""

    launch_code = 126


class CommandNotFoundError(LaunchError):
    """There is no such command."""

    launch_code = 127


class InspectError(OmpbindError):
    """There are no such processes or runs to look at."""
