from os import sched_getaffinity
from time import sleep

from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky.backend import get_context

from ompbind import Request, bind_process, make_plan, read_machine


def bind_worker(plan, ranks):
    bind_process(plan, ranks.get())


def run_task(number):
    sleep(0.1)  # so that each worker gets tasks
    return number, sorted(sched_getaffinity(0))


if __name__ == "__main__":
    plan = make_plan(read_machine(), Request(ranks=2))
    ranks = get_context("loky").SimpleQueue()
    for placement in plan.placements:
        ranks.put(placement.rank)
    with parallel_config("loky", n_jobs=2, initializer=bind_worker, initargs=(plan, ranks)):
        for number, cpus in Parallel()(delayed(run_task)(number) for number in range(4)):
            print(f"task {number}: CPUs {cpus}")
