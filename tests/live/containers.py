"""Containers of podman, below a directory of their own."""

import os
from contextlib import contextmanager

import pytest

from tests.live.conftest import find_processes, required, wait_until
from tests.live.other_user import public_directory

LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
"""Options that set limits because podman may not raise its own."""


@contextmanager
def podman(driver="vfs"):
    """Yield the words before a command of podman.

    Podman still writes below its directory when `podman run` has exited: wait until that is done.
    """
    programs = required("podman"), required("runc")
    if os.geteuid() != 0:
        pytest.skip("limiting a container takes root")
    with public_directory() as directory:  # with a name short enough for podman
        root = f"{directory}/root"
        yield [
            programs[0], "--root", root, "--runroot", f"{directory}/run", "--storage-driver", driver,
            "--runtime", programs[1],
        ]  # fmt: skip
        wait_until(lambda: not find_processes(root), "podman has removed the container", 60)


@contextmanager
def podman_run():
    with podman() as words:
        yield [*words, "run", "--rm", *LIMITS, "--network=none"]
