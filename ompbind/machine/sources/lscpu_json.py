"""`lscpu -J -e` → a machine: one row for each CPU, as old and new util-linux write it.

Old versions write numbers as strings, and "-" (once even bare) for what a CPU does not have. The
summary, `lscpu -J` alone, tells too little of processors with SMT: which CPUs share a core is not in it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

from ompbind.cpuset import CPU_LIMIT, EMPTY, CpuSet
from ompbind.errors import MachineError
from ompbind.machine.core_kinds import CoreTraits, make_kinds
from ompbind.machine.model import Level, Machine, Node, Partition, check_size
from ompbind.machine.sources.filesystem import parse_set, whole_number

Row = Mapping[str, Any]

TABLE_HINT = "record the machine with: lscpu --all --extended --json"

_NESTING_LIMIT = 8

_GROUPED: Mapping[Level, tuple[str, ...]] = {
    Level.DRAWER: ("drawer",),
    Level.BOOK: ("drawer", "book"),
    Level.PACKAGE: ("drawer", "book", "socket"),
    Level.L2: ("socket", "l2"),
    Level.L3: ("socket", "l3"),
}
"""The columns that tell CPUs of one domain; a number may be unique on the machine or in an outer domain."""


def repair_json(text: str) -> str:
    """Put null where a version of lscpu wrote a bare "-"."""
    return re.sub(r"(:\s*)-(\s*[,}\]])", r"\1null\2", text)


def make_listed(data: Mapping[str, Any], source: str) -> Machine:
    """Make a machine of what `lscpu -J -e` or `lscpu -J` wrote; MachineError when it tells too little."""
    if isinstance(data.get("cpus"), list):
        return _from_table([_plain(row) for row in data["cpus"] if isinstance(row, dict)], source)
    return _from_summary(dict(_fields(data.get("lscpu"), _NESTING_LIMIT)), source)


def _plain(row: Row) -> Row:
    """Return a row with names in small letters, and a column for each of the caches that share one.

    Their title is "l1d:l1i:l2:l3", with "0:0:0:0" in it; some versions leave out what a CPU has not,
    and then nobody knows which number is whose.
    """
    plain = {str(key).lower(): value for key, value in row.items()}
    for title in [key for key in plain if ":" in key]:
        names, numbers = title.split(":"), str(plain[title]).split(":")
        plain |= dict(zip(names, numbers, strict=True)) if len(names) == len(numbers) else {}
    return plain


def _number(value: object, limit: int = 1 << 31) -> int | None:
    """Return a number written as one or as text; None for "-", null and anything else."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    return whole_number(str(value), limit)


def _from_table(rows: Sequence[Row], source: str) -> Machine:
    known = {cpu: row for row in rows if (cpu := _number(row.get("cpu"))) is not None}
    if (highest := max(known, default=0)) >= CPU_LIMIT:
        raise MachineError(f"{source} names CPU {highest}, the highest that there can be is {CPU_LIMIT - 1}")
    online = CpuSet(cpu for cpu, row in known.items() if _is_online(row))
    if not online:
        raise MachineError(f"{source} names no CPU that is online", hint=TABLE_HINT)
    check_size(cpus=len(online))
    here = {cpu: known[cpu] for cpu in online}
    parts: dict[Level, Partition] = {level: _grouped(here, columns) for level, columns in _GROUPED.items()}
    parts[Level.CORE] = _cores(here, source)
    by_node = {number or 0: cpus for number, cpus in _grouped(here, ("node",))}
    machine = Machine(
        source=source,
        arch="unknown",
        online=online,
        offline=CpuSet(known) - online,
        allowed=online,
        nodes=_nodes(by_node, online),
        remarks=tuple(compress(_MISSING, (not parts[Level.CORE], not by_node))),
    ).with_domains(parts)
    cores = [core.cpus for core in machine.at(Level.CORE)]
    traits = [CoreTraits(cpus=core, frequency=_frequency(here[core.first])) for core in cores]
    return machine.replace(kinds=make_kinds(traits))


