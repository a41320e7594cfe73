"""A real Slurm cluster of one node or several nodes on the loopback interface, for tests; needs root."""

import os
import re
import socket
import stat
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress

import pytest

from tests.live.conftest import find_processes, kill_all, required, wait_until

DAEMONS = ("munged", "slurmctld", "slurmd")
PROGRAMS = (*DAEMONS, "srun")

CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
ProctrackType=proctrack/{proctrack}
TaskPlugin={plugin}
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MailProg=/bin/true
ReturnToService=2
PartitionName=all Nodes=ALL Default=YES State=UP
"""

NODE = "NodeName={name} NodeAddr=127.0.0.1 Port={port} CPUs={cpus}"


@contextmanager
def start_slurm(
    directory, env, names=(), *, agent=(), gpus=0, settings="", plugin="task/affinity", patience_s=60,
    proctrack="linuxproc",
):  # fmt: skip
    """Start Slurm below an empty directory; yield the environment for srun; stop Slurm afterwards.

    There is a node of each name, by default this machine, with simulated GPUs. `agent` are the words before
    the name of a node and a command that start the command there. `settings` are further lines of the
    configuration, `plugin` is what binds tasks, `proctrack` what knows the processes of a step: all get a
    signal with linuxproc, only process groups of tasks with pgid.
    """
    if os.geteuid() != 0:
        pytest.skip("starting Slurm takes root")
    for program in PROGRAMS:
        required(program)
    names = names or (socket.gethostname(),)
    config = str(write_config(directory, names, gpus, settings, plugin, proctrack))
    env = {**env, "SLURM_CONF": config}
    files = ("socket=munge.socket", "key-file=key", "log-file=log", "pid-file=pid", "seed-file=seed")
    munge = [f"--{file.replace('=', f'={directory}/')}" for file in files]
    daemons = [("munged", "--foreground", "--force", *munge), ("slurmctld", "-D", "-f", config)]
    for name in names:
        daemons.append((*agent, *([name] if agent else []), "slurmd", "-D", "-N", name, "-f", config))
    started, log = [], (directory / "slurm.log").open("wb")
    try:
        for command in daemons:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            started.append(subprocess.Popen(command, env=env, **pipes))
            if command[0] == "munged":
                wait_until((directory / "munge.socket").exists, "munged runs", 60)
        task = ["srun", "-N", str(len(names)), f"--immediate={patience_s // 12}", "true"]
        deadline = time.monotonic() + patience_s
        while subprocess.run(task, env=env, capture_output=True).returncode:
            assert time.monotonic() < deadline, (directory / "slurm.log").read_text()[-3000:]
            time.sleep(0.2)
        yield env
    finally:
        for process in reversed(started):
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
        log.close()
        kill_all(find_processes(f"SLURM_CONF={config}"))  # steps of a failed test have no daemon any more
        wait_until(lambda: not find_processes(f"SLURM_CONF={config}"), "no step is left")


def run_batch(*arguments, env, cwd=None):
    """Submit a job with sbatch, and wait until it has finished; return its exit code.

    `sbatch --wait` asks after 2 and 10 seconds only.
    """

    def call(*command):
        return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=60)

    done = call(required("sbatch"), "--parsable", *arguments)
    assert done.returncode == 0, done.stderr
    job = ("scontrol", "--oneliner", "show", "job", done.stdout.strip())
    finished = re.compile(r" JobState=(?:COMPLETED|FAILED) .* ExitCode=(\d+):")
    return int(wait_until(lambda: finished.search(call(*job).stdout), "the job has finished", 90)[1])


def write_config(directory, names, gpus, settings, plugin, proctrack):
    (directory / "state").mkdir()
    (directory / "key").write_bytes(os.urandom(128))
    (directory / "key").chmod(0o400)
    words = {"host": socket.gethostname(), "directory": directory, "plugin": plugin, "proctrack": proctrack}
    port, *ports = find_free_ports(1 + len(names))
    lines = [CONFIG.format(port=port, **words), settings]
    cpus = len(os.sched_getaffinity(0))
    lines += [
        NODE.format(name=name, port=port, cpus=cpus) + (f" Gres=gpu:{gpus}" if gpus else "")
        for name, port in zip(names, ports, strict=True)
    ]
    if gpus:
        lines.append("GresTypes=gpu")
        for number in range(gpus):  # null devices, which Slurm takes for GPUs
            os.mknod(directory / f"gpu{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        (directory / "gres.conf").write_text(f"Name=gpu File={directory}/gpu[0-{gpus - 1}]\n")
    if "cgroup" in plugin:
        (directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nConstrainCores=yes\n")
    config = directory / "slurm.conf"
    config.write_text("\n".join(lines) + "\n")
    return config


def find_free_ports(count):
    with ExitStack() as stack:
        opened = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in opened:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in opened]
