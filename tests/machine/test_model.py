"""Domains: their logical numbers follow the machine, not the OS numbers."""

from ompbind.cpuset import CpuSet
from ompbind.machine.model import Level, make_domains
from tests.machines import Shape, make_machine


def sets(machine, level):
    return [str(domain.cpus) for domain in machine.at(level)]


def test_cores_are_numbered_package_after_package():
    machine = make_machine(Shape(packages=2, cores=2, smt=2, numbering="round-robin"))
    assert sets(machine, Level.PACKAGE) == ["0,2,4,6", "1,3,5,7"]
    assert sets(machine, Level.CORE) == ["0,4", "2,6", "1,5", "3,7"]
    assert [core.index for core in machine.at(Level.CORE)] == [0, 1, 2, 3]


def test_levels_are_ordered_by_extent():
    online = CpuSet(range(8))
    halves = [(None, CpuSet(range(4))), (None, CpuSet(range(4, 8)))]
    domains = make_domains(online, {Level.DIE: [(None, online)], Level.NODE: halves})
    assert list(dict.fromkeys(domain.level for domain in domains)) == [Level.DIE, Level.NODE, Level.CORE]


def test_an_online_cpu_in_no_core_gets_a_core_of_its_own():
    domains = make_domains(CpuSet([0, 1, 5]), {Level.CORE: [(None, CpuSet([0, 1, 2]))]})
    assert [str(core.cpus) for core in domains] == ["0-1", "5"]


def test_empty_and_repeated_domains_are_dropped():
    online = CpuSet([0, 1])
    parts = [(0, online), (1, CpuSet([8])), (2, online)]
    domains = make_domains(online, {Level.NODE: parts, Level.CORE: []})
    assert [(domain.level, domain.os_id) for domain in domains if domain.level is Level.NODE] == [
        (Level.NODE, 0)
    ]


def test_domains_of_a_level_never_overlap():
    parts = [(None, CpuSet([0, 1, 2])), (None, CpuSet([2, 3])), (None, CpuSet([0, 3]))]
    domains = make_domains(CpuSet(range(5)), {Level.CORE: parts})
    assert [str(core.cpus) for core in domains] == ["0-2", "3", "4"]
