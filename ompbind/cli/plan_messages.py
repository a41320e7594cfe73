"""Messages on standard error before ranks start: warnings, changed variables, copies of `ompbind run`."""

import os
from collections.abc import Mapping, Sequence

from ompbind.cli.console import print_message
from ompbind.machine.read.root import DirectoryRoot
from ompbind.planning.plan import Plan


def print_warnings(plan: Plan, codes: Sequence[str] = ()) -> None:
    """Print the notes of a plan that a user should read before ranks start; with codes, only these."""
    for note in plan.all_notes:
        if note.warning and (not codes or note.code in codes):
            print_message(f"warning: {note.text}")


def print_changed_variables(before: Mapping[str, str], changed: Mapping[str, str | None]) -> None:
    """Print which inherited variables are changed or cleared for ranks; None stands for cleared."""
    if not changed:
        return
    cleared = [f"{name}={before[name]}" for name, after in changed.items() if after is None]
    replaced = [
        f"{name}={before[name]} (now {after})" for name, after in changed.items() if after is not None
    ]
    parts = [f"cleared {', '.join(cleared)}"] if cleared else []
    parts += [f"replaced {', '.join(replaced)}"] if replaced else []
    print_message(
        f"inherited variables that conflict with the plan: {'; '.join(parts)} (--keep-env keeps them)"
    )


def warn_about_copies(plan: Plan) -> None:
    """Warn if a launcher has started `ompbind run` several times; only the first copy prints it.

    Copies that the launcher has bound may each start several ranks on their own CPUs.
    """
    from ompbind.launchers.allocation import find_binding, read_task_masks  # noqa: PLC0415 - door: launchers
    from ompbind.launchers.ancestors import (  # noqa: PLC0415 - door: launchers
        read_ancestors,
        read_launcher_cpus,
    )
    from ompbind.launchers.find import find_copies  # noqa: PLC0415 - door: launchers

    root = DirectoryRoot("/")
    rank = find_copies(os.environ, read_ancestors(root, os.getpid()))
    if rank is None or rank.identity.local_rank:
        return
    if len(plan.placements) > 1:
        masks = read_task_masks(os.environ, rank.launcher)
        launcher_cpus = read_launcher_cpus(root, rank.starter)
        if len(find_binding(rank.identity, plan.machine.allowed, masks, launcher_cpus).sharers) == 1:
            return
    print_message(
        f"warning: {rank.launcher} has started {rank.identity.local_size} copies of 'ompbind run' on this"
        " machine, and each starts ranks of its own, numbered from 0 (use 'ompbind exec' instead of 'ompbind"
        " run': then each copy is one rank of the job)"
    )
