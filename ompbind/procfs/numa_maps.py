"""What the kernel says of a process's memory, as values: by which policy it is had, and where it lies.

A *policy* is the kernel's own text: "default", "local", "bind:0-1", "prefer:0", "prefer (many):0-1",
"interleave:0-1", "weighted interleave:0-1", with flags as in "bind=static:0". An *area* is a range of
addresses with one policy; what has no policy of its own has that of the process.
"""

import re
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Literal

from ompbind.record import Record

AreaKind = Literal["heap", "stack", "anonymous", "file"]
"""What an area is for; anonymous is everything that no file and no other kind backs."""

_POLICY = re.compile(r"[0-9a-f]+ (.+?)(?: (?=file=|heap\b|stack\b|huge\b|\w+=\d)(.*))?")
_NODE = re.compile(r"(?: |^)N(\d+)=(\d+)")
_PAGE = re.compile(r" kernelpagesize_kB=(\d+)")


class AreaSight(Record):
    """All areas of a process that are of one kind and have one policy: how many, and what lies where.

    `nodes` are (number of a NUMA node, bytes there) by number; pages that were never touched lie nowhere.
    """

    policy: str
    kind: AreaKind
    areas: int
    nodes: tuple[tuple[int, int], ...]


class MemorySight(Record):
    """The memory of a process, a record for each policy and kind of area; none of a process that ends."""

    sights: tuple[AreaSight, ...]

    @property
    def own(self) -> tuple[AreaSight, ...]:
        """What no file backs: the heap, stacks and all other anonymous memory."""
        return tuple(one for one in self.sights if one.kind != "file")

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies of what no file backs, each once, that of the most areas first."""
        counts = Counter[str]()
        for one in self.own:
            counts[one.policy] += one.areas
        return tuple(sorted(counts, key=lambda policy: (-counts[policy], policy)))

    @property
    def policy(self) -> str | None:
        """The policy of the process: that of its stack or heap, which have none of their own."""
        order = ("stack", "heap")
        found = sorted((order.index(one.kind), one.policy) for one in self.own if one.kind in order)
        return found[0][1] if found else None

    @property
    def own_nodes(self) -> tuple[tuple[int, int], ...]:
        """Where lies what no file backs: (number of a NUMA node, bytes there), by number."""
        return _summed(one.nodes for one in self.own)


def parse_numa_maps(text: str) -> MemorySight:
    """Read the text of /proc/PID/numa_maps; lines that make no sense are passed over."""
    found: dict[tuple[str, AreaKind], list[tuple[tuple[int, int], ...]]] = {}
    for line in text.split("\n"):
        match = _POLICY.fullmatch(line)
        if match:
            policy, rest = match[1], match[2] or ""
            found.setdefault((policy, _kind(rest)), []).append(_nodes(rest))
    sights = (
        AreaSight(policy=policy, kind=kind, areas=len(areas), nodes=_summed(areas))
        for (policy, kind), areas in sorted(found.items())
    )
    return MemorySight(sights=tuple(sights))


def _kind(rest: str) -> AreaKind:
    word = rest.partition(" ")[0]
    if word.startswith("file="):
        return "file"
    if word.startswith("stack"):  # kernels before 4.5 add the number of the thread
        return "stack"
    return "heap" if word == "heap" else "anonymous"


def _nodes(rest: str) -> tuple[tuple[int, int], ...]:
    """Return the bytes on each node; pages are of the size that the kernel counts this area in."""
    size = _PAGE.search(rest)
    page_bytes = int(size[1]) * 1024 if size else 0
    return tuple((int(node), int(pages) * page_bytes) for node, pages in _NODE.findall(rest))


def _summed(parts: Iterable[Iterable[tuple[int, int]]]) -> tuple[tuple[int, int], ...]:
    total = Counter[int]()
    for node, size in chain.from_iterable(parts):
        total[node] += size
    return tuple(sorted(total.items()))
