import os

import ray

from ompbind import Request, bind_process, make_environment, make_plan, read_machine


@ray.remote
class Worker:
    def __init__(self, plan, rank):
        bind_process(plan, rank, variables="openmp")

    def run_task(self):
        return sorted(os.sched_getaffinity(0)), os.environ["OMP_NUM_THREADS"]


if __name__ == "__main__":
    plan = make_plan(read_machine(), Request(ranks=2))
    ray.init(include_dashboard=False)
    workers = []
    for placement in plan.placements:
        variables = make_environment(plan, placement.rank, {}, variables="openmp")
        options = {"runtime_env": {"env_vars": variables}}
        workers.append(Worker.options(**options).remote(plan, placement.rank))
    for rank, (cpus, threads) in enumerate(ray.get([worker.run_task.remote() for worker in workers])):
        print(f"rank {rank}: CPUs {cpus}, threads {threads}")
