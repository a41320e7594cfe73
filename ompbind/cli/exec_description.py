"""The help of `ompbind exec`."""

from __future__ import annotations

from ompbind.cli.description import Description
from ompbind.launchers.table import LAUNCHERS, render_launcher_names

EXAMPLES = (
    *(launcher.example for launcher in LAUNCHERS if launcher.example),
    ("Four cores, no launcher", "ompbind exec -m core:0-3 -- ./app"),
    ("The first of two ranks that a script starts", "ompbind exec --local-rank 0 --local-size 2 -- ./app"),
)

HELP = f"""Become one rank of a job that a launcher started: {render_launcher_names()}.

The local rank and the number of ranks on this machine are read from the environment. Every rank plans for
all of them, binds itself to its own CPUs and becomes the command.
"""

DETAILS = """Use -n if the launcher does not set the number of ranks on this machine. A rank that the launcher
has already bound keeps its CPUs. Without a launcher, exec starts a single rank, or the rank that --local-rank
and --local-size identify. --verify is not available, because no process of ompbind remains. -v prints a line
for each rank, with its CPUs. --dry-run prints the plan of the machine too, and starts nothing.
"""

DESCRIPTION = Description(
    help=HELP,
    summary="Become one rank of a job that Slurm, MPI or another launcher started.",
    examples=EXAMPLES,
    details=DETAILS,
)
