"""Parsing of numa_maps: lines as kernels write them."""

import pytest

from ompbind.procfs.parsers import MemoryMap, parse_numa_maps, parse_policy
from tests.tables import rows


@pytest.mark.parametrize(("line", "policy", "is_own", "nodes"), rows("""
    default | default |  | {}
    default file=/bin/head mapped=2 N0=2 kernelpagesize_kB=4 | default |  | {}
    bind:0-1 heap anon=3 N0=1 N1=2 kernelpagesize_kB=4 | bind:0-1 | yes | {0: 4096, 1: 8192}
    prefer (many):0,2 stack anon=3 N2=3 kernelpagesize_kB=64 | prefer (many):0,2 | yes | {2: 196608}
    weighted interleave=static:0 anon=1 N1=1 kernelpagesize_kB=4 | weighted interleave=static:0 |  | {1: 4096}
    bind=static|balancing:0 heap | bind=static|balancing:0 | yes | {}
    local file=/a\\040(deleted) huge anon=2 N0=1 kernelpagesize_kB=2048 | local |  | {}
    default huge dirty=1 N0=1 kernelpagesize_kB=2048 | default |  | {0: 2097152}
    default file=/a/N1=7\\040N2=3 mapped=1 N0=1 kernelpagesize_kB=4 | default |  | {}
    default anon=1 swapcache=1 N1023=1 kernelpagesize_kB=4 | default |  | {1023: 4096}
"""))  # fmt: skip
def test_a_line_is_read(line, policy, is_own, nodes):
    memory = parse_numa_maps(f"7f00 {line}\n")
    assert parse_policy(f"7f00 {line}") == policy
    assert (memory.policy, str(dict(memory.nodes))) == (policy if is_own else None, nodes)


def test_mappings_without_a_file_are_summed_and_malformed_lines_are_skipped():
    malformed = ("", "7f00", "zz stack anon=1 N0=1 kernelpagesize_kB=4", "7f00 ")
    assert [*map(parse_policy, malformed)] == [None] * 4
    memory = parse_numa_maps(
        "\n".join(malformed) + "\n"
        "1000 bind:1 file=/bin/sh\rmapped=2 N0=2 kernelpagesize_kB=4\n"
        "2000 bind:0 heap anon=1 N1=1 kernelpagesize_kB=4\n"
        "4000 bind:1 anon=3 N0=1 N1=2 kernelpagesize_kB=4\n"
        "5000 interleave:0-1 anon=2 N0=1 N1=1 kernelpagesize_kB=4\n"
        "6000 bind:1 stack anon=1 N1=1 kernelpagesize_kB=4\n"
    )
    assert memory == MemoryMap(policy="bind:1", nodes=((0, 8192), (1, 20480)))
