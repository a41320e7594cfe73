"""The issues that `ompbind doctor` makes of given facts: rows of (check, severity, text, facts)."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.doctor.all_checks import CHECKS, run_checks
from ompbind.doctor.checks.environment import RULES
from ompbind.doctor.checks.rebinding import OPTIONS, PACKAGES
from ompbind.doctor.checks.rebinding import VARIABLES as REBINDING_VARIABLES
from ompbind.doctor.facts import (
    CommandFacts,
    EnclosingRank,
    FrequencyFacts,
    HostFacts,
    HostIssue,
    KernelFacts,
    MemoryFacts,
    Package,
    Permission,
    error,
    note,
    ok,
)
from ompbind.machine.devices import Device, DeviceKind
from ompbind.machine.sources.linux.numa import MemorySize
from ompbind.openmp.variables import OVERRIDING_VARIABLES, THREAD_COUNTS
from ompbind.planning.other_runs import LiveRun
from ompbind.programs.command import Workload
from ompbind.programs.library_catalog import DetectedLibrary, DetectionMethod, name_library
from ompbind.programs.wrappers import Wrapper
from ompbind.report.doctor import render_issues, render_issues_json
from ompbind.text import Severity
from tests.machines import Shape, make_machine
from tests.toys import run_with

CPUS = CpuSet.from_list
PLAIN = make_machine(Shape(cores=8)).replace(arch="x86_64")
SMT = make_machine(Shape(cores=4, smt=2))
NODES = make_machine(Shape(packages=2, cores=4))
FOUND = "/opt/lib/libtcmalloc.so.4"
GIB = 1 << 30


def make_host(machine=PLAIN, **changes):
    env = changes.pop("env", {})
    return HostFacts(env=env, machine=machine, runs=(), **changes)


def with_mask(cpus, **changes):
    return make_host(PLAIN.replace(allowed=CPUS(cpus)), **changes)


def permissions(**changes):
    return {name: Permission(word) for name, word in changes.items()}


def kernel(**settings):
    return {"kernel": KernelFacts(**settings)}


def with_governors(*words, driver="", preference=""):
    groups = tuple((word, CpuSet([cpu])) for cpu, word in enumerate(words))
    preferences = ((preference, CPUS("0-7")),) if preference else ()
    return make_host(frequency=FrequencyFacts(driver=driver, governors=groups, preferences=preferences))


def run(claimed):
    return LiveRun(run_id="other", pid=77, uid=0, started=0, ranks=(), claimed=CPUS(claimed))


def enclosed(cpus, rank=3):
    return EnclosingRank(rank=rank, cpus=CPUS(cpus))


def library(path, method=DetectionMethod.AVAILABLE, origin="torch", version=None):
    return DetectedLibrary(library=name_library(path).replace(version=version), method=method, origin=origin)


def command(*libraries, site="", program="/bin/app", opaque=False, preloadable=(), machine=PLAIN, **facts):
    work = Workload(program=program, site_packages=site, opaque=opaque, libraries=libraries)
    return make_host(
        machine,
        workload=work,
        preloadable=preloadable,
        command=CommandFacts(**{"argv": ("app",), **facts}),
    )


def with_swap(used):
    size = MemorySize(total=100 * GIB, free=50 * GIB)
    return make_host(memory=MemoryFacts(machine=size, swap_total=8 * GIB, swap_used=used))


def with_free_memory(*shares):
    nodes = tuple(MemorySize(node=i, total=GIB, free=GIB * share // 100) for i, share in enumerate(shares))
    return make_host(
        memory=MemoryFacts(machine=MemorySize(total=GIB, free=GIB * shares[0] // 100), nodes=nodes)
    )


def with_gpus(*cpus, machine=NODES, allowed=None, **changes):
    """A machine of two nodes with a GPU for each text of CPUs; "" if they are not known."""
    gpus = tuple(
        Device(
            kind=DeviceKind.GPU, index=index, address=f"0000:0{index}:00.0", cpus=CPUS(text),
            node=None if not text else int(CPUS(text).first > 3),
        )
        for index, text in enumerate(cpus)
    )  # fmt: skip
    allowed = machine.allowed if allowed is None else CPUS(allowed)
    return make_host(machine.replace(devices=gpus, allowed=allowed), **changes)


def packages(*names, **changes):
    found = tuple(Package(name=name) for name in names)
    return with_gpus("0-3", command=CommandFacts(argv=("app",), packages=found), **changes)


QEMU = kernel(hypervisor="QEMU")
VLLM = (Package(name="vllm"),)
GOMP, OTHER = "/x/torch/lib/libgomp.so.1", "/x/scikit_learn.libs/libgomp-e985bcbb.so.1"
LLVM, INTEL = "/usr/lib/llvm-14/lib/libomp.so.5", "/x/lib/libiomp5.so"
ERROR, NOTE, OK = Severity.ERROR, Severity.NOTE, Severity.OK

TABLE = [
    ("machine", OK, "8 cores, x86_64", make_host()),
    ("machine", ERROR, "no CPU is allowed", make_host(None, error="no CPU is allowed")),
    ("machine", ERROR, "cannot bind processes", make_host(PLAIN.replace(bindable=False))),
    ("machine", NOTE, "no file shows",
     make_host(PLAIN.replace(remarks=("no file shows which CPUs share a core",)))),
    ("cpus", OK, "all 8 online CPUs are allowed", make_host()),
    ("cpus", NOTE, "4 of 8 online CPUs allowed (0-3): limited by the inherited affinity mask",
     with_mask("0-3")),
    ("cpus", NOTE, "limited by the cpuset of the cgroup", with_mask("0-3", cpuset=CPUS("0-3"))),
    ("cpus", NOTE, "the cpuset of the cgroup and the inherited affinity mask",
     with_mask("0-1", cpuset=CPUS("0-3"))),
    ("cpus", ERROR, "1 of 8 online CPUs allowed (5)", with_mask("5")),
    ("cpus", NOTE, "limited by the enclosing run (rank 3)", with_mask("5", enclosing=enclosed("5"))),
    ("cpus", ERROR, "limited by the inherited affinity mask", with_mask("5", env={"OMPBIND_RANK": "3"})),
    ("cpus", ERROR, "limited by the inherited affinity mask", with_mask("5", enclosing=enclosed("4-5"))),
    ("cpus", OK, "all 1 online CPUs", make_host(make_machine(Shape(cores=1)))),
    ("cores", NOTE, "2 cores only partly allowed: not CPUs 4-5",
     make_host(SMT.replace(allowed=CPUS("0-3,6-7")))),
    ("offline", NOTE, "CPUs 8-9 present but offline", make_host(PLAIN.replace(offline=CPUS("8-9")))),
    ("offline", OK, "SMT is off", make_host(PLAIN.replace(offline=CPUS("8-9")), **kernel(smt="off"))),
    ("set-apart", NOTE, "CPUs 6-7: isolated", make_host(PLAIN.replace(isolated=CPUS("6-7")))),
    ("set-apart", NOTE, "CPU 7: nohz_full", make_host(PLAIN.replace(nohz_full=CPUS("7")))),
    ("smt", OK, "one hardware thread per core", make_host()),
    ("smt", OK, "2 hardware threads per core: ranks use 1", make_host(SMT)),
    ("smt", OK, "8 hardware threads per core: ranks use 4", make_host(make_machine(Shape(smt=8)))),
    ("quota", OK, "none", make_host()),
    ("quota", OK, "8 CPUs, enough", make_host(PLAIN.replace(quota=8.0))),
    ("quota", NOTE, "the cgroup limits CPU time to 2.5 of 8 allowed CPUs",
     make_host(PLAIN.replace(quota=2.5))),
    ("bind-call", OK, "is permitted", make_host(**permissions(may_bind="granted"))),
    ("bind-call", OK, "not known", make_host()),
    ("bind-call", ERROR, "is refused", make_host(**permissions(may_bind="refused"))),
    ("devices", OK, "2 GPUs, all near allowed CPUs", with_gpus("0-3", "4-7")),
    ("devices", OK, "1 GPU, all near allowed CPUs", with_gpus("0-3", allowed="3,5")),
    ("devices", OK, "1 GPU", with_gpus("", machine=PLAIN)),
    ("devices", NOTE, "is near CPUs 4-7 on NUMA node 1, but only CPUs 0-3 are allowed",
     with_gpus("0-3", "4-7", allowed="0-3")),
    ("devices", NOTE, "gpu:0, gpu:1: the firmware does not report a NUMA node", with_gpus("", "")),
    ("virtual", OK, "QEMU: cores, caches and NUMA nodes are as the hypervisor reports them",
     make_host(**QEMU)),
    ("virtual", OK, "as the hypervisor reports", with_gpus("0-3", "4-7", **QEMU)),
    ("virtual", OK, "as the hypervisor reports", make_host(make_machine(Shape(cores=1)), **QEMU)),
    ("virtual", NOTE, "QEMU: each of 4 CPUs is a package of its own",
     make_host(make_machine(Shape(packages=4, cores=1)), **QEMU)),
    ("virtual", NOTE, "QEMU: no L3 cache is shared",
     make_host(make_machine(Shape(l3s=4, cores=1)), **QEMU)),
    ("virtual", NOTE, "the NUMA node of gpu:0, gpu:1 is not passed on", with_gpus("", "", **QEMU)),
    ("virtual", NOTE, "all 2 GPUs are on NUMA node 1 of 2 nodes", with_gpus("4-7", "4-7", **QEMU)),
    ("rebinding", OK, "none known", with_gpus("0-3", "4-7")),
    ("rebinding", NOTE, "is '1': NCCL binds", make_host(env={"NCCL_IGNORE_CPU_AFFINITY": "1"})),
    ("rebinding", OK, "none known", make_host(env={"NCCL_IGNORE_CPU_AFFINITY": "0"})),
    ("rebinding", NOTE, "is '1': TensorRT-LLM binds",
     make_host(env={"TLLM_NUMA_AWARE_WORKER_AFFINITY": "1"})),
    ("rebinding", OK, "none known", make_host(env={"TLLM_NUMA_AWARE_WORKER_AFFINITY": "2"})),
    ("rebinding", NOTE, "is '0,8': oneCCL binds", make_host(env={"CCL_WORKER_AFFINITY": "0,8"})),
    ("rebinding", OK, "none known", make_host(env={"CCL_WORKER_AFFINITY": "auto"})),
    ("rebinding", NOTE, "torchrun binds",
     command(argv=("torchrun", "--numa-binding=node", "train.py"))),
    ("rebinding", NOTE, "vLLM binds", command(argv=("vllm", "serve", "MODEL", "--numa-bind"))),
    ("rebinding", OK, "none known", command(argv=("vllm", "serve", "MODEL", "--numa-bind-nodes", "0"))),
    ("rebinding", NOTE, "binds by default", packages("tensorrt_llm")),
    ("rebinding", OK, "none known", packages("tensorrt_llm", env={"TLLM_NUMA_AWARE_WORKER_AFFINITY": "0"})),
    ("rebinding", NOTE, "binds by default", packages("torch", "sglang")),
    ("rebinding", OK, "none known", packages("sglang", machine=PLAIN)),
    ("rebinding", NOTE, "binds by default", packages("vllm_ascend", machine=PLAIN)),
    ("runs", OK, "none on these CPUs", make_host().replace(runs=(run("9-12"),))),
    ("runs", OK, "not known", make_host().replace(runs=None)),
    ("runs", NOTE, "other (pid 77) uses CPUs 6-7", make_host().replace(runs=(run("6-12"),))),
    ("variables", OK, "none that would", make_host()),
    ("variables", OK, "set for rank 1 by the enclosing run",
     make_host(env={"OMP_PLACES": "{0}"}, enclosing=enclosed("0", 1))),
    ("variables", NOTE, "is '{0}'", make_host(env={"OMPBIND_RANK": "1", "OMP_PLACES": "{0}"})),
    ("options", OK, "is '3': an option", make_host(env={"OMPBIND_RANKS": "3"}, options=("OMPBIND_RANKS",))),
    ("options", NOTE, "is not a variable of ompbind", make_host(unknown_options=(("OMPBIND_X", ""),))),
    ("options", NOTE, "is 'none'", make_host(env={"OMPBIND_BIND": "none"}, options=("OMPBIND_BIND",))),
    ("options", NOTE, "is 'nobind'", make_host(env={"OMPBIND_MASK": "nobind"}, options=("OMPBIND_MASK",))),
    ("preload", OK, "not set", make_host()),
    ("preload", OK, "/x.so: can be loaded", make_host(env={"LD_PRELOAD": "/x.so"})),
    ("preload", ERROR, "names /x.so",
     make_host(workload=Workload(preload_warnings=("LD_PRELOAD names /x.so, no",)))),
    ("command", OK, "runs /bin/app", command()),
    ("command", OK, "runs /x/python (Python 3.11; packages in /s)",
     command(program="/x/python", python=(3, 11), site="/s")),
    ("command", OK, "runs app, and ompbind cannot see what that program starts", command(program="")),
    ("command", ERROR, "command not found: app", command(error="command not found: app")),
    ("command", NOTE, "/bin/app is for aarch64", command(arch="aarch64")),
    ("command", OK, "runs /bin/app", command(arch="i386")),
    ("wrappers", OK, "none that undoes a binding", command()),
    ("wrappers", NOTE, "the command has 'taskset -c 0'",
     make_host(workload=Workload(wrappers=(Wrapper(text="taskset -c 0", rebinds=True),)))),
    ("runtimes", OK, "none found", command()),
    ("runtimes", OK, "libgomp (available: torch)", command(library(GOMP))),
    ("runtimes", NOTE, "several: libgomp (available: torch), libgomp",
     command(library(GOMP), library(OTHER))),
    ("runtimes", NOTE, "several: libiomp5 (preloaded",
     command(library(GOMP), library(INTEL, DetectionMethod.PRELOADED, "LD_PRELOAD"))),
    ("runtimes", ERROR, "libomp (needed: app) and libiomp5 (preloaded: LD_PRELOAD)",
     command(library("/x/libomp.so", DetectionMethod.NEEDED, "app"),
             library(INTEL, DetectionMethod.PRELOADED, "LD_PRELOAD"))),
    ("runtimes", NOTE, "libomp (available: torch) and libiomp5",
     command(library("/x/libomp.so"), library(INTEL, DetectionMethod.PRELOADED))),
    ("runtimes", NOTE, "libomp 14 (available", command(library(LLVM, version=14))),
    ("runtimes", OK, "libomp 16 (available", command(library(LLVM, version=16))),
    ("preloadable", OK, f"{FOUND} (--preload tcmalloc)", make_host(preloadable=(("tcmalloc", FOUND),))),
    ("preloadable", OK, "not found: libtcmalloc, libiomp5",
     make_host(preloadable=(("tcmalloc", ""), ("iomp", "")))),
    ("preloadable", NOTE, "is not preloaded",
     command(packages=VLLM, preloadable=(("tcmalloc", FOUND),))),
    ("preloadable", NOTE, "is not installed", command(packages=VLLM, preloadable=(("iomp", ""),))),
    ("preloadable", OK, "not found: libiomp5",
     command(packages=VLLM, preloadable=(("iomp", ""),), machine=PLAIN.replace(arch="aarch64"))),
    ("preloadable", OK, "is preloaded",
     command(library(FOUND, DetectionMethod.PRELOADED), packages=VLLM,
             preloadable=(("tcmalloc", FOUND),))),
    ("pools", OK, "none known", command(python=(3, 13))),
    ("pools", NOTE, "a worker for each online CPU (8), ThreadPoolExecutor has up to 12 threads",
     command(python=(3, 12))),
    ("pools", NOTE, "ThreadPoolExecutor has up to 32 threads",
     command(python=(3, 11), machine=make_machine(Shape(cores=64)))),
    ("pools", NOTE, "counts all 8 online CPUs", command(python=(3, 14), isolated=True)),
    ("pools", NOTE, "its thread pool counts all 8 online CPUs",
     command(packages=(Package(name="duckdb", version=(1, 5)),))),
    ("pools", NOTE, "a session starts a thread for each core of the machine (4), bound to it",
     command(packages=(Package(name="onnxruntime"),), machine=SMT)),
    ("pools", NOTE, "version 2.13: its inter-op thread pools count all cores of the machine (8)",
     command(packages=(Package(name="torch", version=(2, 13)),))),
    ("pools", NOTE, "before version 2.14: its inter-op thread pools count all cores of the machine (4)",
     command(packages=(Package(name="torch"),), machine=SMT)),
    ("pools", OK, "its inter-op thread pools follow the affinity mask",
     command(packages=(Package(name="torch", version=(2, 14)),))),
    ("pools", NOTE, "hardware_concurrency", command(cpp=True)),
    ("pools", OK, "sizes its thread pools by the affinity mask", command(program="/opt/jdk/bin/java")),
    ("pools", OK, "OMP_NUM_THREADS", command(program="/bin/sh", opaque=True)),
    ("allowed-memory", OK, "of the NUMA nodes of all allowed CPUs", make_host(NODES)),
    ("allowed-memory", OK, "of all allowed CPUs",
     make_host(NODES.replace(memory_allowed=CPUS("0"), allowed=CPUS("0-3")))),
    ("allowed-memory", NOTE, r"of NUMA node 0 is not allowed (cpuset.mems: 1), but CPUs 0-3 there are",
     make_host(NODES.replace(memory_allowed=CPUS("1")))),
    ("allowed-memory", NOTE, "is not allowed",
     make_host(NODES.replace(memory_allowed=CPUS("1")), **kernel(container="Docker"))),
    ("memory-call", OK, "not known", make_host(NODES)),
    ("memory-call", OK, "is permitted", make_host(NODES, **permissions(may_place_memory="granted"))),
    ("memory-call", OK, "no NUMA policies", make_host(NODES, **permissions(may_place_memory="absent"))),
    ("memory-call", OK, "harmless with one", make_host(**permissions(may_place_memory="refused"))),
    ("memory-call", NOTE, "by a seccomp filter", make_host(NODES, **permissions(may_place_memory="refused"))),
    ("memory-call", NOTE, "in this container",
     make_host(NODES, **permissions(may_place_memory="refused"), **kernel(container="Docker"))),
    ("numa-balancing", OK, "only one node", make_host(**kernel(numa_balancing=1))),
    ("numa-balancing", OK, "off", make_host(NODES, **kernel(numa_balancing=0))),
    ("numa-balancing", OK, "not known", make_host(NODES)),
    ("numa-balancing", NOTE, "on", make_host(NODES, **kernel(numa_balancing=1))),
    ("memory", OK, "not known", make_host()),
    ("memory", OK, "40 % free", with_free_memory(40)),
    ("memory", OK, "at least 6 % free on every node", with_free_memory(50, 6)),
    ("memory", NOTE, "only 3 % of the memory is free", with_free_memory(3)),
    ("memory", NOTE, "only 2 % of the memory of NUMA node 1", with_free_memory(50, 2)),
    ("swap", OK, "not known", make_host()),
    ("swap", OK, "512 of 8192 MiB in use", with_swap(GIB // 2)),
    ("swap", NOTE, "2048 of 8192 MiB are in use", with_swap(2 * GIB)),
    ("huge-pages", OK, "not known", make_host()),
    ("huge-pages", OK, "madvise, defrag always", make_host(**kernel(huge_pages="madvise", defrag="always"))),
    ("huge-pages", NOTE, "are off", make_host(**kernel(huge_pages="never"))),
    ("frequency", OK, "not reported", make_host()),
    ("frequency", OK, "governor performance on CPUs 0-1",
     make_host(frequency=FrequencyFacts(governors=(("performance", CPUS("0-1")),)))),
    ("frequency", OK, "governor powersave on CPU 0 (intel_pstate)",
     with_governors("powersave", driver="intel_pstate")),
    ("frequency", NOTE, "governor powersave", with_governors("powersave", driver="acpi-cpufreq")),
    ("frequency", NOTE, "governor ondemand", with_governors("ondemand")),
    ("frequency", NOTE, "governors differ: performance on CPU 0, powersave on CPU 1",
     with_governors("performance", "powersave")),
    ("frequency", NOTE, "energy preference balance_power",
     with_governors("powersave", driver="amd-pstate-epp", preference="balance_power")),
    ("stolen", OK, "not known", make_host()),
    ("stolen", OK, "0.3 % of CPU time since boot", make_host(**kernel(stolen=0.003))),
    ("stolen", NOTE, "the host gave 4.0 % of CPU time since boot to others",
     make_host(**kernel(stolen=0.04))),
    ("kernel", OK, "not known", make_host()),
    ("kernel", OK, "6.8.0-51-generic", make_host(**kernel(release="6.8.0-51-generic"))),
    ("kernel", OK, "unusual", make_host(**kernel(release="unusual"))),
    ("kernel", NOTE, "5.14.0", make_host(**kernel(release="5.14.0"))),
    ("container", OK, "Docker, with 1 NUMA node", make_host(**kernel(container="Docker"))),
]  # fmt: skip


def issues_of(check, host):
    return [issue for issue in run_checks(host) if issue.check_name == check]


@pytest.mark.parametrize(
    ("check", "severity", "words", "host"),
    TABLE,
    ids=[f"{row[0]}-{row[1]}-{row[2]}" for row in TABLE],
)
def test_checks(check, severity, words, host):
    found = issues_of(check, host)
    assert words in found[0].found
    assert found[0].severity is severity


def test_the_table_has_every_check():
    assert {row[0] for row in TABLE} == set(CHECKS)


def test_every_check_is_documented():
    page = (Path(__file__).parents[2] / "docs/doctor.md").read_text()
    assert not [name for name in CHECKS if f"`{name}`" not in page]


@pytest.mark.parametrize("row", TABLE, ids=[f"{row[0]}-{row[1]}-{row[2]}" for row in TABLE])
def test_errors_and_notes_have_a_reason_and_a_remedy(row):
    for issue in run_checks(row[3]):
        assert (issue.why != "", issue.remedy != "") == ((issue.severity is not OK),) * 2, issue
        assert issue.found


@pytest.mark.parametrize("row", REBINDING_VARIABLES, ids=lambda row: row.name)
def test_the_remedy_of_a_variable_that_binds_again_removes_the_note(row):
    def names(env):
        return [issue.subject for issue in run_checks(make_host(env=env)) if issue.severity is NOTE]

    assert row.name in names({row.name: "7"} if row.applies("7") else {row.name: "1"})
    assert row.name not in names({row.name: row.remedy} if row.remedy else {})
    page = (Path(__file__).parents[2] / "docs/doctor.md").read_text()
    assert f"`{row.name}`" in page


@pytest.mark.parametrize("row", OPTIONS, ids=lambda row: row.option)
def test_options_that_bind_again_are_documented(row):
    assert f"`{row.option}`" in (Path(__file__).parents[2] / "docs/doctor.md").read_text()


@pytest.mark.parametrize("row", PACKAGES, ids=lambda row: row.package)
def test_packages_that_bind_by_default_are_documented(row):
    page = (Path(__file__).parents[2] / "docs/doctor.md").read_text()
    assert f"`{row.variable}=0`" in page or row.program in page


def test_issues_have_no_results_of_other_machines():
    hosts = [*(row[3] for row in TABLE), *(make_host(env=row[0]) for row in VARIABLES)]
    for issue in (issue for host in hosts for issue in run_checks(host)):
        text = f"{issue.found} {issue.why} {issue.remedy}"
        assert not re.search(r"measured|[0-9](-[0-9]+)? times|times as (long|slow)|took [0-9]", text), text


def test_python_that_isolates_itself_has_pools_that_follow_the_mask():
    (issue,) = issues_of("pools", command(python=(3, 14), isolated=True))
    assert "multiprocessing" not in issue.found


def variables(**env):
    return {issue.subject: issue for issue in issues_of("variables", make_host(PLAIN, env=env))}


VARIABLES = [
    ({"GOMP_CPU_AFFINITY": ""}, "GOMP_CPU_AFFINITY", "to CPU 0"),
    ({"GOMP_CPU_AFFINITY": "bogus"}, "GOMP_CPU_AFFINITY", "hangs"),
    ({"GOMP_CPU_AFFINITY": "0-3 8:2"}, "GOMP_CPU_AFFINITY", "ignores the affinity mask"),
    ({"KMP_AFFINITY": "norespect,compact"}, "KMP_AFFINITY", "ignore the affinity mask"),
    ({"KMP_AFFINITY": "Disabled"}, "KMP_AFFINITY", "do not read the affinity mask"),
    ({"KMP_AFFINITY": "granularity=fine,compact"}, "KMP_AFFINITY", "overrides OMP_PLACES"),
    ({"KMP_HW_SUBSET": "1t"}, "KMP_HW_SUBSET", "initial thread"),
    ({"OMP_PLACES": "{0},{1}"}, "OMP_PLACES", "one CPU"),
    ({"OMP_PLACES": "cores", "OMP_PROC_BIND": "close"}, "OMP_PLACES", "same places"),
    ({"OMP_PROC_BIND": "true"}, "OMP_PROC_BIND", "the same CPUs"),
    ({"OMP_NUM_THREADS": ""}, "OMP_NUM_THREADS", "terminates the program"),
    ({"OMP_NUM_THREADS": "abc"}, "OMP_NUM_THREADS", "may terminate the program"),
    ({"OMP_NUM_THREADS": "0"}, "OMP_NUM_THREADS", "may terminate the program"),
    ({"OMP_NUM_THREADS": "9"}, "OMP_NUM_THREADS", "more threads than CPUs"),
    ({"OMP_NUM_THREADS": "9,2"}, "OMP_NUM_THREADS", "more threads than CPUs"),
    ({"MKL_NUM_THREADS": "100000000000"}, "MKL_NUM_THREADS", "more threads than CPUs"),
    ({"GOTO_NUM_THREADS": "2"}, "GOTO_NUM_THREADS", "overrides OMP_NUM_THREADS"),
    ({"OMP_DYNAMIC": "true"}, "OMP_DYNAMIC", "fewer threads"),
    ({"OMP_THREAD_LIMIT": "2"}, "OMP_THREAD_LIMIT", "fewer threads"),
    ({"KMP_ALL_THREADS": "2"}, "KMP_ALL_THREADS", "fewer threads"),
    ({"OMP_WAIT_POLICY": "ACTIVE"}, "OMP_WAIT_POLICY", "keep their CPUs busy"),
    ({"KMP_BLOCKTIME": "infinite"}, "KMP_BLOCKTIME", "keep their CPUs busy"),
    ({"KMP_LIBRARY": "turnaround"}, "KMP_LIBRARY", "keep their CPUs busy"),
    ({"GOMP_SPINCOUNT": "infinity"}, "GOMP_SPINCOUNT", "keep their CPUs busy"),
    ({"OMP_DISPLAY_AFFINITY": "true"}, "OMP_DISPLAY_AFFINITY", "standard output"),
]


@pytest.mark.parametrize(("env", "name", "why"), VARIABLES, ids=[str(row[0]) for row in VARIABLES])
def test_variables_that_move_or_multiply_threads(env, name, why):
    found = variables(**env)
    assert list(found) == [name]
    assert found[name].severity is NOTE
    assert why in found[name].why
    assert f"unset {name}" in found[name].remedy
    assert ("'ompbind run'" in found[name].remedy) == (name in (*OVERRIDING_VARIABLES, *THREAD_COUNTS))


@pytest.mark.parametrize(
    "env",
    [
        {"KMP_AFFINITY": "reset,verbose"},
        {"OMP_PLACES": "{0},{1}", "OMP_PROC_BIND": "FALSE"},
        {"OMP_PROC_BIND": "false"},
        {"OMP_NUM_THREADS": "8"},
        {"OMP_NUM_THREADS": "4,2"},
        {"OMP_DYNAMIC": "false"},
        {"OMP_WAIT_POLICY": "passive"},
        {"OMP_DISPLAY_AFFINITY": "false"},
        {"PATH": "/bin"},
    ],
    ids=str,
)
def test_variables_that_do_no_harm(env):
    assert list(variables(**env)) == ["variables"]


def test_active_waiting_within_a_quota_is_an_error():
    for quota, severity in ((2.0, ERROR), (8.0, NOTE)):
        machine = PLAIN.replace(quota=quota)
        found = issues_of("variables", make_host(machine, env={"OMP_WAIT_POLICY": "active"}))
        assert [issue.severity for issue in found] == [severity]


def test_every_cleared_variable_has_a_rule_or_does_nothing_by_itself():
    ruled = {name for name, _, _ in RULES}
    silent = {"KMP_TOPOLOGY_METHOD", "KMP_HIDDEN_HELPER_AFFINITY", "KMP_DYNAMIC_MODE"}
    assert set(OVERRIDING_VARIABLES) | set(THREAD_COUNTS) <= ruled | silent


VALUES = st.dictionaries(
    st.sampled_from([name for name, _, _ in RULES]),
    st.one_of(st.text(max_size=12), st.sampled_from(["true", "9" * 30, "{0},{1}", "²", "0-3", ",", "-1"])),
)


@given(VALUES, st.sampled_from([PLAIN, SMT, NODES, None]))
def test_any_value_of_a_variable_is_reported_in_whole_words(env, machine):
    found = run_checks(make_host(machine, env=env))
    lines = render_issues(found).splitlines()
    assert all(len(line) <= 80 or len(line.split()) == 1 for line in lines)  # no word is broken
    json.loads(render_issues_json(found, make_host(machine)))


def test_a_variable_that_turns_a_package_off_has_a_row_of_its_own():
    """A package is not reported if its variable is set: then the row of the variable decides."""
    assert {row.variable for row in PACKAGES} - {""} <= {row.name for row in REBINDING_VARIABLES}
    host = packages("sglang", env={"SGLANG_AUTO_NUMA_BIND": "1"})
    assert [issue.subject for issue in issues_of("rebinding", host)] == ["SGLANG_AUTO_NUMA_BIND"]


def test_gpus_are_near_the_same_cpus_as_in_plans():
    gpu = Device(kind=DeviceKind.GPU, index=0, address="0000:06:00.0", node=1)
    host = make_host(NODES.replace(devices=(gpu,), allowed=CPUS("0-3")))
    (found,) = issues_of("devices", host)
    assert (found.severity, "is near CPUs 4-7 on NUMA node 1" in found.found) == (NOTE, True)
    several = gpu.replace(cpus=CPUS("2-5"), node=None)
    host = make_host(NODES.replace(devices=(several,)), **QEMU)
    assert "not passed on" not in str(issues_of("virtual", host))


def test_unknown_facts_are_no_issues():
    found = run_checks(HostFacts(env={}, machine=PLAIN))
    assert {issue.severity for issue in found} == {OK}


def test_remedy_for_a_single_cpu_depends_on_its_cause():
    (found,) = issues_of("cpus", with_mask("5", cpuset=CPUS("5"), **kernel(container="Docker")))
    assert "--cpuset-cpus" in found.remedy
    (found,) = issues_of("cpus", with_mask("5", cpuset=CPUS("5")))
    assert "AllowedCPUs=" in found.remedy
    (found,) = issues_of("cpus", with_mask("5"))
    assert "taskset -p" in found.remedy


def test_an_old_kernel_has_the_features_it_lacks_as_reason():
    (found,) = issues_of("kernel", make_host(**kernel(release="4.18.0-553.el8")))
    assert re.findall(r"5\.3|5\.15|6\.2", found.why) == ["5.3", "5.15", "6.2"]
    (found,) = issues_of("kernel", make_host(**kernel(release="5.15.0")))
    assert re.findall(r"5\.3|5\.15|6\.2", found.why) == ["6.2"]


TEXT = """\
error: c: is wrong
  why: of c
  remedy: do c
