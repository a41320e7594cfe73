"""The output of `lscpu -J -e` (a table with a row for each CPU) or `lscpu -J` (a summary) → a machine.

Old versions of util-linux write numbers as strings, and "-" for a missing value, one of them even without
quotes. The summary does not show which CPUs share a core, so it is read for machines without SMT only.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ompbind.cpuset import CPU_LIMIT, EMPTY, CpuSet, parse_set
from ompbind.errors import MachineError
from ompbind.machine.core_kinds import CoreTraits, make_kinds
from ompbind.machine.model import Level, Machine, Node, Partition, check_size
from ompbind.text import whole_number

Row = Mapping[str, Any]

TABLE_HINT = "record the machine with: lscpu --all --extended --json"
_NESTING_LIMIT = 8  # of the fields of a summary

_GROUPED: Mapping[Level, tuple[str, ...]] = {
    Level.DRAWER: ("drawer",),
    Level.BOOK: ("drawer", "book"),
    Level.PACKAGE: ("drawer", "book", "socket"),
    Level.L2: ("socket", "l2"),
    Level.L3: ("socket", "l3"),
}
"""The columns that identify a domain of each level: a number may be unique only within its outer domain."""

_OS_NUMBERS = ("drawer", "book", "socket", "node")  # lscpu counts the others itself


def repair_json(text: str) -> str:
    """Replace an unquoted "-", which a version of lscpu writes, by null."""
    return re.sub(r"(:\s*)-(\s*[,}\]])", r"\1null\2", text)


def make_machine_from_lscpu(data: Mapping[str, Any], source: str) -> Machine:
    """Make a machine from `lscpu -J -e` or `lscpu -J`. Raises MachineError if cores are unknown."""
    if isinstance(data.get("cpus"), list):
        return _from_table([_split_caches(row) for row in data["cpus"] if isinstance(row, dict)], source)
    return _from_summary(dict(_fields(data.get("lscpu"), _NESTING_LIMIT)), source)


def _split_caches(row: Row) -> Row:
    """Return a row with lower-case names, and with a separate column for each cache.

    lscpu writes all caches as one column: "L1d:L1i:L2:L3" with a value like "0:0:0:0". Some versions leave
    missing caches out of the value; such a value is ambiguous and is dropped.
    """
    columns = {str(key).lower(): value for key, value in row.items()}
    for title in [key for key in columns if ":" in key]:
        names, numbers = title.split(":"), str(columns[title]).split(":")
        columns |= dict(zip(names, numbers, strict=True)) if len(names) == len(numbers) else {}
    return columns


def _number(value: object, limit: int = 1 << 31) -> int | None:
    """Return a whole number, written as a number or as text; None for "-", null and other values."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    return whole_number(str(value).strip(), limit)


def _from_table(rows: Sequence[Row], source: str) -> Machine:
    known = {cpu: row for row in rows if (cpu := _number(row.get("cpu"))) is not None}
    if (highest := max(known, default=0)) >= CPU_LIMIT:
        raise MachineError(f"{source} names CPU {highest}; the highest possible CPU is {CPU_LIMIT - 1}")
    online = CpuSet(cpu for cpu, row in known.items() if _is_online(row))
    if not online:
        raise MachineError(f"{source} names no online CPU", hint=TABLE_HINT)
    check_size(cpus=len(online))
    rows_online = {cpu: known[cpu] for cpu in online}
    parts: dict[Level, Partition] = {
        level: _group_cpus(rows_online, columns) for level, columns in _GROUPED.items()
    }
    parts[Level.CORE] = _group_cores(rows_online, source)
    by_node = {number or 0: cpus for number, cpus in _group_cpus(rows_online, ("node",))}
    remarks = [] if parts[Level.CORE] else ["the table has no column CORE: each CPU counts as a core"]
    if not by_node:
        remarks.append("the table has no column NODE: all CPUs count as one node")
    machine = Machine(
        source=source,
        arch="unknown",
        online=online,
        offline=CpuSet(known) - online,
        allowed=online,
        nodes=_make_nodes(by_node, online),
        remarks=tuple(remarks),
    ).with_domains(parts)
    frequencies = ((cpus, _frequency(rows_online[cpus.first])) for cpus in machine.table.cores)
    traits = [CoreTraits(cpus=cpus, frequency=frequency) for cpus, frequency in frequencies]
    return machine.replace(kinds=make_kinds(machine, traits))


