"""The output of lscpu → a machine: a table with a row for each CPU (-e, -p) or a summary, as text or JSON.

Old versions of util-linux write numbers as strings, and "-" for a missing value, one of them even without
quotes. The summary does not show which CPUs share a core.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ompbind.cpuset import CPU_LIMIT, EMPTY, CpuSet, parse_set, union
from ompbind.errors import MachineError
from ompbind.machine.core_kinds import CoreTraits, add_kinds
from ompbind.machine.model import Level, Machine, Node, Partition, check_size
from ompbind.machine.nodes import NumaMemory, make_nodes
from ompbind.text import whole_number

Row = Mapping[str, Any]

TABLE_HEAD = "(# )?CPU[ ,]+(NODE|Node|SOCKET|Socket|CORE|Core|L1)"  # of `lscpu -e` and `lscpu -p`
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
    """Make a machine from `lscpu -J -e` or `lscpu -J`; raises MachineError."""
    if isinstance(data.get("cpus"), list):
        rows = (_split_caches(row) for row in data["cpus"] if isinstance(row, dict))
        return make_machine_from_rows(rows, source)
    return _from_summary(dict(_fields(data.get("lscpu"), _NESTING_LIMIT)), source)


def make_machine_from_lscpu_text(text: str, source: str) -> Machine:
    """Make a machine from the text of `lscpu`, `lscpu -e` or `lscpu -p`; raises MachineError."""
    lines = [line.strip().removeprefix("# ") for line in text.splitlines()]
    at = next((number for number, line in enumerate(lines) if re.match(TABLE_HEAD, line)), None)
    if at is None:
        pairs = (line.partition(":") for line in lines)
        return _from_summary({name.strip(): value.strip() for name, _, value in pairs}, source)
    separator = "," if "," in lines[at] else None
    columns = lines[at].split(separator)
    rows = (dict(zip(columns, line.split(separator), strict=False)) for line in lines[at + 1 :])
    return make_machine_from_rows(map(_split_caches, rows), source)


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


def make_machine_from_rows(rows: Iterable[Row], source: str, arch: str = "unknown") -> Machine:
    """Make a machine from rows with a CPU and the numbers of its domains; raises MachineError.

    A remark says what the rows do not show: without a core, each CPU counts as a core.
    """
    known = {cpu: row for row in rows if (cpu := _number(row.get("cpu"))) is not None}
    _check_highest(max(known, default=0), source)
    online = CpuSet(cpu for cpu, row in known.items() if _is_online(row))
    rows_online = {cpu: known[cpu] for cpu in online}
    parts: dict[Level, Partition] = {
        level: _group_cpus(rows_online, columns) for level, columns in _GROUPED.items()
    }
    parts[Level.CORE] = _group_cores(rows_online, source)
    nodes = _group_cpus(rows_online, ("node",))
    memories = [NumaMemory(number=number or 0, locality=cpus) for number, cpus in nodes]
    machine = make_described_machine(source, arch, online, parts, make_nodes(memories, online, {}))
    machine = machine.replace(offline=CpuSet(known) - online)
    firsts = ((cpus, rows_online[cpus.first]) for cpus in machine.table.cores)
    traits = [
        CoreTraits(
            cpus=cpus,
            frequency=_frequency(row),
            part=f"{row['maker']} {row['part']}" if "maker" in row and "part" in row else "",
        )
        for cpus, row in firsts
    ]
    return add_kinds(machine, traits)


def make_described_machine(
    source: str, arch: str, online: CpuSet, parts: Mapping[Level, Partition], nodes: Sequence[Node]
) -> Machine:
    """Make a machine from what a text says; a remark names what it does not say. Raises MachineError."""
    if not online:
        raise MachineError(f"{source} names no online CPU", hint=TABLE_HINT)
    _check_highest(online.bits.bit_length() - 1, source)
    check_size(cpus=len(online))
    missing = (
        "" if parts.get(Level.CORE) else "which CPUs share a core (each counts as a core; lscpu -e shows it)",
        "" if nodes else "NUMA nodes (all CPUs count as one)",
        "" if parts.get(Level.L2) or parts.get(Level.L3) else "caches",
    )
    remarks = (f"not shown by this source: {', '.join(filter(None, missing))}",) if any(missing) else ()
    nodes = tuple(nodes) or (Node(number=0, cpus=online),)
    machine = Machine(source=source, arch=arch, online=online, allowed=online, nodes=nodes, remarks=remarks)
    return machine.with_domains(parts)


def _check_highest(cpu: int, source: str) -> None:
    if cpu >= CPU_LIMIT:
        raise MachineError(f"{source} names CPU {cpu}; the highest possible CPU is {CPU_LIMIT - 1}")


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
    """Make a machine from a summary, which says little about packages, and nothing about caches."""
    titles = (re.fullmatch(r"NUMA node([0-9]{1,5}) CPU\(s\)", name) for name in fields)
    nodes = {int(title[1]): _list(fields, title[0]) for title in titles if title}
    online, offline = _list(fields, "On-line CPU(s) list"), _list(fields, "Off-line CPU(s) list")
    online = online or union(nodes.values())
    rows: dict[int, dict[str, Any]] = {cpu: {"cpu": cpu, "online": cpu in online} for cpu in online | offline}
    for cpu in online:
        rows[cpu]["node"] = next((node for node, cpus in nodes.items() if cpu in cpus), None)
        rows[cpu]["core"] = cpu if fields.get("Thread(s) per core") == "1" else None
        rows[cpu]["socket"] = 0 if fields.get("Socket(s)") == "1" else None
    machine = make_machine_from_rows(rows.values(), source, fields.get("Architecture", "unknown"))
    each = whole_number(fields.get("Thread(s) per core")) or 1
    text = f"cores have {each} hardware threads: there are {len(online) // each} cores, not {len(online)}"
    return machine.replace(remarks=(*machine.remarks, *([text] if each > 1 else [])))


def _list(fields: Mapping[str, str], name: str) -> CpuSet:
    return parse_set(fields.get(name), CpuSet.from_list) or EMPTY
