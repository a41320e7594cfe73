"""The message of `ompbind run` that a launcher has started several times."""

import os

from ompbind.cli.console import print_message
from ompbind.launchers.ancestors import is_bound, read_ancestors
from ompbind.launchers.find import find_copies
from ompbind.machine.sources.root import DirectoryRoot
from ompbind.planning.plan import Plan


def warn_about_copies(plan: Plan) -> None:
    """Warn if a launcher has started `ompbind run` several times; only the first copy prints it.

    Copies that the launcher has bound may each start several ranks on their own CPUs.
    """
    root = DirectoryRoot("/")
    rank = find_copies(os.environ, read_ancestors(root, os.getpid()))
    if rank is None or rank.identity.local_rank:
        return
    allowed = plan.machine.allowed
    if len(plan.placements) > 1 and is_bound(root, rank.starter, allowed):
        return
    print_message(
        f"warning: {rank.launcher} has started {rank.identity.local_size} copies of 'ompbind run' on this"
        " machine, and each starts ranks of its own, numbered from 0 (use 'ompbind exec' instead of 'ompbind"
        " run': then each copy is one rank of the job)"
    )
