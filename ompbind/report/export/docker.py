"""A plan for docker and podman: a line of options for each rank."""

import shlex
from collections.abc import Sequence

from ompbind.errors import RequestError
from ompbind.planning.plan import Plan
from ompbind.planning.rank_variables import Variables
from ompbind.planning.request import MemoryMode
from ompbind.report.export.devices import make_container_options, select_container_variables
from ompbind.report.export.ranks import check_memory, confined_ranks, memory_nodes


def render_docker(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render a line of options for each rank that docker and podman take, as words of a shell.

    Variables to unset are left out: a container does not inherit the variables of the caller. Raises
    RequestError for a value of several lines, and for a --memory policy other than local and bind.
    """
    check_memory(plan, "a container", MemoryMode.BIND)
    lines = []
    for placement, environment in zip(confined_ranks(plan), variables, strict=True):
        nodes = memory_nodes(plan, placement)
        memory = [f"--cpuset-mems={nodes}"] if nodes else []
        cpus = f"--cpuset-cpus={placement.cpuset}"
        devices = make_container_options(plan, placement)
        own = _container_variables(select_container_variables(plan, environment))
        lines.append(" ".join([cpus, *memory, *devices, *own]))
    return "\n".join(lines)


def _container_variables(environment: Variables) -> list[str]:
    words = []
    for name, value in sorted(environment.items()):
        if value is not None and "\n" in value:
            raise RequestError(
                f"the value of {name} has several lines, but the options of a rank are one line",
                hint="use --format sh or --format json",
            )
        if value is not None:
            words += ["--env", shlex.quote(f"{name}={value}")]
    return words
