"""How many tasks of a Flux job run on each node, which no variable of a task says.

Source: RFC 34 of Flux, and flux-job(1): `flux job taskmap --to=raw JOBID` prints the task ids of each node,
as "0-1;2".
"""

import shutil
import subprocess
from collections.abc import Mapping

from ompbind.cpuset import CpuSet

TIME_LIMIT_S = 5


def find_node_tasks(taskmap: str, task: int) -> CpuSet | None:
    """Return the tasks of the node that has a task, None if a task map does not say so."""
    for text in taskmap.strip().split(";"):
        try:
            tasks = CpuSet.from_list(text)
        except ValueError:
            return None
        if task in tasks:
            return tasks
    return None


def read_taskmap(env: Mapping[str, str]) -> str:
    """Ask Flux for the task map of a job; return "" if it does not answer."""
    job = env.get("FLUX_JOB_ID")
    return ask_flux(env, "job", "taskmap", "--to=raw", job) if job else ""


def ask_flux(env: Mapping[str, str], *words: str) -> str:
    """Return what a command of Flux prints, "" if it fails, or is not there."""
    flux = shutil.which("flux", path=env.get("PATH"))
    if flux is None:
        return ""
    command, no_input = [flux, *words], subprocess.DEVNULL
    try:
        done = subprocess.run(
            command, env=env, stdin=no_input, capture_output=True, text=True, timeout=TIME_LIMIT_S
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
