"""A recording of a Linux machine, a directory or an archive with its files → a `Machine`."""

from ompbind.machine.model import Machine
from ompbind.machine.sources.linux.reader import add_devices, read_root
from ompbind.machine.sources.root import Root, keyed_lines


def read_recorded(root: Root, *, devices: bool = False) -> Machine:
    """Read a recording; its cgroup files decide which CPUs are allowed. Raises MachineError."""
    machine = read_root(root, None, _recorded_arch(root))
    return add_devices(machine, root) if devices else machine


def _recorded_arch(root: Root) -> str:
    """Return the architecture that a recording names, or "unknown"."""
    files = ("arch", "proc/hwloc-nofile-info")
    lines = (line for path in files for line in keyed_lines(root.read(path)))
    return next((value for key, value in lines if key in ("Architecture", "arch") and value), "unknown")
