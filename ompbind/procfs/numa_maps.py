"""Parse /proc/PID/numa_maps: the memory policies of a process, and the NUMA nodes that hold its pages.

A line describes one *mapping*: a range of addresses with one policy. A mapping without a policy of its own
has the policy of the process.

    7f00 bind:0-1 heap anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4
    ^    ^        ^                   ^                           ^
    address       kind                1 page on node 0            size of these pages
         policy

A *policy* is the kernel's text: "default", "local", "bind:0-1", "prefer:0", "prefer (many):0-1",
"interleave:0-1", "weighted interleave:0-1", with flags as in "bind=static:0". See numa(7).
"""

import re
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Literal

from ompbind.record import Record

MappingKind = Literal["heap", "stack", "anonymous", "file"]
"""What a mapping holds; "anonymous" is memory without a file that is neither heap nor stack."""

_POLICY = re.compile(r"[0-9a-f]+ (.+?)(?: (?=file=|heap\b|stack\b|huge\b|\w+=\d)(.*))?")
_NODE = re.compile(r"(?: |^)N(\d+)=(\d+)")
_PAGE = re.compile(r" kernelpagesize_kB=(\d+)")


class MappingStats(Record):
    """The mappings of a process of one kind with one policy, summed.

    `count` is the number of mappings. `nodes` are (NUMA node, bytes) pairs in the order of nodes. Pages that
    were never written are on no node.
    """

    policy: str
    kind: MappingKind
    count: int
    nodes: tuple[tuple[int, int], ...]


class MemoryMap(Record):
    """The memory of a process, one record for each policy and kind; none if the process is exiting."""

    mappings: tuple[MappingStats, ...]

    @property
    def anonymous(self) -> tuple[MappingStats, ...]:
        """The mappings without a file: heap, stacks and other anonymous memory."""
        return tuple(mapping for mapping in self.mappings if mapping.kind != "file")

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies of mappings without a file, each once, the most frequent first."""
        counts = Counter[str]()
        for mapping in self.anonymous:
            counts[mapping.policy] += mapping.count
        return tuple(sorted(counts, key=lambda policy: (-counts[policy], policy)))

    @property
    def policy(self) -> str | None:
        """The policy of the process, read from its stack or heap, which have no policy of their own."""
        order = ("stack", "heap")
        found = [mapping for mapping in self.anonymous if mapping.kind in order]
        return min((order.index(mapping.kind), mapping.policy) for mapping in found)[1] if found else None

    @property
    def anonymous_nodes(self) -> tuple[tuple[int, int], ...]:
        """Memory without a file: (NUMA node, bytes) pairs in the order of nodes."""
        return _sum_by_node(mapping.nodes for mapping in self.anonymous)


def parse_numa_maps(text: str) -> MemoryMap:
    """Parse the text of /proc/PID/numa_maps; malformed lines are skipped."""
    found: dict[tuple[str, MappingKind], list[tuple[tuple[int, int], ...]]] = {}
    for line in text.split("\n"):
        match = _POLICY.fullmatch(line)
        if match:
            policy, rest = match[1], match[2] or ""
            found.setdefault((policy, _parse_kind(rest)), []).append(_parse_nodes(rest))
    mappings = (
        MappingStats(policy=policy, kind=kind, count=len(nodes), nodes=_sum_by_node(nodes))
        for (policy, kind), nodes in sorted(found.items())
    )
    return MemoryMap(mappings=tuple(mappings))


def _parse_kind(rest: str) -> MappingKind:
    word = rest.partition(" ")[0]
    if word.startswith("file="):
        return "file"
    if word.startswith("stack"):  # kernels before 4.5 add the number of the thread
        return "stack"
    return "heap" if word == "heap" else "anonymous"


def _parse_nodes(rest: str) -> tuple[tuple[int, int], ...]:
    """Return (NUMA node, bytes) pairs: `N0=3` are 3 pages of `kernelpagesize_kB` KiB on node 0."""
    size = _PAGE.search(rest)
    page_bytes = int(size[1]) * 1024 if size else 0
    return tuple((int(node), int(pages) * page_bytes) for node, pages in _NODE.findall(rest))


def _sum_by_node(parts: Iterable[Iterable[tuple[int, int]]]) -> tuple[tuple[int, int], ...]:
    total = Counter[int]()
    for node, size in chain.from_iterable(parts):
        total[node] += size
    return tuple(sorted(total.items()))
