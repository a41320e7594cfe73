"""The record of one launcher; each launcher has a module with one such record."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from ompbind.errors import RequestError
from ompbind.launchers.recognition import IN_LOCAL_RANK, IN_NAMES
from ompbind.machine.sources.root import whole_number
from ompbind.record import Record

Env: TypeAlias = Mapping[str, str]


class Launcher(Record):
    """One launcher: its name in messages, the variables that it sets for a rank, and its processes.

    `rank`, `size` and `local_rank` are the variables that a rank needs; "" for a variable that the launcher
    does not set: its ranks cannot be identified. `local_size` is the variable with the number of ranks on
    this machine, or a function that finds the number in the environment (0 if unknown). The values of the
    variables `run_id` together identify the job. `daemons` are the names of the processes that start ranks.
    `step` is a variable that only ranks have, "" if `rank` is such a variable: Slurm sets the others for the
    script of a batch job too. `job_steps` are its values for scripts and shells. `mark` is a variable that
    only this launcher sets, if users set the others by hand, and if its process can have any name. With
    `assumes_local_size`, the function `local_size` assumes equal numbers on all machines. `example` is
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
    job_steps: tuple[str, ...] = ()
    mark: str = ""
    assumes_local_size: bool = False
    example: tuple[str, str] | None = None

    def check(self) -> None:
        """Raise ValueError for a variable that `recognition` would not find."""
        if self.local_rank and IN_LOCAL_RANK not in self.local_rank:
            raise ValueError(f"{self.local_rank} has no {IN_LOCAL_RANK}")
        for name in filter(None, (self.rank, self.size)):
            if not any(part in name for part in IN_NAMES):
                raise ValueError(f"{name} has none of {', '.join(IN_NAMES)}")

    @property
    def word(self) -> str:
        """The first name, as a word for identifiers."""
        return self.name.partition(" or ")[0].replace(" ", "").lower()

    @property
    def needed(self) -> tuple[str, ...]:
        """The variables that a rank needs."""
        return tuple(filter(None, (self.step, self.rank, self.size, self.local_rank)))

    def is_complete(self, env: Env) -> bool:
        """Return whether an environment has all variables that a rank needs."""
        return bool(self.local_rank) and all(env.get(name) for name in self.needed)

    def is_script(self, env: Env) -> bool:
        """Return whether an environment belongs to the script or the shell of a job, which is no rank."""
        if not (self.step and env.get(self.rank)):
            return False
        return not env.get(self.step) or env.get(self.step) in self.job_steps

    def is_partial(self, env: Env) -> bool:
        """Return whether an environment has some of the variables that only a rank has, but not all."""
        has_some = bool(env.get(self.rank) or env.get(self.local_rank))
        return has_some and not (self.is_complete(env) or self.is_script(env))

    def has_size(self, env: Env) -> bool:
        """Return whether an environment has the number of all ranks, if only ranks have this variable."""
        return bool(self.size and env.get(self.size)) and not self.step

    def read_local_size(self, env: Env) -> int:
        """Return the number of ranks on this machine, 0 if unknown; raises RequestError if it is wrong."""
        if not isinstance(self.local_size, str):
            return self.local_size(env)
        return read_number(env, self.local_size) if env.get(self.local_size) else 0


def read_number(env: Env, name: str) -> int:
    """Return the number in a variable of a launcher; raises RequestError if it has none."""
    number = whole_number(env.get(name))
    if number is None:
        text = f"the launcher set {name}={env.get(name, '')!r}, which is not a number"
        raise RequestError(text, hint=f"do not change {name}, or give --local-rank and --local-size")
    return number