def _make_nodes(by_number: Mapping[int, CpuSet], online: CpuSet) -> tuple[Node, ...]:
    cpus = by_number or {0: online}
    return tuple(Node(number=number, cpus=cpus[number]) for number in sorted(cpus))


def _is_online(row: Row) -> bool:
    """Return whether the CPU of a row is online; without a column ONLINE, whether it has a core."""
    online = row.get("online")
    if online is None:
        return "core" not in row or _number(row["core"]) is not None
    return online is True or str(online).lower() in ("yes", "true", "1")


def _group_cpus(rows: Mapping[int, Row], columns: tuple[str, ...]) -> Partition:
    """Group CPUs by their numbers in some columns; CPUs without a number in the last column are left out."""
    groups: dict[tuple[int | None, ...], list[int]] = {}
    for cpu, row in rows.items():
        key = tuple(_number(row.get(column)) for column in columns)
        if key[-1] is not None:
            groups.setdefault(key, []).append(cpu)
    return [(key[-1] if columns[-1] in _OS_NUMBERS else None, CpuSet(cpus)) for key, cpus in groups.items()]


def _group_cores(rows: Mapping[int, Row], source: str) -> Partition:
    """Group CPUs into cores by the number of the core, or also by the L1 cache if these numbers repeat.

    On processors with clusters, lscpu restarts the numbers of cores in each cluster: then CPUs with one
    number differ in frequency. L1 caches are not used otherwise, because virtual machines report wrong ones.
    """
    columns = ("drawer", "book", "socket", "core")
    by_number = _group_cpus(rows, columns)
    if all(len({_frequency(rows[cpu]) for cpu in cpus}) == 1 for _, cpus in by_number):
        return by_number
    if any(_number(row.get("l1d")) is None for row in rows.values()):
        message = f"the core numbers in {source} repeat, and it has no L1 caches"
        raise MachineError(message, hint="record sys/ and proc/ instead")
    return _group_cpus(rows, ("l1d", *columns))


def _frequency(row: Row) -> int | None:
    return _number(str(row.get("maxmhz", "")).partition(".")[0])


def _fields(entries: object, depth: int) -> Iterator[tuple[str, str]]:
    """Yield (field, data) of a summary; newer versions nest the fields."""
    for entry in entries if isinstance(entries, list) and depth else ():
        if isinstance(entry, dict):
            yield str(entry.get("field", "")).rstrip(":"), str(entry.get("data"))
            yield from _fields(entry.get("children"), depth - 1)


def _from_summary(fields: Mapping[str, str], source: str) -> Machine:
    """Make a machine without SMT from a summary, which does not assign CPUs to packages."""
    threads, sockets = _number(fields.get("Thread(s) per core")), _number(fields.get("Socket(s)"))
    online = _list(fields, "On-line CPU(s) list")
    if not online:
        raise MachineError(f"{source} is JSON of lscpu without CPUs", hint=TABLE_HINT)
    if threads != 1:
        raise MachineError(f"{source} does not show which CPUs share a core", hint=TABLE_HINT)
    check_size(cpus=len(online))
    titles = (re.fullmatch(r"NUMA node([0-9]{1,5}) CPU\(s\)", name) for name in fields)
    found = {int(title[1]): _list(fields, title[0]) & online for title in titles if title}
    return Machine(
        source=source,
        arch=fields.get("Architecture", "unknown"),
        online=online,
        offline=_list(fields, "Off-line CPU(s) list") - online,
        allowed=online,
        nodes=_make_nodes(found, online),
        remarks=("a summary of lscpu shows no caches, and no packages if there are several",),
    ).with_domains({Level.PACKAGE: [(None, online)] if sockets == 1 else []})


def _list(fields: Mapping[str, str], name: str) -> CpuSet:
    return parse_set(fields.get(name), CpuSet.from_list) or EMPTY
