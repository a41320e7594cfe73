"""What cgroups allow a process, and what they have counted: trees of files as text."""

import pytest

from ompbind.machine.read.linux_cgroup import Throttling, read_limits, read_oom_kills, read_throttling
from ompbind.machine.read.linux_tasks import read_task_limit
from tests.machines import DictRoot

SHORT = {
    "self": "proc/self/cgroup",
    "V2": "proc/mounts = cgroup2 /cg cgroup2 rw 0 0",
    "MOUNT": "proc/self/mountinfo = 30 20 0:26",
}


def cases(text):
    """Make cases of blocks: the first line is what is expected, the others are `PATH = lines;of;the;file`."""
    made = []
    for block in text.strip().split("\n\n"):
        expected, *lines = block.strip().splitlines()
        files = {}
        for line in lines:
            word, _, rest = line.strip().partition(" ")
            path, _, content = f"{SHORT.get(word, word)} {rest}".partition(" = ")
            content = content.replace(";", "\n") + "\n"
            files[path] = files.get(path, "") + content
        made.append((expected.partition(" #")[0].strip(), files))
    return made


@pytest.mark.parametrize(("expected", "files"), cases("""
    0-3 2.5
    self = 0::/a/b
    MOUNT / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,
    sys/fs/cgroup/cpuset.cpus.effective = 0-7
    sys/fs/cgroup/a/b/cpuset.cpus.effective = 0-3
    sys/fs/cgroup/a/cpu.max = 250000 100000
    sys/fs/cgroup/a/b/cpu.max = 400000 100000

    2-3 0.5 # the group has no cpuset controller: the nearest one above counts
    self = 0::/a/b
    V2
    cg/a/cpuset.cpus.effective = 2-3
    cg/a/cpu.max = max 100000
    cg/a/b/cpu.max = 50000 100000

    1,3 1.5 # version 1, each controller on its own; in a container the mount shows its group as root
    self = 4:cpuset:/docker/x;3:cpu,cpuacct:/docker/x
    MOUNT /docker/x /c/cpuset rw - cgroup cgroup rw,cpuset
    MOUNT /docker/x /c/cpu rw - cgroup cgroup rw,cpu,cpuacct
    c/cpuset/cpuset.cpus = 1,3
    c/cpu/cpu.cfs_quota_us = 150000
    c/cpu/cpu.cfs_period_us = 100000

    4-5 None
    proc/self/cpuset = /job
    proc/mounts = cpuset /dev/cpuset cpuset rw 0 0
    dev/cpuset/job/cpus = 4-5

    4-5 None isolated # a member of an isolated partition
    self = 0::/p/x
    V2
    cg/p/cpuset.cpus.effective = 4-5
    cg/p/cpuset.cpus.partition = isolated
    cg/p/x/cpuset.cpus.partition = member

    4 None # a partition inside, which is not isolated; a partition that the kernel refuses
    self = 0::/p/x
    V2
    cg/p/x/cpuset.cpus.effective = 4
    cg/p/cpuset.cpus.partition = isolated
    cg/p/x/cpuset.cpus.partition = isolated invalid (cpu list in cpuset.cpus not exclusive)

    0-1 None # the mount shows another group, whose name only begins alike
    self = 0::/docker/xyz
    MOUNT /docker/x /cg rw - cgroup2 cgroup2 rw,
    cg/yz/cpuset.cpus.effective = 7
    cg/docker/xyz/cpuset.cpus.effective = 0-1
"""))  # fmt: skip
def test_limits(expected, files):
    limits = read_limits(DictRoot(files))
    assert f"{limits.cpuset} {limits.quota}{' isolated' * limits.isolated}" == expected


@pytest.mark.parametrize(("expected", "files"), cases("""
    2
    self = 0::/a/b
    MOUNT / /cg rw - cgroup2 cgroup2 rw,
    cg/a/b/memory.events = low 0;high 3;max 9;oom 8;oom_kill 2;oom_group_kill 7
    cg/a/memory.events = low 0;oom_kill 5

    5 # the group has no memory controller: the nearest one above accounts for it
    self = 0::/a/b
    V2
    cg/a/memory.events = oom 8;oom_kill 5

    3 # version 1; the hierarchy of version 2 beside it has no memory
    self = 4:memory:/docker/x;1:cpu:/docker/x;0::/docker/x
    MOUNT / /cg/two rw - cgroup2 cgroup2 rw,
    MOUNT /docker/x /cg/cpu rw - cgroup cgroup rw,cpu
    MOUNT /docker/x /cg/memory rw - cgroup cgroup rw,memory
    cg/memory/memory.oom_control = oom_kill_disable 0;under_oom 0;oom_kill 3
    cg/cpu/memory.oom_control = oom_kill 4

    None # the counter of a group of version 1 excludes its descendants
    self = 4:memory:/x
    proc/mounts = cgroup /c cgroup rw,memory 0 0
    c/memory.oom_control = oom_kill_disable 0;under_oom 0;oom_kill 3

    None
    self = 0::/
    V2
    cg/memory.events = oom_kill;oom_kill x y;oom_kill -1
"""))  # fmt: skip
def test_oom_kills_are_counted_by_the_cgroup(expected, files):
    assert str(read_oom_kills(DictRoot(files))) == expected


