"""Compare programs that start workers of their own: without ompbind, and under `ompbind run`.

    python benchmarks/workers.py [--rounds N] [--only NAME,...] [--python PATH]

Kinds of work (NAME), with two workers each (worker_jobs.py in this directory):

    joblib, sklearn, dask, pool, ray, xdist, celery     numpy's BLAS, scikit-learn's OpenMP
    gunicorn                                            a server with torch, and four clients
    torchrun, accelerate                                training with torch, by two processes

Variants: without ompbind; `ompbind run`; `ompbind run --processes-per-rank 2`, for torchrun and accelerate
`ompbind exec` for each process instead; and `ompbind run -t N` with as many threads as CPUs, which sets the
variables that ompbind leaves to libraries. Each round starts all variants, in random order. The time is the
wall time of the whole program, for celery of all tasks, and for gunicorn of 200 requests. A program is
skipped if the Python of --python (by default this one) has no such package.

Promise: `ompbind run` takes at most 1.05 times as long as the program alone (medians). The exit code is 1 if
it is missed. Where workers have more threads than CPUs, times vary by a factor of two.
"""

import argparse
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.rounds import compile_modules, make_name_parser, make_parser
from ompbind.record import Record

HERE = Path(__file__).parent
JOBS = str(HERE / "worker_jobs.py")
LIMIT = 1.05
REQUESTS, CLIENTS = 200, 4
WAIT_S = 60.0
RUN = (sys.executable, "-m", "ompbind", "run", "-q", "--share")
VARIANTS: Mapping[str, tuple[str, ...]] = {
    "alone": (),
    "ompbind run": (*RUN, "--"),
    "--processes-per-rank": (*RUN, "--processes-per-rank", "2", "--"),
    "-t": (*RUN, "-t", str(len(os.sched_getaffinity(0))), "--"),
}
EXEC = (sys.executable, "-m", "ompbind", "exec", "-q", "--")


class Work(Record):
    """A program with workers: `command` behind {bin}, `package` that it needs, and how its time is measured.

    `measure` returns the seconds of a command with a directory for its files. The processes of a `trained`
    program are bound by `ompbind exec`, which {exec} stands for.
    """

    command: str
    package: str
    measure: Callable[[Sequence[str], Path], float]
    trained: bool = False


