"""`ompbind exec` inside a real Slurm of one node, started for the test on loopback."""

import json
import os
import re
import socket
import subprocess
import sys
import time

import pytest

from ompbind.cpuset import CpuSet
from tests.live.conftest import OMPBIND, clean_environment, required, two_cpus
from tests.live.test_exec import TELL

CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
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


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """The environment in which srun finds a running Slurm; it is ended after the tests."""
    if os.geteuid() != 0:
        pytest.skip("starting Slurm takes root")
    programs = {name: required(name) for name in ("munged", "slurmctld", "slurmd", "srun")}
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o400)
    config = folder / "slurm.conf"
    config.write_text(CONFIG.format(host=socket.gethostname(), folder=folder, cpus=os.cpu_count()))
    files = {
        "socket": "munge.socket",
        "key-file": "key",
        "log-file": "log",
        "pid-file": "pid",
        "seed-file": "seed",
    }
    munge = [f"--{option}={folder}/{name}" for option, name in files.items()]
    daemons = [
        (programs["munged"], "--foreground", "--force", *munge),
        (programs["slurmctld"], "-D", "-f", str(config)),
        (programs["slurmd"], "-D", "-f", str(config)),
    ]
    env = clean_environment(SLURM_CONF=str(config))
    log = (folder / "slurm.log").open("wb")
    started = []
    for command in daemons:
        started.append(subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        time.sleep(0.5)
    try:
        wait_for_slurm(env, folder)
        yield env
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(30)
        log.close()


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


@pytest.mark.parametrize("binding", ["none", "cores"])
def test_tasks_of_a_step_get_cpus_of_their_own(slurm, binding):
    command = ["srun", "-n", "2", f"--cpu-bind={binding}", OMPBIND, "exec", "--", sys.executable, "-c", TELL]
    done = subprocess.run(
        command, env=slurm, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )
    told = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda one: one["RANK"])
    assert [one["cpus"] for one in told] == [[cpu] for cpu in two_cpus()], done.stderr
    assert [(one["LOCAL_RANK"], one["LOCAL_WORLD_SIZE"]) for one in told] == [("0", "2"), ("1", "2")]
    assert {one["OMPBIND_RUN_ID"].partition("-")[0] for one in told} == {"slurm"}
    assert ("has bound it" in done.stderr) == (binding == "cores")


def test_the_exit_code_of_a_task_is_its_commands(slurm):
    command = ["srun", "-n", "2", OMPBIND, "exec", "--", "sh", "-c", "exit $((RANK * 5))"]
    assert subprocess.run(command, env=slurm, capture_output=True, timeout=60).returncode == 5


@pytest.mark.parametrize("options", ["-n 2", "-n 3 -s all", "-n 1 -m {}"], ids=["apart", "shared", "second"])
def test_an_exported_plan_is_what_srun_does(slurm, options):
    """In a job that has the whole node; every task's CPUs, and its memory where nodes are known."""
    cpus = two_cpus()
    plan = f"ompbind plan {options.format(cpus[1])}"
    code = f"srun --label $({plan} --format slurm) grep -hE '(Cpus|Mems)_allowed_list' /proc/self/status"
    done = subprocess.run(
        [required("salloc"), "--quiet", "--exclusive", "--ntasks=1", "sh", "-c", code],
        env=slurm, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    told = sorted(re.findall(r"(\d+): Cpus_allowed_list:\s*(\S+)", done.stdout))
    everything = str(CpuSet(os.sched_getaffinity(0)))
    expected = {"-n 2": cpus, "-n 3 -s all": [everything] * 3}.get(options, cpus[1:])
    assert told == [(str(task), str(one)) for task, one in enumerate(expected)], done.stderr


def test_slurm_binds_memory_as_exported(slurm):
    required("numactl")
    code = f"srun $({OMPBIND} plan --format slurm) numactl --show"
    done = subprocess.run(
        [required("salloc"), "--quiet", "--exclusive", "--ntasks=1", "sh", "-c", code],
        env=slurm, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert "policy: bind" in done.stdout or not os.path.exists("/sys/devices/system/node/node0"), done.stderr
