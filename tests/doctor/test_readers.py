"""The facts that `ompbind doctor` reads: system settings below a root, and commands from their files."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from ompbind.cpuset import CpuSet
from ompbind.doctor.all_checks import run_checks
from ompbind.doctor.facts import (
    EnclosingRank,
    FrequencyFacts,
    HostFacts,
    KernelFacts,
    MemoryFacts,
    Permission,
)
from ompbind.doctor.read_command import find_preloadable, read_command_facts, read_commands_workload
from ompbind.doctor.read_host import find_enclosing
from ompbind.doctor.read_kernel import interpret_status, read_frequency, read_kernel, read_memory
from ompbind.errors import MachineError
from ompbind.machine.sources.archive import ArchiveRoot
from ompbind.machine.sources.linux.numa import MemorySize
from ompbind.machine.sources.linux.reader import read_recorded
from ompbind.machine.sources.root import DirectoryRoot
from ompbind.planning.other_runs import LiveRun
from ompbind.programs.command import Workload
from tests.machines import Shape, write_tree
from tests.recordings import recorded, sampled

CPU = "sys/devices/system/cpu"
PAGES = "sys/kernel/mm/transparent_hugepage"


@pytest.fixture
def tree(tmp_path):
    """Write a machine of two nodes and four CPUs, with more files."""

    def write(**files):
        return DirectoryRoot(str(write_tree(tmp_path, Shape(packages=2, cores=2), files.pop("files", files))))

    return write


def test_kernel_and_its_settings(tree):
    root = tree(
        files={
            "proc/sys/kernel/osrelease": "5.14.0-427.el9.x86_64\n",
            "proc/sys/kernel/numa_balancing": "1\n",
            "proc/stat": "cpu  10 10 10 50 0 0 10 10 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n",
            f"{CPU}/smt/control": "forceoff\n",
            f"{PAGES}/enabled": "always madvise [never]\n",
            f"{PAGES}/defrag": "always defer [defer+madvise] madvise never\n",
            "run/.containerenv": "",
        }
    )
    assert read_kernel(root) == KernelFacts(
        release="5.14.0-427.el9.x86_64", container="podman", smt="forceoff", numa_balancing=1,
        huge_pages="never", defrag="defer+madvise", stolen=0.1,
    )  # fmt: skip
    assert read_kernel(root).version == (5, 14)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {
            "proc/stat": "cpu 1 2 x 4 5 6 7 8\n",
            "proc/sys/kernel/numa_balancing": "?",
            f"{PAGES}/enabled": "no brackets",
        },
        {"proc/stat": "cpu 0 0 0 0 0 0 0 0 0 0\n", "proc/meminfo": "MemTotal: -1 kB\nMemFree\n"},
        {"proc/stat": "intr 1 2 3 4 5 6 7 8 9\n", "proc/meminfo": "\0\0"},
    ],
)
def test_absent_and_invalid_files_are_unknown(tree, files):
    root = tree(files=files)
    assert read_kernel(root) == KernelFacts()
    assert read_frequency(root, CpuSet(range(4))) == FrequencyFacts()
    assert read_memory(root) == MemoryFacts()


@pytest.mark.parametrize(
    ("files", "container"),
    [
        ({".dockerenv": ""}, "Docker"),
        ({"proc/self/cgroup": "0::/kubepods/burstable/pod1\n", ".dockerenv": ""}, "Kubernetes"),
        ({"proc/self/cgroup": "5:cpu:/lxc/box\n"}, "LXC"),
        ({"proc/self/cgroup": "0::/user.slice\n"}, ""),
    ],
)
def test_containers(tree, files, container):
    assert read_kernel(tree(files=files)).container == container


def test_governors_by_policy(tree):
    files = {}
    for policy, cpus, governor in (
        (0, "0 1", "powersave"),
        (2, "2 3", "performance"),
        (4, "4 5", "ondemand"),
    ):
        directory = f"{CPU}/cpufreq/policy{policy}"
        files |= {
            f"{directory}/affected_cpus": f"{cpus}\n",
            f"{directory}/scaling_governor": f"{governor}\n",
            f"{directory}/scaling_driver": "intel_pstate\n",
            f"{directory}/energy_performance_preference": "balance_power\n",
        }
    frequency = read_frequency(tree(files=files), CpuSet(range(4)))
    assert frequency == FrequencyFacts(
        driver="intel_pstate",
        governors=(("powersave", CpuSet([0, 1])), ("performance", CpuSet([2, 3]))),
        preferences=(("balance_power", CpuSet(range(4))),),
    )


def test_governors_of_old_kernels_have_a_directory_for_each_cpu(tree):
    files = {f"{CPU}/cpu{cpu}/cpufreq/scaling_governor": "ondemand\n" for cpu in (1, 3)}
    assert read_frequency(tree(files=files), CpuSet(range(4))).governors == (("ondemand", CpuSet([1, 3])),)


def test_memory_of_machine_and_nodes(tree):
    node = "Node {0} MemTotal: 1000 kB\nNode {0} MemFree: 10 kB\nNode {0} Inactive(file): 20 kB\n"
    root = tree(
        files={
            "proc/meminfo": "MemTotal: 2000 kB\nMemFree: 9 kB\nMemAvailable: 30 kB\n"
            "SwapTotal: 500 kB\nSwapFree: 100 kB\n",
            **{f"sys/devices/system/node/node{i}/meminfo": node.format(i) for i in range(2)},
        }
    )
    assert read_memory(root) == MemoryFacts(
        machine=MemorySize(total=2000 << 10, free=30 << 10),
        nodes=tuple(MemorySize(node=i, total=1000 << 10, free=30 << 10) for i in range(2)),
        swap_total=500 << 10,
        swap_used=400 << 10,
    )


@pytest.mark.parametrize("path", sampled(recorded("dumps/*.tar.gz")))
def test_recordings_can_be_checked(path):
    root = ArchiveRoot(path.read_bytes(), path.name)
    try:
        machine = read_recorded(root)
    except MachineError as error:
        pytest.skip(f"the machine cannot be read: {error}")
    host = HostFacts(
        env={},
        machine=machine,
        kernel=read_kernel(root),
        frequency=read_frequency(root, machine.online),
        memory=read_memory(root),
    )
    assert all(issue.found for issue in run_checks(host))


@pytest.fixture
def environment(tmp_path):
    """A directory that looks like a virtual environment; its Python cannot run."""
    site = tmp_path / "lib/python3.12/site-packages"
    for name in ("torch/lib", "duckdb", "onnxruntime", "vllm"):
        (site / name).mkdir(parents=True)
    for metadata in ("torch-2.13.0+cpu.dist-info", "torchvision-1.9.0.dist-info", "duckdb-x.dist-info"):
        (site / metadata).mkdir()
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python3.12"
    try:
        os.link(os.path.realpath(sys.executable), python)
    except OSError:  # on another device, or the file of another user
        shutil.copy(os.path.realpath(sys.executable), python)
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\n")
    return tmp_path


def describe(argv, env):
    work = read_commands_workload(argv, env)
    return read_command_facts(argv, env, work)


def test_a_command_of_a_python(environment):
    python = str(environment / "bin/python3.12")
    command = describe((python, "-I", "serve.py"), {})
    versions = {package.name: package.version for package in command.packages}
    assert versions == {"duckdb": (), "onnxruntime": (), "torch": (2, 13), "vllm": ()}
    assert command.isolated
    assert command.python is not None
    assert command.error == ""


@pytest.mark.parametrize(
    ("words", "isolated"),
    [
        (("-E",), True),
        (("-sE", "x"), True),
        (("-u", "-I", "x.py"), True),
        (("x.py", "-I"), False),
        (("-c", "-I"), False),
        (("-m", "pkg", "-E"), False),
        (("-WError", "x.py"), False),
        (("-XImporttime", "x.py"), False),
        ((), False),
    ],
    ids=str,
)
def test_pythons_that_ignore_variables(environment, words, isolated):
    assert describe((str(environment / "bin/python3.12"), *words), {}).isolated is isolated


def test_options_of_a_script_are_not_options_of_its_python(environment, tmp_path):
    tool = tmp_path / "tool"
    tool.write_text(f"#!{environment}/bin/python3.12\n")
    tool.chmod(0o755)
    command = describe((str(tool), "-E"), {})
    assert command.python is not None
    assert not command.isolated


def test_a_script_without_its_interpreter_is_an_error(tmp_path):
    tool = tmp_path / "tool"
    tool.write_bytes(b"#!/bin/sh -e\n")
    tool.chmod(0o755)
    assert describe((str(tool),), {}).error == ""
    tool.write_bytes(b"#!/bin/sh\r\n")
    command = describe((str(tool),), {})
    assert "its first line (#!) ends with a carriage return" in command.error
    assert "Windows line ends" in command.hint
    tool.write_bytes(b"#!/nonesuch/sh\n")
    assert "(#!)" in describe((str(tool),), {}).hint


def test_a_command_that_cannot_run_has_a_hint(tmp_path):
    command = describe(("nosuch",), {"PATH": str(tmp_path)})
    assert (command.error, command.hint) == (
        "command not found: nosuch", "install it, or add its directory to PATH",
    )  # fmt: skip
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    command = describe((str(plain),), {})
    assert (command.error, command.hint) == (
        f"cannot execute {plain}: permission denied", f"chmod +x {plain}",
    )  # fmt: skip


def test_libraries_to_preload_are_searched_where_the_linker_searches(tmp_path):
    (tmp_path / "libtcmalloc_minimal.so.4").symlink_to(_any_library())
    found = dict(find_preloadable(Workload(), {"LD_LIBRARY_PATH": str(tmp_path)}))
    assert found["tcmalloc"] == str(tmp_path / "libtcmalloc_minimal.so.4")
    assert set(found) <= {"tcmalloc", "jemalloc", "mimalloc", "iomp"}


def _any_library():
    """Return a library that programs like this Python can load."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return next(line.split()[5] for line in lines if "libc.so" in line or "ld-musl" in line)


