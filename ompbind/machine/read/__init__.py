"""Read a machine from a topology source: this machine, recordings and descriptions, each into a `Machine`.

Imports the base modules, procfs and `machine`. `linux` reads the files below a root, always an argument.
To add a format of files: a function in a file of its own, and a row of FILE_FORMATS in `sources`. To read one
more fact of Linux: a function in the file of its subject, called by `linux`.
"""

from ompbind.machine.model import Machine
from ompbind.machine.read.linux import LIVE, read_live


def read_machine(source: str = LIVE, *, devices: bool = False) -> Machine:
    """Read a machine from a topology source.

    A source is "live", a directory or archive with `sys/` and `proc/`, XML, JSON, "synthetic:…", or
    "sample:…". "live" is this machine; the affinity mask and the cgroup of this process limit the allowed
    CPUs. With `devices`, its GPUs, network interfaces and sizes of caches are read too. Raises MachineError.
    """
    if source == LIVE:
        return read_live(devices=devices)
    from ompbind.machine.read.sources import read_other  # noqa: PLC0415 - door: not this machine

    return read_other(source, devices=devices)
