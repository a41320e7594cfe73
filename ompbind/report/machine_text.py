"""A machine and its parts as text: its size, its limits, and the titles of its domains."""

from collections.abc import Iterator

from ompbind.cpuset import CpuSet, count, named
from ompbind.machine.model import Domain, Level, Machine, Node, find_overlapping
from ompbind.masks.grammar import SELECTABLE
from ompbind.report.text import render_bytes, render_cpus
from ompbind.text import clean_lines


def render_summary(machine: Machine) -> str:
    """Return the size of a machine in one line: "x86_64, 16 CPUs, 8 cores, 2 packages, 2 NUMA nodes"."""
    parts = [count(len(machine.online), "CPU"), count(len(machine.at(Level.CORE)), "core")]
    packages, nodes = machine.at(Level.PACKAGE), machine.nodes  # nodes without CPUs are no domains
    parts += [count(len(packages), Level.PACKAGE.label)] if packages else []
    parts += [count(len(nodes), Level.NODE.label)] if nodes else []
    return ", ".join(parts if machine.arch == "unknown" else [clean_lines(machine.arch), *parts])


def render_limits(machine: Machine) -> Iterator[str]:
    """Yield a line for each limit: what is allowed, offline or excluded by default, core kinds, quota."""
    if machine.allowed != machine.online:
        yield f"allowed: {count(len(machine.allowed), 'CPU')} ({render_cpus(machine.allowed)})"
    with_memory = CpuSet(node.number for node in machine.nodes if node.memory_bytes != 0)
    if machine.memory_allowed is not None and not with_memory <= machine.memory_allowed:
        yield f"memory not allowed: {named('NUMA node', with_memory - machine.memory_allowed)}"
    if machine.offline:
        yield f"offline: {named('CPU', machine.offline)}"
    for name, cpus in machine.exclusion_reasons:
        yield f"{name}: {named('CPU', cpus)} (used only if named in a mask)"
    for kind in machine.kinds:
        yield f"{kind.name} cores: {named('CPU', kind.cpus)} (strength {kind.strength})"
    if machine.quota is not None:
        yield f"CPU time: {count(machine.quota, 'CPU')} (cgroup quota)"


def render_cpuless_node(node: Node) -> Iterator[str]:
    """Yield the parts of the title of a node without CPUs: number and memory, "no CPUs", nearest nodes."""
    yield f"NUMA node {node.number}{_memory(node)}"
    yield "no CPUs"
    if node.nearest:
        yield f"nearest to {named('node', node.nearest)}"


def render_title(machine: Machine, domain: Domain) -> str:
    """Return the name of a domain, of a NUMA node with its memory: "L3 0", "NUMA node 8 = node:1 (128 GiB)".

    "= node:1" is the name in masks. It is added where its number differs: masks count only allowed domains.
    """
    name = _mask_name(machine, domain)
    title = f"{domain.title} = {name}" if name else domain.title
    nodes = machine.nodes if domain.level is Level.NODE else ()
    return title + next((_memory(node) for node in nodes if node.number == domain.os_id), "")


def _memory(node: Node) -> str:
    return "" if node.memory_bytes is None else f" ({render_bytes(node.memory_bytes)})"


def _mask_name(machine: Machine, domain: Domain) -> str:
    """Return the name of a domain in masks, "" if it has the same number or none of its CPUs is allowed."""
    if domain.level not in SELECTABLE or domain.cpus.isdisjoint(machine.allowed):
        return ""
    index = domain.index
    if machine.allowed != machine.online:
        index = len(find_overlapping(machine.at(domain.level)[: domain.index], machine.allowed))
    shown = domain.os_id if domain.level is Level.NODE else domain.index
    return "" if index == shown else f"{domain.level}:{index}"
