"""Compare what ompbind reads from recorded machines with an independent reader's account of the same files.

    python tests/oracle_report.py [FOLDER]

FOLDER, else OMPBIND_TOPOLOGIES of the environment, holds `dumps/NAME.tar.gz`, `oracle/NAME.json` and
`compare.json`, which names the fields in which the other reader is known to see something else. Prints, for
each dump and field, whether the two agree, what differs, and a total; the exit code is 1 if anything differs.
Where ompbind knows better than the files and says so in a remark, the field is told as corrected.
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
from ompbind.machine.sources.table import read_machine
from ompbind.record import Record
from tests.recordings import RECORDINGS

Oracle = dict[str, Any]


class Finding(Record):
    """One field of one dump: how the two accounts compare, and both of them where they differ."""

    dump: str
    field: str
    verdict: str
    detail: str = ""


def sets(values: Iterator[str] | list[str]) -> frozenset[CpuSet]:
    return frozenset(cpus for text in values if (cpus := CpuSet.from_list(text)))


def extents(machine: Machine, level: Level) -> frozenset[CpuSet]:
    return frozenset(domain.cpus for domain in machine.at(level))


def grouped(oracle: Oracle, key: str) -> frozenset[CpuSet]:
    """The partition that a number of each CPU makes; CPUs without one are left out."""
    groups: dict[int, list[int]] = {}
    for pu in oracle["pus"]:
        if pu[key] is not None:
            groups.setdefault(pu[key], []).append(pu["os"])
    return frozenset(CpuSet(cpus) for cpus in groups.values())


def nodes_with_cpus(machine: Machine, oracle: Oracle) -> tuple[object, object]:
    """The node of every CPU: the first of those that are closest to it."""
    mine = {node.number: node.cpus for node in machine.nodes if node.cpus}
    theirs: dict[int, list[int]] = {}
    for pu in oracle["pus"]:
        if pu["numa_local"]:
            theirs.setdefault(pu["numa_local"][0], []).append(pu["os"])
    return mine, {number: CpuSet(cpus) for number, cpus in theirs.items()}


def nodes_without_cpus(machine: Machine, oracle: Oracle) -> tuple[object, object]:
    """What each node without CPUs is near to; near to all alike is the same as near to none."""
    own = {node.number: node.cpus for node in machine.nodes}
    everywhere = union(own.values())
    local = {node["os"]: CpuSet.from_list(node["cpus"]) for node in oracle["numa"]}
    lonely = [node for node in machine.nodes if not node.cpus and node.number in local]
    mine = {node.number: union(own[near] for near in node.nearest) for node in lonely}
    theirs = {node.number: local[node.number] or everywhere for node in lonely}
    return {number: near or everywhere for number, near in mine.items()}, theirs


def distances(machine: Machine, oracle: Oracle) -> tuple[object, object]:
    """How far each node is from each that both know."""
    told = next((one for one in oracle["numa_distances"] if one["indexing"] == "os"), None)
    if told is None:
        return None, None
    numbers = [node.number for node in machine.nodes]
    mine = {
        (node.number, to): far
        for node in machine.nodes
        for to, far in zip(numbers, node.distances, strict=False)
    }
    theirs = {
        (node, to): far
        for node, row in zip(told["nodes"], told["values"], strict=True)
        for to, far in zip(told["nodes"], row, strict=True)
    }
    shared = mine.keys() & theirs.keys()
    return {pair: mine[pair] for pair in shared}, {pair: theirs[pair] for pair in shared}


def memory(machine: Machine, oracle: Oracle) -> tuple[object, object]:
    mine = {node.number: node.memory_bytes or 0 for node in machine.nodes}
    theirs = {node["os"]: node["local_memory"] or 0 for node in oracle["numa"]}
    return mine, theirs


def groups(level: Level, kind: str) -> Callable[[Machine, Oracle], tuple[object, object]]:
    """Compare a level that the other reader has as groups, save those that it merges with other levels."""

    def compare(machine: Machine, oracle: Oracle) -> tuple[object, object]:
        found = [group["cpus"] for group in oracle["groups"] if group.get("subtype") == kind and told(group)]
        others = frozenset(domain.cpus for domain in machine.domains if domain.level is not level)
        return extents(machine, level) - others, sets(found) - others

    def told(group: dict[str, Any]) -> bool:
        return group.get("kind") != "100"  # made from distances, not told by the kernel

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
"""Every field: the one of `compare.json` that excuses it, and how both accounts of it are had.

