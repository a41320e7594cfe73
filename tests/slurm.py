"""A real Slurm cluster of one node on the loopback interface, for tests; needs root."""

import os
import socket
import subprocess
import time
from contextlib import contextmanager

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun")

CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MailProg=/bin/true
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus}
PartitionName=all Nodes={host} Default=YES State=UP
"""


@contextmanager
def one_node(directory, env):
    """Start Slurm below an empty directory; yield the environment for srun; stop Slurm afterwards."""
    log = (directory / "slurm.log").open("wb")
    env = {**env, "SLURM_CONF": str(write_config(directory))}
    started = []
    try:
        for command in make_daemons(directory):
            started.append(
                subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )
            time.sleep(0.5)
        wait_for_slurm(env, directory)
        yield env
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(30)
        log.close()


def write_config(directory):
    for name in ("state", "spool"):
        (directory / name).mkdir()
    (directory / "key").write_bytes(os.urandom(128))
    (directory / "key").chmod(0o400)
    config = directory / "slurm.conf"
    words = {
        "host": socket.gethostname(),
        "directory": directory,
        "cpus": os.cpu_count(),
        "ports": find_free_ports(),
    }
    config.write_text(CONFIG.format(**words))
    return config


def find_free_ports():
    """Two unused ports, so that several clusters can run at the same time."""
    with socket.socket() as first, socket.socket() as second:
        for opened in (first, second):
            opened.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


def make_daemons(directory):
    files = {
        "socket": "munge.socket",
        "key-file": "key",
        "log-file": "log",
        "pid-file": "pid",
        "seed-file": "seed",
    }
    munge = [f"--{option}={directory}/{name}" for option, name in files.items()]
    return [
        ("munged", "--foreground", "--force", *munge),
        ("slurmctld", "-D", "-f", str(directory / "slurm.conf")),
        ("slurmd", "-D", "-f", str(directory / "slurm.conf")),
    ]


def wait_for_slurm(env, directory):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done = subprocess.run(
            ["srun", "-n", "1", "--immediate=5", "true"], env=env, capture_output=True, text=True
        )
        if done.returncode == 0:
            return
        time.sleep(1)
    raise AssertionError(f"Slurm did not start: {done.stderr}\n{(directory / 'log').read_text()[-3000:]}")
