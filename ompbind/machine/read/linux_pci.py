"""PCI functions from `sys/bus/pci/devices`, and the CPUs that they are near.

    ADDRESS                      a link to the function's directory, with all bridges above it in its path
    ADDRESS/class, vendor, …     what the function is, as "0x030200"
    ADDRESS/local_cpus           the CPUs that it is near, also as `local_cpulist`
    ADDRESS/numa_node            the NUMA node that it is near; -1 if the firmware names none
    ADDRESS/drm, net, …          directories of the names that drivers call it; also links in `sys/class`
    ADDRESS/physfn               for a virtual function, a link to its physical function

A recording may lack `sys/bus`; then the directories below `sys/devices/pci*` are searched.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.machine.devices import is_address, is_hexadecimal
from ompbind.machine.model import Machine, Node
from ompbind.machine.read.root import Root, read_set, whole_number
from ompbind.record import Record

_BUS = "sys/bus/pci/devices"
_NAMES = ("drm", "accel", "net", "infiniband")
_DEPTH_LIMIT = 40  # directories below sys/devices; a kernel allows 255 buses, machines have up to 10 bridges
_NAME_LIMIT = 64  # characters of a name; the kernel allows 15 for interfaces and 63 for RDMA devices


class PciFunction(Record):
    """One PCI function, and the directory of its files; `bridges` are addresses, the nearest first."""

    address: str
    directory: str
    pci_class: str = ""
    bridges: tuple[str, ...] = ()


class Locality(Record):
    """The CPUs that a device is near, and their NUMA node; empty and None if that is not known."""

    cpus: CpuSet = EMPTY
    node: int | None = None


def read_functions(root: Root) -> Iterator[PciFunction]:
    """Yield all PCI functions of a machine, in any order."""
    names = [name for name in root.names(_BUS) if is_address(name)]
    for name in names:
        path = (root.link(f"{_BUS}/{name}") or "").rstrip("/").split("/")
        yield _read_function(root, f"{_BUS}/{name}", [*path[:-1], name])
    if not names:
        for top in root.names("sys/devices"):
            if top.startswith("pci"):
                yield from _search(root, f"sys/devices/{top}", _DEPTH_LIMIT)


def _search(root: Root, directory: str, depth: int) -> Iterator[PciFunction]:
    """Yield the PCI functions below a directory of `sys/devices`."""
    for name in filter(is_address, root.names(directory)):
        path = f"{directory}/{name}"
        yield _read_function(root, path, path.split("/"))
        if depth:
            yield from _search(root, path, depth - 1)


def _read_function(root: Root, directory: str, path: list[str]) -> PciFunction:
    return PciFunction(
        address=path[-1],
        directory=directory,
        pci_class=read_number(root, f"{directory}/class"),
        bridges=tuple(name for name in reversed(path[:-1]) if is_address(name)),
    )


def read_number(root: Root, path: str) -> str:
    """Return a number of a PCI function in 4 hexadecimal digits, as "10de"; "" if it is unknown.

    The class has 2 more digits, which are dropped: they are the programming interface.
    """
    digits = (root.read(path) or "").strip().lower().removeprefix("0x")
    return digits[:4] if len(digits) in (4, 6) and is_hexadecimal(digits) else ""


def read_linked_names(root: Root) -> Mapping[tuple[str, str], Sequence[str]]:
    """Read what drivers call PCI functions from the links in `sys/class`: names by (address, class).

    The interface of a virtio device is below a directory of its own, and has only this link to the function.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for kind in _NAMES:
        for name in root.names(f"sys/class/{kind}"):
            path = (root.link(f"sys/class/{kind}/{name}") or "").split("/")
            address = next(filter(is_address, reversed(path)), "")
            if address and path[-2] == kind:  # connectors of a graphics card are one directory deeper
                found.setdefault((address, kind), []).append(name)
    return found


def read_names(
    root: Root, function: PciFunction, linked: Mapping[tuple[str, str], Sequence[str]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read what drivers call a PCI function, from its directory, in addition to the names in links.

    Returns all names, and the names for RDMA libraries.
    """
    found = {kind: set(linked.get((function.address, kind), ())) for kind in _NAMES}
    for kind in found.keys() & set(root.names(function.directory)):
        found[kind].update(root.names(f"{function.directory}/{kind}"))
    names = [name for kind in _NAMES for name in _sort_usable(found[kind])]
    return tuple(dict.fromkeys(names)), tuple(_sort_usable(found["infiniband"]))


def _sort_usable(names: Iterable[str]) -> list[str]:
    """Return the names that fit into variables and messages, in the order of their numbers."""
    usable = (name for name in names if len(name) <= _NAME_LIMIT and name.isascii() and name.isprintable())
    return sorted((name for name in usable if not {" ", ","} & set(name)), key=_by_number)


def _by_number(name: str) -> tuple[str, int, str]:
    stem = name.rstrip("0123456789")
    return stem, len(name) - len(stem), name


def read_link_target(root: Root, function: PciFunction, name: str) -> str:
    """Return the last part of a link of a function, as a driver or another function; "" without the link."""
    return (root.link(f"{function.directory}/{name}") or "").rstrip("/").rpartition("/")[2]


def read_locality(root: Root, function: PciFunction, machine: Machine) -> Locality:
    """Read which CPUs a PCI function is near: its own files decide, else the files of the bridges above it.

    Without any of them, a machine with one NUMA node has only one answer. With several nodes the locality is
    not known: -1 is never node 0, and never all nodes.
    """
    above = function.directory.split("/")[:-1]
    below_bus = function.directory.startswith(_BUS)
    bridges = [
        f"{_BUS}/{bridge}" if below_bus else "/".join(above[: len(above) - level])
        for level, bridge in enumerate(function.bridges)
    ]
    found = (_read_own_locality(root, path, machine) for path in (function.directory, *bridges))
    return next(filter(None, found), Locality())


def _read_own_locality(root: Root, directory: str, machine: Machine) -> Locality | None:
    """Read the locality that the files of one function give; None if they leave it open.

    The mask is read before the list: old kernels truncate lists. A mask of all CPUs means "not known" if the
    kernel names no node.
    """
    local = read_set(root, [(f"{directory}/local_cpus", f"{directory}/local_cpulist")])
    local = (local or EMPTY) & machine.online
    number = whole_number(root.read(f"{directory}/numa_node"))
    node = next((node for node in machine.nodes if node.number == number), None)
    if node is None and len(machine.nodes) == 1:
        node = machine.nodes[0]
    if node:
        return _find_near_node(machine, node, local)
    return _find_around(machine, local) if local and local != machine.online else None


def _find_near_node(machine: Machine, node: Node, local: CpuSet) -> Locality:
    """Return the locality of a function whose node is known.

    If its CPUs are all in other nodes, the CPUs decide: interrupts go there, and other tools trust them, too.
    """
    nearest = [other for other in machine.nodes if other.number in node.nearest]
    cpus = node.cpus or union(other.cpus for other in nearest)
    if local and local.isdisjoint(cpus):
        return _find_around(machine, local)
    number = node.number if node.cpus or not nearest else nearest[0].number
    return Locality(cpus=local & cpus or cpus, node=number)


def _find_around(machine: Machine, cpus: CpuSet) -> Locality:
    """Return the locality of a function with known CPUs; the node is None if they are in several nodes."""
    around = [node.number for node in machine.nodes if not node.cpus.isdisjoint(cpus)]
    return Locality(cpus=cpus, node=around[0] if len(around) == 1 else None)
