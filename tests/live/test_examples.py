"""The programs of docs/examples/ run, bind their workers, and leave the program itself as it was."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ompbind import Request, make_plan, read_machine
from tests.live.conftest import OMPBIND, allowed_list, clean_environment, two_cpus
from tests.live.runtimes import cpus_of, needs_packages

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "docs/examples"


def start_example(name, before=(sys.executable,), **env):
    env = clean_environment(PYTHONPATH=str(ROOT), **env)
    done = subprocess.run([*before, EXAMPLES / name], capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    return done


PLACEMENTS = make_plan(read_machine(), Request(ranks=len(two_cpus()))).placements
LINES = [
    f"rank {placement.rank}: CPUs {list(placement.cpuset)}, threads {placement.threads}"
    for placement in PLACEMENTS
]
"""What examples print about two ranks."""


def test_the_workers_of_the_executor_are_bound():
    assert start_example("executor.py").stdout.splitlines() == LINES


def test_each_task_of_a_pool_runs_on_all_cpus_of_a_rank():
    done = start_example("futures_pool.py")
    found = re.findall(r"task (\d): CPUs (.*)", done.stdout)
    assert [number for number, _ in found] == list("0123")
    assert {cpus for _, cpus in found} <= {str(list(placement.cpuset)) for placement in PLACEMENTS}
    assert done.stderr == ""


ON_LOOPBACK = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else Ray replaces 127.0.0.1 with an address of the network
    "RAY_USAGE_STATS_ENABLED": "0",
}


@pytest.mark.part("ray")
def test_the_actors_of_ray_are_bound():
    needs_packages("ray")
    # The paths of its sockets must be short.
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as directory:
        done = start_example("ray_actors.py", HOME=directory, RAY_TMPDIR=directory, **ON_LOOPBACK)
    assert done.stdout.splitlines() == LINES


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
    needs_packages("ray")
    command = shlex.join([OMPBIND, *["exec", "-c", "1", "--avoid", "--"], sys.executable])
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as directory:
        env = clean_environment(HOME=directory, RAY_TMPDIR=directory, **ON_LOOPBACK)
        words = [sys.executable, "-c", ACTORS, command]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=env)
    masks = json.loads(done.stdout or "[]")
    assert [len(each) for each in masks] == [1, 1], done.stderr
    (first,), (second,) = masks
    assert first
    assert second
    assert not {*first} & {*second}


@pytest.mark.part("torch")
def test_the_ranks_of_torchrun_are_bound():
    needs_packages("torch")
    torchrun = (Path(sys.executable).with_name("torchrun"), "--standalone", "--local-addr", "127.0.0.1")
    # torchrun starts Python without buffers: the end of a line can follow the line of the other rank.
    env = {"GLOO_SOCKET_IFNAME": "lo", "PYTHONUNBUFFERED": ""}
    done = start_example("torchrun_train.py", before=(*torchrun, "--nproc-per-node", "2"), **env)
    assert sorted(re.findall(r"rank \d+: CPUs \[[\d, ]+\], threads \d+", done.stdout)) == LINES


SERVER = """
import os, signal, threading
# before any library starts a thread, which inherits this mask
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
import torch
matrix, over, begun = torch.rand(256, 256), threading.Event(), threading.Semaphore(0)
def serve(number):
    if number < 3:
        torch.mm(matrix, matrix)
    begun.release()
    over.wait()
torch.mm(matrix, matrix)
for number in range(20):
    threading.Thread(target=serve, args=(number,)).start()
    begun.acquire()
os.write(1, f"{os.getpid()}\\n".encode())
signal.sigwait({signal.SIGTERM})
over.set()
"""


@pytest.mark.part("torch")
@pytest.mark.parametrize("ranks", [1, 2])
def test_every_thread_of_a_torch_server_has_its_ranks_cpus(start, ranks):
    needs_packages("torch")
    cpus = two_cpus()
    mask = (",", "|")[ranks - 1].join(map(str, cpus))
    run = start("run", "-n", str(ranks), "-m", mask, "--", sys.executable, "-c", SERVER)
    pids = [int(run.stdout.readline()) for _ in range(ranks)]
    seen = []
    for pid in pids:
        tasks = os.listdir(f"/proc/{pid}/task")
        assert len(tasks) > 20
        (found,) = {cpus_of(allowed_list(pid, task)) for task in tasks}
        seen.append(sorted(found))
    assert sorted(seen) == ([cpus] if ranks == 1 else [[cpu] for cpu in cpus])
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    assert run.wait(20) == 0
