"""Which file each rank executes, and in which order ranks start."""

from collections.abc import Iterator, Sequence
from itertools import count

from ompbind.cpuset import CpuSet
from ompbind.errors import LaunchError
from ompbind.execution.affinity import WorkingDirectory
from ompbind.execution.rlimits import make_limit_error
from ompbind.execution.run_state import StartCommands
from ompbind.planning.rank_command import RankCommand
from ompbind.programs.find_command import find_command


def find_starts(commands: Sequence[RankCommand]) -> StartCommands:
    """Return the commands in the order in which they start, each with the path of its file.

    Ranks with the same CPUs do not start directly after each other. Equal names are searched once. Raises
    LaunchError if a file or a working directory is missing, or if a limit of the system prevents the search.
    """
    turns: dict[CpuSet | None, Iterator[int]] = {}
    paths: dict[tuple[str | None, ...], str] = {}
    starts = {}
    for command in sorted(commands, key=lambda command: next(turns.setdefault(command.cpus, count()))):
        key = (command.argv[0], command.directory, command.env.get("PATH"))
        if key not in paths:
            paths[key] = find_executable(command)
        starts[command.rank] = (command, paths[key])
    return starts


def find_executable(command: RankCommand) -> str:
    """Return the path of the file that a rank executes, as its working directory sees it.

    Raises LaunchError if the directory or the file is missing, or cannot be used.
    """
    try:
        with WorkingDirectory(command.directory):
            return find_command(command.argv[0], command.env)
    except LaunchError as error:
        raise (error.of_rank(command.rank) if command.directory else error) from error
    except OSError as error:
        raise make_limit_error("cannot supervise the run", error) from error
