"""Compare what ompbind reads from recorded machines with the result of an independent reader, the oracle.

    python tests/oracle_report.py [DIRECTORY]

DIRECTORY, or else the variable OMPTEST_TOPOLOGIES, contains `dumps/NAME.tar.gz`, `oracle/NAME.json` and
`compare.json`, which names the fields with known differences. Prints for each dump and field whether the two
agree, what differs, and a total. The exit code is 1 if anything differs. A field is "corrected" if ompbind
corrects an error in the files and has a remark on it.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from ompbind.cpuset import CpuSet, union
from ompbind.errors import MachineError
from ompbind.machine.model import Level, Machine
from ompbind.machine.sources.reading import read_machine
from ompbind.record import Record
from tests.recordings import RECORDINGS

Oracle = dict[str, Any]


class Finding(Record):
    """One field of one dump: the verdict ("agree", "corrected", "excused", "DIFFER"), and details."""

    dump: str
    field: str
    verdict: str
    detail: str = ""


def sets(values: Iterator[str] | list[str]) -> frozenset[CpuSet]:
    return frozenset(cpus for text in values if (cpus := CpuSet.from_list(text)))


def extents(machine: Machine, level: Level) -> frozenset[CpuSet]:
    return frozenset(domain.cpus for domain in machine.at(level))


def grouped(oracle: Oracle, key: str) -> frozenset[CpuSet]:
    """The CPUs grouped by a number; CPUs without this number are left out."""
    groups: dict[int, list[int]] = {}
    for pu in oracle["pus"]:
        if pu[key] is not None:
            groups.setdefault(pu[key], []).append(pu["os"])
    return frozenset(CpuSet(cpus) for cpus in groups.values())


def nodes_with_cpus(machine: Machine, oracle: Oracle) -> tuple[object, object]:
    """The node of each CPU: in the oracle, the first of its closest nodes."""
    ours = {node.number: node.cpus for node in machine.nodes if node.cpus}
    theirs: dict[int, list[int]] = {}
    for pu in oracle["pus"]:
        if pu["numa_local"]:
            theirs.setdefault(pu["numa_local"][0], []).append(pu["os"])
    return ours, {number: CpuSet(cpus) for number, cpus in theirs.items()}


def nodes_without_cpus(machine: Machine, oracle: Oracle) -> tuple[object, object]:
    """The CPUs nearest to each node without CPUs; near all CPUs is the same as near none."""
    cpus = {node.number: node.cpus for node in machine.nodes}
    all_cpus = union(cpus.values())
    local = {node["os"]: CpuSet.from_list(node["cpus"]) for node in oracle["numa"]}
    cpuless = [node for node in machine.nodes if not node.cpus and node.number in local]
    ours = {node.number: union(cpus[near] for near in node.nearest) or all_cpus for node in cpuless}
    theirs = {node.number: local[node.number] or all_cpus for node in cpuless}
    return ours, theirs


def distances(machine: Machine, oracle: Oracle) -> tuple[object, object]:
    """The distances between nodes that both readers have."""
    matrix = next((found for found in oracle["numa_distances"] if found["indexing"] == "os"), None)
    if matrix is None:
        return None, None
    numbers = [node.number for node in machine.nodes]
    ours = {
        (node.number, to): distance
        for node in machine.nodes
        for to, distance in zip(numbers, node.distances, strict=False)
    }
    theirs = {
        (node, to): distance
        for node, row in zip(matrix["nodes"], matrix["values"], strict=True)
        for to, distance in zip(matrix["nodes"], row, strict=True)
    }
    shared = ours.keys() & theirs.keys()
    return {pair: ours[pair] for pair in shared}, {pair: theirs[pair] for pair in shared}


def memory(machine: Machine, oracle: Oracle) -> tuple[object, object]:
    ours = {node.number: node.memory_bytes or 0 for node in machine.nodes}
    theirs = {node["os"]: node["local_memory"] or 0 for node in oracle["numa"]}
    return ours, theirs


def groups(level: Level, kind: str) -> Callable[[Machine, Oracle], tuple[object, object]]:
    """Return the comparison of a level that the oracle has as groups, unless they equal another level."""

    def compare(machine: Machine, oracle: Oracle) -> tuple[object, object]:
        found = [
            group["cpus"]
            for group in oracle["groups"]
            if group.get("subtype") == kind and group.get("kind") != "100"  # 100: made from distances
        ]
        others = frozenset(domain.cpus for domain in machine.domains if domain.level is not level)
        return extents(machine, level) - others, sets(found) - others

    return compare


FIELDS: dict[str, tuple[str, Callable[[Machine, Oracle], tuple[object, object]]]] = {
    "online": ("", lambda m, o: (m.online, CpuSet.from_list(o["online"]))),
    "allowed": ("", lambda m, o: (m.allowed, CpuSet.from_list(o["allowed"]))),
    "cores": ("cores", lambda m, o: (extents(m, Level.CORE), grouped(o, "core_logical"))),
    "siblings": ("cores", lambda m, o: (extents(m, Level.CORE), sets([p["siblings"] for p in o["pus"]]))),
    "packages": ("packages", lambda m, o: (extents(m, Level.PACKAGE), grouped(o, "package_logical"))),
    "dies": ("dies", lambda m, o: (extents(m, Level.DIE), grouped(o, "die_logical"))),
    "l2": ("l2", lambda m, o: (extents(m, Level.L2), grouped(o, "l2"))),
    "l3": ("l3", lambda m, o: (extents(m, Level.L3), grouped(o, "l3"))),
    "clusters": ("clusters", groups(Level.CLUSTER, "Cluster")),
    "books": ("books", groups(Level.BOOK, "Book")),
    "drawers": ("drawers", groups(Level.DRAWER, "Drawer")),
    "nodes": ("nodes", nodes_with_cpus),
    "cpuless_nodes": ("nodes", nodes_without_cpus),
    "memory": ("nodes", memory),
    "distances": ("nodes", distances),
}
"""All fields: the name in `compare.json` that excuses a difference, and a function that returns both values.

