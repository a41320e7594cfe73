"""The variables of one rank, for shells and for files of NAME=VALUE lines."""

import shlex
from collections.abc import Sequence

from ompbind.errors import RequestError
from ompbind.planning.plan import Plan
from ompbind.planning.rank_variables import Variables


def render_sh(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render the variables of one rank as shell commands that `eval` takes, for every Bourne-like shell."""
    (only,) = variables
    return "\n".join(
        f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"
        for name, value in sorted(only.items())
    )


def render_env(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render the variables of one rank as NAME=VALUE lines; those to unset are left out.

    Raises RequestError for a value of several lines, which the format cannot hold.
    """
    (only,) = variables
    for name, value in only.items():
        if value is not None and "\n" in value:
            raise RequestError(
                f"the value of {name} has several lines, NAME=VALUE lines cannot hold it",
                hint="use --format sh or --format json",
            )
    return "\n".join(f"{name}={value}" for name, value in sorted(only.items()) if value is not None)
