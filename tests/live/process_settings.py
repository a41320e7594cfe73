"""What a binding of a process must restore: masks of threads, variables of Python and of C, start method."""

import multiprocessing
import os
import subprocess
from contextlib import suppress

from tests.live.conftest import allowed_list


def read_masks():
    """Return the affinity mask of each thread of this process, as kernel list text."""
    masks = {}
    for name in os.listdir("/proc/self/task"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has just exited
            masks[name] = allowed_list(os.getpid(), name)
    return masks


def state():
    """Return all that must be restored; `environment` is that of children: from C, not from os.environ."""
    pairs = subprocess.run(["env", "-0"], capture_output=True, check=True).stdout.split(b"\0")
    return {
        "threads": read_masks(),
        "variables": {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        "environment": sorted(pair for pair in pairs if not pair.startswith(b"PYTEST_")),
        "method": multiprocessing.get_start_method(allow_none=True),
    }


def is_restored(before):
    """Return whether all is as in an earlier state. Threads of earlier tests may have exited since."""
    now = state()
    threads = now.pop("threads")
    return threads.items() <= before["threads"].items() and {**now, "threads": before["threads"]} == before
