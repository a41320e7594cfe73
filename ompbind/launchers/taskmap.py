"""How many tasks of a Flux job run on each node, which no variable of a task says.

Source: RFC 34 of Flux, and flux-job(1): `flux job taskmap --to=raw JOBID` prints the task ids of each node,
as "0-1;2".
"""

import shutil
import subprocess
from collections.abc import Mapping

from ompbind.cpuset import CpuSet

TIME_LIMIT_S = 5


def count_node_tasks(env: Mapping[str, str], task: int) -> int:
    """Ask Flux how many tasks run on the node that has a task; return 0 if it does not say so."""
    job = env.get("FLUX_JOB_ID")
    taskmap = ask_flux(env, "job", "taskmap", "--to=raw", job) if job else ""
    try:
        nodes = [CpuSet.from_list(text) for text in taskmap.strip().split(";")]
    except ValueError:
        return 0
    return next((len(tasks) for tasks in nodes if task in tasks), 0)


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
