"""Run in a virtual machine: start Slurm on its CPUs, and run commands under it.

The argument is JSON: the task plugin and the commands. Prints JSON: the lines of each command, sorted.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from tests.slurm import start_slurm

PREPARE = """
ip link set lo up && ip addr add 192.0.2.1/24 dev lo &&
echo "127.0.0.1 localhost $(hostname)" >/etc/hosts &&
mount -t tmpfs none /sys/fs/cgroup && cd /sys/fs/cgroup && mkdir systemd cpuset freezer &&
mount -t cgroup -o none,name=systemd none systemd &&
mount -t cgroup -o cpuset none cpuset && mount -t cgroup -o freezer none freezer
"""
"""Slurm needs another address than that of loopback, and cgroups of version 1, which need no systemd."""


def main():
    plugin, commands = json.loads(sys.argv[1])
    subprocess.run(["sh", "-c", PREPARE], check=True)
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    found = []
    with start_slurm(
        directory, dict(os.environ), [socket.gethostname()], plugin=plugin, patience_s=180
    ) as env:
        for command in commands:
            done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, text=True, timeout=120)
            found.append([sorted(done.stdout.splitlines()), done.stderr, done.returncode])
    print(json.dumps(found))


main()
