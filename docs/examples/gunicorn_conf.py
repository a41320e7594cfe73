"""Bind each worker of gunicorn to its own CPUs: gunicorn -c gunicorn_conf.py -w 2 app:app"""

from ompbind import Request, Sharing, bind_process, make_plan, read_machine


def on_starting(server):
    """Plan for all workers; more workers than CPUs share them."""
    request = Request(ranks=server.cfg.workers, sharing=Sharing.SHARE)
    server.plan = make_plan(read_machine(), request)


def pre_fork(server, worker):
    """Give the worker the number that no other worker has; while workers are replaced, there may be none."""
    used = {other.rank for other in server.WORKERS.values()}
    number = server.cfg.workers
    worker.rank = min({*range(number)} - used, default=worker.age % number)


def post_fork(server, worker):
    """Bind the worker before it loads the application and its libraries."""
    bind_process(server.plan, worker.rank, variables="openmp")
    server.log.info("worker %s has CPUs %s", worker.rank, server.plan.placements[worker.rank].cpuset)
