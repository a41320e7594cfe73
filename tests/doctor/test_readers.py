"""The facts that `ompbind doctor` reads: system settings below a root, and commands from their files."""

import os
import shutil
import sys

import pytest

from ompbind.cpuset import CpuSet
from ompbind.doctor.facts import EnclosingRank, FrequencyFacts, KernelFacts, MemoryFacts
from ompbind.doctor.read_command import read_command_facts, read_commands_workload
from ompbind.doctor.read_host import find_enclosing
from ompbind.doctor.read_kernel import interpret_status, read_frequency, read_kernel, read_memory
from ompbind.machine.sources.linux.numa import MemorySize
from ompbind.machine.sources.root import DirectoryRoot
from ompbind.planning.other_runs import LiveRun
from tests.machines import Shape, write_tree
from tests.tables import rows

CPU = "sys/devices/system/cpu"
PAGES = "sys/kernel/mm/transparent_hugepage"


@pytest.fixture
def tree(tmp_path):
    """Write a machine of two nodes and four CPUs, with more files."""
    return lambda files: DirectoryRoot(str(write_tree(tmp_path, Shape(packages=2, cores=2), files)))


def test_kernel_and_its_settings(tree):
    root = tree({
        "proc/sys/kernel/osrelease": "5.14.0-427.el9.x86_64\n", "proc/sys/kernel/numa_balancing": "1\n",
        "proc/stat": "cpu  10 10 10 50 0 0 10 10 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n",
        f"{CPU}/smt/control": "forceoff\n", f"{PAGES}/enabled": "always madvise [never]\n",
        f"{PAGES}/defrag": "always defer [defer+madvise] madvise never\n", "run/.containerenv": "",
    })  # fmt: skip
    assert read_kernel(root) == KernelFacts(
        release="5.14.0-427.el9.x86_64", container="podman", smt="forceoff", numa_balancing=1,
        huge_pages="never", defrag="defer+madvise", stolen=0.1,
    )  # fmt: skip
    assert read_kernel(root).version == (5, 14)


@pytest.mark.parametrize("files", [
    {},
    {"proc/stat": "cpu 1 2 x 4 5 6 7 8\n", "proc/sys/kernel/numa_balancing": "?", f"{PAGES}/enabled": "none"},
    {"proc/stat": "cpu 0 0 0 0 0 0 0 0 0 0\n", "proc/meminfo": "MemTotal: -1 kB\nMemFree\n"},
    {"proc/stat": "intr 1 2 3 4 5 6 7 8 9\n", "proc/meminfo": "\0\0"},
])  # fmt: skip
def test_absent_and_invalid_files_are_unknown(tree, files):
    root = tree(files)
    assert read_kernel(root) == KernelFacts()
    assert read_frequency(root, CpuSet(range(4))) == FrequencyFacts()
    assert read_memory(root) == MemoryFacts()


DMI = "sys/class/dmi/id/sys_vendor"


@pytest.mark.parametrize(("files", "container", "hypervisor"), [
    ({".dockerenv": ""}, "Docker", ""),
    ({"proc/self/cgroup": "0::/kubepods/burstable/pod1\n", ".dockerenv": ""}, "Kubernetes", ""),
    ({"proc/self/cgroup": "5:cpu:/lxc/box\n"}, "LXC", ""),
    ({"proc/self/cgroup": "0::/user.slice\n"}, "", ""),
    ({"proc/cpuinfo": "flags\t\t: fpu vme\n"}, "", ""),
    ({"proc/cpuinfo": "flags\t\t: fpu hypervisor lahf_lm\n"}, "", "a hypervisor"),
    ({"proc/cpuinfo": "flags\t\t: fpu hypervisor\n", DMI: "Amazon EC2\n"}, "", "Amazon EC2"),
    ({"proc/cpuinfo": "flags : fpu\n", DMI: "Amazon EC2\n"}, "", ""),
    ({"proc/cpuinfo": "Features : fp asimd\n", DMI: "QEMU\n"}, "", "QEMU"),
    ({"sys/hypervisor/type": "xen\n"}, "", "xen"),
])  # fmt: skip
def test_containers_and_virtual_machines_are_named(tree, files, container, hypervisor):
    facts = read_kernel(tree(files))
    assert (facts.container, facts.hypervisor) == (container, hypervisor)


def test_governors_are_read_by_policy_or_on_old_kernels_by_cpu(tree):
    files = {f"{CPU}/cpu{cpu}/cpufreq/scaling_governor": "ondemand\n" for cpu in (1, 3)}
    assert read_frequency(tree(files), CpuSet(range(4))).governors == (("ondemand", CpuSet([1, 3])),)
    files = {}
    for policy, governor in ((0, "powersave"), (2, "performance"), (4, "ondemand")):
        texts = {"affected_cpus": f"{policy} {policy + 1}", "scaling_governor": governor}
        texts |= {"scaling_driver": "intel_pstate", "energy_performance_preference": "balance_power"}
        files |= {f"{CPU}/cpufreq/policy{policy}/{name}": f"{text}\n" for name, text in texts.items()}
    assert read_frequency(tree(files), CpuSet(range(4))) == FrequencyFacts(
        driver="intel_pstate",
        governors=(("powersave", CpuSet([0, 1])), ("performance", CpuSet([2, 3]))),
        preferences=(("balance_power", CpuSet(range(4))),),
    )