def test_without_a_command_only_preloads_are_reported():
    assert read_commands_workload((), {}) == Workload()
    assert read_commands_workload((), {"LD_PRELOAD": "/no/such.so"}).preload_warnings


@pytest.mark.parametrize(
    ("status", "permission"),
    [
        (0, Permission.GRANTED),
        (1 << 8, Permission.REFUSED),
        (13 << 8, Permission.REFUSED),
        (38 << 8, Permission.ABSENT),
        (22 << 8, Permission.UNKNOWN),
        (255 << 8, Permission.UNKNOWN),
        (31, Permission.REFUSED),
    ],
)
def test_permission_by_wait_status(status, permission):
    assert interpret_status(status) is permission


@pytest.mark.parametrize(
    ("variables", "run_id", "expected"),
    [
        ({"OMPBIND_RUN_ID": "job", "OMPBIND_RANK": "1"}, "job", EnclosingRank(rank=1, cpus=CpuSet((4, 5)))),
        ({"OMPBIND_RUN_ID": "job", "OMPBIND_RANK": "7"}, "job", None),
        ({"OMPBIND_RUN_ID": "plan", "OMPBIND_RANK": "1"}, "job", None),
        ({"OMPBIND_RANK": "1"}, "job", None),
        ({}, "job", None),
    ],
)
def test_only_a_live_run_encloses_this_process(variables, run_id, expected):
    ranks = ((0, CpuSet((0, 1))), (1, CpuSet((4, 5))))
    run = LiveRun(run_id=run_id, pid=7, uid=0, started=0, ranks=ranks, claimed=CpuSet(range(6)))
    assert find_enclosing([run], variables) == expected


@pytest.mark.parametrize(
    ("files", "hypervisor"),
    [
        ({"proc/cpuinfo": "flags\t\t: fpu vme\n"}, ""),
        ({"proc/cpuinfo": "flags\t\t: fpu hypervisor lahf_lm\n"}, "a hypervisor"),
        (
            {
                "proc/cpuinfo": "flags\t\t: fpu hypervisor\n",
                "sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
            },
            "Amazon EC2",
        ),
        ({"proc/cpuinfo": "flags : fpu\n", "sys/class/dmi/id/sys_vendor": "Amazon EC2\n"}, ""),
        ({"proc/cpuinfo": "Features : fp asimd\n", "sys/class/dmi/id/sys_vendor": "QEMU\n"}, "QEMU"),
        ({"sys/hypervisor/type": "xen\n"}, "xen"),
    ],
)
def test_a_virtual_machine_has_the_name_of_its_maker(tree, files, hypervisor):
    assert read_kernel(tree(files=files)).hypervisor == hypervisor
