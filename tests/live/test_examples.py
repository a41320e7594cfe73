"""The programs of docs/examples/ run, bind their workers, and leave the program itself as it was."""

import json
import re
import shlex
import sys
import tempfile
from pathlib import Path

import pytest

from ompbind import Request, make_plan, read_machine
from tests.live.conftest import OMPBIND, run_program, two_cpus
from tests.live.runtimes import needs_packages
from tests.packaging.scripts import ROOT


def start_example(name, before=(sys.executable,), **env):
    env = {"PYTHONPATH": str(ROOT), **env}
    done = run_program(*before, ROOT / "docs/examples" / name, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    return done


PLACEMENTS = make_plan(read_machine(), Request(ranks=len(two_cpus()))).placements
LINES = [f"rank {each.rank}: CPUs {list(each.cpuset)}, threads {each.threads}" for each in PLACEMENTS]
"""What examples print about two ranks."""


def test_each_task_of_a_pool_runs_on_all_cpus_of_a_rank():
    done = start_example("futures_pool.py")
    found = re.findall(r"task (\d): CPUs (.*)", done.stdout)
    assert [number for number, _ in found] == list("0123")
    assert {cpus for _, cpus in found} <= {str(list(placement.cpuset)) for placement in PLACEMENTS}
    assert done.stderr == ""


ACTORS = """\
import json, os, sys, ray

@ray.remote(num_cpus=1)
class Worker:
    def read_masks(self):
        tids = map(int, os.listdir("/proc/self/task"))
        return sorted({tuple(sorted(os.sched_getaffinity(tid))) for tid in tids})

ray.init(include_dashboard=False, num_cpus=2)
options = {"runtime_env": {"py_executable": sys.argv[1]}}
workers = [Worker.options(**options).remote() for _ in range(2)]
print(json.dumps(ray.get([worker.read_masks.remote() for worker in workers], timeout=60)))
"""


@pytest.mark.part("ray")
def test_ompbind_exec_as_the_python_of_actors_binds_them():
    """The path of the directory of Ray must be short for its sockets."""
    needs_packages("ray")
    command = shlex.join([OMPBIND, "exec", "-c", "1", "--avoid", "--", sys.executable])
    # else Ray replaces 127.0.0.1 with an address of the network
    env = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as directory:
        env |= {"HOME": directory, "RAY_TMPDIR": directory}
        done = run_program(sys.executable, "-c", ACTORS, command, timeout=120, env=env)
    masks = json.loads(done.stdout or "[]")
    assert [len(each) for each in masks] == [1, 1], done.stderr
    first, second = ({*cpus} for (cpus,) in masks)
    assert (bool(first), bool(second), first & second) == (True, True, set())


@pytest.mark.part("torch")
def test_the_ranks_of_torchrun_are_bound():
    needs_packages("torch")
    torchrun = (Path(sys.executable).with_name("torchrun"), "--standalone", "--local-addr", "127.0.0.1")
    # torchrun starts Python without buffers: the end of a line can follow the line of the other rank.
    env = {"GLOO_SOCKET_IFNAME": "lo", "PYTHONUNBUFFERED": ""}
    done = start_example("torchrun_train.py", before=(*torchrun, "--nproc-per-node", "2"), **env)
    assert sorted(re.findall(r"rank \d+: CPUs \[[\d, ]+\], threads \d+", done.stdout)) == LINES
