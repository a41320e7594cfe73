"""hwloc's synthetic descriptions, "pack:2 numa:1 l3:2 core:4 pu:2" → a machine.

A description is a list of steps TYPE:COUNT, outermost level first. COUNT is the number of objects in each
object of the step before. `[numa]` after a step attaches a memory to each of its objects, as `numa:1` does.
Attributes are in parentheses: `(memory=4GB)`, `(size=32MB)` of caches, and `(indexes=…)` for OS numbers.

OS numbers are a list ("0,4,2,6"), or they count in loops. The loops of "core:pack" for pack:2 core:2 pu:2:

    position   0 1 2 3   4 5 6 7    CPUs in machine order
    core       0 0 1 1   0 0 1 1    first loop, the fastest: 0 1 in each package
    package    0 0 0 0   1 1 1 1    second loop
    pu         0 1 0 1   0 1 0 1    the rest, the slowest
    OS number  0 4 1 5   2 6 3 7    = core + 2 * package + 4 * pu

"STEP*COUNT:…" gives the loops as numbers: the index in a loop is (position // STEP) % COUNT. So
"core:pack" is "2*2:4*2:1*2" here.
"""

import re
from collections.abc import Sequence, Set
from itertools import accumulate, pairwise
from math import prod
from operator import mul

from ompbind.cpuset import CPU_LIMIT, CpuSet, union
from ompbind.errors import MachineError
from ompbind.machine.model import Level, Machine, Partition, check_size
from ompbind.machine.nodes import NumaMemory, make_nodes
from ompbind.record import Record

_MEMORY_BYTES = 1 << 30  # of `numa:1` without (memory=…); `[numa]` without it has none, as in hwloc

_TYPES = (
    (r"pack(age)?|socket", Level.PACKAGE),
    (r"die", Level.DIE),
    (r"l3(u|d)?(cache)?", Level.L3),
    (r"l2(u|d)?(cache)?", Level.L2),
    (r"core", Level.CORE),
    (r"numa(node)?|node", Level.NODE),
    (r"pu", "pu"),
    (r"group[0-9]*|l[1-5](u|d|i)?(cache)?", None),
)
"""The types of steps and their levels; None is a type that ompbind does not use."""

_STEP = re.compile(r"(?P<type>[a-z][a-z0-9]*):(?P<count>[0-9]{1,7})(\((?P<attributes>[^()]*)\))?")
_ATTACHED = re.compile(r"\[\s*(?P<type>[a-z]+)\s*(\((?P<attributes>[^()]*)\))?\s*\]")
_OTHER_ATTRIBUTES = ("indexes", "depth", "subtype", "memorysidecachesize")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class _Step(Record):
    """One step: its type as written, its level, and its number of objects in each object of the step before.

    `indexes` is the text of this attribute. `attached` are (bytes, indexes) of the memories at each object.
    `size_bytes` is the size of a cache, 0 if it is not given.
    """

    type: str
    level: Level | str | None
    count: int
    indexes: str = ""
    attached: tuple[tuple[int, str], ...] = ()
    size_bytes: int = 0


