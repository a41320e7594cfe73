"""The sample machines: what each has, that JSON keeps it, and plans for it."""

import re
from importlib import resources
from pathlib import Path

import pytest

from ompbind.cli.topo import render_json
from ompbind.cpuset import CpuSet, union
from ompbind.errors import MachineError
from ompbind.machine.model import Level
from ompbind.machine.read import read_machine
from ompbind.machine.read.sources import SAMPLE, SAMPLES, complete_source
from tests.tables import rows

NAMES = list(SAMPLES)


def read(name):
    return read_machine(f"{SAMPLE}{name}", devices=True)


COUNTS = rows("""
    two-sockets | x86_64 | 16 | package=2 node=2 l3=2 l2=8 core=8 | 3:3,11
    four-gpus | x86_64 | 32 | package=2 node=2 l3=2 core=16 | 0:0,16
    eight-nodes | x86_64 | 32 | package=2 node=8 l3=8 core=32 | 31:31
    epyc-2p | x86_64 | 384 | package=2 node=8 l3=24 l2=192 core=192 | 191:191,383
    xeon-max-2p | x86_64 | 224 | package=2 l3=2 node=8 l2=112 core=112 | 111:111,223
    dgx-a100 | x86_64 | 256 | package=2 node=8 l3=32 l2=128 core=128 | 48:48,176
    core-i9 | x86_64 | 32 | package=1 node=1 l3=1 l2=12 core=24 | 15:14-15
    grace-2p | aarch64 | 144 | package=2 node=2 l3=2 l2=144 core=144 | 143:143
    power9-2p | ppc64le | 160 | package=2 node=2 l3=20 l2=20 core=40 | 5:4-7
    z15-partition | s390x | 96 | node=1 drawer=2 book=4 package=8 l3=8 l2=48 core=48 | 95:94-95
""")
"""Name, architecture, CPUs, the number of domains of each level, and the siblings of a CPU."""


@pytest.mark.parametrize(
    ("name", "arch", "cpus", "domains", "siblings"), COUNTS, ids=[row[0] for row in COUNTS]
)
def test_samples_have_what_they_model(name, arch, cpus, domains, siblings, tmp_path):
    machine = read(name)
    assert (machine.source, machine.arch) == (f"sample:{name}", arch)
    assert machine.online == machine.allowed == CpuSet(range(int(cpus)))
    assert " ".join(f"{level}={len(machine.at(level))}" for level in machine.levels) == domains
    assert machine.remarks == ()
    for level in machine.levels:
        assert union(domain.cpus for domain in machine.at(level)) == machine.online
    cpu, _, core = siblings.partition(":")
    assert [str(found.cpus) for found in machine.at(Level.CORE) if int(cpu) in found.cpus] == [core]
    facts = {"isolated": CpuSet([1]), "nohz_full": CpuSet([2]), "offline": CpuSet([999]), "quota": 0.5,
             "allowed": CpuSet([1, 3]), "memory_allowed": CpuSet([0]), "remarks": ("a remark",)}  # fmt: skip
    sizes = {(level, cpu): (cpu // 8 + 1) << 20 for level in (Level.L2, Level.L3) for cpu in machine.online}
    for written in (machine, machine.replace(**facts).with_cache_sizes(sizes)):
        (tmp_path / "machine.json").write_text(render_json(written))
        again = read_machine(str(tmp_path / "machine.json"), devices=True)
        assert again.replace(source=machine.source) == written


def test_samples_are_those_of_the_table():
    assert [row[0] for row in COUNTS] == NAMES
    files = resources.files("ompbind.machine.read").joinpath("sample_machines").iterdir()
    assert {file.name.removesuffix(".json") for file in files} == set(NAMES)
    page = (Path(__file__).parents[3] / "docs/machines.md").read_text()
    assert re.findall(r"^\| `sample:(.+)` \| ", page, re.M) == ["NAME", *NAMES]


@pytest.mark.parametrize(("source", "message", "hint"), rows("""
    sample:epyc       | there is no sample machine 'epyc'       | did you mean sample:epyc-2p?
    sample:unheard-of | there is no sample machine 'unheard-of' | use one of: sample:two-sockets (
    sample:           | 'sample:' lacks a name                  | use one of: sample:two-sockets (
    epyc-2p           | does not exist                          | write sample:epyc-2p
"""))  # fmt: skip
def test_a_wrong_name_is_an_error_with_a_similar_name_first_and_all_names(source, message, hint):
    with pytest.raises(MachineError) as found:
        read_machine(source)
    assert message in found.value.message
    assert found.value.hint.startswith(hint)
    if source.startswith(SAMPLE):
        assert all(f"sample:{name} ({words})" in found.value.hint for name, words in SAMPLES.items())


def test_names_are_completed():
    assert complete_source("s") == ["live", "synthetic:", *(f"sample:{name}" for name in NAMES)]
    assert complete_source("") == []  # files are completed then
