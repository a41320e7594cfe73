from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from os import sched_getaffinity
from time import sleep

from ompbind import Request, bind_process, make_plan, read_machine


def bind_worker(plan, ranks):
    bind_process(plan, ranks.get())


def run_task(number):
    sleep(0.1)  # so that each worker gets tasks
    return number, sorted(sched_getaffinity(0))


if __name__ == "__main__":
    plan = make_plan(read_machine(), Request(ranks=2))
    context = get_context("spawn")
    ranks = context.SimpleQueue()
    for placement in plan.placements:
        ranks.put(placement.rank)
    with ProcessPoolExecutor(2, context, bind_worker, (plan, ranks)) as executor:
        for number, cpus in executor.map(run_task, range(4)):
            print(f"task {number}: CPUs {cpus}")
