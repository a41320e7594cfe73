"""Measure OpenMP work beside a busy scheduler, as in a server of vLLM, in vLLM's own layout and in ompbind's.

    python benchmarks/scheduler.py [--rounds N] [--seconds S]

The server is a model: one process (scheduler.c) never sleeps, as vLLM's scheduler. It starts a second process
that computes in many small OpenMP parallel regions (ranks.c), as vLLM's worker. Only this work is timed. Both
programs use the compiler's OpenMP runtime. Layouts:

    vllm-gomp  vLLM's own with libgomp preloaded, as vLLM does if PyTorch has this library: GOMP_CPU_AFFINITY
               binds each thread of the worker to one of the compute CPUs. The scheduler does not have this
               variable, and may use all CPUs
    vllm-omp   vLLM's own without a preloaded runtime: the same, but OMP_PLACES is one place with these CPUs
    ompbind    ompbind run -n 1 --compat vllm: both processes may use the compute CPUs and the service CPU; in
               OMP_PLACES, only the first place has the service CPU
    shared     for contrast, ompbind run -m with the same compute CPUs: no service CPUs, so the scheduler uses
               the CPU of a thread

All have the same compute CPUs, those of ompbind's plan, and a thread on each. effect.py --help says how times
are compared. Promise: the work takes at most 1.05 of its time in each of vLLM's own layouts. The exit code is
1 if the promise is missed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.barrier import SOCKET_VARIABLE
from benchmarks.comparison import (
    Bench,
    compile_openmp,
    make_regions,
    measure_all,
    render_dropped,
    render_table,
)
from benchmarks.launchers import LAUNCHER_PREFIXES, Unavailable, find_program, make_environment
from benchmarks.promises import make_scheduler_promises, print_promises
from benchmarks.rounds import compile_modules, make_parser
from benchmarks.timing import RunSettings
from benchmarks.variants import THREAD_POOL_PREFIXES, Variant

OMPBIND = str(Path(sys.executable).with_name("ompbind"))
COMPAT = ("-n", "1", "--compat", "vllm")
VLLM_PREFIXES = ("VLLM_", "CPU_VISIBLE_MEMORY_NODES")
WORK = "regions"


def make_layouts(scheduler: str, cpus: Sequence[int]) -> dict[str, Variant]:
    """Return the layouts for compute CPUs; their prefixes start the scheduler, which starts the work."""
    team = (scheduler, find_program("env"), f"OMP_NUM_THREADS={len(cpus)}")
    prefixes = {
        "vllm-gomp": (*team, f"GOMP_CPU_AFFINITY={' '.join(map(str, cpus))}"),
        "vllm-omp": (*team, f"OMP_PLACES={{{','.join(map(str, cpus))}}}", "OMP_PROC_BIND=true"),
        "ompbind": (OMPBIND, "run", *COMPAT, "--", scheduler),
        "shared": (OMPBIND, "run", "-m", ",".join(map(str, cpus)), "--", scheduler),
    }
    return {name: Variant(prefix=prefix, env={}) for name, prefix in prefixes.items()}


def read_compute_cpus(env: Mapping[str, str]) -> list[int]:
    """Return the compute CPUs of ompbind's layout. Raises Unavailable if no CPU is left for the scheduler."""
    command = [OMPBIND, "plan", *COMPAT, "--format", "json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    (rank,) = json.loads(done.stdout)["ranks"]
    if not rank["service_cpus"]:
        raise Unavailable("only one CPU can be used, and the scheduler needs another")
    cpus: list[int] = rank["cpus"]
    return cpus


def measure(options: argparse.Namespace, directory: Path) -> Bench:
    """Run all rounds. Raises Unavailable."""
    env = make_environment(directory, (*LAUNCHER_PREFIXES, *THREAD_POOL_PREFIXES, *VLLM_PREFIXES))
    env[SOCKET_VARIABLE] = str(directory / "socket")
    layouts = make_layouts(compile_openmp("scheduler.c", directory, "-O2"), read_compute_cpus(env))
    settings = RunSettings(env=env, stderr_path=str(directory / "stderr"), timeout_s=options.timeout)
    bench = Bench({WORK: make_regions(directory, ranks=1)}, layouts, settings)
    measure_all(bench, options)
    return bench


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--seconds", type=float, default=0.4, help="working time per measurement")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS")
    return parser.parse_args()


def main() -> int:
    """Run all measurements; return 1 if a promise is missed or a layout failed."""
    options = read_options()
    compile_modules()
    with tempfile.TemporaryDirectory(prefix="scheduler") as name:
        try:
            bench = measure(options, Path(name))
        except Unavailable as why:
            print(f"Nothing is measured: {why}")
            return 0
    print("\n".join(render_table(bench, WORK)))
    print(render_dropped(bench))
    times = {layout: bench.times.get((WORK, layout), []) for layout in bench.variants}
    is_missing = len(bench.repetitions) < len(bench.variants)
    return max(print_promises(make_scheduler_promises(times)), int(is_missing))


if __name__ == "__main__":
    sys.exit(main())
