"""What a plan and -v show of the commands of ranks."""

import pytest

from ompbind.planning.rank_command import RankCommand
from ompbind.report.plan import render_commands


def make(rank, *argv, directory="", **env):
    return RankCommand(rank=rank, argv=argv, env=env, cpus=None, directory=directory)


def test_what_is_the_same_for_all_ranks_has_a_line():
    commands = [make(rank, "./app", "a b", RUN="r\033", directory="work") for rank in range(2)]
    assert render_commands(commands, ["RUN"], 80).splitlines() == [
        "RUN of every rank: r?",
        "directory of every rank: work",
        "command of every rank: ./app 'a b'",
    ]


def test_what_differs_is_in_a_table():
    commands = [make(rank, "./app", str(rank), PORT=str(8000 + rank), A="1") for rank in range(2)]
    assert render_commands(commands, ["A", "PORT"], 80).splitlines() == [
        "A of every rank: 1",
        "",
        "rank  PORT  command",
        "   0  8000  ./app 0",
        "   1  8001  ./app 1",
    ]


@pytest.mark.parametrize("width", [60, 80, 160])
def test_tables_of_commands_fit_the_terminal(width):
    commands = [
        make(rank, "word" * 5, *[f"word{rank}"] * 30, directory=f"/a/{rank}" * 9) for rank in range(9, 12)
    ]
    lines = render_commands(commands, [], width).splitlines()
    assert max(map(len, lines)) <= width