def measure_wall(command: Sequence[str], directory: Path) -> float:
    """Return the wall time of a command until it exits; raises CalledProcessError."""
    began = time.perf_counter()
    subprocess.run(command, check=True, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return time.perf_counter() - began


def measure_requests(command: Sequence[str], directory: Path) -> float:
    """Return the time in which a server answers all requests of the clients, after one for each worker."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/"
    line = [*command, "--chdir", str(HERE), "-b", f"127.0.0.1:{port}", "worker_jobs:serve"]
    with start(line, directory) as server:
        try:
            until = time.monotonic() + WAIT_S
            while True:
                try:
                    [urllib.request.urlopen(url).read() for _ in range(2 * CLIENTS)]
                    break
                except OSError:
                    if server.poll() is not None or time.monotonic() > until:
                        raise
                    time.sleep(0.1)
            began = time.perf_counter()
            with ThreadPoolExecutor(CLIENTS) as clients:
                list(clients.map(lambda _: urllib.request.urlopen(url).read(), range(REQUESTS)))
            return time.perf_counter() - began
        finally:
            server.terminate()


def measure_tasks(command: Sequence[str], directory: Path) -> float:
    """Return the time in which a worker of celery finishes all tasks, after one for each of its processes."""
    for name in ("queue", "results"):
        (directory / name).mkdir()
    os.environ["WORKER_JOBS"] = str(directory)
    code = (
        "import time, worker_jobs as jobs\n"
        "def run(n): return [r.get(timeout=120) for r in [jobs.multiply_later.delay(i) for i in range(n)]]\n"
        "run(4); began = time.perf_counter(); run(jobs.TASKS); print(time.perf_counter() - began)"
    )
    client = [str(Path(command[command.index("-A") - 1]).with_name("python")), "-c", code]
    with start(command, HERE) as worker:
        try:
            return float(subprocess.run(client, check=True, cwd=HERE, capture_output=True, text=True).stdout)
        finally:
            worker.terminate()


def start(command: Sequence[str], directory: Path) -> subprocess.Popen[bytes]:
    """Start a server without output."""
    return subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make_job(name: str, package: str) -> Work:
    """Return work that a Python script starts."""
    return Work(command=f"{{bin}}/python {JOBS} {name}", package=package, measure=measure_wall)


ACCELERATE = (
    "--multi_gpu --num_machines 1 --mixed_precision no --dynamo_backend no --main_process_port 0"
    " --num_processes 2"
)
WORKS: Mapping[str, Work] = {
    "joblib": make_job("joblib", "joblib"),
    "sklearn": make_job("sklearn", "sklearn"),
    "dask": make_job("dask", "distributed"),
    "pool": make_job("pool", "numpy"),
    "ray": make_job("ray", "ray"),
    "xdist": Work(
        command=f"{{bin}}/pytest -q -p no:cacheprovider -n 2 {JOBS}", package="xdist", measure=measure_wall
    ),
    "celery": Work(
        command="{bin}/celery -A worker_jobs worker -c 2", package="celery", measure=measure_tasks
    ),
    "gunicorn": Work(command="{bin}/gunicorn -w 2", package="gunicorn", measure=measure_requests),
    "torchrun": Work(
        command=f"{{bin}}/torchrun --no-python --nproc-per-node 2 {{exec}} {{bin}}/python {JOBS} train",
        package="torch", measure=measure_wall, trained=True,
    ),
    "accelerate": Work(
        command=f"{{bin}}/accelerate launch --no_python {ACCELERATE} {{exec}} {{bin}}/python {JOBS} train",
        package="accelerate", measure=measure_wall, trained=True,
    ),
}  # fmt: skip


def make_command(work: Work, variant: str, python: str) -> list[str]:
    """Return the command line of a variant."""
    binds_each = work.trained and variant == "--processes-per-rank"
    prefix = () if binds_each else VARIANTS[variant]
    words = work.command.replace("{bin}", str(Path(python).parent)).split()
    each = EXEC if binds_each else ()
    return [*prefix, *(part for word in words for part in (each if word == "{exec}" else (word,)))]


def measure(work: Work, rounds: int, python: str) -> dict[str, list[float]]:
    """Return the seconds of each variant in each round."""
    times: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(rounds):
        for variant in random.sample(list(VARIANTS), len(VARIANTS)):
            with tempfile.TemporaryDirectory() as directory:
                command = make_command(work, variant, python)
                times[variant].append(work.measure(command, Path(directory)))
    return times


def main() -> None:
    """Measure, print the table, and exit with 1 if a promise is missed."""
    parser: argparse.ArgumentParser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", type=make_name_parser(WORKS), default=tuple(WORKS), metavar="NAME,...")
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    compile_modules()
    missed = False
    print("seconds (median), and ratio to the program alone")
    print("program     " + "".join(f"{name:>22}" for name in VARIANTS))
    for name in options.only:
        work = WORKS[name]
        if subprocess.run([options.python, "-c", f"import {work.package}"], capture_output=True).returncode:
            print(f"{name:<12}skipped: {options.python} has no {work.package}")
            continue
        times = measure(work, options.rounds, options.python)
        cells = []
        for variant, seconds in times.items():
            ratio = statistics.median(seconds) / statistics.median(times["alone"])
            cells.append(f"{statistics.median(seconds):.2f}  {ratio:5.2f}")
            missed |= variant == "ompbind run" and ratio > LIMIT
        print(f"{name:<12}" + "".join(f"{cell:>22}" for cell in cells), flush=True)
    sys.exit(missed)


if __name__ == "__main__":
    main()
