"""What is known of one launcher: the record that every launcher fills in, in a file of its own."""

from collections.abc import Callable, Mapping

from ompbind.errors import RequestError
from ompbind.machine.sources.filesystem import whole_number
from ompbind.record import Record

Env = Mapping[str, str]


class Launcher(Record):
    """One launcher: its name for people, the variables that it sets for a rank, and its processes.

    `local_size` is the variable for the number of ranks on this machine, or a function that finds the number
    in the environment, 0 where it is unknown. The values of `run_id` together name the job. `daemons` are
    the names of the processes that start ranks. `example` is (what it does, a command line), for the help.
    """

    name: str
    rank: str
    size: str
    local_rank: str
    local_size: str | Callable[[Env], int]
    run_id: tuple[str, ...]
    daemons: tuple[str, ...]
    example: tuple[str, str] | None = None


def number_in(env: Env, name: str) -> int:
    """Return the number in a variable of a launcher; raises RequestError where there is none."""
    number = whole_number(env.get(name))
    if number is None:
        raise RequestError(f"the engine set {name}={env.get(name, '')!r}, which is not a number")
    return number
