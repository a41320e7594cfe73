"""The facts that `ompbind doctor` reads: system settings below a root, and commands from their files."""

import platform
import sys

import pytest

from ompbind import __version__
from ompbind.cpuset import CpuSet
from ompbind.doctor import read
from ompbind.doctor.facts import KernelFacts
from ompbind.machine.read.root import DirectoryRoot
from ompbind.planning.other_runs import LiveRun
from tests.elves import make_elf, put
from tests.machines import Shape, write_tree
from tests.tables import rows

CPU = "sys/devices/system/cpu"


@pytest.fixture
def tree(tmp_path):
    return lambda files: DirectoryRoot(str(write_tree(tmp_path, Shape(packages=2, cores=2), files)))


def test_kernel_and_its_settings(tree):
    root = tree({
        "proc/sys/kernel/osrelease": "5.14.0-427.el9.x86_64\n", "proc/sys/kernel/numa_balancing": "1\n",
        f"{CPU}/smt/control": "forceoff\n", "run/.containerenv": "",
        "proc/sys/kernel/yama/ptrace_scope": "2\n",
    })  # fmt: skip
    assert read.read_kernel(root) == KernelFacts(
        release="5.14.0-427.el9.x86_64", container="podman", smt="forceoff", numa_balancing=1,
    )  # fmt: skip
    assert read.try_hold(root).startswith(("is permitted; without CAP_SYS_PTRACE", "does not work"))
    assert read.read_kernel(root).version == (5, 14)


def test_absent_and_invalid_files_are_unknown(tree):
    for files in ({}, {"proc/sys/kernel/numa_balancing": "?", "sys/hypervisor/type": ""}):
        assert read.read_kernel(tree(files)) == KernelFacts()


DMI = "sys/class/dmi/id/sys_vendor"


@pytest.mark.parametrize(("files", "container", "hypervisor"), [
    ({".dockerenv": ""}, "Docker", ""),
    ({"proc/self/cgroup": "0::/kubepods/burstable/pod1\n", ".dockerenv": ""}, "Kubernetes", ""),
    ({"proc/self/cgroup": "5:cpu:/lxc/box\n"}, "LXC", ""),
    ({"proc/cpuinfo": "flags\t\t: fpu hypervisor lahf_lm\n"}, "", "a hypervisor"),
    ({"proc/cpuinfo": "flags\t\t: fpu hypervisor\n", DMI: "Amazon EC2\n"}, "", "Amazon EC2"),
    ({"proc/cpuinfo": "flags : fpu\n", DMI: "Amazon EC2\n"}, "", ""),
    ({"proc/cpuinfo": "Features : fp asimd\n", DMI: "QEMU\n"}, "", "QEMU"),
    ({"sys/hypervisor/type": "xen\n"}, "", "xen"),
])  # fmt: skip
def test_containers_and_virtual_machines_are_named(tree, files, container, hypervisor):
    facts = read.read_kernel(tree(files))
    assert (facts.container, facts.hypervisor) == (container, hypervisor)


def test_a_report_of_a_fault_has_versions_variables_and_files_without_secrets():
    env = {
        "OMPBIND_MASK": "0-1", "OMP_NUM_THREADS": "3", "OMPBIND_ENV": "'API_TOKEN=hidden1 hidden2' PORT=1",
        "OMPBIND_API_KEY": "hidden3", "OMPBIND_WRAP": "env SECRET=hidden4 'open", "HF_TOKEN": "hidden5",
        "SLURM_PROCID": "hidden6", "SLURM_LOCALID": "0",
    }  # fmt: skip
    found = dict(read.read_report_facts(env, ["user file /x"]))
    assert found["ompbind"].startswith(f"{__version__}, in /")
    assert found["Python"] == f"CPython {platform.python_version()}, {sys.executable}"
    assert "click 8." in found["packages"]
    assert f"{platform.release()}" in found["system"]
    assert found["launcher"] == "SLURM_PROCID, SLURM_LOCALID"
    assert found["configuration"] == "user file /x"
    assert found["variables set"] == (
        "OMPBIND_API_KEY=***, OMPBIND_ENV='API_TOKEN=***' PORT=1, OMPBIND_MASK=0-1,"
        " OMPBIND_WRAP=env SECRET=*** 'open, OMP_NUM_THREADS=3"
    )
    assert "hidden" not in str(found)


def describe(argv, env=()):
    env = dict(env)
    return read.read_command_facts(argv, env, read.read_commands_workload(argv, env))


ISOLATED = """
    -I serve.py   | yes
    -E            | yes
    -u -I x.py    | yes
    x.py -I       |
    -m pkg -E     |
    -WError x.py  |
"""


def test_a_command_of_a_python(tmp_path):
    """The directory looks like a virtual environment; its Python cannot run."""
    site, python = tmp_path / "lib/python3.12/site-packages", tmp_path / "bin/python3.12"
    for name in ("torch/lib", "duckdb", "onnxruntime", "vllm", "torch-2.13.0+cpu.dist-info",
                 "torchvision-1.9.0.dist-info", "duckdb-x.dist-info"):  # fmt: skip
        (site / name).mkdir(parents=True)
    put(python, make_elf(["libc.so.6"]))
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\n")
    for words, isolated in rows(ISOLATED):
        command = describe((str(python), *words.split()))
        assert command.packages == {"duckdb": (), "onnxruntime": (), "torch": (2, 13), "vllm": ()}
        assert (command.isolated, command.error) == (bool(isolated), ""), words
        assert command.python is not None
    script = describe((put(tmp_path / "tool", f"#!{python}\n"), "-E"))
    assert script.python is not None
    assert not script.isolated, "its options are those of the script"


@pytest.mark.parametrize(("text", "mode", "error", "hint"), [
    ("#!/bin/sh -e\n", 0o755, "", ""),
    ("#!/bin/sh\r\n", 0o755, "its first line (#!) ends with a carriage return", "Windows line ends"),
    ("#!/nonesuch/sh\n", 0o755, "/nonesuch/sh", "(#!)"),
    ("#!/bin/sh\n", 0o644, "permission denied", "chmod +x"),
    (None, 0, "command not found: nosuch", "install it, or add its directory to PATH"),
])  # fmt: skip
def test_a_command_that_cannot_run_is_an_error_with_a_hint(tmp_path, text, mode, error, hint):
    argv = (put(tmp_path / "tool", text, mode) if text else "nosuch",)
    command = describe(argv, {"PATH": str(tmp_path)})
    assert error in command.error
    assert hint in command.hint
    assert bool(command.error) == bool(error)


@pytest.mark.parametrize(("run_id", "rank", "encloses"), [
    ("job", "1", True), ("job", "7", False), ("plan", "1", False), (None, "1", False), (None, None, False),
])  # fmt: skip
def test_only_a_live_run_encloses_this_process(run_id, rank, encloses):
    ranks = ((0, CpuSet((0, 1))), (1, CpuSet((4, 5))))
    run = LiveRun(run_id="job", pid=7, uid=0, started=0, ranks=ranks, claimed=CpuSet(range(6)))
    variables = {"OMPBIND_RUN_ID": run_id, "OMPBIND_RANK": rank}
    found = read.find_enclosing([run], {name: value for name, value in variables.items() if value})
    assert found == ((1, CpuSet((4, 5))) if encloses else None)
