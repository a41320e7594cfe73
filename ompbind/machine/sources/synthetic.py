"""hwloc's synthetic descriptions, "pack:2 numa:1 l3:2 core:4 pu:2" → a machine that nobody needs to have.

A description has one step for each level, outermost first, each with how many there are in the one
before it. `[numa]` after a step puts a memory beside each of its objects, as `numa:1` does. Attributes
follow in brackets: `(memory=4GB)`, and `(indexes=…)` for the numbers that the OS gives: a list, loops of
"step*count", or types in the order in which numbers run through them.
"""

import re
from collections.abc import Iterator, Sequence, Set
from itertools import accumulate, pairwise
from math import prod
from operator import mul

from ompbind.cpuset import CPU_LIMIT, CpuSet, union
from ompbind.errors import MachineError
from ompbind.machine.memory_nodes import NumaMemory, make_nodes
from ompbind.machine.model import Level, Machine, Partition, check_size
from ompbind.record import Record

_MEMORY_BYTES = 1 << 30  # of a `numa` step without an attribute; a bare `[numa]` has none, as in hwloc

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
"""The types of steps, and what they are here; None has no meaning for placement."""

_STEP = re.compile(r"(?P<type>[a-z][a-z0-9]*):(?P<count>[0-9]{1,7})(\((?P<attributes>[^()]*)\))?")
_ATTACHED = re.compile(r"\[\s*(?P<type>[a-z]+)\s*(\((?P<attributes>[^()]*)\))?\s*\]")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class _Step(Record):
    """One level: its type as written, what it is here, and how many there are in each of the one before.

    `attached` are the bytes and indexes of the memories that are beside each of its objects.
    """

    type: str
    level: Level | str | None
    count: int
    indexes: str = ""
    attached: tuple[tuple[int, str], ...] = ()


def parse_synthetic(text: str, source: str) -> Machine:
    """Make the machine that a description tells of; MachineError with what is wrong in it."""
    steps = _read_steps(text)
    widths = list(accumulate((step.count for step in steps), mul))
    check_size(widths[-1], sum(many * len(step.attached) for many, step in zip(widths, steps, strict=True)))
    numbers = _numbers(steps[-1].indexes, steps, widths[-1])
    sets = [_objects(numbers, width) for width in widths]
    parts: dict[Level, Partition] = {}
    for step, objects in zip(steps, sets, strict=True):
        if isinstance(step.level, Level) and step.level is not Level.NODE:
            is_numbered = step.level in (Level.PACKAGE, Level.DIE)
            parts[step.level] = [(i if is_numbered else None, cpus) for i, cpus in enumerate(objects)]
    online = CpuSet(numbers)
    nodes = make_nodes(_make_memories(steps, sets), online, {})
    machine = Machine(source=source, arch="unknown", online=online, allowed=online, nodes=nodes)
    return machine.with_domains(parts)


def _objects(numbers: Sequence[int], width: int) -> list[CpuSet]:
    """Return the CPUs of each of the `width` objects of a level."""
    size = len(numbers) // width
    return [CpuSet(numbers[start : start + size]) for start in range(0, len(numbers), size)]


def _read_steps(text: str) -> list[_Step]:
    """Read the steps; the first stands for the machine, so that memory can be beside it."""
    steps = [_Step(type="machine", level=None, count=1)]
    rest = re.sub(r"^\s*\([^()]*\)", "", text).strip()
    while rest:
        taken = _STEP.match(rest.lower()) or _ATTACHED.match(rest.lower())
        if taken is None:
            raise _fault(f"{rest.split()[0]!r} is no step of it")
        if taken.re is _STEP:
            steps.append(_make_step(taken))
        elif _meaning(taken["type"]) is Level.NODE:
            memory = _attributes(taken["attributes"], 0)
            steps[-1] = steps[-1].replace(attached=(*steps[-1].attached, memory))
        else:
            raise _fault(f"{taken[0]} is no memory")
        rest = rest[taken.end() :].strip()
    if steps[-1].level != "pu":
        raise _fault("it does not end with CPUs")
    for place, step in enumerate(steps):
        _check(step, {other.level for other in steps[:place]})
    return steps


def _make_step(found: re.Match[str]) -> _Step:
    many, level = int(found["count"]), _meaning(found["type"])
    if many < 1:
        raise _fault(f"{found['type']}:{found['count']} has no object")
    size, indexes = _attributes(found["attributes"], _MEMORY_BYTES)
    if level is Level.NODE:
        return _Step(type=found["type"], level=level, count=many, attached=((size, indexes),))
    return _Step(type=found["type"], level=level, count=many, indexes=indexes)


def _check(step: _Step, outer: Set[Level | str | None]) -> None:
    """Refuse a step that is told twice, or stands below CPUs."""
    if "pu" in outer:
        raise _fault("CPUs have other levels in them")
    if step.level is not None and step.level in outer:
        raise _fault(f"{step.type} is told twice")
    if step.level in (Level.PACKAGE, Level.DIE) and Level.CORE in outer:
        raise _fault(f"{step.type} is inside of cores")


