"""Containers of podman, below a directory of their own."""

import os
from contextlib import contextmanager

import pytest

from tests.live.conftest import find_processes, required, wait_until
from tests.live.other_user import as_user, public_directory

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


@contextmanager
def rootless_run(uid, program):
    """Yield the words before a command in a container of a user without root, and the user's directory.

    The container has the programs of this machine, and the directory of `program`; root there is the user.
    """
    programs = required("podman"), required("runc")
    with public_directory() as directory:
        root, own = directory / "rootfs", directory / "own"
        parts = (root / part for part in ("usr", "etc", "proc", "sys", "dev", "tmp", "run"))
        for path in (*parts, own, directory / "xdg"):
            path.mkdir(parents=True)
        for part in ("bin", "sbin", "lib", "lib64"):
            (root / part).symlink_to(f"usr/{part}")
        for path in (directory, *directory.rglob("*")):
            os.chown(path, uid, uid, follow_symlinks=False)
        become = [*as_user(uid), "env", f"--chdir={own}", f"HOME={own}"]
        storage = ["--root", f"{directory}/store", "--runroot", f"{directory}/run", "--storage-driver", "vfs"]
        mounts = [f"--volume={path}:{path}:ro" for path in ("/usr", "/etc", os.path.dirname(program))]
        container = [f"--volume={own}:/own", "--workdir=/own", "--env=HOME=/own", "--rootfs", str(root)]
        settings = [f"XDG_RUNTIME_DIR={directory}/xdg", programs[0], *storage, "--runtime", programs[1]]
        settings += ["--cgroup-manager=cgroupfs", "run", "--rm", *LIMITS, "--network=none"]
        yield [*become, *settings, *mounts, *container], own
