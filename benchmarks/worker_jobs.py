"""The programs of workers.py: each starts two workers, which compute with numpy, torch or scikit-learn.

python worker_jobs.py NAME     joblib, sklearn, dask, pool, ray, train (a process of accelerate, torchrun)
gunicorn -w 2 worker_jobs:serve        celery -A worker_jobs worker -c 2        pytest -n 2 worker_jobs.py
"""

import os
import sys

import numpy

TASKS = 100
WORKERS = 2


def multiply(seed):
    """Multiply matrices with numpy's BLAS, a task of a tenth of a second or so."""
    matrix = numpy.random.default_rng(seed).random((500, 500))
    for _ in range(10):
        matrix = matrix @ matrix
        matrix /= matrix.max()
    return float(matrix.sum())


def run_joblib():
    from joblib import Parallel, delayed

    Parallel(n_jobs=WORKERS)(delayed(multiply)(seed) for seed in range(TASKS))


def run_sklearn():
    from sklearn.datasets import make_classification
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import cross_val_score

    data = make_classification(3000, 20, random_state=0)
    cross_val_score(HistGradientBoostingClassifier(max_iter=100), *data, cv=4, n_jobs=-1)


def run_dask():
    from dask.distributed import Client

    with Client(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as client:
        client.gather(client.map(multiply, range(TASKS)))


def run_pool():
    from multiprocessing import get_context

    with get_context("spawn").Pool(WORKERS) as pool:
        pool.map(multiply, range(TASKS), chunksize=1)


def run_ray():
    import ray

    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    task = ray.remote(multiply)
    ray.get([task.remote(seed) for seed in range(TASKS)])


def run_train():
    """Train as one of WORLD_SIZE processes, which add up their gradients after each step."""
    import torch

    torch.distributed.init_process_group("gloo")
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512))
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(60):
        optimizer.zero_grad()
        model(torch.ones(256, 512)).square().mean().backward()
        optimizer.step()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def serve(environ, start_response):
    """Answer a request of gunicorn with some matrix products of torch."""
    import torch

    matrix = torch.ones(400, 400)
    for _ in range(20):
        matrix = matrix @ matrix / 400
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"done\n"]


try:
    from celery import Celery
except ImportError:
    celery = None
else:
    _directory = os.environ.get("WORKER_JOBS", "")
    app = celery = Celery("worker_jobs", broker="filesystem://", backend=f"file://{_directory}/results")
    app.conf.broker_transport_options = {
        f"{name}_folder{end}": f"{_directory}/queue"
        for name, end in (("data", "_in"), ("data", "_out"), ("control", ""))
    }
    app.conf.worker_hijack_root_logger = False
    multiply_later = app.task(multiply, name="multiply")


def test_numbers(seed):
    multiply(seed)


def pytest_generate_tests(metafunc):
    """Make TASKS tests of one."""
    metafunc.parametrize("seed", range(TASKS))


if __name__ == "__main__":
    globals()[f"run_{sys.argv[1]}"]()
