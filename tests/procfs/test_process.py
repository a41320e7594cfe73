"""Parsing of files below /proc/PID, and the process tree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.procfs import parsers
from ompbind.procfs.parsers import parse_stat
from tests.tables import rows

FIELDS = b"S 10 11 12 0 -1 %d 1 2 3 4 150 50 0 0 20 0 1 0 777 " + b" ".join(b"%d" % i for i in range(20, 50))


def stat(name=b"python", flags=0x400000):
    return b"5 (" + name + b") " + FIELDS % flags + b"\n"


def test_a_stat_file_is_read():
    parsed = parse_stat(stat())
    assert (parsed.name, parsed.state, parsed.is_kernel) == ("python", "S", False)
    assert (parsed.parent, parsed.group, parsed.session) == (10, 11, 12)
    assert (parsed.busy_ticks, parsed.start_ticks, parsed.cpu, parsed.policy) == (200, 777, 36, "38")
    assert parsed.arguments == (45, 46)
    assert parse_stat(stat(flags=0x200000)).is_kernel
    assert parse_stat(stat(flags=0x04000000 | 0x10)).has_fixed_affinity, "a worker of io_uring"
    assert not parsed.has_fixed_affinity
    for truncated in (b"", b"5 (a", b"5 (a) ", b"5 (a) S 1 2 3"):
        with pytest.raises(ValueError, match="truncated"):
            parse_stat(truncated)


NAMES = [(b"a) R 1 (b", "a) R 1 (b"), (b"((((", "(((("), (b") S 1 1 1", ") S 1 1 1"), (b"", ""), (b" ", " "),
         (b"new\nline", "new?line"), (b"\x1b[2J", "?[2J"), (b"\xff\xfe", "\ufffd\ufffd")]  # fmt: skip


@pytest.mark.parametrize(("name", "shown"), NAMES)
def test_a_name_in_a_stat_file_may_have_any_characters(name, shown):
    parsed = parse_stat(stat(name))
    assert (parsed.name, parsed.parent) == (shown, 10)


def test_values_of_a_status_file():
    text = "Name:\ta PPid: 7\nState:\tS (sleeping)\nPPid:\t12\nGroups:\t \nCpus_allowed_list:\t0-3,8\n"
    values = {"Name": "a PPid: 7", "State": "S (sleeping)", "PPid": "12", "Groups": "", "Pid": None,
              "Cpus_allowed_list": "0-3,8", "Cpus_allowed": None, "": None}  # fmt: skip
    assert {key: parsers.status_value(text, key) for key in values} == values


def test_command_lines_and_environments():
    words = {b"": (), b"sleep\x0060\0": ("sleep", "60"), b"printf\0\0": ("printf", ""),
             b"a title": ("a title",), b"a title\0\0\0": ("a title",), b"\xff\0": ("\ufffd",)}  # fmt: skip
    assert {data: parsers.parse_command(data) for data in words} == words
    variables = {b"": {}, b"A=1\0B=x=y\0C=\0": {"A": "1", "B": "x=y", "C": ""}, b"A=\xff\0": {"A": "\udcff"},
                 b"server: idle\0\0\0MP_NUM_THREADS=4\0": {"MP_NUM_THREADS": "4"}}  # fmt: skip
    assert {data: parsers.parse_environ(data) for data in variables} == variables


def test_a_title_over_the_environment_is_recognized():
    """Perl fills the rest with spaces."""
    titles = (b"\0\0\0\0", b"\0\0\0B=2\0", b"rver: idle\0\0B=2\0", b"x=1 x=1\0\0\0", b"   \0B=2\0")
    for environ in (b"", b"A=1\0B=\0", b"A=1\0no value\0", *titles):
        assert parsers.is_overwritten(environ) == (environ in titles), environ


MAPS = b"""\
55d0-55d1 r--p 00000000 08:01 11                         /usr/bin/python3.11
7f00-7f01 r--p 00000000 08:01 22                         /lib/libgomp.so.1
7f01-7f02 r-xp 00001000 08:01 22                         /lib/libgomp.so.1
7f02-7f03 r--p 00000000 08:01 22                         /other name/libgomp.so.1
7f03-7f04 r--p 00000000 08:02 22                         /lib/libgomp.so.1 (deleted)
7f04-7f05 rw-p 00000000 00:00 0
7ffd-7ffe rw-p 00000000 00:00 0                          [stack]
"""


def test_mapped_files_are_kept_once():
    found = parsers.parse_maps(MAPS, lambda path: "gomp" in path)
    assert found == ("/lib/libgomp.so.1", "/lib/libgomp.so.1 (deleted)")


def test_run_delays():
    assert parsers.parse_run_delay_s(b"134936011 1868562026 37\n") == 1.868562026
    assert (parsers.parse_run_delay_s(b""), parsers.parse_run_delay_s(b"0 0 0\n")) == (None, 0.0)


TREES = st.dictionaries(st.integers(1, 30), st.integers(0, 30), max_size=30)


@given(TREES, st.sets(st.integers(1, 30)))
def test_descendants_are_all_processes_below_a_root(parents, roots):
    processes = {pid: parse_stat(stat()).replace(parent=parent) for pid, parent in parents.items()}

    def find_root(pid):
        seen = set()
        while pid not in roots and pid in parents and pid not in seen:
            seen.add(pid)
            pid = parents[pid]
        return pid if pid in roots else None

    expected = {pid: root for pid in {*parents, *roots} if (root := find_root(pid))}
    assert parsers.find_owners(processes, {root: root for root in roots}) == expected
    assert parsers.find_descendants(processes, roots) == set(expected)


@pytest.mark.parametrize(("line", "policy", "is_own", "nodes"), rows("""
    default | default |  | {}
    bind:0-1 heap anon=3 N0=1 N1=2 kernelpagesize_kB=4 | bind:0-1 | yes | {0: 4096, 1: 8192}
    prefer (many):0,2 stack anon=3 N2=3 kernelpagesize_kB=64 | prefer (many):0,2 | yes | {2: 196608}
    weighted interleave=static:0 anon=1 N1=1 kernelpagesize_kB=4 | weighted interleave=static:0 |  | {1: 4096}
    bind=static|balancing:0 heap | bind=static|balancing:0 | yes | {}
    local file=/a\\040(deleted) huge anon=2 N0=1 kernelpagesize_kB=2048 | local |  | {}
    default file=/a/N1=7\\040N2=3 mapped=1 N0=1 kernelpagesize_kB=4 | default |  | {}
