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

    What the unit itself says of CPUs and nodes is replaced. Raises RequestError for values that systemd
    refuses, and for several nodes that are preferred.
    """
    (one,), (only,) = confined_ranks(plan), variables
    lines = ["[Service]", "CPUAffinity=", f"CPUAffinity={one.cpuset}", *_unit_memory(plan, one)]
    lines += [_assignment(name, value) for name, value in sorted(only.items()) if value is not None]
    lines += [f"UnsetEnvironment={name}" for name, value in sorted(only.items()) if value is None]
    return "\n".join(lines)


def _unit_memory(plan: Plan, one: Placement) -> list[str]:
    nodes, mode = memory_nodes(plan, one), plan.request.memory
    if not nodes:
        return []
    if mode is MemoryMode.PREFERRED and len(nodes) > 1:
        raise RequestError(
            f"systemd prefers memory of one NUMA node only, rank {one.rank} has {nodes}",
            hint="use --memory bind or interleave",
        )
    policy = "bind" if mode is MemoryMode.LOCAL else str(mode)
    return [f"NUMAPolicy={policy}", "NUMAMask=", f"NUMAMask={nodes}"]


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "%": "%%"})
"""What means something else inside the quotes of a unit file; % begins a specifier there."""


def _assignment(name: str, value: str) -> str:
    """Write one variable as systemd.exec(5) reads it; what is refused here it would ignore."""
    odd = re.search(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]", value)
    if odd:
        raise RequestError(
            f"the value of {name} has the character {odd[0]!r}, which systemd refuses",
            hint="it takes UTF-8 without control characters, except tab and line end",
        )
    return f'Environment="{name}={value.translate(_ESCAPES)}"'
