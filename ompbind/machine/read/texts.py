"""Texts as people post them → a machine: `numactl -H`, `lstopo` and /proc/cpuinfo.

Lines that a text does not have, or that do not belong to it, are ignored. Nothing is assumed about what it
does not say; a remark names that.
"""

import re

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.errors import MachineError
from ompbind.machine.model import Level, Machine, Partition
from ompbind.machine.nodes import NumaMemory, make_nodes
from ompbind.machine.read.lscpu import make_described_machine, make_machine_from_rows
from ompbind.machine.read.root import keyed_lines

INDENT = r"[^\w\n]{0,99}"  # what may stand before the first word of a line: spaces, a prompt

_UNITS = {"kB": 1 << 10, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_SIZE = re.compile(r"(\d{1,9})\s?([kKMGT]B)")


def _read_size(text: str) -> int | None:
    found = _SIZE.search(text)
    return int(found[1]) * _UNITS[found[2]] if found else None


def read_numactl(text: str, source: str) -> Machine:
    """Make a machine from `numactl -H`: its NUMA nodes with sizes and distances. Raises MachineError."""
    sizes = dict(re.findall(rf"^{INDENT}node (\d{{1,4}}) size:(.*)", text, re.M))
    cpus: dict[str, CpuSet] = {}
    for number, words in re.findall(rf"^{INDENT}node (\d{{1,4}}) cpus:((?: +\d{{1,6}})*)", text, re.M):
        cpus[number] = cpus.get(number, EMPTY) | CpuSet(map(int, words.split()))
    memories = [
        NumaMemory(number=int(number), locality=found, memory_bytes=_read_size(sizes.get(number, "")))
        for number, found in cpus.items()
    ]
    rows = re.findall(rf"^{INDENT}(\d{{1,4}}):((?: +\d+)+)", text.partition("distances:")[2], re.M)
    numbers = [int(number) for number, _ in rows]
    distances = {
        (number, other): int(word)
        for number, (_, words) in zip(numbers, rows, strict=True)
        for other, word in zip(numbers, words.split(), strict=False)
    }
    online, number = union(cpus.values()), re.search(r"available: (\d{1,4}) nodes", text)
    if sum(map(len, cpus.values())) > len(online) or (number and int(number[1]) > len(cpus)):
        raise MachineError(f"{source} is incomplete", hint="record all lines of numactl -H")
    return make_described_machine(source, "unknown", online, {}, make_nodes(memories, online, distances))


def read_cpuinfo(text: str, source: str) -> Machine:
    """Make a machine from /proc/cpuinfo, which has cores of x86, and parts of Arm. Raises MachineError."""
    names = {"processor": "cpu", "physical id": "socket", "core id": "core"}
    names |= {"CPU implementer": "maker", "CPU part": "part"}
    rows: list[dict[str, str]] = []
    for key, value in keyed_lines(text):
        if key == "processor":
            rows.append({})
        if rows and key in names:
            rows[-1][names[key]] = value
    return make_machine_from_rows(rows, source)


_LEVELS = {
    "Package": Level.PACKAGE, "Socket": Level.PACKAGE, "Die": Level.DIE, "L3": Level.L3, "L2": Level.L2,
    "L3Cache": Level.L3, "L2Cache": Level.L2, "Core": Level.CORE,
}  # fmt: skip
_OBJECT = re.compile(r"([A-Za-z]\w*)(?:\((\w+)\))? ?((?:[LP]#\d+)?.*)")


class _Object:
    """An object of the tree: its kind, what follows, how deep it stands, what is around it, and its CPUs."""

    def __init__(self, kind: str, rest: str, depth: tuple[int, int], around: "_Object | None") -> None:
        self.kind, self.rest, self.depth, self.around = kind, rest, depth, around
        self.cpus = EMPTY
        found = re.search(r"P#(\d{1,6})", rest)
        self.number = int(found[1]) if found else None


def read_lstopo(text: str, source: str) -> Machine:
    """Make a machine from the text of lstopo, a tree by indentation. Raises MachineError.

    Memory of a domain stands below it, beside its cores (hwloc 2), or has them below itself (hwloc 1).
    """
    found = _read_tree(text)
    pus = [each for each in found if each.kind == "PU"]
    online = union(each.cpus for each in pus)
    if any(each.number is None for each in pus):
        text = f"{source} does not show the OS numbers of CPUs (P#)"
        raise MachineError(text, hint="print them with: lstopo --of console, without -l")
    parts: dict[Level, Partition] = {}
    sizes: dict[tuple[Level, int], int] = {}
    for each in (each for each in found if each.kind in _LEVELS):
        if not each.cpus:
            text = f"{each.kind} {each.rest.strip()} has no CPU in {source}: text or its indentation is lost"
            raise MachineError(text, hint="paste all of it as code, or use the output of: lstopo --of xml")
        parts.setdefault(_LEVELS[each.kind], []).append((None, each.cpus))
        if each.kind.startswith("L") and (size := _read_size(each.rest)):
            sizes[_LEVELS[each.kind], each.cpus.first] = size
    memories = [
        NumaMemory(
            number=index if each.number is None else each.number,
            locality=each.cpus or (each.around.cpus if each.around else online),
            memory_bytes=_read_size(each.rest),
            is_special="HBM" in each.rest,
        )
        for index, each in enumerate(each for each in found if each.kind == "NUMANode")
    ]
    nodes = make_nodes(memories, online, {})
    return make_described_machine(source, "unknown", online, parts, nodes).with_cache_sizes(sizes)


def _read_tree(text: str) -> list[_Object]:
    """Return the objects of a tree in its order; a line may have several, as "L2 L#0 (1MB) + Core L#0"."""
    objects: list[_Object] = []
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip(" |"))
        for place, item in enumerate(line.strip(" |").split(" + ")):
            if found := _OBJECT.fullmatch(item):
                around = objects[-1] if objects else None
                while around and around.depth >= (indent, place):
                    around = around.around
                made = _Object(found[1], f"{found[2] or ''} {found[3]}", (indent, place), around)
                objects.append(made)
                if made.kind == "PU" and made.number is not None:
                    inner: _Object | None = made
                    while inner:
                        inner.cpus |= CpuSet((made.number,))
                        inner = inner.around
    return objects
