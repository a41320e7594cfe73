"""The variables of one rank, as shell commands and as NAME=VALUE lines."""

import shlex
from collections.abc import Sequence

from ompbind.errors import RequestError
from ompbind.planning.plan import Plan
from ompbind.planning.rank_variables import Variables


def render_sh(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render the variables of one rank as commands for `eval` in any POSIX shell."""
    (environment,) = variables
    return "\n".join(
        f"unset {name}" if value is None else render_export(name, value)
        for name, value in sorted(environment.items())
    )


def render_env(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render the variables of one rank as NAME=VALUE lines; variables to unset are left out.

    Raises RequestError for a value of several lines, which the format cannot represent.
    """
    (environment,) = variables
    for name, value in environment.items():
        if value is not None and "\n" in value:
            raise RequestError(
                f"the value of {name} has several lines, but NAME=VALUE lines have only one",
                hint="use --format sh or --format json",
            )
    return "\n".join(f"{name}={value}" for name, value in sorted(environment.items()) if value is not None)


def render_export(name: str, value: str) -> str:
    """Render a variable as a shell command."""
    return f"export {name}={shlex.quote(value)}"
