"""The commands of ranks for people: what was filled in for each rank."""

import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence

from ompbind.planning.placeholders import has_placeholders
from ompbind.planning.rank_command import RankCommand, RunSpec
from ompbind.report.text import Column, render_table
from ompbind.text import clean_line, clean_lines


def render_commands(commands: Sequence[RankCommand], variables: Collection[str], width: int) -> str:
    """Render the command and the directory of all ranks, and the variables with placeholders.

    What is the same for all ranks has a line. What differs is in a table with a row for each rank.
    """
    found = dict(_find_values(commands, variables))
    same = {title: values[0] for title, values in found.items() if len(set(values)) == 1}
    lines = [f"{title} of every rank: {clean_lines(value)}" for title, value in same.items()]
    different = [
        Column(title=title, cells=list(map(clean_line, values)), grows=True)
        for title, values in found.items()
        if title not in same
    ]
    if different:
        ranks = Column(title="rank", cells=[str(command.rank) for command in commands], right=True)
        lines += [*([""] if lines else []), render_table([ranks, *different], width)]
    return "\n".join(lines)


def render_command(command: RankCommand, spec: RunSpec) -> str:
    """Render the command, the directory and the variables of one rank of a job; "" if nothing was filled."""
    variables = find_filled_variables(spec)
    if not (variables or command.directory or command.argv != spec.argv):
        return ""
    values = _find_values([command], variables)
    return "\n".join(f"{title} of rank {command.rank}: {clean_lines(value)}" for title, [value] in values)


def find_filled_variables(spec: RunSpec) -> list[str]:
    """Return the names of the variables with placeholders."""
    return [name for name, value in spec.added_variables if has_placeholders(value)]


def _find_values(
    commands: Sequence[RankCommand], variables: Iterable[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield what is shown of commands: a title, and its value for each rank."""
    for name in dict.fromkeys(variables):
        yield name, [command.env.get(name, "") for command in commands]
    if any(command.directory for command in commands):
        yield "directory", [command.directory for command in commands]
    yield "command", [shlex.join(command.argv) for command in commands]
