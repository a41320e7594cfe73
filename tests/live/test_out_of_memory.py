"""A process that the kernel kills because its group's memory ran out, for real."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ompbind.execution.failure_hints import OUT_OF_MEMORY, find_hint
from ompbind.execution.outcome import Exited, Outcome

LIMIT = 96 << 20
"""Bytes that the group may have: enough for two interpreters."""

COUNTS = """
import os, subprocess, sys
from ompbind.machine.sources.linux.cgroup import read_oom_kills
from ompbind.machine.sources.filesystem import FolderRoot
before = read_oom_kills(FolderRoot("/"))
hog = "open('/proc/self/oom_score_adj', 'w').write('1000'); bytearray(1 << 30).replace(b'\\\\0', b'1')"
ended = subprocess.run([sys.executable, "-c", hog]).returncode if sys.argv[1:] else 0
print(before, ended, read_oom_kills(FolderRoot("/")))
"""

GROUPS = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")
"""Where a group of version 1, or of version 2, can be made."""


@pytest.fixture
def group():
    """A control group of its own whose memory is limited."""
    for top in map(Path, GROUPS):
        if (top / "memory.limit_in_bytes").exists():
            yield from made(top, {"memory.limit_in_bytes": LIMIT, "memory.memsw.limit_in_bytes": LIMIT})
            return
        if "memory" in text_of(top / "cgroup.subtree_control").split():
            yield from made(top, {"memory.max": LIMIT, "memory.swap.max": 0})
            return
    pytest.skip("there is no memory controller")


def made(top, settings):
    folder = top / f"ompbind-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"groups cannot be made here: {error}")
    try:
        for name, value in settings.items():
            if (folder / name).exists():
                (folder / name).write_text(str(value))
        yield folder
    finally:
        folder.rmdir()


def text_of(path):
    try:
        return path.read_text()
    except OSError:
        return ""


@pytest.mark.parametrize(("args", "ended", "kills"), [("hog", -9, 1), ("", 0, 0)])
def test_a_process_that_is_killed_for_memory_is_counted(group, args, ended, kills):
    script = f'echo $$ > {group}/cgroup.procs && exec "$@"'
    command = ["sh", "-c", script, "sh", sys.executable, "-c", COUNTS, *args.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.stderr, done.returncode) == ("", 0)
    before, code, after = map(int, done.stdout.split())
    assert (code, after - before) == (ended, kills)
    exited = Exited(rank=0, pid=1, code=None, signal=9)
    assert (find_hint(exited, Outcome(exits=(exited,), oom_kills=after - before)) == OUT_OF_MEMORY) == (
        kills > 0
    )
