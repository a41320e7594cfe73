"""Start workers as vLLM does: a spawned EngineCore process starts a daemon worker for each rank.

Usage: executor.py [spawn|forkserver|fork] [WORKERS] [EngineCore processes]
"""

import multiprocessing
import os
import sys
from importlib.util import find_spec

from ompbind import Request, Sharing, bind_process, make_plan, placed, read_machine

SETTINGS = {"variables": "openmp", "extra": {"TORCHINDUCTOR_COMPILE_THREADS": "1"}}
"""Variables of workers: threads and places, not RANK and WORLD_SIZE, and a variable of torch."""


def run_worker(connection, plan, rank):
    """Bind this process before it loads libraries, then run tasks until there are no more."""
    bind_process(plan, rank, **SETTINGS)  # a worker that was spawned as below is bound already
    for function, args in iter(connection.recv, None):
        connection.send(function(*args))


class Executor:
    """Workers, one for each rank of a plan, which run tasks at the same time."""

    def __init__(self, plan, method):
        self.context = multiprocessing.get_context(method)
        self.workers = [self.start_worker(plan, placement.rank) for placement in plan.placements]

    def start_worker(self, plan, rank):
        """Start a worker and return it with the connection to it."""
        connection, other_end = self.context.Pipe()
        worker = self.context.Process(target=run_worker, args=(other_end, plan, rank), daemon=True)
        if self.context.get_start_method() == "spawn":
            with placed(plan, rank, **SETTINGS):
                worker.start()
        else:
            worker.start()
        other_end.close()
        return worker, connection

    def run_task(self, function, *args):
        """Call a function in all workers and return the results in the order of ranks."""
        for _, connection in self.workers:
            connection.send((function, args))
        return [connection.recv() for _, connection in self.workers]

    def stop(self):
        """Stop all workers and wait until they have exited."""
        for worker, connection in self.workers:
            connection.send(None)
            worker.join()
            connection.close()


def describe_worker():
    """Return the CPUs of this worker, and the threads that it computes with."""
    threads = int(os.environ["OMP_NUM_THREADS"])
    if find_spec("torch"):
        import torch

        torch.ones(256, 256) @ torch.ones(256, 256)
        threads = torch.get_num_threads()
    return sorted(os.sched_getaffinity(0)), threads


def run_engine_core(pipe, method, workers, task):
    """Divide the CPUs of this process among workers, and send what the task returns in each worker."""
    plan = make_plan(read_machine(), Request(ranks=workers, sharing=Sharing.SHARE))
    executor = Executor(plan, method)
    pipe.send(executor.run_task(task))
    executor.stop()


def run_engine_cores(method="spawn", workers=2, count=1, task=describe_worker):
    """Start EngineCore processes side by side on different CPUs, and return the results of their workers."""
    plan = make_plan(read_machine(), Request(ranks=count))
    started = []
    for placement in plan.placements:
        receiver, sender = multiprocessing.Pipe(duplex=False)
        with placed(plan, placement.rank, variables="openmp"):
            process = multiprocessing.Process(target=run_engine_core, args=(sender, method, workers, task))
            process.start()
        sender.close()
        started.append((process, receiver))
    results = [receiver.recv() for _, receiver in started]
    for process, _ in started:
        process.join()
    return results


if __name__ == "__main__":
    for results in run_engine_cores(*sys.argv[1:2], *map(int, sys.argv[2:4])):
        for rank, (cpus, threads) in enumerate(results):
            print(f"rank {rank}: CPUs {cpus}, threads {threads}")
