"""Compare what ompbind reads from recorded machines with the result of an independent reader, the oracle."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ompbind.cpuset import CpuSet, union
from ompbind.errors import MachineError
from ompbind.machine.model import Level, Machine
from ompbind.machine.read import read_machine

Oracle = dict[str, Any]


def sets(values: Iterable[str]) -> frozenset[CpuSet]:
    return frozenset(cpus for text in values if (cpus := CpuSet.from_list(text)))


def extents(machine: Machine, level: Level) -> frozenset[CpuSet]:
    return frozenset(domain.cpus for domain in machine.at(level))


def gather(pairs: Iterable[tuple[Any, int]]) -> dict[Any, CpuSet]:
    """The CPUs of each number; CPUs without a number are left out."""
    groups: dict[Any, list[int]] = {}
    for number, cpu in pairs:
        if number is not None:
            groups.setdefault(number, []).append(cpu)
    return {number: CpuSet(cpus) for number, cpus in groups.items()}


def grouped(oracle: Oracle, key: str) -> frozenset[CpuSet]:
    return frozenset(gather((pu[key], pu["os"]) for pu in oracle["pus"]).values())


def nodes_without_cpus(machine: Machine, oracle: Oracle) -> tuple[object, object]:
    """The CPUs nearest to each node without CPUs; near all CPUs is the same as near none."""
    cpus = {node.number: node.cpus for node in machine.nodes}
    all_cpus = union(cpus.values())
    local = {node["os"]: CpuSet.from_list(node["cpus"]) for node in oracle["numa"]}
    cpuless = [node for node in machine.nodes if not node.cpus and node.number in local]
    ours = {node.number: union(cpus[near] for near in node.nearest) or all_cpus for node in cpuless}
    return ours, {node.number: local[node.number] or all_cpus for node in cpuless}


def distances(machine: Machine, oracle: Oracle) -> tuple[object, object]:
    """The distances between nodes that both readers have."""
    matrix = next((found for found in oracle["numa_distances"] if found["indexing"] == "os"), None)
    if matrix is None:
        return None, None
    numbers = [node.number for node in machine.nodes]

    def pairs(numbers: list[int], rows: Iterable[Iterable[int]]) -> dict[tuple[int, int], int]:
        named = zip(numbers, rows, strict=True)
        return {(node, to): value for node, row in named for to, value in zip(numbers, row, strict=False)}

    ours = pairs(numbers, [node.distances for node in machine.nodes])
    theirs = pairs(matrix["nodes"], matrix["values"])
    shared = ours.keys() & theirs.keys()
    return {pair: ours[pair] for pair in shared}, {pair: theirs[pair] for pair in shared}


def groups(machine: Machine, oracle: Oracle, level: Level, kind: str) -> tuple[object, object]:
    """A level that the oracle has as groups, unless they equal another level."""
    found = [
        group["cpus"]
        for group in oracle["groups"]
        if group.get("subtype") == kind and group.get("kind") != "100"  # 100: made from distances
    ]
    others = frozenset(domain.cpus for domain in machine.domains if domain.level is not level)
    return extents(machine, level) - others, sets(found) - others


def compare_fields(machine: Machine, oracle: Oracle) -> Iterator[tuple[str, str, tuple[object, object]]]:
    """Yield each field, the name in `compare.json` that excuses a difference, and both values."""
    yield "online", "", (machine.online, CpuSet.from_list(oracle["online"]))
    yield "allowed", "", (machine.allowed, CpuSet.from_list(oracle["allowed"]))
    siblings = sets(pu["siblings"] for pu in oracle["pus"])
    yield "siblings", "cores", (extents(machine, Level.CORE), siblings)
    for name, level, key in (
        ("cores", Level.CORE, "core_logical"),
        ("packages", Level.PACKAGE, "package_logical"),
        ("dies", Level.DIE, "die_logical"),
        ("l2", Level.L2, "l2"),
        ("l3", Level.L3, "l3"),
    ):
        yield name, name, (extents(machine, level), grouped(oracle, key))
    for name, level in (("clusters", Level.CLUSTER), ("books", Level.BOOK), ("drawers", Level.DRAWER)):
        yield name, name, groups(machine, oracle, level, name[:-1].title())
    # the first of the closest nodes of each CPU
    closest = gather((pu["numa_local"][0], pu["os"]) for pu in oracle["pus"] if pu["numa_local"])
    yield "nodes", "nodes", ({node.number: node.cpus for node in machine.nodes if node.cpus}, closest)
    yield "cpuless_nodes", "nodes", nodes_without_cpus(machine, oracle)
    memory = {node["os"]: node["local_memory"] or 0 for node in oracle["numa"]}
    yield "memory", "nodes", ({node.number: node.memory_bytes or 0 for node in machine.nodes}, memory)
    yield "distances", "nodes", distances(machine, oracle)


def find_differences(directory: Path, name: str, skip: Iterable[str]) -> Iterator[str]:
    """Yield what differs in one dump, except for fields with known differences; refused by both is equal."""
    oracle: Oracle = json.loads((directory / f"oracle/{name}.json").read_text())
    try:
        machine = read_machine(str(directory / f"dumps/{name}.tar.gz"))
    except MachineError as error:
        yield from [] if "error" in oracle else [f"ompbind refuses it: {error}"]
        return
    for field, excuse, (ours, theirs) in () if "error" in oracle else compare_fields(machine, oracle):
        if ours != theirs and excuse not in skip:
            yield f"{field}: ompbind {ours}, oracle {theirs}"
