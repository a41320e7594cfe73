"""The virtual machines that tests boot, and the expected results; written by hand, not by ompbind.

CPU sets of ranks are separated by bars, as in a mask. Text before a colon is a command that starts ompbind.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

CPU7, CPU5 = (f"/sys/devices/system/cpu/cpu{cpu}/online" for cpu in (7, 5))
CPUSET = "/sys/fs/cgroup/job/cpuset.cpus"
DUAL = "sockets=2,cores=4,threads=2,numa=2"
NONE = MappingProxyType({})


class PausedRun(NamedTuple):
    """A run that is paused between planning and binding while the machine changes, and its result.

    `then` is written into the file `path`, and `afterwards` after the run. `expected` is the CPU sets of the
    ranks, or a pattern of the error message if `code` is not 0.
    """

    options: str
    path: str
    then: str
    afterwards: str
    code: int
    expected: str


class Vm(NamedTuple):
    """Options of the tool, and options of ompbind → the expected result.

    `placed` has the CPU sets of ranks, `refused` a pattern of the error message, `memory_policies` the
    policies of ranks as the kernel writes them, separated by bars.
    """

    options: tuple[str, ...]
    placed: Mapping[str, str] = NONE
    refused: Mapping[str, str] = NONE
    memory_policies: Mapping[str, str] = NONE
    paused: tuple[PausedRun, ...] = ()


MACHINES = {
    "dual": Vm(
        ("--topology", DUAL),
        placed={
            "-n 2": "0,2,4,6|8,10,12,14", "-n 4 --bind thread --reserve 1": "0|4|8|12",
            "-n 16": "0|1|2|3|4|5|6|7|8|9|10|11|12|13|14|15",
            "-n auto -s nodes --smt all --bind core": "0-7|8-15", "-n 2 -m 5,1|node:1": "5,1|8-15",
            "-n 2 -s compact -t 2 --sibling last": "1,3|5,7", "-n 3 -c 2 --smt all": "0-3|4-7|8-11",
        },
        refused={
            "-m 16": "CPU 16 does not exist",
            "-n 2 --memory weighted --strict": "no weighted interleave, which needs Linux 6.9",  # it has 6.1
        },
        memory_policies={
            "-n 2": "default|default", "-n 2 --memory weighted": "default|default",
            "-n 2 --memory bind": "bind:0|bind:1",
            "-n 3 --memory preferred": "prefer:0|prefer (many):0-1|prefer:1",
            "-n 3 --memory bind --strict": "bind:0|bind:0-1|bind:1",
            "-n 1 --memory interleave": "interleave:0-1",
            "numactl --interleave=all : -n 2": "interleave:0-1|interleave:0-1",
            "numactl --preferred=1 : -n 2 --memory bind": "bind:0|bind:1",
        },
    ),
    "unplugged": Vm(
        ("--topology", DUAL),
        paused=(
            PausedRun("-n 8 --smt all", CPU7, "0", "1", 125, "rank 3: requested CPUs 6-7, .* allows only 6 "),
            PausedRun("-m 7", CPU7, "0", "1", 125, "rank 0: cannot bind to CPU 7: offline"),
            PausedRun("-n 2 -m 0-3|6", CPU7, "0", "1", 0, "0-3|6"),
        ),
    ),
    "offline": Vm(
        ("--topology", DUAL, "--offline", "5-6"),
        placed={"-n 8": "0|2|4|7|8|10|12|14", "-n 2 -m 4|7-9": "4|7-9"},
        refused={"-m 4-5": "CPU 5 is offline", "-n 15": "14 CPUs"},
        paused=(PausedRun("-n 8 --smt all", CPU5, "1", "0", 0, "0-1|2-3|4|7|8-9|10-11|12-13|14-15"),),
    ),
    "memory": Vm(
        ("--topology", f"{DUAL},memonly=1"),
        placed={"-n auto -s nodes": "0,2,4,6|8,10,12,14"},
        refused={"-m node:#2": "NUMA node 2 has no CPU"},
        memory_policies={"-n 2 --memory bind": "bind:0|bind:1", "--memory interleave": "interleave:0-1"},
    ),
    "hbm": Vm(
        ("--topology", "snc4hbm"),
        placed={
            "-n 2": "0-7|8-15", "-n auto -s nodes --smt all": "0-3,16-19|4-7,20-23|8-11,24-27|12-15,28-31",
            "-n auto -s l3 --sibling last": "16-23|24-31",
        },
        memory_policies={
            "-n 2 --memory bind": "bind:0-1|bind:2-3",
            "-n 3 -m 1|9-10|all,^1,^9-10 --memory preferred": "prefer:0|prefer:2|prefer (many):0-3",
        },
    ),
    "cgroup": Vm(
        ("--topology", DUAL, "--cgroup", "cpuset.cpus=0-3,8-11;cpuset.mems=0;cpu.max=400000 100000"),
        placed={"-n 4": "0|2|8|10", "-n 2 --smt all": "0-3|8-11", "-n 2 -m 1-2|9": "1-2|9"},
        refused={
            "-m 3-4": "CPU 4 is not allowed",
            "-n 2 --memory bind --strict": r"memory of NUMA node 1 is not allowed \(cpuset.mems: 0\)",
        },
        memory_policies={"-n 2 --memory bind": "bind:0|bind:0", "--memory interleave": "interleave:0"},
        paused=(
            PausedRun("-n 2 --smt all", CPUSET, "0-1,8-11", "0-3,8-11", 125, "CPUs 0-3, .* allows only 0-1 "),
            PausedRun("-m 8-9", CPUSET, "0-3", "0-3,8-11", 125, "rank 0: cannot bind to CPUs 8-9: "),
            PausedRun("-m 8", CPUSET, "0-3,8", "0-3,8-11", 0, "8"),
        ),
    ),
    "mems": Vm(
        ("--topology", DUAL, "--cgroup", "cpuset.cpus=0-15;cpuset.mems=1"),
        placed={
            "-n 2 -c 2": "8,10|12,14", "-n 2": "0,2,4,6|8,10,12,14", "-n 3 -s compact -t 2": "0,2|8,10|12,14",
        },
        memory_policies={
            "-n 2 --memory bind": "bind:1|bind:1", "-n 2 --memory interleave": "interleave:1|interleave:1",
            "numactl --membind=1 : -n 2": "bind:1|bind:1",
        },
    ),
    "isolated": Vm(
        ("--topology", DUAL, "--append", "isolcpus=3 nohz_full=3,13"),
        placed={
            "-n 1 --smt all": "0-1,4-11,14-15", "-n 2 -m 3|12-13": "3|12-13",
            "taskset -c 0-15 : -n 2 --smt all": "0-1,4-7|8-11,14-15", "taskset -c 0-15 : -m 2-3": "2-3",
        },
        refused={"taskset -c 0-1 : -m 3": "CPU 3 is not allowed"},
    ),
    "dies": Vm(
        ("--topology", "sockets=1,dies=2,cores=4,threads=2,numa=4,numbering=cores-first"),
        placed={
            "-n auto -s l3 --smt all": "0-3,8-11|4-7,12-15",
            "-n auto -s nodes --sibling last": "8-9|10-11|12-13|14-15",
            "-n 2 -m die:1|die:0": "4-7,12-15|0-3,8-11",
        },
    ),
}  # fmt: skip


def make_task(name):
    vm = MACHINES[name]
    fields = {field: list(getattr(vm, field)) for field in ("placed", "memory_policies", "refused")}
    return {**fields, "paused": [run[:4] for run in vm.paused]}
