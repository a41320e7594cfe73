"""The record of one launcher; each launcher has a module with one such record."""

from __future__ import annotations

from ompbind.errors import RequestError
from ompbind.machine.sources.filesystem import whole_number
from ompbind.record import Record

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

Env: TypeAlias = "Mapping[str, str]"

_IN_LOCAL_RANK = "LOCAL"
"""A part of each variable `local_rank`."""


class Launcher(Record):
    """One launcher: its name in messages, the variables that it sets for a rank, and its processes.

    `local_size` is the variable with the number of ranks on this machine, or a function that finds the number
    in the environment (0 if unknown). The values of the variables `run_id` together identify the job.
    `daemons` are the names of the processes that start ranks. `step` is a variable that only ranks have, ""
    if `rank` is such a variable: Slurm sets the others for the script of a batch job too. `example` is
    (description, command line) for the help.
    """

    name: str
    rank: str
    size: str
    local_rank: str
    local_size: str | Callable[[Env], int]
    run_id: tuple[str, ...]
    daemons: tuple[str, ...]
    step: str = ""
    example: tuple[str, str] | None = None

    def check(self) -> None:
        """Raise ValueError for a variable that `may_have_launcher` would not find."""
        if _IN_LOCAL_RANK not in self.local_rank:
            raise ValueError(f"{self.local_rank} has no {_IN_LOCAL_RANK}")


def may_have_launcher(env: Mapping[str, str]) -> bool:
    """Return whether a launcher may have started this process, before its variables are read.

    Importing the records of all launchers takes 2 ms, and most runs have none.
    """
    return any(_IN_LOCAL_RANK in name for name in env)


def read_number(env: Env, name: str) -> int:
    """Return the number in a variable of a launcher; raises RequestError if it has none."""
    number = whole_number(env.get(name))
    if number is None:
        raise RequestError(f"the launcher set {name}={env.get(name, '')!r}, which is not a number")
    return number