def test_memory_of_machine_and_nodes(tree):
    node = "Node {0} MemTotal: 1000 kB\nNode {0} MemFree: 10 kB\nNode {0} Inactive(file): 20 kB\n"
    whole = "MemTotal: 2000 kB\nMemFree: 9 kB\nMemAvailable: 30 kB\nSwapTotal: 500 kB\nSwapFree: 100 kB\n"
    nodes = {f"sys/devices/system/node/node{i}/meminfo": node.format(i) for i in range(2)}
    assert read_memory(tree({"proc/meminfo": whole, **nodes})) == MemoryFacts(
        machine=MemorySize(total=2000 << 10, free=30 << 10),
        nodes=tuple(MemorySize(node=i, total=1000 << 10, free=30 << 10) for i in range(2)),
        swap_total=500 << 10,
        swap_used=400 << 10,
    )


@pytest.fixture
def environment(tmp_path):
    """A directory that looks like a virtual environment; its Python cannot run."""
    site = tmp_path / "lib/python3.12/site-packages"
    for name in ("torch/lib", "duckdb", "onnxruntime", "vllm", "torch-2.13.0+cpu.dist-info",
                 "torchvision-1.9.0.dist-info", "duckdb-x.dist-info"):  # fmt: skip
        (site / name).mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python3.12"
    try:
        os.link(os.path.realpath(sys.executable), python)
    except OSError:  # on another device, or the file of another user
        shutil.copy(os.path.realpath(sys.executable), python)
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\n")
    return tmp_path


def describe(argv, env=()):
    env = dict(env)
    return read_command_facts(argv, env, read_commands_workload(argv, env))


def write_script(path, text, mode=0o755):
    path.write_bytes(text.encode())
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(("words", "isolated"), rows("""
    -I serve.py   | yes
    -E            | yes
    -sE x         | yes
    -u -I x.py    | yes
    x.py -I       |
    -c -I         |
    -m pkg -E     |
    -WError x.py  |
    -XImporttime x.py |
"""))  # fmt: skip
def test_a_command_of_a_python(environment, words, isolated):
    command = describe((str(environment / "bin/python3.12"), *words.split()))
    versions = {package.name: package.version for package in command.packages}
    assert versions == {"duckdb": (), "onnxruntime": (), "torch": (2, 13), "vllm": ()}
    assert (command.isolated, command.error) == (bool(isolated), "")
    assert command.python is not None
    script = describe((write_script(environment / "tool", f"#!{environment}/bin/python3.12\n"), "-E"))
    assert (script.python is not None, script.isolated) == (True, False), (
        "its options are those of the script"
    )


@pytest.mark.parametrize(("text", "mode", "error", "hint"), [
    ("#!/bin/sh -e\n", 0o755, "", ""),
    ("#!/bin/sh\r\n", 0o755, "its first line (#!) ends with a carriage return", "Windows line ends"),
    ("#!/nonesuch/sh\n", 0o755, "/nonesuch/sh", "(#!)"),
    ("#!/bin/sh\n", 0o644, "permission denied", "chmod +x"),
    (None, 0, "command not found: nosuch", "install it, or add its directory to PATH"),
])  # fmt: skip
def test_a_command_that_cannot_run_is_an_error_with_a_hint(tmp_path, text, mode, error, hint):
    argv = (write_script(tmp_path / "tool", text, mode) if text else "nosuch",)
    command = describe(argv, {"PATH": str(tmp_path)})
    assert error in command.error
    assert hint in command.hint
    assert bool(command.error) == bool(error)


def test_permission_by_wait_status():
    expected = {0: "GRANTED", 1 << 8: "REFUSED", 13 << 8: "REFUSED", 38 << 8: "ABSENT", 22 << 8: "UNKNOWN",
                255 << 8: "UNKNOWN", 31: "REFUSED"}  # fmt: skip
    assert {status: interpret_status(status).name for status in expected} == expected


@pytest.mark.parametrize(("run_id", "rank", "encloses"), [
    ("job", "1", True), ("job", "7", False), ("plan", "1", False), (None, "1", False), (None, None, False),
])  # fmt: skip
def test_only_a_live_run_encloses_this_process(run_id, rank, encloses):
    ranks = ((0, CpuSet((0, 1))), (1, CpuSet((4, 5))))
    run = LiveRun(run_id="job", pid=7, uid=0, started=0, ranks=ranks, claimed=CpuSet(range(6)))
    variables = {"OMPBIND_RUN_ID": run_id, "OMPBIND_RANK": rank}
    found = find_enclosing([run], {name: value for name, value in variables.items() if value})
    assert found == (EnclosingRank(rank=1, cpus=CpuSet((4, 5))) if encloses else None)
