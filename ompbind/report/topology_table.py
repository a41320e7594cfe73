"""A machine for people: a table with a row for each CPU."""

from ompbind.machine.core_kinds import kind_by_cpu
from ompbind.machine.model import Level, Machine
from ompbind.report.device_text import render_device_tables
from ompbind.report.text import PIPE, Column, Screen, dim, render_rows

_COLUMNS = (Level.CORE, Level.L2, Level.CLUSTER, Level.L3, Level.DIE, Level.NODE, Level.PACKAGE, Level.BOOK,
            Level.DRAWER)  # fmt: skip
"""The levels in the order of their columns; levels that a machine does not have are left out."""


def render_listing(machine: Machine, screen: Screen = PIPE) -> str:
    """Render a table of all CPUs: the logical numbers of their domains, their kind and their state.

    NUMA nodes have the number of the OS. A terminal with colours shows CPUs that are not allowed dimmed.
    Tables of the devices follow.
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
    columns.append(Column(title="state", cells=[_state(machine, cpu) for cpu in cpus], grows=True))
    head, *rows = render_rows(columns, screen.text_width)
    is_dim = [screen.styled and cpu not in machine.allowed for cpu in cpus]
    lines = [head, *(dim(row) if dimmed else row for row, dimmed in zip(rows, is_dim, strict=True))]
    tables = render_device_tables(machine.devices, screen) if machine.devices else ()
    return "\n\n".join(["\n".join(lines), *tables])


def _numbers(machine: Machine, level: Level) -> dict[int, str]:
    return {
        cpu: str(domain.os_id if level is Level.NODE else domain.index)
        for domain in machine.at(level)
        for cpu in domain.cpus
    }


def _state(machine: Machine, cpu: int) -> str:
    """Return why a CPU is not used, "allowed" if nothing excludes it."""
    if cpu not in machine.online:
        return "offline"
    if cpu not in machine.allowed:
        return "not allowed"
    return ", ".join(name for name, cpus in machine.exclusion_reasons if cpu in cpus) or "allowed"