def parse_synthetic(text: str, source: str) -> Machine:
    """Make the machine of a description. Raises MachineError if it is invalid."""
    steps = _read_steps(text)
    widths = list(accumulate((step.count for step in steps), mul))
    check_size(widths[-1], sum(width * len(step.attached) for width, step in zip(widths, steps, strict=True)))
    numbers = _parse_indexes(steps[-1].indexes, steps, widths[-1])
    sizes = [len(numbers) // width for width in widths]  # CPUs of each object of a level
    sets = [
        [CpuSet(numbers[start : start + size]) for start in range(0, len(numbers), size)] for size in sizes
    ]
    parts: dict[Level, Partition] = {}
    cache_sizes: dict[tuple[Level, int], int] = {}
    for step, objects in zip(steps, sets, strict=True):
        if isinstance(step.level, Level) and step.level is not Level.NODE:
            is_numbered = step.level in (Level.PACKAGE, Level.DIE)
            parts[step.level] = [(i if is_numbered else None, cpus) for i, cpus in enumerate(objects)]
            if step.size_bytes and step.level in (Level.L2, Level.L3):
                cache_sizes |= {(step.level, cpus.first): step.size_bytes for cpus in objects}
    online = CpuSet(numbers)
    nodes = make_nodes(_make_memories(steps, sets), online, {})
    machine = Machine(source=source, arch="unknown", online=online, allowed=online, nodes=nodes)
    return machine.with_domains(parts).with_cache_sizes(cache_sizes)


def _read_steps(text: str) -> list[_Step]:
    """Parse the steps; the first is the machine itself, because memory can be attached to it."""
    steps = [_Step(type="machine", level=None, count=1)]
    rest = re.sub(r"^\s*\([^()]*\)", "", text).strip()
    while rest:
        match = _STEP.match(rest.lower()) or _ATTACHED.match(rest.lower())
        if match is None:
            raise _make_error(f"{rest.split()[0]!r} is not TYPE:COUNT or [numa]")
        level = _find_level(match["type"])
        if match.re is _ATTACHED:
            if level is not Level.NODE:
                raise _make_error(f"{match[0]} is not a memory: only [numa] is")
            memory = _parse_attributes(match["attributes"], "memory", 0)
            steps[-1] = steps[-1].replace(attached=(*steps[-1].attached, memory))
        else:
            if int(match["count"]) < 1:
                raise _make_error(f"the count in {match['type']}:{match['count']} is not positive")
            step = _Step(type=match["type"], level=level, count=int(match["count"]))
            if level is Level.NODE:
                memory = _parse_attributes(match["attributes"], "memory", _MEMORY_BYTES)
                step = step.replace(attached=(memory,))
            else:
                size, indexes = _parse_attributes(match["attributes"], "size", 0)
                step = step.replace(indexes=indexes, size_bytes=size)
            steps.append(step)
        rest = rest[match.end() :].strip()
    if steps[-1].level != "pu":
        raise _make_error("the last step is not pu:COUNT")
    for position, step in enumerate(steps):
        _check_order(step, {other.level for other in steps[:position]})
    return steps


def _check_order(step: _Step, outer: Set[Level | str | None]) -> None:
    """Raise MachineError for a level that appears twice or in the wrong order."""
    if "pu" in outer:
        raise _make_error("there is a step after pu")
    if step.level is not None and step.level in outer:
        raise _make_error(f"{step.type} appears twice")
    if step.level in (Level.PACKAGE, Level.DIE) and Level.CORE in outer:
        raise _make_error(f"{step.type} is inside core")


def _find_level(word: str) -> Level | str | None:
    for pattern, level in _TYPES:
        if re.fullmatch(pattern, word):
            return level
    raise _make_error(f"unknown type {word!r}")


def _parse_attributes(text: str | None, name: str, size_bytes: int) -> tuple[int, str]:
    """Parse "memory=4GB indexes=1,0" into (bytes, indexes); other attributes of hwloc are ignored.

    `name` is the attribute with the bytes, `size_bytes` their number without it.
    """
    pairs = {}
    for word in (text or "").split():
        key, _, value = word.partition("=")
        if key not in (name, *_OTHER_ATTRIBUTES):
            raise _make_error(f"{word!r} in ({text}) is not an attribute: write ({name}={value or key})")
        pairs[key] = value
    if name in pairs:
        found = re.fullmatch(r"([0-9]{1,18})([kmgt]?)(i?)b?", pairs[name])
        if not found:
            raise _make_error(f"{name}={pairs[name]} is not a size")
        size_bytes = int(found[1]) * (_BINARY_UNITS if found[3] else _UNITS).get(found[2], 1)
    return size_bytes, pairs.get("indexes", "")


def _parse_indexes(text: str, steps: Sequence[_Step], total: int) -> list[int]:
    """Return the OS number of each of the `total` objects, in machine order; 0 to total-1 without indexes."""
    if not text:
        return list(range(total))
    if re.fullmatch(r"[0-9]{1,7}(,[0-9]{1,7})*", text):
        numbers = [int(word) for word in text.split(",")]
    else:
        numbers, weight = [0] * total, 1
        for step, count in _parse_loops(text, steps, total):  # the fastest first
            numbers = [number + i // step % count * weight for i, number in enumerate(numbers)]
            weight *= count
    if len(numbers) != total or len(set(numbers)) != total or max(numbers) >= CPU_LIMIT:
        raise _make_error(f"indexes={text[:40]} does not give different numbers to {total} objects")
    return numbers


def _parse_loops(text: str, steps: Sequence[_Step], total: int) -> list[tuple[int, int]]:
    """Return the loops (step, count) of "2*4:1*2" or of types like "core:pack".

    For a type, the step is the number of innermost objects in one object of this type, and the count is the
    number of these objects in one object of the next outer type that is named. A last loop counts the rest.
    """
    words = text.split(":")
    if all(re.fullmatch(r"[1-9][0-9]{0,6}\*[1-9][0-9]{0,6}", word) for word in words):
        return [(int(step), int(count)) for step, _, count in (word.partition("*") for word in words)]
    depths = []
    for word in words:
        level = _find_level(word)
        named = (i for i, step in enumerate(steps) if step.type == word or (level and step.level == level))
        depth = next(named, None)
        if depth is None:
            raise _make_error(f"indexes name {word!r}, but there is no such step")
        depths.append(depth)
    inside = {depth: prod(step.count for step in steps[depth + 1 :]) for depth in depths}
    outer = dict(pairwise(sorted({0, *depths}, reverse=True)))
    counts = {depth: prod(step.count for step in steps[outer[depth] + 1 : depth + 1]) for depth in depths}
    return [
        *((inside[depth], counts[depth]) for depth in depths),
        (1, max(1, total // prod(counts.values()))),
    ]


def _make_memories(steps: Sequence[_Step], sets: Sequence[Sequence[CpuSet]]) -> list[NumaMemory]:
    """Make all memories; memories without indexes get the free numbers, in the order of hwloc.

    That is the order of a depth-first walk that visits an object after the objects in it. The key of object
    i of n at a level is its end as a share of the machine, (i + 1) / n; at an equal end inner objects come
    first.
    """
    walk = sorted(
        ((i + 1) / len(objects), -depth, i)
        for depth, (step, objects) in enumerate(zip(steps, sets, strict=True))
        if step.attached
        for i in range(len(objects))
    )
    found = list[tuple[int | None, int, CpuSet]]()  # number, bytes, CPUs
    for _, negative_depth, i in walk:
        depth = -negative_depth
        for size, indexes in steps[depth].attached:
            numbers = _parse_indexes(indexes, steps[: depth + 1], len(sets[depth]))
            found.append((numbers[i] if indexes else None, size, sets[depth][i]))
    if not found:
        return [NumaMemory(number=0, locality=union(sets[0]), memory_bytes=_MEMORY_BYTES)]
    used = CpuSet(number for number, _, _ in found if number is not None)
    free = (number for number in range(CPU_LIMIT) if number not in used)
    return [
        NumaMemory(number=next(free) if number is None else number, locality=cpus, memory_bytes=size)
        for number, size, cpus in found
    ]


def _make_error(message: str) -> MachineError:
    return MachineError(
        f"invalid synthetic description: {message}",
        hint="write TYPE:COUNT for each level (pack, die, numa, l3, l2, group, core, pu), as in "
        "--topology 'synthetic:pack:2 numa:1 l3:2 core:4 pu:2'",
    )
