"""Recorded machines with their devices, from hwloc's answer for each device."""

import json
from functools import cache

from ompbind.cpuset import CpuSet
from ompbind.machine.device_kinds import find_kind, find_ordinal
from ompbind.machine.devices import Device, DeviceKind, number_devices
from ompbind.machine.model import Machine
from ompbind.machine.sources.table import read_machine
from ompbind.planning.devices.visible import VisibleDevices
from tests.recordings import RECORDINGS, recorded

ANSWERS = {path.name.removesuffix(".devices.json"): path for path in recorded("devices/*.devices.json")}
"""hwloc's answer for each recorded machine with devices, by the name of the machine."""

OPENFABRICS = "3"
"""hwloc's number of the type of devices for RDMA, before version 3."""

UUIDS = ("NVIDIAUUID", "AMDUUID", "LevelZeroUUID")


@cache
def read_with_devices(name: str) -> Machine:
    """Read a recorded machine, with its devices."""
    archive = RECORDINGS / f"devices/{name}.tar.gz"
    machine = read_machine(str(archive if archive.exists() else RECORDINGS / f"xml/{name}.xml"))
    rows = json.loads(ANSWERS[name].read_text())
    return machine.replace(devices=number_devices(device for row in rows for device in parse_answer(row)))


def parse_answer(row: dict) -> list[Device]:
    """Make the devices of one PCI function: several with ROCm names are partitions of a GPU."""
    systems = {system["name"]: system for system in row["os"]}
    address = row["bus_id"].lower()
    kind = find_kind(row["class"] or "", row["vendor"] or "", systems)
    if kind is None:
        return []
    partitions = sorted((name for name in systems if name.startswith("rsmi")), key=lambda name: int(name[4:]))
    several = partitions if len(partitions) > 1 else [None]
    return [
        Device(
            kind=DeviceKind(kind),
            index=0,
            address=address,
            partition=None if name is None else number,
            pci_class=row["class"],
            vendor=row["vendor"],
            cpus=CpuSet.from_list(row["near"]),
            names=tuple(systems) if name is None else (name,),
            rdma_names=tuple(name for name, system in systems.items() if system["kind"] == OPENFABRICS),
            uuid=next((s[key] for s in systems.values() for key in UUIDS if key in s), ""),
            ordinal=find_ordinal(systems if name is None else [name]),
        )
        for number, name in enumerate(several)
    ]


def all_visible(machine: Machine) -> VisibleDevices:
    """All devices that ranks can get."""
    return VisibleDevices(devices=tuple(device for device in machine.devices if not device.excluded))
