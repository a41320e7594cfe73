"""Systems without sysfs, on which ompbind cannot bind: only the numbers of CPUs and cores are known."""

import os

from ompbind.cpuset import CpuSet
from ompbind.machine.model import Level, Machine, Node, Partition, make_domains


def read_counts() -> Machine:
    """Read the numbers of CPUs and cores of this system; the machine is not `bindable`."""
    try:
        import psutil  # noqa: PLC0415 - door: loads psutil
    except ImportError:  # as in the zipapp
        cores = None
    else:
        cores = psutil.cpu_count(logical=False)
    return make_counted_machine(os.cpu_count() or 1, cores, os.uname().sysname)


def make_counted_machine(cpus: int, cores: int | None, system: str) -> Machine:
    """Make a machine from the numbers of CPUs and cores; for None each CPU counts as a core."""
    online = CpuSet(range(cpus))
    width = cpus // cores if cores and cpus % cores == 0 else 1
    counts = "numbers of CPUs and cores are" if cores else "number of CPUs is"
    siblings: Partition = [(None, CpuSet(range(start, start + width))) for start in range(0, cpus, width)]
    return Machine(
        source="live",
        arch=os.uname().machine,
        online=online,
        allowed=online,
        domains=make_domains(online, {Level.CORE: siblings, Level.NODE: [(0, online)]}),
        nodes=(Node(number=0, cpus=online),),
        bindable=False,
        remarks=(f"{system} does not report the topology: only the {counts} used",),
    )
