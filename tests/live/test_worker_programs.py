"""Programs with workers of their own under ompbind: how many threads each worker has, and which CPUs."""

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.live.conftest import allowed_list, children_of, one_line, start_program, two_cpus, wait_until
from tests.live.runtimes import needs_packages

EXAMPLES = Path(__file__).parent.parent.parent / "docs/examples"

COUNT = """
    def count(number):
        import numpy, threadpoolctl, time
        time.sleep(0.2)
        return max(pool["num_threads"] for pool in threadpoolctl.threadpool_info())
"""
PROGRAMS = {
    "alone": "counts = [count(0)]",
    "joblib": "from joblib import Parallel, delayed\n"
    "counts = Parallel(n_jobs=2)(delayed(count)(n) for n in range(4))",
    "all of joblib": "from joblib import Parallel, cpu_count, delayed\n"
    "counts = Parallel(n_jobs=-1)(delayed(count)(n) for n in range(4)) * (cpu_count() == 2)",
    "pool": "from multiprocessing import get_context\n"
    "with get_context('spawn').Pool(2) as pool: counts = pool.map(count, range(4))",
    "dask": "from dask.distributed import Client\n"
    "with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:\n"
    "    counts = client.gather(client.map(count, range(4)))",
}
"""Programs that set `counts` to the threads of numpy in each of four tasks of two workers."""

DIVIDED, WHOLE = [1] * 4, [2] * 4


@pytest.mark.parametrize(("name", "options", "counts"), [
    ("alone", "", [2]), ("joblib", "", DIVIDED), ("all of joblib", "", DIVIDED), ("pool", "", WHOLE),
    ("joblib", "-t 2", WHOLE), ("pool", "--processes-per-rank 2", DIVIDED),
    ("all of joblib", "--processes-per-rank 2", DIVIDED),
    pytest.param("dask", "", DIVIDED, marks=pytest.mark.part("workers")),
])  # fmt: skip
def test_workers_divide_the_cpus_where_their_program_does(ompbind, tmp_path, name, options, counts):
    needs_packages("sklearn")  # brings numpy, joblib and threadpoolctl
    two_cpus()
    script = tmp_path / "program.py"
    body = textwrap.indent(PROGRAMS[name], "    ")
    script.write_text(f"{textwrap.dedent(COUNT)}\nif __name__ == '__main__':\n{body}\n    print(counts)\n")
    done = ompbind("run", "--verify", "--share", *options.split(), "--", sys.executable, str(script))
    assert done.stdout.split("\n")[0] == str(counts), done.stderr
    assert "executed with" not in one_line(done.stderr)


BUSY = "import os, time; os.fork()\nwhile time.process_time() < 2.0: pass"


def test_another_number_of_busy_processes_than_expected_is_reported(ompbind):
    # each process has a CPU of its rank, else they could be reported as waiting for each other
    command = ("--", sys.executable, "-c", BUSY)
    both = ("-m", ",".join(map(str, two_cpus())))
    options = (*both, "--name", "two", "--processes-per-rank", "2", *command, ":", *both, "--name", "three")
    done = ompbind("run", "--verify", "--share", *options, "--processes-per-rank", "3", *command)
    messages = one_line(done.stderr)
    assert messages.count("busy processes at a time") == 1, messages
    assert "had at most 2 busy processes at a time, 3 were expected" in messages


@contextmanager
def started(line, **env):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = start_program(*line.split(), env={"PYTHONPATH": str(EXAMPLES), **env}, **quiet)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def wait_for_masks(process):
    """Wait until the children have one CPU each; return their pids."""

    def find():
        with suppress(OSError):  # one has exited meanwhile
            pids = children_of(process.pid)
            return sorted(map(allowed_list, pids)) == list(map(str, two_cpus())) and pids

    return wait_until(find, "children with one CPU each", 60.0)


@pytest.mark.part("workers")
def test_workers_of_gunicorn_have_cpus_of_their_own_also_one_that_replaces_another(tmp_path):
    needs_packages("gunicorn")
    (tmp_path / "app.py").write_text("def app(environ, start):\n    start('200 OK', [])\n    return [b'']\n")
    own = f"-w 2 -c {EXAMPLES}/gunicorn_conf.py --chdir {tmp_path} -b unix:{tmp_path}/s app:app"
    with started(f"gunicorn {own}", HOME=str(tmp_path)) as server:
        killed = wait_for_masks(server)[0]
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: killed not in children_of(server.pid), "the worker is gone")
        wait_for_masks(server)


@pytest.mark.part("workers")
def test_processes_of_celery_have_cpus_of_their_own():
    needs_packages("celery")
    with started("celery -A celery_app worker -c 2") as worker:
        wait_for_masks(worker)
