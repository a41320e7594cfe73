"""The record of one launcher; each launcher has a module with one such record."""

from collections.abc import Callable, Mapping

from ompbind.errors import RequestError
from ompbind.machine.sources.filesystem import whole_number
from ompbind.record import Record

Env = Mapping[str, str]


class Launcher(Record):
    """One launcher: its name in messages, the variables that it sets for a rank, and its processes.

    `local_size` is the variable with the number of ranks on this machine, or a function that finds the number
    in the environment (0 if unknown). The values of the variables `run_id` together identify the job.
    `daemons` are the names of the processes that start ranks. `example` is (description, command line) for
    the help.
    """

    name: str
    rank: str
    size: str
    local_rank: str
    local_size: str | Callable[[Env], int]
    run_id: tuple[str, ...]
    daemons: tuple[str, ...]
    example: tuple[str, str] | None = None


def read_number(env: Env, name: str) -> int:
    """Return the number in a variable of a launcher; raises RequestError if it has none."""
    number = whole_number(env.get(name))
    if number is None:
        raise RequestError(f"the launcher set {name}={env.get(name, '')!r}, which is not a number")
    return number