`cpuless_nodes` and `virtual_node` in compare.json excuse nothing: ompbind agrees in these fields, too.
"""


def corrected(machine: Machine, field: str, theirs: object) -> str:
    """The remark on a correction that explains a difference, "" for other differences.

    ompbind joins halves of packages. The oracle keeps them, each half inside one of ompbind's packages.
    """
    remark = next((remark for remark in machine.remarks if "halves of packages" in remark), "")
    if field != "packages" or not isinstance(theirs, frozenset):
        return ""
    ours = extents(machine, Level.PACKAGE)
    return remark if all(any(half <= whole for whole in ours) for half in theirs) else ""


def without(machine: Machine, silent: CpuSet) -> Machine:
    """The machine without online CPUs that are in no other file: the oracle takes them for absent."""
    domains = (domain.replace(cpus=domain.cpus - silent) for domain in machine.domains)
    return machine.replace(
        online=machine.online - silent,
        allowed=machine.allowed - silent,
        domains=tuple(domain for domain in domains if domain.cpus),
        nodes=tuple(node.replace(cpus=node.cpus - silent) for node in machine.nodes),
    )


def shown(value: object) -> str:
    if isinstance(value, frozenset):
        return " ".join(sorted(map(str, value)))[:150] or "none"
    if isinstance(value, dict):
        return " ".join(f"{key}:{item}" for key, item in sorted(value.items()))[:150]
    return str(value)


def compare_dump(directory: Path, name: str, skip: dict[str, str]) -> Iterator[Finding]:
    """Yield the findings about one dump; a dump that the oracle refuses agrees in any case."""
    oracle: Oracle = json.loads((directory / f"oracle/{name}.json").read_text())
    try:
        machine = read_machine(str(directory / f"dumps/{name}.tar.gz"))
    except MachineError as error:
        verdict = "agree" if "error" in oracle else "DIFFER"
        yield Finding(dump=name, field="readable", verdict=verdict, detail=str(error))
        return
    if "error" in oracle:
        detail = "; ".join(machine.remarks) or f"ompbind reads {shown(machine.online)}"
        yield Finding(dump=name, field="readable", verdict="agree", detail=detail)
        return
    silent = machine.online - CpuSet(pu["os"] for pu in oracle["pus"])
    remark = next((remark for remark in machine.remarks if remark.startswith("core siblings of")), "")
    if silent and remark:
        detail = f"online {shown(silent)}: {remark}"
        yield Finding(dump=name, field="silent", verdict="corrected", detail=detail)
        machine = without(machine, silent)
    for field, (excuse, values) in FIELDS.items():
        ours, theirs = values(machine, oracle)
        if ours == theirs:
            yield Finding(dump=name, field=field, verdict="agree")
        elif remark := corrected(machine, field, theirs):
            yield Finding(dump=name, field=field, verdict="corrected", detail=remark)
        else:
            verdict = "excused" if excuse in skip else "DIFFER"
            detail = skip.get(excuse, f"ompbind {shown(ours)}, oracle {shown(theirs)}")
            yield Finding(dump=name, field=field, verdict=verdict, detail=detail)


def compare_directory(directory: Path) -> Iterator[Finding]:
    compare = json.loads((directory / "compare.json").read_text())
    for path in sorted((directory / "oracle").glob("*.json")):
        yield from compare_dump(directory, path.stem, compare.get(path.stem, {}).get("skip", {}))


def main() -> int:
    findings = list(compare_directory(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDINGS))
    for dump in dict.fromkeys(finding.dump for finding in findings):
        of_dump = [finding for finding in findings if finding.dump == dump]
        agreed = [finding.field for finding in of_dump if finding.verdict == "agree"]
        print(f"{dump}: agree: {' '.join(agreed) or '-'}")
        for finding in of_dump:
            if finding.verdict != "agree" or finding.detail:
                print(f"  {finding.verdict}: {finding.field}: {finding.detail}")
    verdicts = [finding.verdict for finding in findings]
    dumps = len({finding.dump for finding in findings})
    print(f"{dumps} dumps: agree {verdicts.count('agree')}, "
          f"corrected {verdicts.count('corrected')}, "
          f"excused by compare.json {verdicts.count('excused')}, "
          f"total differs = {verdicts.count('DIFFER')}")  # fmt: skip
    return 1 if "DIFFER" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
