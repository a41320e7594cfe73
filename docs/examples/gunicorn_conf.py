"""Bind each worker of gunicorn to its own CPUs: gunicorn -c gunicorn_conf.py app:app"""

from ompbind import Request, bind_process, make_plan, read_machine

workers = 2
plan = make_plan(read_machine(), Request(ranks=workers))


def pre_fork(server, worker):
    """Give the worker the number that no other worker has; while workers are replaced, there may be none."""
    used = {other.rank for other in server.WORKERS.values()}
    worker.rank = min({*range(workers)} - used, default=worker.age % workers)


def post_fork(server, worker):
    """Bind the worker before it loads the application and its libraries."""
    bind_process(plan, worker.rank, variables="openmp")
    server.log.info("worker %s has CPUs %s", worker.rank, plan.placements[worker.rank].cpuset)
