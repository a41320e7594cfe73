"""A machine for people, one line for each CPU."""

from ompbind.machine.model import Level, Machine, kind_by_cpu
from ompbind.report.text import Column, dim, render_table

_COLUMNS = (Level.CORE, Level.L2, Level.CLUSTER, Level.L3, Level.DIE, Level.NODE, Level.PACKAGE, Level.BOOK,
            Level.DRAWER)  # fmt: skip
"""The levels in the order of their columns; those that a machine does not have are left out."""


def render_listing(machine: Machine, *, styled: bool = False) -> str:
    """Render a table of all CPUs: the logical numbers of their domains, their kind and their state.

    NUMA nodes have the number of the OS. `styled` dims CPUs that are not allowed.
    """
    cpus = list(machine.online | machine.offline)
    columns = [Column(title="CPU", cells=[str(cpu) for cpu in cpus], right=True)]
    for level in (level for level in _COLUMNS if machine.at(level)):
        numbers = _numbers(machine, level)
        title = "node" if level is Level.NODE else level.label
        columns.append(Column(title=title, cells=[numbers.get(cpu, "-") for cpu in cpus], right=True))
    if machine.kinds:
        kinds = kind_by_cpu(machine.kinds)
        columns.append(Column(title="kind", cells=[kinds.get(cpu, "-") for cpu in cpus]))
    columns.append(Column(title="state", cells=[_state(machine, cpu) for cpu in cpus]))
    head, *rows = render_table(columns).split("\n")
    shown = zip(rows, cpus, strict=True)
    told = (dim(row) if styled and cpu not in machine.allowed else row for row, cpu in shown)
    return "\n".join([head, *told])


def _numbers(machine: Machine, level: Level) -> dict[int, str]:
    return {
        cpu: str(domain.os_id if level is Level.NODE else domain.index)
        for domain in machine.at(level)
        for cpu in domain.cpus
    }


def _state(machine: Machine, cpu: int) -> str:
    """Say what keeps a CPU from being used, "allowed" when nothing does."""
    if cpu not in machine.online:
        return "offline"
    if cpu not in machine.allowed:
        return "not allowed"
    return ", ".join(name for name, cpus in machine.exclusion_reasons if cpu in cpus) or "allowed"
