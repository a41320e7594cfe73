"""A real Slurm of one node on loopback, for as long as somebody needs it; starting it takes root."""

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
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
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
def one_node(folder, env):
    """Start Slurm below an empty folder; yield the environment in which srun finds it; end it afterwards."""
    log = (folder / "slurm.log").open("wb")
    env = {**env, "SLURM_CONF": str(write_config(folder))}
    started = []
    try:
        for command in make_daemons(folder):
            started.append(
                subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )
            time.sleep(0.5)
        wait_for_slurm(env, folder)
        yield env
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(30)
        log.close()


def write_config(folder):
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o400)
    config = folder / "slurm.conf"
    words = {"host": socket.gethostname(), "folder": folder, "cpus": os.cpu_count(), "ports": free_ports()}
    config.write_text(CONFIG.format(**words))
    return config


def free_ports():
    """Two ports that nobody has, so that two of these can live side by side."""
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def make_daemons(folder):
    files = {
        "socket": "munge.socket",
        "key-file": "key",
        "log-file": "log",
        "pid-file": "pid",
        "seed-file": "seed",
    }
    munge = [f"--{option}={folder}/{name}" for option, name in files.items()]
    return [
        ("munged", "--foreground", "--force", *munge),
        ("slurmctld", "-D", "-f", str(folder / "slurm.conf")),
        ("slurmd", "-D", "-f", str(folder / "slurm.conf")),
    ]


def wait_for_slurm(env, folder):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done = subprocess.run(
            ["srun", "-n", "1", "--immediate=5", "true"], env=env, capture_output=True, text=True
        )
        if done.returncode == 0:
            return
        time.sleep(1)
    raise AssertionError(f"Slurm does not start: {done.stderr}\n{(folder / 'log').read_text()[-3000:]}")
