"""What a plan says on standard error before ranks start: its warnings, and changed variables."""

from collections.abc import Mapping, Sequence

from ompbind.cli.console import print_message
from ompbind.planning.plan import Plan


def print_warnings(plan: Plan, codes: Sequence[str] = ()) -> None:
    """Print the notes of a plan that a user should read before ranks start; with codes, only these."""
    for note in plan.notes:
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