note: b: is odd, and the description of this issue is so long that it needs a
    second line
  why: of b
  remedy: do b

ok
a   is fine
dd  is fine too

not known: e
"""


def test_text_has_errors_first_and_results_that_are_ok_last():
    found = (
        error("c", "is wrong", "of c", "do c"),
        note(
            "b",
            "is odd, and the description of this issue is so long that it needs a second line",
            "of b",
            "do b",
        ),
        ok("a", "is fine"),
        ok("dd", "is fine too"),
        ok("e"),
    )
    expected = TEXT.replace("\n\nnot known", "\nnot known") + "\n1 error, 1 note, 3 ok"
    assert render_issues(found) == expected


def test_text_never_moves_a_terminal():
    found = (error("c", "is \033[2J", "of \033[2J", "do \033[2J"), ok("a", "\033[2J"))
    assert "\033" not in render_issues(found)


def test_json_has_the_command_and_every_result():
    host = command(library(GOMP), python=(3, 12), site="/s", program="/x/python")
    found = (
        HostIssue(severity=NOTE, subject="b", found="is odd", why="of b", remedy="do b", check_name="cpus"),
        ok("a", "x"),
    )
    output = json.loads(render_issues_json(found, host))
    assert output == {
        "schema": "ompbind-doctor/1",
        "problems": 0,
        "notes": 1,
        "command": {
            "argv": ["app"],
            "program": "/x/python",
            "python": None,
            "python_version": "3.12",
            "site": "/s",
            "opaque": False,
            "libraries": [
                {
                    "path": GOMP,
                    "kind": "gomp",
                    "role": "runtime",
                    "version": None,
                    "how": "available",
                    "by": "torch",
                }
            ],
        },
        "findings": [
            {
                "check": "cpus",
                "level": "note",
                "subject": "b",
                "found": "is odd",
                "why": "of b",
                "remedy": "do b",
            },
            {"check": "", "level": "ok", "subject": "a", "found": "x", "why": None, "remedy": None},
        ],
    }
    assert json.loads(render_issues_json(found, make_host()))["command"] is None


def test_errors_come_first():
    severities = [issue.severity for issue in run_checks(command(error="no", python=(3, 11)))]
    assert severities == sorted(severities, key=list(Severity).index)
    assert severities[0] is ERROR


TOY = """
from ompbind.doctor.facts import note
from ompbind.doctor.all_checks import CHECKS
CHECKS["moon"] = lambda here: [note("moon", "is full", "threads howl", "wait two weeks")]
"""


def test_a_check_is_one_function_and_one_row():
    output = run_with(TOY, "doctor")
    assert "note: moon: is full why: threads howl remedy: wait two weeks" in output
    assert '"check": "moon"' in run_with(TOY, "doctor", "--format", "json")
