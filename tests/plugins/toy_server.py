"""A server as vLLM is to its plug-ins: it loads them in each process, and starts workers in its engine.

toy_server.py WORKERS [REPLICA]
"""

import json
import logging
import multiprocessing
import os
import sys
from contextlib import contextmanager, suppress
from importlib.metadata import entry_points
from types import ModuleType, SimpleNamespace

NAMES = """
OMP_NUM_THREADS OMP_PLACES GOMP_CPU_AFFINITY RANK MARK OMPBIND_CPUS OMPBIND_SERVICE_CPUS OMPBIND_RANK
"""


class OMPProcessManager:
    def __init__(self, config):
        pass

    @contextmanager
    def configure_omp_envs(self, rank, local_rank):
        yield


class ParallelConfig:
    local_world_size = int(sys.argv[1])
    data_parallel_size = data_parallel_size_local = 1
    data_parallel_rank_local = int(sys.argv[2]) if len(sys.argv) > 2 else None
    assigned_physical_gpu_ids = data_parallel_rank_local and [data_parallel_rank_local]
    _api_process_count = 2


def add_vllm():
    for name in ("vllm", "vllm.utils", "vllm.config", "vllm.utils.ompmultiprocessing"):
        sys.modules[name] = ModuleType(name)
    sys.modules["vllm.config"].ParallelConfig = ParallelConfig
    home = sys.modules["vllm.utils.ompmultiprocessing"]
    home.OMPProcessManager = OMPProcessManager
    home.current_platform = SimpleNamespace(is_cpu=lambda: True)
    if os.environ.get("TOY") == "older":
        OMPProcessManager.__init__ = lambda self, affinity: None
    if os.environ.get("TOY") == "newer":
        del ParallelConfig.data_parallel_rank_local
    return home


def load_plugins():
    for plugin in entry_points(group="vllm.general_plugins"):
        plugin.load()()


def run_worker(pipe, nodes):
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    if bound := os.environ.get("TOY_BINDS"):
        os.sched_setaffinity(0, map(int, bound.split()))
    pipe.send({"cpus": cpus, "nodes": nodes, **{name: os.environ.get(name) for name in NAMES.split()}})
    with suppress(EOFError):
        pipe.recv()


def start_worker():
    ours, pipe = multiprocessing.Pipe()
    nodes = ParallelConfig.assigned_physical_gpu_ids
    multiprocessing.get_context("spawn").Process(target=run_worker, args=(pipe, nodes), daemon=True).start()
    return ours


def run_engine():
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    home = add_vllm()
    load_plugins()
    config = SimpleNamespace(parallel_config=ParallelConfig, kv_transfer_config=None)
    manager = home.OMPProcessManager(config) if os.environ.get("TOY") != "older" else OMPProcessManager(None)
    pipes = []
    for rank in range(ParallelConfig.local_world_size):
        with manager.configure_omp_envs(rank=rank, local_rank=rank):
            pipes.append(start_worker())
    for pipe in pipes:
        print(json.dumps({**pipe.recv(), "parent": len(os.sched_getaffinity(0))}), flush=True)
    del manager  # as vLLM does when the workers are ready
    print(json.dumps(sorted(name for name in sys.modules if name.startswith("ompbind"))), flush=True)


if __name__ == "__main__":
    engine = multiprocessing.get_context("spawn").Process(target=run_engine)
    engine.start()
    engine.join()
    sys.exit(engine.exitcode)
