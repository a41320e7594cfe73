"""Recorded machines with their devices."""

from functools import cache

from ompbind.machine.model import Machine
from ompbind.machine.read import read_machine
from tests.recordings import RECORDINGS, recorded

ANSWERS = {path.name.removesuffix(".devices.json"): path for path in recorded("devices/*.devices.json")}
"""hwloc's answer for each recorded machine with devices, by the name of the machine."""


@cache
def read_with_devices(name: str) -> Machine:
    """Read a recorded machine, with its devices."""
    archive = RECORDINGS / f"devices/{name}.tar.gz"
    return read_machine(str(archive if archive.exists() else RECORDINGS / f"xml/{name}.xml"), devices=True)
