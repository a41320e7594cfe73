"""hwloc's synthetic descriptions, "pack:2 numa:1 l3:2 core:4 pu:2", as `lstopo --of synthetic` prints them.

A description is a list of steps TYPE:COUNT, outermost level first. COUNT is the number of objects in each
object of the step before. `[numa]` after a step attaches a memory to each of its objects, as `numa:1` does.
Attributes are in parentheses: `(memory=4GB)`, `(size=32MB)` of caches, and `(indexes=…)` for OS numbers. OS
numbers are a list ("0,4,2,6"), or loops STEP*COUNT, the fastest first:

    position            0 1 2 3 4 5 6 7    CPUs of core:4 pu:2, in machine order
    indexes=2*4:1*2     0 4 1 5 2 6 3 7    (position // 2) % 4 + 4 * (position // 1 % 2)
"""

import re
from collections.abc import Sequence, Set
from itertools import accumulate
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

_STEP = re.compile(
    r"(?P<type>[a-z][a-z0-9]*):(?P<count>[0-9]{1,7})(\((?P<own>[^()]*)\))?"
    r"|\[\s*(?P<attached>[a-z]+)\s*(\((?P<memory>[^()]*)\))?\s*\]"
)
_OTHER_ATTRIBUTES = ("indexes", "depth", "subtype", "memorysidecachesize")
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


class _Step(Record):
    """One step; `size_bytes` is 0 if it is not given, `memories` are (bytes, indexes) at each object."""

    level: Level | str | None
    count: int
    indexes: str = ""
    size_bytes: int = 0
    memories: tuple[tuple[int, str], ...] = ()


def parse_synthetic(text: str, source: str) -> Machine:
    """Make the machine of a description. Raises MachineError if it is invalid."""
    steps = _read_steps(text)
    widths = list(accumulate((step.count for step in steps), mul))
    check_size(widths[-1], sum(width * len(step.memories) for width, step in zip(widths, steps, strict=True)))
    numbers = _parse_indexes(steps[-1].indexes, widths[-1])
    parts: dict[Level, Partition] = {}
    cache_sizes: dict[tuple[Level, int], int] = {}
    objects: list[list[CpuSet]] = []
    for step, width in zip(steps, widths, strict=True):
        size = len(numbers) // width
        sets = [CpuSet(numbers[start : start + size]) for start in range(0, len(numbers), size)]
        objects.append(sets)
        if isinstance(step.level, Level) and step.level is not Level.NODE:
            is_numbered = step.level in (Level.PACKAGE, Level.DIE)
            parts[step.level] = [(i if is_numbered else None, cpus) for i, cpus in enumerate(sets)]
            if step.size_bytes and step.level in (Level.L2, Level.L3):
                cache_sizes |= {(step.level, cpus.first): step.size_bytes for cpus in sets}
    online = CpuSet(numbers)
    nodes = make_nodes(_make_memories(steps, objects), online, {})
    machine = Machine(source=source, arch="unknown", online=online, allowed=online, nodes=nodes)
    return machine.with_domains(parts).with_cache_sizes(cache_sizes)


def _read_steps(text: str) -> list[_Step]:
    """Parse the steps; the first is the machine itself, because memory can be attached to it."""
    steps = [_Step(level=None, count=1)]
    rest = re.sub(r"^\s*\([^()]*\)", "", text.lower()).strip()
    while rest:
        match = _STEP.match(rest)
        if match is None:
            raise _make_error(f"{rest.split()[0]!r} is not TYPE:COUNT or [numa]")
        word = match["type"] or match["attached"]
        level = next((level for pattern, level in _TYPES if re.fullmatch(pattern, word)), "")
        if level == "":
            raise _make_error(f"unknown type {word!r}")
        if match["attached"]:
            if level is not Level.NODE:
                raise _make_error(f"{match[0]} is not a memory: only [numa] is")
            memories = (*steps[-1].memories, _parse_attributes(match["memory"], "memory", 0))
            steps[-1] = steps[-1].replace(memories=memories)
        else:
            count, is_node = int(match["count"]), level is Level.NODE
            _check_step(word, level, count, {step.level for step in steps})
            name, size = ("memory", _MEMORY_BYTES) if is_node else ("size", 0)
            size, indexes = _parse_attributes(match["own"], name, size)
            memories = ((size, indexes),) if is_node else ()
            steps.append(_Step(level=level, count=count, indexes=indexes, size_bytes=size, memories=memories))
        rest = rest[match.end() :].strip()
    if steps[-1].level != "pu":
        raise _make_error("the last step is not pu:COUNT")
    return steps


