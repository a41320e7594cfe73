"""A plan for systemd: a drop-in for the unit of one rank."""

import re
from collections.abc import Sequence

from ompbind.errors import RequestError
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.rank_variables import Variables
from ompbind.planning.request import MemoryMode
from ompbind.report.export.ranks import confined_ranks, memory_nodes


def render_systemd(plan: Plan, variables: Sequence[Variables]) -> str:
    """Render a drop-in for the unit of one rank: its CPUs, its memory, and its variables.

    It replaces the CPUs and NUMA nodes of the unit itself. Raises RequestError for values that systemd
    refuses, and for --memory preferred with several nodes.
    """
    (placement,), (environment,) = confined_ranks(plan), variables
    lines = ["[Service]", "CPUAffinity=", f"CPUAffinity={placement.cpuset}", *_unit_memory(plan, placement)]
    lines += [_assignment(name, value) for name, value in sorted(environment.items()) if value is not None]
    lines += [f"UnsetEnvironment={name}" for name, value in sorted(environment.items()) if value is None]
    return "\n".join(lines)


def _unit_memory(plan: Plan, placement: Placement) -> list[str]:
    nodes, mode = memory_nodes(plan, placement), plan.request.memory
    if not nodes:
        return []
    if mode is MemoryMode.PREFERRED and len(nodes) > 1:
        raise RequestError(
            f"systemd can prefer a single NUMA node only, rank {placement.rank} has {nodes}",
            hint="use --memory bind or interleave",
        )
    policy = "bind" if mode is MemoryMode.LOCAL else str(mode)
    return [f"NUMAPolicy={policy}", "NUMAMask=", f"NUMAMask={nodes}"]


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "%": "%%"})
"""Characters with another meaning inside the quotes of a unit file; % begins a specifier there."""


def _assignment(name: str, value: str) -> str:
    """Return the line of one variable, see systemd.exec(5); refuses values that systemd would ignore."""
    illegal = re.search(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]", value)
    if illegal:
        raise RequestError(
            f"the value of {name} has the character {illegal[0]!r}, which systemd refuses",
            hint="use UTF-8 without control characters other than tab and newline",
        )
    return f'Environment="{name}={value.translate(_ESCAPES)}"'
