"""Bind each process of a Celery worker to its own CPUs: celery -A celery_app worker -c 2"""

import os

from celery import Celery
from celery.signals import worker_process_init

from ompbind import Request, bind_process, make_plan, read_machine

PROCESSES = 2
plan = make_plan(read_machine(), Request(ranks=PROCESSES))
app = Celery("celery_app", broker=os.environ.get("BROKER", "memory://"))


@worker_process_init.connect
def bind(**_):
    """Bind this process of the pool; Celery counts from 0, and a new process keeps the number."""
    from billiard.process import current_process

    bind_process(plan, current_process().index % PROCESSES, variables="openmp")