def _check_step(word: str, level: Level | str | None, number: int, outer: Set[Level | str | None]) -> None:
    if number < 1:
        raise _make_error(f"the count in {word}:{number} is not positive")
    if "pu" in outer:
        raise _make_error("there is a step after pu")
    if level is not None and level in outer:
        raise _make_error(f"{word} appears twice")
    if level in (Level.PACKAGE, Level.DIE) and Level.CORE in outer:
        raise _make_error(f"{word} is inside core")


def _parse_attributes(text: str | None, name: str, size_bytes: int) -> tuple[int, str]:
    """Parse "memory=4GB indexes=1,0" into (bytes, indexes); without `name`, `size_bytes` are the bytes."""
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
        size_bytes = int(found[1]) * (1024 if found[3] else 1000) ** _UNITS[found[2]]
    return size_bytes, pairs.get("indexes", "")


def _parse_indexes(text: str, total: int) -> list[int]:
    """Return the OS number of each of the `total` objects, in machine order; 0 to total-1 without indexes."""
    if not text:
        return list(range(total))
    if re.fullmatch(r"[0-9]{1,7}(,[0-9]{1,7})*", text):
        numbers = [int(word) for word in text.split(",")]
    elif re.fullmatch(r"[1-9][0-9]{0,6}\*[1-9][0-9]{0,6}(:[1-9][0-9]{0,6}\*[1-9][0-9]{0,6})*", text):
        numbers, weight = [0] * total, 1
        for loop in text.split(":"):
            step, count = map(int, loop.split("*"))
            numbers = [number + i // step % count * weight for i, number in enumerate(numbers)]
            weight *= count
    else:
        raise _make_error(f"indexes={text[:40]} is neither a list of numbers nor loops STEP*COUNT:STEP*COUNT")
    if len(numbers) != total or len(set(numbers)) != total or max(numbers) >= CPU_LIMIT:
        raise _make_error(f"indexes={text[:40]} does not give different numbers to {total} objects")
    return numbers


def _make_memories(steps: Sequence[_Step], objects: Sequence[Sequence[CpuSet]]) -> list[NumaMemory]:
    """Make all memories; memories without indexes get the free numbers, in the order of hwloc.

    That is the order of a depth-first walk that visits an object after the objects in it. The key of object
    i of n at a level is its end as a share of the machine, (i + 1) / n; at an equal end inner objects come
    first.
    """
    found, used = [], set[int]()
    for depth, (step, sets) in enumerate(zip(steps, objects, strict=True)):
        for at, (size, indexes) in enumerate(step.memories):
            numbers = _parse_indexes(indexes, len(sets)) if indexes else [None] * len(sets)
            used.update(number for number in numbers if number is not None)
            found += [((i + 1) / len(sets), -depth, at, numbers[i], size, sets[i]) for i in range(len(sets))]
    free = (number for number in range(CPU_LIMIT) if number not in used)
    return [
        NumaMemory(number=next(free) if number is None else number, locality=cpus, memory_bytes=size)
        for *_, number, size, cpus in sorted(found, key=lambda memory: memory[:3])
    ] or [NumaMemory(number=0, locality=union(objects[0]), memory_bytes=_MEMORY_BYTES)]


def _make_error(message: str) -> MachineError:
    return MachineError(
        f"invalid synthetic description: {message}",
        hint="write TYPE:COUNT for each level (pack, die, numa, l3, l2, group, core, pu), as in "
        "--topology 'synthetic:pack:2 numa:1 l3:2 core:4 pu:2'",
    )