@pytest.mark.parametrize(("expected", "files"), cases("""
    cg/a/b 10 4 2.0
    proc/7/cgroup = 0::/a/b/c
    self = 0::/other
    MOUNT / /cg rw - cgroup2 cgroup2 rw
    cg/a/b/c/cpu.stat = usage_usec 9
    cg/a/b/cpu.stat = usage_usec 9;nr_periods 8;nr_throttled 3;throttled_usec 1500000
    cg/a/cpu.stat = nr_periods 2;nr_throttled 1;throttled_usec 500000
    cg/other/cpu.stat = nr_periods 90;throttled_usec 7000000

    c/a 4 1 0.25
    proc/7/cgroup = 4:memory:/x;2:cpu,cpuacct:/a
    MOUNT / /c rw - cgroup cgroup rw,cpu,cpuacct
    MOUNT / /m rw - cgroup cgroup rw,memory
    c/a/cpu.stat = nr_periods 4;nr_throttled 1;throttled_time 250000000
    c/cpu.stat = nr_periods 0;throttled_time x
    m/x/cpu.stat = nr_periods 7;throttled_time 9000000000
"""))  # fmt: skip
def test_the_throttling_of_a_process_is_that_of_its_cgroups(expected, files):
    found = read_throttling(DictRoot(files), "7")
    text = " ".join(map(str, found.as_dict().values())) if found else "None"
    assert text == expected


def test_throttling_since_an_earlier_reading():
    before = Throttling(cgroup="c", periods=4, throttled_periods=1, throttled_s=0.25)
    after = Throttling(cgroup="c", periods=10, throttled_periods=4, throttled_s=1.0)
    assert after.since(before) == Throttling(cgroup="c", periods=6, throttled_periods=3, throttled_s=0.75)
    assert before.since(after) == Throttling(cgroup="c")  # the cgroup was created again


USER = "status = Name: x;Uid:\t7 0 0 0;CapEff: 0000000000000000;Threads: 3"


@pytest.mark.parametrize(("expected", "files"), cases(f"""
    pids.max of /cg/a leaves 12 of 20 processes and threads # an ancestor's limit is smaller
    self = 0::/a/b
    V2
    cg/a/pids.max = 20
    cg/a/pids.current = 8
    cg/a/b/pids.max = 100
    cg/a/b/pids.current = 8
    proc/sys/kernel/pid_max = 32768

    pids.max of /c leaves 0 of 5 processes and threads # version 1
    self = 8:pids:/docker/x;1:cpu:/docker/x
    MOUNT /docker/x /c rw - cgroup cgroup rw,pids
    c/pids.max = 5
    c/pids.current = 6

    kernel.pid_max leaves 32768 of 32768 processes and threads # no limit of the cgroup
    self = 0::/a
    V2
    cg/a/pids.max = max
    proc/sys/kernel/pid_max = 32768

    kernel.threads-max leaves 200 of 500 processes and threads
    proc/loadavg = 0.1 0.2 0.3 1/300 999
    proc/sys/kernel/threads-max = 500
    proc/sys/kernel/pid_max = 32768

    'ulimit -u' (RLIMIT_NPROC) of user 7 leaves 14 of 20 processes and threads # only tasks of this user count
    proc/self/limits = Limit Soft Hard Units;Max processes    20   unlimited  processes
    proc/loadavg = 0.1 0.2 0.3 1/300 999
    proc/self/{USER}
    proc/80/{USER}
    proc/81/{USER}
    proc/82/status = Uid: 0 7 7 7;Threads: 50

    None # CAP_SYS_RESOURCE
    proc/self/limits = Max processes 20 20 processes
    proc/self/status = Uid: 7 7 7 7;CapEff: 0000000001000000

    None # root
    proc/self/limits = Max processes 20 20 processes
    proc/self/status = Uid: 0 7 7 7;CapEff: 0000000000000000

    'ulimit -u' (RLIMIT_NPROC) of user 0 leaves 17 of 20 processes and threads # root of a user namespace
    proc/self/limits = Max processes 20 20 processes
    proc/self/uid_map =          0      65534          1
    proc/self/status = Uid: 0 0 0 0;CapEff: 000001ffffffffff
    proc/80/status = Uid: 0 0 0 0;Threads: 3

    None
    proc/self/limits = Max processes unlimited unlimited processes
    proc/self/{USER}

    None # malformed
    proc/self/limits = Max processes
    proc/self/status = Uid:;CapEff: x
    proc/loadavg = /
    proc/sys/kernel/pid_max = many
"""))  # fmt: skip
def test_the_limit_with_the_fewest_tasks_left_counts(expected, files):
    assert str(read_task_limit(DictRoot(files))) == expected