`cpuless_nodes` and `virtual_node` of compare.json excuse nothing: ompbind agrees in these as well.
"""


def corrected(machine: Machine, field: str, theirs: object) -> str:
    """The remark by which ompbind says that it knows better than the files, "" when it is no such case.

    Packages told in halves are joined; the other reader leaves the halves, each in one of ompbind's packages.
    """
    told = next((remark for remark in machine.remarks if "in halves" in remark), "")
    if field != "packages" or not isinstance(theirs, frozenset):
        return ""
    mine = extents(machine, Level.PACKAGE)
    return told if all(any(half <= whole for whole in mine) for half in theirs) else ""


def without(machine: Machine, silent: CpuSet) -> Machine:
    """The machine without online CPUs of which no file tells: the other reader takes them for absent."""
    domains = (one.replace(cpus=one.cpus - silent) for one in machine.domains)
    return machine.replace(
        online=machine.online - silent,
        allowed=machine.allowed - silent,
        domains=tuple(one for one in domains if one.cpus),
        nodes=tuple(node.replace(cpus=node.cpus - silent) for node in machine.nodes),
    )


def shown(value: object) -> str:
    if isinstance(value, frozenset):
        return " ".join(sorted(map(str, value)))[:150] or "none"
    if isinstance(value, dict):
        return " ".join(f"{key}:{one}" for key, one in sorted(value.items()))[:150]
    return str(value)


def compare_dump(folder: Path, name: str, skip: dict[str, str]) -> Iterator[Finding]:
    """Yield the findings about one dump; one that the other reader refuses must end in an error or remark."""
    oracle: Oracle = json.loads((folder / f"oracle/{name}.json").read_text())
    try:
        machine = read_machine(str(folder / f"dumps/{name}.tar.gz"))
    except MachineError as error:
        verdict = "agree" if "error" in oracle else "DIFFER"
        yield Finding(dump=name, field="readable", verdict=verdict, detail=str(error))
        return
    if "error" in oracle:
        detail = "; ".join(machine.remarks) or f"ompbind reads {shown(machine.online)}"
        yield Finding(dump=name, field="readable", verdict="agree", detail=detail)
        return
    silent = machine.online - CpuSet(pu["os"] for pu in oracle["pus"])
    told = next((one for one in machine.remarks if "no file tells the cores" in one), "")
    if silent and told:
        yield Finding(
            dump=name, field="silent", verdict="corrected", detail=f"online {shown(silent)}: {told}"
        )
        machine = without(machine, silent)
    for field, (excuse, accounts) in FIELDS.items():
        mine, theirs = accounts(machine, oracle)
        if mine == theirs:
            yield Finding(dump=name, field=field, verdict="agree")
        elif told := corrected(machine, field, theirs):
            yield Finding(dump=name, field=field, verdict="corrected", detail=told)
        else:
            verdict = "excused" if excuse in skip else "DIFFER"
            detail = skip.get(excuse, f"ompbind {shown(mine)}, oracle {shown(theirs)}")
            yield Finding(dump=name, field=field, verdict=verdict, detail=detail)


def compare_folder(folder: Path) -> Iterator[Finding]:
    compare = json.loads((folder / "compare.json").read_text())
    for path in sorted((folder / "oracle").glob("*.json")):
        yield from compare_dump(folder, path.stem, compare.get(path.stem, {}).get("skip", {}))


def main() -> int:
    findings = list(compare_folder(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDINGS))
    for dump in dict.fromkeys(one.dump for one in findings):
        own = [one for one in findings if one.dump == dump]
        agreed = [one.field for one in own if one.verdict == "agree"]
        print(f"{dump}: agree: {' '.join(agreed) or '-'}")
        for one in own:
            if one.verdict != "agree" or one.detail:
                print(f"  {one.verdict}: {one.field}: {one.detail}")
    verdicts = [one.verdict for one in findings]
    dumps = len({one.dump for one in findings})
    print(f"{dumps} dumps: agree {verdicts.count('agree')}, "
          f"corrected {verdicts.count('corrected')}, "
          f"excused by compare.json {verdicts.count('excused')}, "
          f"total differs = {verdicts.count('DIFFER')}")  # fmt: skip
    return 1 if "DIFFER" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
