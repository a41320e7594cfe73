"""A machine for programs: JSON, schema ompbind-topo/1."""

import json
from collections.abc import Iterator

from ompbind.machine.core_kinds import kind_by_cpu
from ompbind.machine.fingerprint import make_fingerprint
from ompbind.machine.model import Level, Machine, index_by_cpu
from ompbind.report.device_json import device_record


def render_json(machine: Machine) -> str:
    """Render the machine as JSON, schema ompbind-topo/1: CPU sets as list text, memory in bytes."""
    record = {
        "schema": "ompbind-topo/1",
        "source": machine.source,
        "arch": machine.arch,
        "online": str(machine.online),
        "allowed": str(machine.allowed),
        "offline": str(machine.offline),
        "isolated": str(machine.isolated),
        "nohz_full": str(machine.nohz_full),
        "quota_cpus": machine.quota,
        "memory_allowed": None if machine.memory_allowed is None else str(machine.memory_allowed),
        "cpus": list(_cpu_records(machine)),
        "nodes": [
            {
                "node": node.number,
                "cpus": str(node.cpus),
                "memory_bytes": node.memory_bytes,
                "distances": list(node.distances),
                "nearest": list(node.nearest),
            }
            for node in machine.nodes
        ],
        "kinds": [
            {"kind": kind.name, "cpus": str(kind.cpus), "strength": kind.strength, "told_by": kind.source}
            for kind in machine.kinds
        ],
        "os_ids": [
            {"level": domain.level, "index": domain.index, "os_id": domain.os_id}
            for domain in machine.domains
            if domain.os_id is not None and domain.level is not Level.NODE
        ],
        "devices": list(map(device_record, machine.devices)),
        "bindable": machine.bindable,
        "remarks": list(machine.remarks),
        "fingerprint": make_fingerprint(machine).as_dict(),
    }
    return json.dumps(record, indent=2)


def _cpu_records(machine: Machine) -> Iterator[dict[str, object]]:
    columns = {str(level): index_by_cpu(machine.at(level)) for level in Level if level is not Level.NODE}
    node_of = {cpu: node.number for node in machine.nodes for cpu in node.cpus}
    kind_of = kind_by_cpu(machine.kinds)
    for cpu in machine.online:
        yield {
            "cpu": cpu,
            **{name: column.get(cpu) for name, column in columns.items()},
            "node": node_of.get(cpu),
            "kind": kind_of.get(cpu),
            "allowed": cpu in machine.allowed,
        }
