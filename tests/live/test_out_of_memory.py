"""A process that the kernel kills because the memory of its cgroup ran out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ompbind.execution.outcome import OUT_OF_MEMORY, Outcome, RankExit, find_hint

LIMIT = 96 << 20
"""Bytes that the cgroup may have: enough for two interpreters."""

COUNTS = """
import os, subprocess, sys
from ompbind.machine.sources.linux.cgroup import read_oom_kills
from ompbind.machine.sources.root import DirectoryRoot
before = read_oom_kills(DirectoryRoot("/"))
hog = "open('/proc/self/oom_score_adj', 'w').write('1000'); bytearray(1 << 30).replace(b'\\\\0', b'1')"
status = subprocess.run([sys.executable, "-c", hog]).returncode if sys.argv[1:] else 0
print(before, status, read_oom_kills(DirectoryRoot("/")))
"""

GROUPS = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")
"""Parent directories for a cgroup of version 1 and of version 2."""


@pytest.fixture
def group():
    """Create a cgroup with limited memory."""
    for top in map(Path, GROUPS):
        if (top / "memory.limit_in_bytes").exists():
            yield from make_group(top, {"memory.limit_in_bytes": LIMIT, "memory.memsw.limit_in_bytes": LIMIT})
            return
        if "memory" in read_text(top / "cgroup.subtree_control").split():
            yield from make_group(top, {"memory.max": LIMIT, "memory.swap.max": 0})
            return
    pytest.skip("there is no memory controller")


def make_group(top, settings):
    group = top / f"ompbind-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be created here: {error}")
    try:
        for name, value in settings.items():
            if (group / name).exists():
                (group / name).write_text(str(value))
        yield group
    finally:
        group.rmdir()


def read_text(path):
    try:
        return path.read_text()
    except OSError:
        return ""


@pytest.mark.parametrize(("args", "status", "kills"), [("hog", -9, 1), ("", 0, 0)])
def test_an_out_of_memory_kill_is_counted(group, args, status, kills):
    script = f'echo $$ > {group}/cgroup.procs && exec "$@"'
    command = ["sh", "-c", script, "sh", sys.executable, "-c", COUNTS, *args.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.stderr, done.returncode) == ("", 0)
    before, code, after = map(int, done.stdout.split())
    assert (code, after - before) == (status, kills)
    exited = RankExit(rank=0, pid=1, code=None, signal=9)
    assert (find_hint(exited, Outcome(exits=(exited,), oom_kills=after - before)) == OUT_OF_MEMORY) == (
        kills > 0
    )
