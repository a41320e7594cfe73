"""Slurm with and without cgroups, where a job has a part of the machine: allocation, binding, number of CPUs.

Each machine boots once for a task plugin, with eight CPUs on two sockets.
"""

import functools
import json
import shlex
import sys

import pytest

from tests.live.conftest import OMPBIND, required
from tests.slurm import PROGRAMS
from tests.tables import rows
from tests.vm.conftest import HERE, run_in_machine

pytestmark = pytest.mark.part("vm")

SHOW = "sh -c 'sleep 2; echo $RANK $OMPBIND_CPUS $OMPBIND_NUM_THREADS'"


def join(text, ranks):
    return ", ".join(text.format(rank) for rank in range(ranks))


STEPS = rows(f"""
    task/affinity | srun -n4 --cpu-bind=none              | 0 0 1, 1 1 1, 2 2 1, 3 3 1
    task/affinity | srun -n4 --cpu-bind=cores             | 0 0 1, 1 1 1, 2 2 1, 3 3 1
    task/affinity | srun -n4 --cpu-bind=sockets           | 0 0 1, 1 1 1, 2 2 1, 3 3 1
    task/affinity | srun -n4 --cpu-bind=mask_cpu:0x3,0xc  | 0 0 1, 1 2 1, 2 1 1, 3 3 1
    task/affinity | srun -n2 -c2 --cpu-bind=none          | 0 0-1 2, 1 2-3 2
    task/affinity | salloc -Q -n4 srun -n8 -O             | {join("{0} 0-3 4", 8)}
    task/cgroup   | srun -n4                              | 0 0 1, 1 1 1, 2 2 1, 3 3 1
    task/cgroup   | srun -n2 -c2                          | 0 0-1 2, 1 2-3 2
    task/cgroup,task/affinity | srun -n4 --cpu-bind=none  | 0 0 1, 1 1 1, 2 2 1, 3 3 1
    task/cgroup,task/affinity | srun -n4 --cpu-bind=cores | 0 0 1, 1 1 1, 2 2 1, 3 3 1
    task/none     | srun -n4                              | {join("{0} 0-7 1", 4)}
    task/none     | srun -n2 -c2                          | 0 0-7 2, 1 0-7 2
    task/none     | srun -n8                              | {join("{0} {0} 1", 8)}
""")


PREPARE = """
ip link set lo up && ip addr add 192.0.2.1/24 dev lo &&
echo "127.0.0.1 localhost $(hostname)" >/etc/hosts &&
mount -t tmpfs none /sys/fs/cgroup && cd /sys/fs/cgroup && mkdir systemd cpuset freezer &&
mount -t cgroup -o none,name=systemd none systemd &&
mount -t cgroup -o cpuset none cpuset && mount -t cgroup -o freezer none freezer
"""
"""Slurm needs another address than that of loopback, and cgroups of version 1, which need no systemd."""

INSIDE = f"""
import json, os, pathlib, subprocess, sys, tempfile
sys.path.insert(0, {str(HERE.parent.parent)!r})
from tests.slurm import start_slurm
plugin, commands = json.loads(sys.argv[1])
subprocess.run(["sh", "-c", {PREPARE!r}], check=True)
directory, found = pathlib.Path(tempfile.mkdtemp()), []
directory.chmod(0o755)
how = dict(plugin=plugin, patience_s=180)
with start_slurm(directory, dict(os.environ), **how) as env:
    for command in commands:
        done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, text=True, timeout=120)
        found.append([sorted(done.stdout.splitlines()), done.stderr, done.returncode])
print(json.dumps(found))
"""


@functools.cache
def run_steps(plugin):
    for name in PROGRAMS:
        required(name)
    steps = [step for name, step, _ in STEPS if name == plugin]
    task = json.dumps([plugin, [f"{step} {shlex.quote(OMPBIND)} exec -- {SHOW}" for step in steps]])
    machine = ("--topology", "sockets=2,cores=4,threads=1,numa=2")
    output = run_in_machine(machine, sys.executable, "-c", INSIDE, task, limit_s=400)
    return dict(zip(steps, json.loads(output.splitlines()[-1]), strict=True))


@pytest.mark.parametrize(
    ("plugin", "step", "expected"),
    [pytest.param(*row, marks=pytest.mark.xdist_group(row[0]), id=" ".join(row[:2])) for row in STEPS],
)
def test_ranks_divide_the_cpus_of_their_job(plugin, step, expected):
    lines, messages, code = run_steps(plugin)[step]
    assert (code, lines) == (0, expected.split(", ")), messages
    words = " ".join(messages.split())
    assert ("this job may use" in words) == ("0-7" in expected)
    assert "in another way" not in words
    assert ("their threads will compete" in words) == ("-O" in step)
