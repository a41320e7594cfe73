"""A server with torch and plain threads, some of which multiply: all are allowed on their rank's CPUs."""

import os
import signal
import sys

import pytest

from tests.live.conftest import allowed_list, two_cpus
from tests.live.runtimes import cpus_of, needs_packages

pytestmark = pytest.mark.part("torch")

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


@pytest.mark.parametrize("ranks", [1, 2])
def test_every_thread_has_its_ranks_cpus(start, ranks):
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
