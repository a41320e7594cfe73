"""All options, and which of them a verb has."""

from ompbind.cli.options.option import Option
from ompbind.cli.options.planning import PLANNING_OPTIONS
from ompbind.cli.options.running import RUNNING_OPTIONS
from ompbind.cli.verbs import LAUNCHING

LAUNCH_OPTIONS = (*PLANNING_OPTIONS, *RUNNING_OPTIONS)
"""The options of verbs that start ranks, in the order of the help; `plan` has some of them."""


def find_options(verb: str) -> tuple[Option, ...]:
    """Return the options of a verb, in the order of the help."""
    rows: tuple[Option, ...] = LAUNCH_OPTIONS
    if verb not in LAUNCHING:
        from ompbind.cli.options.other import OTHER_OPTIONS  # late: a start of ranks needs no formats

        rows += OTHER_OPTIONS
    return tuple(option for option in rows if verb in option.verbs)


def find_variables() -> tuple[str, ...]:
    """Return the variables of options: they are for this run, so its ranks do not inherit them."""
    return tuple(option.variable for option in LAUNCH_OPTIONS if option.variable)