def _nodes(by_number: Mapping[int, CpuSet], online: CpuSet) -> tuple[Node, ...]:
    """Make nodes by number; where none is told all CPUs are node 0."""
    told = by_number or {0: online}
    return tuple(Node(number=number, cpus=told[number]) for number in sorted(told))


def _is_online(row: Row) -> bool:
    """Tell whether a row is of a CPU that is online; where nothing says so, one that has a core is."""
    told = row.get("online")
    if told is None:
        return "core" not in row or _number(row["core"]) is not None
    return told is True or str(told).lower() in ("yes", "true", "1")


def _grouped(rows: Mapping[int, Row], columns: tuple[str, ...]) -> Partition:
    """Group CPUs by the numbers in some columns, the last of which must be there."""
    groups: dict[tuple[int | None, ...], list[int]] = {}
    for cpu, row in rows.items():
        key = tuple(_number(row.get(column)) for column in columns)
        if key[-1] is not None:
            groups.setdefault(key, []).append(cpu)
    return [(key[-1] if columns[-1] in _OS_NUMBERS else None, CpuSet(cpus)) for key, cpus in groups.items()]


def _cores(rows: Mapping[int, Row], source: str) -> Partition:
    """Group CPUs into cores; where numbers of cores repeat, their L1 caches tell them apart.

    On processors with clusters lscpu counts cores anew in each. CPUs of one core have one highest
    frequency, so those that differ in it show that numbers repeat; virtual machines tell L1 caches wrongly.
    """
    columns = ("drawer", "book", "socket", "core")
    told = _grouped(rows, columns)
    if all(len({_frequency(rows[cpu]) for cpu in cpus}) == 1 for _, cpus in told):
        return told
    if any(_number(row.get("l1d")) is None for row in rows.values()):
        message = f"{source} does not tell cores apart: their numbers repeat"
        raise MachineError(message, hint="record sys/ and proc/ instead")
    return _grouped(rows, ("l1d", *columns))


_MISSING = (
    "the table has no column CORE: each CPU counts as a core",
    "the table has no column NODE: all CPUs count as one node",
)
_OS_NUMBERS = ("drawer", "book", "socket", "node")
"""The columns whose numbers are those of the OS; others are counted by lscpu."""


def _frequency(row: Row) -> int | None:
    return _number(str(row.get("maxmhz", "")).partition(".")[0])


def _fields(entries: object, depth: int) -> Iterator[tuple[str, str]]:
    """Yield field and data of the summary, which newer versions nest."""
    for entry in entries if isinstance(entries, list) and depth else ():
        if isinstance(entry, dict):
            yield str(entry.get("field", "")).rstrip(":"), str(entry.get("data"))
            yield from _fields(entry.get("children"), depth - 1)


def _from_summary(fields: Mapping[str, str], source: str) -> Machine:
    """Make a machine without SMT of the summary; which CPUs are in which package it tells for one only."""
    threads, sockets = _number(fields.get("Thread(s) per core")), _number(fields.get("Socket(s)"))
    online = _list(fields, "On-line CPU(s) list")
    if not online:
        raise MachineError(f"{source} is no JSON of lscpu that names CPUs", hint=TABLE_HINT)
    if threads != 1:
        raise MachineError(f"{source} does not tell which CPUs share a core", hint=TABLE_HINT)
    check_size(cpus=len(online))
    titles = (re.fullmatch(r"NUMA node([0-9]{1,5}) CPU\(s\)", name) for name in fields)
    found = {int(title[1]): _list(fields, title[0]) & online for title in titles if title}
    return Machine(
        source=source,
        arch=fields.get("Architecture", "unknown"),
        online=online,
        offline=_list(fields, "Off-line CPU(s) list") - online,
        allowed=online,
        nodes=_nodes(found, online),
        remarks=("a summary of lscpu tells nothing of caches, and of packages only if there is one",),
    ).with_domains({Level.PACKAGE: [(None, online)] if sockets == 1 else []})


def _list(fields: Mapping[str, str], name: str) -> CpuSet:
    return parse_set(fields.get(name), CpuSet.from_list) or EMPTY
