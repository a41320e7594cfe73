"""Other programs read the same machine: hwloc and util-linux, from files and from descriptions."""

import pytest

from ompbind.machine.model import Level
from ompbind.machine.read import read_machine
from ompbind.machine.read.hwloc_xml import parse_xml
from ompbind.machine.read.synthetic import parse_synthetic
from tests.live.conftest import required, run_program
from tests.machines import Shape, write_tree

SHAPES = [
    Shape(packages=2, nodes=2, l3s=2, cores=2, smt=2, numbering="round-robin"),
    Shape(packages=1, l3s=2, cores=3), Shape(packages=4, cores=2, smt=4, numbering="adjacent"),
]  # fmt: skip


def extents(machine, level):
    return [domain.cpus for domain in machine.at(level)]


def run(*command, **env):
    return run_program(*command, env=env, text=False, check=True).stdout


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_lstopo_and_lscpu_of_the_same_files_give_the_same_machine(tmp_path, shape):
    count = shape.all_cores * shape.smt
    vendor = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 45\nmodel name\t: X\n\n"
    files = {
        "proc/cpuinfo": "".join(f"processor\t: {cpu}\n{vendor}" for cpu in range(count)),
        "sys/devices/system/cpu/possible": f"0-{count - 1}\n",
        "sys/devices/system/cpu/kernel_max": "255\n",
    }
    files |= {f"sys/devices/system/cpu/cpu{cpu}/topology/core_id": "0\n" for cpu in range(count)}
    tree = write_tree(tmp_path / "tree", shape, files)
    machine = read_machine(str(tree))
    lstopo = {"HWLOC_FSROOT": str(tree), "HWLOC_COMPONENTS": "linux,stop", "HWLOC_THISSYSTEM": "0"}
    command = (required("lstopo-no-graphics", "lstopo"), "--of", "xml", "-")
    from_xml = parse_xml(run(*command, **lstopo), "xml")
    for level in (Level.PACKAGE, Level.NODE, Level.L3, Level.CORE):
        assert extents(from_xml, level) == extents(machine, level)
    assert [node.memory_bytes for node in from_xml.nodes] == [node.memory_bytes for node in machine.nodes]
    for directory in (tree / "sys/devices/system/cpu").glob("cpu*/topology"):  # names of old kernels
        (directory / "core_cpus").rename(directory / "thread_siblings")
        (directory / "package_cpus").rename(directory / "core_siblings")
    file = tmp_path / "text"
    for options in (["--json", "--extended"], ["-e"], ["-p"], []):
        file.write_bytes(run(required("lscpu"), "-s", str(tree), *options))
        from_lscpu = read_machine(str(file))
        for level in (Level.NODE, Level.PACKAGE, Level.CORE)[: 3 if options else 1]:
            assert set(extents(from_lscpu, level)) == set(extents(machine, level))
        assert ("which CPUs share" in "".join(from_lscpu.remarks)) == (not options and shape.smt > 1)
    for options in ([], ["-p"], ["--no-io", "--no-caches"]):
        file.write_bytes(run(command[0], "--of", "console", *options, **lstopo))
        for level in (Level.PACKAGE, Level.NODE, Level.CORE, Level.L3)[: 3 if options[1:] else 4]:
            assert extents(read_machine(str(file)), level) == extents(machine, level)


DESCRIPTIONS = [
    "pack:2 numa:1 l3:2 core:4 pu:2", "pack:2 numa:4 l3:2 l2:8 core:1 pu:2(indexes=2*128:1*2)",
    "pack:2 [numa(memory=1GB)] [numa] l3:2(size=16MB) core:2 pu:2", "(memory=1GB) pack:2 pu:2",
    "node:2(indexes=1,0 memory=4GB) core:2 pu:1", "pack:3 numa:2(memory=8GiB indexes=2*3:1*2) core:2 pu:2",
]  # fmt: skip


def facts(machine):
    nodes = [(node.number, node.cpus, node.memory_bytes or 0, node.nearest) for node in machine.nodes]
    return machine.online, {(domain.level, domain.cpus) for domain in machine.domains}, nodes


@pytest.mark.parametrize("text", DESCRIPTIONS)
def test_descriptions_give_the_machine_of_hwloc(text):
    lstopo = required("lstopo-no-graphics", "lstopo")
    theirs = parse_xml(run(lstopo, "-i", text, "--of", "xml", "-"), "xml")
    assert facts(parse_synthetic(text, "ours")) == facts(theirs)
    written = run(lstopo, "-i", text, "--of", "synthetic", "-").decode().splitlines()[-1]
    assert facts(parse_synthetic(written, "ours")) == facts(theirs)
