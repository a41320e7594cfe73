"""Start a worker for each rank, and run a function in all workers at the same time."""

import multiprocessing
import os

from ompbind import Request, make_plan, placed, read_machine


def run_worker(connection):
    """Run tasks until there are no more."""
    for function, args in iter(connection.recv, None):
        connection.send(function(*args))


def start_worker(plan, rank):
    """Start a worker on the CPUs of a rank, and return it with the connection to it."""
    connection, other_end = multiprocessing.Pipe()
    with placed(plan, rank, variables="openmp"):  # threads and places, not RANK and WORLD_SIZE
        worker = multiprocessing.Process(target=run_worker, args=(other_end,), daemon=True)
        worker.start()
    return worker, connection


def describe_worker():
    return sorted(os.sched_getaffinity(0)), os.environ["OMP_NUM_THREADS"]


if __name__ == "__main__":
    plan = make_plan(read_machine(), Request(ranks=2))
    workers = [start_worker(plan, placement.rank) for placement in plan.placements]
    for _, connection in workers:
        connection.send((describe_worker, ()))
    for rank, (worker, connection) in enumerate(workers):
        cpus, threads = connection.recv()
        print(f"rank {rank}: CPUs {cpus}, threads {threads}")
        connection.send(None)
        worker.join()
