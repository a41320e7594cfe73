"""Parsing of numa_maps: lines as kernels write them, and the memory of real processes."""

import os
import subprocess
import sys

import pytest

from ompbind.procfs.parsers import MappingStats, MemoryMap, parse_numa_maps
from ompbind.procfs.reader import read_memory_map

MIB = 1 << 20


def stats(*, policy="default", kind="anonymous", count=1, nodes=()):
    return MappingStats(policy=policy, kind=kind, count=count, nodes=nodes)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("55d0c000 default", stats()),
        (
            "55d0c000 default file=/usr/bin/head mapped=2 N0=2 kernelpagesize_kB=4",
            stats(kind="file", nodes=((0, 8192),)),
        ),
        (
            "55d0c000 bind:0-1 heap anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4",
            stats(policy="bind:0-1", kind="heap", nodes=((0, 4096), (1, 8192))),
        ),
        (
            "7ffd0000 prefer (many):0,2 stack anon=3 dirty=3 active=0 N2=3 kernelpagesize_kB=64",
            stats(policy="prefer (many):0,2", kind="stack", nodes=((2, 3 << 16),)),
        ),
        (
            "7ff0 default stack:123 anon=1 N0=1 kernelpagesize_kB=4",
            stats(kind="stack", nodes=((0, 4096),)),
        ),
        (
            "7f00 prefer:1 anon=1 N1=1 kernelpagesize_kB=4",
            stats(policy="prefer:1", nodes=((1, 4096),)),
        ),
        ("7f00 local", stats(policy="local")),
        ("7f00 weighted interleave:0-1", stats(policy="weighted interleave:0-1")),
        (
            "7f00 weighted interleave=static:0-1 anon=1 N1=1 kernelpagesize_kB=4",
            stats(policy="weighted interleave=static:0-1", nodes=((1, 4096),)),
        ),
        ("7f00 bind=static|balancing:0 heap", stats(policy="bind=static|balancing:0", kind="heap")),
        (
            "7f00 interleave:0,64 file=/anon_hugepage\\040(deleted) huge anon=2 dirty=2 N0=1 N64=1"
            " kernelpagesize_kB=2048",
            stats(policy="interleave:0,64", kind="file", nodes=((0, 2 * MIB), (64, 2 * MIB))),
        ),
        ("7f00 default huge dirty=1 N0=1 kernelpagesize_kB=2048", stats(nodes=((0, 2 * MIB),))),
        (
            "7f00 default file=/tmp/N1=7\\040N2=3 mapped=1 N0=1 kernelpagesize_kB=4",
            stats(kind="file", nodes=((0, 4096),)),
        ),
        (
            "7f00 default file=/tmp/a\rb\x85c mapped=1 N1=1 kernelpagesize_kB=4",
            stats(kind="file", nodes=((1, 4096),)),
        ),
        ("7f00 default file=/tmp/heap\\075N3\\0754", stats(kind="file")),
        (
            "7f00 default anon=1 dirty=1 swapcache=1 writeback=1 N1023=1 kernelpagesize_kB=4",
            stats(nodes=((1023, 4096),)),
        ),
    ],
)
def test_a_line_is_read(line, expected):
    assert parse_numa_maps(f"{line}\n") == MemoryMap(mappings=(expected,))


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
    assert stats(policy="bind:1", count=2, nodes=((0, 4096), (1, 12288))) in memory.mappings
    assert memory.policies == ("bind:1", "interleave:0-1")
    assert memory.policy == "bind:1"
    assert memory.anonymous_nodes == ((0, 8192), (1, 24576))


def test_without_stack_and_heap_no_policy_is_known():
    assert parse_numa_maps("1000 bind:1 anon=1 N1=1 kernelpagesize_kB=4\n").policy is None


FILL = f"""
import mmap, sys
memory = mmap.mmap(-1, {8 * MIB}, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory[:] = bytes(len(memory))
print(flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/numa_maps"), reason="this kernel has no NUMA support")
def test_the_memory_of_a_real_process_is_read():
    process = subprocess.Popen([sys.executable, "-c", FILL], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()
    memory = read_memory_map(process.pid)
    process.communicate(b"\n")
    assert memory.policy in memory.policies
    assert sum(size for _, size in memory.anonymous_nodes) >= 8 * MIB
    assert {mapping.kind for mapping in memory.mappings} == {"heap", "stack", "anonymous", "file"}


def test_an_exited_process_has_no_memory_map():
    process = subprocess.Popen(["true"])
    process.wait()
    assert read_memory_map(process.pid) is None
