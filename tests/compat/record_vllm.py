"""Record which CPUs an installed vLLM selects on recorded machines, with its own functions.

    VENV/bin/python tests/compat/record_vllm.py DUMPS NAMES >tests/compat/vllm-VERSION.json

VENV has vLLM and ompbind, DUMPS is a directory with NAME.tar.gz, and NAMES are the machines. vLLM sees the
output of `lscpu -s DUMP`, and the allowed CPUs and NUMA nodes of the recording. A row of a machine has the
number of workers, VLLM_CPU_NUM_OF_RESERVED_CPU (null: not set), whether there is a KV connector, the CPUs of
each worker, and the reserved CPUs. Cases in which vLLM stops, or gives a worker no CPU, are left out.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

from vllm import envs
from vllm.utils import cpu_resource_utils
from vllm.utils.ompmultiprocessing import OMPProcessManager

from ompbind.cpuset import CpuSet
from ompbind.machine.read import read_machine

run_command = subprocess.check_output


def imitate(machine, root):
    """Let the functions of vLLM see a recorded machine."""
    nodes = machine.memory_allowed or [node.number for node in machine.nodes if node.memory_bytes != 0] or [0]
    os.sched_getaffinity = lambda pid: set(machine.allowed)
    os.cpu_count = lambda: len(machine.online)
    cpu_resource_utils._synthesize_cpu_list.cache_clear()
    platform.machine = lambda: machine.arch
    cpu_resource_utils.get_memory_affinity = lambda pid=0: sorted(nodes)
    subprocess.check_output = lambda command, **options: run_command(f"{command} -s {root}", **options)


def select(workers, reserved, connector):
    """Return the CPUs of each worker and the reserved CPUs; None if vLLM selects none for a worker."""
    os.environ.pop("VLLM_CPU_NUM_OF_RESERVED_CPU", None)
    if reserved is not None:
        os.environ["VLLM_CPU_NUM_OF_RESERVED_CPU"] = str(reserved)
    parallel = SimpleNamespace(local_world_size=workers, _api_process_count=1)
    parallel.data_parallel_rank_local = parallel.assigned_physical_gpu_ids = None
    config = SimpleNamespace(parallel_config=parallel, kv_transfer_config=object() if connector else None)
    with suppress(AssertionError, RuntimeError, IndexError, subprocess.CalledProcessError):
        manager = OMPProcessManager(config)
        wanted = manager.reserve_cpu_num
        if all(manager.cpu_lists) and len(manager.reserved_cpu_list) == wanted:
            return [str(CpuSet(cpus)) for cpus in manager.cpu_lists], str(CpuSet(manager.reserved_cpu_list))
    return None


def main():
    dumps, names = Path(sys.argv[1]), sys.argv[2:]
    assert envs.VLLM_CPU_OMP_THREADS_BIND == "auto"
    found = {name: [] for name in names}
    for name, rows in found.items():
        machine = read_machine(str(dumps / f"{name}.tar.gz"))
        with tempfile.TemporaryDirectory() as directory:
            run_command(["tar", "xzf", dumps / f"{name}.tar.gz", "-C", directory])
            (root,) = (path.parent for path in [*Path(directory).glob("sys"), *Path(directory).glob("*/sys")])
            imitate(machine, root)
            for workers in (1, 2, 3, 4, 8, 16):
                for reserved, connector in ((None, False), (None, True), (workers + 1, False)):
                    if selected := select(workers, reserved, connector):
                        rows.append([workers, reserved, connector, *selected])
    lines = (f"{json.dumps(name)}: {json.dumps(rows)}" for name, rows in found.items() if rows)
    print("{", ",\n".join(lines), "}", sep="\n")


main()
