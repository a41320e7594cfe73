"""Parsing of numa_maps: lines as kernels write them, and the memory of real processes."""

import os
import subprocess
import sys

import pytest

from ompbind.procfs.parsers import MappingStats, MemoryMap, parse_numa_maps
from ompbind.procfs.reader import read_memory_map

MIB = 1 << 20

# line, policy, kind, bytes per node
LINES = [
    ("", "default", "anonymous", {}),
    ("default file=/usr/bin/head mapped=2 N0=2 kernelpagesize_kB=4", "default", "file", {0: 8192}),
    ("bind:0-1 heap anon=3 N0=1 N1=2 kernelpagesize_kB=4", "bind:0-1", "heap", {0: 4096, 1: 8192}),
    ("prefer (many):0,2 stack anon=3 N2=3 kernelpagesize_kB=64", "prefer (many):0,2", "stack", {2: 3 << 16}),
    ("default stack:123 anon=1 N0=1 kernelpagesize_kB=4", "default", "stack", {0: 4096}),
    ("weighted interleave=static:0-1 anon=1 N1=1 kernelpagesize_kB=4", "weighted interleave=static:0-1",
     "anonymous", {1: 4096}),
    ("bind=static|balancing:0 heap", "bind=static|balancing:0", "heap", {}),
    ("interleave:0,64 file=/anon_hugepage\\040(deleted) huge anon=2 N0=1 N64=1 kernelpagesize_kB=2048",
     "interleave:0,64", "file", {0: 2 * MIB, 64: 2 * MIB}),
    ("default huge dirty=1 N0=1 kernelpagesize_kB=2048", "default", "anonymous", {0: 2 * MIB}),
    ("default file=/tmp/N1=7\\040N2=3 mapped=1 N0=1 kernelpagesize_kB=4", "default", "file", {0: 4096}),
    ("default file=/tmp/a\rb\x85c mapped=1 N1=1 kernelpagesize_kB=4", "default", "file", {1: 4096}),
    ("default file=/tmp/heap\\075N3\\0754", "default", "file", {}),
    ("default anon=1 swapcache=1 N1023=1 kernelpagesize_kB=4", "default", "anonymous", {1023: 4096}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "policy", "kind", "nodes"), LINES)
def test_a_line_is_read(line, policy, kind, nodes):
    expected = MappingStats(policy=policy, kind=kind, count=1, nodes=tuple(nodes.items()))
    assert parse_numa_maps(f"7f00 {line or 'default'}\n") == MemoryMap(mappings=(expected,))


@pytest.mark.parametrize("text", ["", "\n", "7f00", "zz default\n", "7f00 \n"])
def test_malformed_lines_are_skipped(text):
    assert parse_numa_maps(text) == MemoryMap(mappings=())


def test_mappings_of_one_kind_with_one_policy_are_summed():
    memory = parse_numa_maps(
        "1000 bind:1 file=/bin/sh mapped=2 N0=2 kernelpagesize_kB=4\n"
        "2000 bind:1 heap anon=1 N1=1 kernelpagesize_kB=4\n"
        "3000 bind:1 anon=1 N1=1 kernelpagesize_kB=4\n"
        "4000 bind:1 anon=3 N0=1 N1=2 kernelpagesize_kB=4\n"
        "5000 interleave:0-1 anon=2 N0=1 N1=1 kernelpagesize_kB=4\n"
        "6000 bind:1 stack anon=1 N1=1 kernelpagesize_kB=4\n"
    )
    summed = MappingStats(policy="bind:1", kind="anonymous", count=2, nodes=((0, 4096), (1, 12288)))
    assert summed in memory.mappings
    assert (memory.policies, memory.policy) == (("bind:1", "interleave:0-1"), "bind:1")
    assert memory.anonymous_nodes == ((0, 8192), (1, 24576))
    assert parse_numa_maps("1000 bind:1 anon=1 N1=1\n").policy is None, "the stack and the heap tell it"


FILL = f"""
import mmap, sys
memory = mmap.mmap(-1, {8 * MIB}, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory[:] = bytes(len(memory))
print(flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/numa_maps"), reason="this kernel has no NUMA support")
def test_the_memory_of_a_real_process_is_read_until_it_exits():
    command = [sys.executable, "-c", FILL]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        memory = read_memory_map(process.pid)
        process.communicate(b"\n")
    assert memory.policy in memory.policies
    assert sum(size for _, size in memory.anonymous_nodes) >= 8 * MIB
    assert {mapping.kind for mapping in memory.mappings} == {"heap", "stack", "anonymous", "file"}
    assert read_memory_map(process.pid) is None
