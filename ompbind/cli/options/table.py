"""All options, and which of them a verb has."""

from __future__ import annotations

from ompbind.cli.options.option import Option, make_keys
from ompbind.cli.options.planning import PLANNING_OPTIONS
from ompbind.cli.options.running import RUNNING_OPTIONS
from ompbind.cli.verbs import LAUNCHING, PLANNING

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Mapping

LAUNCH_OPTIONS = (*PLANNING_OPTIONS, *RUNNING_OPTIONS)
"""The options of verbs that start ranks, in the order of the help; `plan` has some of them."""


def find_options(verb: str) -> tuple[Option, ...]:
    """Return the options of a verb, in the order of the help."""
    rows: tuple[Option, ...] = LAUNCH_OPTIONS
    if verb not in LAUNCHING:
        from ompbind.cli.options.other import OTHER_OPTIONS  # late: a start of ranks needs no formats

        rows += OTHER_OPTIONS
    if verb == "bench":
        from ompbind.cli.options.bench import BENCH_OPTIONS  # late: no other verb has these

        rows = (*BENCH_OPTIONS, *rows)
    shown = LAUNCH_OPTIONS if verb == "config" else ()  # it shows the values of these
    return tuple(option for option in rows if verb in option.verbs or option in shown)


def find_keys() -> Mapping[str, Option]:
    """Return the options that configuration files can contain, by key: options of all verbs."""
    return make_keys(option for verb in PLANNING for option in find_options(verb))


def find_variables() -> tuple[str, ...]:
    """Return the variables of options: they are for this run, so its ranks do not inherit them."""
    return tuple(filter(None, (option.variable for option in LAUNCH_OPTIONS)))