"""))  # fmt: skip
def test_a_line_is_read(line, policy, is_own, nodes):
    memory = parsers.parse_numa_maps(f"7f00 {line}\n")
    assert parsers.parse_policy(f"7f00 {line}") == policy
    assert (memory.policy, str(dict(memory.nodes))) == (policy if is_own else None, nodes)


def test_mappings_without_a_file_are_summed_and_malformed_lines_are_skipped():
    malformed = ("", "7f00", "zz stack anon=1 N0=1 kernelpagesize_kB=4", "7f00 ")
    assert [*map(parsers.parse_policy, malformed)] == [None] * 4
    memory = parsers.parse_numa_maps(
        "\n".join(malformed) + "\n"
        "1000 bind:1 file=/bin/sh\rmapped=2 N0=2 kernelpagesize_kB=4\n"
        "2000 bind:0 heap anon=1 N1=1 kernelpagesize_kB=4\n"
        "4000 bind:1 anon=3 N0=1 N1=2 kernelpagesize_kB=4\n"
        "5000 interleave:0-1 anon=2 N0=1 N1=1 kernelpagesize_kB=4\n"
        "6000 bind:1 stack anon=1 N1=1 kernelpagesize_kB=4\n"
    )
    assert memory == parsers.MemoryMap(policy="bind:1", nodes=((0, 8192), (1, 20480)))