def _meaning(word: str) -> Level | str | None:
    for pattern, level in _TYPES:
        if re.fullmatch(pattern, word):
            return level
    raise _fault(f"{word!r} is no type that ompbind knows")


def _attributes(text: str | None, memory_bytes: int) -> tuple[int, str]:
    """Read "memory=4GB indexes=1,0"; others, such as the size of a cache, tell nothing of placement."""
    pairs = dict(word.partition("=")[::2] for word in (text or "").split())
    size = _read_bytes(pairs["memory"]) if "memory" in pairs else memory_bytes
    return size, pairs.get("indexes", "")


def _read_bytes(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,18})([kmgt]?)(i?)b?", text)
    if not found:
        raise _fault(f"memory={text} is no size")
    return int(found[1]) * (_BINARY_UNITS if found[3] else _UNITS).get(found[2], 1)


def _numbers(text: str, steps: Sequence[_Step], total: int) -> list[int]:
    """Return the number of each object in its order in the machine; they are 0 to total-1."""
    if not text:
        return list(range(total))
    if re.fullmatch(r"[0-9]{1,7}(,[0-9]{1,7})*", text):
        numbers = [int(word) for word in text.split(",")]
    else:
        numbers = _interleaved(list(_loops(text, steps, total)), total)
    if len(numbers) != total or len(set(numbers)) != total or max(numbers) >= CPU_LIMIT:
        raise _fault(f"indexes={text[:40]} does not number {total} objects, each once")
    return numbers


def _interleaved(loops: Sequence[tuple[int, int]], total: int) -> list[int]:
    """Number objects by loops of (step, count), the first of which runs fastest."""
    numbers, weight = [0] * total, 1
    for step, count in loops:
        numbers = [number + (at // step) % count * weight for at, number in enumerate(numbers)]
        weight *= count
    return numbers


def _loops(text: str, steps: Sequence[_Step], total: int) -> Iterator[tuple[int, int]]:
    """Read "2*4:1*2" or "core:pack" into loops; what types leave over is a last loop."""
    words = text.split(":")
    if all(re.fullmatch(r"[1-9][0-9]{0,6}\*[1-9][0-9]{0,6}", word) for word in words):
        yield from ((int(step), int(count)) for step, _, count in (word.partition("*") for word in words))
        return
    places = [_place(word, steps) for word in words]
    below = {place: prod(step.count for step in steps[place + 1 :]) for place in places}
    outer = dict(pairwise(sorted({0, *places}, reverse=True)))
    counts = {place: prod(step.count for step in steps[outer[place] + 1 : place + 1]) for place in places}
    yield from ((below[place], counts[place]) for place in places)
    yield 1, max(1, total // prod(counts.values()))


def _place(word: str, steps: Sequence[_Step]) -> int:
    level = _meaning(word)
    for place, step in enumerate(steps):
        if step.type == word or (level is not None and step.level == level):
            return place
    raise _fault(f"indexes name {word!r}, of which there is none")


def _make_memories(steps: Sequence[_Step], sets: Sequence[Sequence[CpuSet]]) -> list[NumaMemory]:
    """Make every memory; those that nothing numbers get the numbers left over, see `_walk`."""
    found = list(_walk(steps, sets))
    if not found:
        return [NumaMemory(number=0, locality=union(sets[0]), memory_bytes=_MEMORY_BYTES)]
    given = CpuSet(number for number, _, _ in found if number is not None)
    free = (number for number in range(CPU_LIMIT) if number not in given)
    return [
        NumaMemory(number=next(free) if number is None else number, locality=cpus, memory_bytes=size)
        for number, size, cpus in found
    ]


def _walk(
    steps: Sequence[_Step], sets: Sequence[Sequence[CpuSet]]
) -> Iterator[tuple[int | None, int, CpuSet]]:
    """Yield number, bytes and CPUs of memories as one leaves objects on a walk, inner before outer ones."""
    places = [
        ((i + 1) / len(objects), -depth, i)
        for depth, (step, objects) in enumerate(zip(steps, sets, strict=True))
        if step.attached
        for i in range(len(objects))
    ]
    for _, depth, i in sorted(places):
        objects = sets[-depth]
        for size, indexes in steps[-depth].attached:
            numbers = _numbers(indexes, steps[: 1 - depth], len(objects))
            yield (numbers[i] if indexes else None), size, objects[i]


def _fault(message: str) -> MachineError:
    return MachineError(
        f"this synthetic description is not understood: {message}",
        hint="write TYPE:COUNT for each level, of pack, die, numa, l3, l2, core, group and pu, as in "
        "--topology 'synthetic:pack:2 numa:1 l3:2 core:4 pu:2'",
    )
