"""The errors that ompbind reports to its user.

Each class has two exit codes: `launch_code` for `run` and `exec`, which leave the other codes to the command
(as `env`, `nohup` and `timeout` do), and `exit_code` for all other verbs. An error can have a `hint`: a step
that solves the problem.
"""

from __future__ import annotations

import errno
from typing import Self

from ompbind.text import mask_text

REFUSED = (errno.EPERM, errno.ENOSYS)  # the numbers of a system call that a filter refuses, as in containers

REFUSED_HINT = "a system call is refused; a container allows all with --security-opt seccomp=unconfined"


class OmpbindError(Exception):
    """An error that ompbind can explain: `message` says what is wrong, `hint` what to do ("" if unknown).

    Secret values in both are masked. `group` is the group of the run that it is about, "" for none.
    """

    exit_code = 2
    launch_code = 125
    group = ""

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message = mask_text(message)
        self.hint = mask_text(hint)
        super().__init__(self.message)

    def of_group(self, group: str) -> Self:
        """Return this error with the name of a group of the run before the message."""
        self.group = group
        self.message = f"group {group}: {self.message}"
        self.args = (self.message,)
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Let `pickle` copy all attributes, because pools of processes send the errors of their workers."""
        return type(self).__new__, (type(self), *self.args), self.__dict__


class RequestError(OmpbindError):
    """The request contradicts itself, on any machine."""


class OptionError(OmpbindError):
    """The command line cannot be read: an option is unknown or has a wrong value."""


class PositionError(OmpbindError):
    """A text that cannot be used, with the position of the error in it.

    `span` is the range of the wrong characters in `text`: the first, and one past the last.
    """

    def __init__(self, message: str, *, text: str, span: tuple[int, int], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        shown, (start, stop) = mask_text(text, same_length=True), span
        self.text = f"{shown[:start]}{text[start:stop]}{shown[stop:]}"
        self.span = span


class MaskError(PositionError):
    """A mask that cannot be used."""


class ConfigurationError(OmpbindError):
    """A configuration file that cannot be used; the message begins with the file and the line."""


class MachineError(OmpbindError):
    """The machine, or a recording of a machine, could not be read."""


class PlanError(OmpbindError):
    """The request cannot be met on this machine."""


class ClaimError(OmpbindError):
    """The claims of other runs cannot be read, or the claim of this run cannot be written."""


class LaunchError(OmpbindError):
    """A rank could not be started, or could not be bound as planned."""

    def of_rank(self, rank: str) -> LaunchError:
        """Return the same error with the name of the rank, "rank 3", before the message."""
        return type(self)(f"{rank}: {self.message}", hint=self.hint)


class CommandNotExecutableError(LaunchError):
    """The command was found but cannot be executed."""

    launch_code = 126


class CommandNotFoundError(LaunchError):
    """The command was not found."""

    launch_code = 127


class MeasurementError(OmpbindError):
    """A run of a candidate cannot be measured: its output has no value, or its servers do not get ready."""


class InspectError(OmpbindError):
    """The processes or the run to inspect do not exist."""
