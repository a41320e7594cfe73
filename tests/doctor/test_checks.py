"""The issues that `ompbind doctor` makes of given facts: rows of (check, severity, text, facts)."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cli.doctor import render_issues, render_issues_json
from ompbind.cpuset import CpuSet
from ompbind.doctor import facts
from ompbind.doctor.all_checks import CHECKS, run_checks
from ompbind.doctor.checks_environment import BINDING_OPTIONS, BINDING_PACKAGES, BINDING_VARIABLES, RULES
from ompbind.doctor.checks_programs import POOLS
from ompbind.inspection.verdict import OthersLoad
from ompbind.machine.devices import Device, DeviceKind
from ompbind.machine.model import TaskLimit
from ompbind.openmp.variables import OVERRIDING_VARIABLES, THREAD_COUNTS
from ompbind.planning.other_runs import LiveRun
from ompbind.programs.command import Workload
from ompbind.programs.libraries import DetectedLibrary, DetectionMethod, name_library
from ompbind.programs.wrappers import SELF_BINDING, Wrapper
from ompbind.text import Severity
from tests.machines import Shape, make_machine
from tests.tables import rows

CPUS = CpuSet.from_list
PLAIN = make_machine(Shape(cores=8)).replace(arch="x86_64")
SMT = make_machine(Shape(cores=4, smt=2))
NODES = make_machine(Shape(packages=2, cores=4))
FOUR = make_machine(Shape(packages=4, cores=1))
FOUR_L3 = make_machine(Shape(l3s=4, cores=1))
TASKS = TaskLimit(name="pids.max", limit=9, used=20)
PRELOAD = (("tcmalloc", "/opt/lib/libtcmalloc.so.4"),)
FOUND = PRELOAD[0][1]
ON_1 = NODES.replace(memory_allowed=CPUS("1"))
RUN = LiveRun(run_id="other", pid=77, uid=0, started=0, ranks=(), claimed=CPUS("6-12"))


def here(machine=PLAIN, env=(), allowed=None, **changes):
    machine = machine if allowed is None else machine.replace(allowed=CPUS(allowed))
    return facts.HostFacts(env=dict(env), machine=machine, **{"runs": (), **changes})


IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
LIMITED = PLAIN.replace(allowed=CPUS("0-3"), restrictions=[(CPUS("4-7"), "the cpuset cgroup /x excludes")])


def plain(**changes):
    return here(PLAIN.replace(**changes))


def kernel(machine=PLAIN, **settings):
    return here(machine, kernel=facts.KernelFacts(**settings))


def may(machine=PLAIN, container="", **changes):
    words = {name: facts.Permission(word) for name, word in changes.items()}
    return here(machine, kernel=facts.KernelFacts(container=container), **words)


def library(path, method=DetectionMethod.AVAILABLE, origin="torch", version=None):
    return DetectedLibrary(library=name_library(path).replace(version=version), method=method, origin=origin)


def preloaded(path):
    return library(path, DetectionMethod.PRELOADED, "LD_PRELOAD")


def command(*libraries, site="", program="/bin/app", opaque=False, preloadable=(), machine=PLAIN, **changes):
    work = Workload(program=program, site_packages=site, opaque=opaque, libraries=libraries)
    read = facts.CommandFacts(**{"argv": ("app",), **changes})
    return here(machine, workload=work, preloadable=preloadable, command=read)


def package(name, version=(), **changes):
    return command(packages={name: version}, **changes)


def gpus(*cpus, machine=NODES, allowed=None, hypervisor="", **changes):
    found = tuple(
        Device(kind=DeviceKind.GPU, index=index, address=f"0000:0{index}:00.0", cpus=CPUS(text),
               node=None if not text else int(CPUS(text).first > 3))
        for index, text in enumerate(cpus)
    )  # fmt: skip
    machine = machine.replace(devices=found)
    return here(machine, allowed=allowed, kernel=facts.KernelFacts(hypervisor=hypervisor), **changes)


def packages(*names, **changes):
    return gpus(
        "0-3", command=facts.CommandFacts(argv=("app",), packages=dict.fromkeys(names, ())), **changes
    )


GOMP, OTHER = "/x/torch/lib/libgomp.so.1", "/x/scikit_learn.libs/libgomp-e985bcbb.so.1"
LLVM, INTEL = "/usr/lib/llvm-14/lib/libomp.so.5", "/x/lib/libiomp5.so"
OPENBLAS, NEEDED = "/x/numpy.libs/libscipy_openblas64_-32a4b2a6.so", DetectionMethod.NEEDED
VLLM = {"vllm": ()}
TASKSET = Wrapper(text="taskset -c 0", rebinds=True)
TRT = "TLLM_NUMA_AWARE_WORKER_AFFINITY"
ERROR, NOTE, OK = Severity.ERROR, Severity.NOTE, Severity.OK

TABLE = [
    ("machine", OK, "8 cores, x86_64", here()),
    ("machine", ERROR, "no CPU is allowed", here(None, error="no CPU is allowed")),
    ("machine", ERROR, "cannot bind processes", plain(bindable=False)),
    ("cpus", OK, "all 8 online CPUs are allowed", here()),
    ("cpus", NOTE, "4 of 8 online CPUs allowed (0-3): limited by an affinity mask", here(allowed="0-3")),
    ("cpus", NOTE, "allowed (0-3): the cpuset cgroup /x excl", here(LIMITED)),
    ("cpus", ERROR, "1 of 8 online CPUs allowed (5)", here(allowed="5")),
    ("cpus", NOTE, "limited by the enclosing run (rank 3)", here(allowed="5", enclosing=(3, CPUS("5")))),
    ("cores", NOTE, "2 cores only partly allowed: not CPUs 4-5", here(SMT, allowed="0-3,6-7")),
    ("offline", NOTE, "CPUs 8-9 present but offline", plain(offline=CPUS("8-9"))),
    ("offline", OK, "SMT is off", kernel(PLAIN.replace(offline=CPUS("8-9")), smt="off")),
    ("set-apart", NOTE, "CPUs 6-7: isolated", plain(isolated=CPUS("6-7"))),
    ("quota", NOTE, "the cgroup limits CPU time to 2.5 of 8 allowed CPUs", plain(quota=2.5)),
    ("quota", NOTE, "CPU request without a limit gives no CPUs", here(env=IN_POD)),
    ("quota", OK, "none", here(LIMITED, env=IN_POD)),
    ("task-limit", OK, "no limit", here()),
    ("task-limit", OK, "pids.max leaves 30 of 50 proc", plain(task_limit=TASKS.replace(limit=50))),
    ("task-limit", NOTE, "leaves 0 of 9 proc", plain(task_limit=TASKS)),
    ("load", NOTE, "other processes used 88 % of CPUs 0-7 in 1.0 s",
     here(others=OthersLoad(cpus=CPUS("0-7"), span_s=1.0, used_s=7.04), idle=CPUS("2"))),
    ("bind-call", ERROR, "is refused", may(may_bind="refused")),
    ("hold", OK, "not known", here()), ("hold", OK, "is permitted", here(hold="is permitted")),
    ("devices", NOTE, "near CPUs 4-7 on NUMA node 1, but only CPUs 0-3", gpus("0-3", "4-7", allowed="0-3")),
    ("devices", NOTE, "gpu:0, gpu:1: the firmware does not report a NUMA node", gpus("", "")),
    ("virtual", OK, "QEMU: cores, caches and NUMA nodes are as", kernel(hypervisor="QEMU")),
    ("virtual", NOTE, "each of 4 CPUs is a package", kernel(FOUR, hypervisor="x")),
    ("virtual", NOTE, "no L3 cache is shared", kernel(FOUR_L3, hypervisor="QEMU")),
    ("virtual", NOTE, "the NUMA node of gpu:0, gpu:1 is not passed on", gpus("", "", hypervisor="QEMU")),
    ("rebinding", NOTE, "is '1': NCCL binds", here(env={"NCCL_IGNORE_CPU_AFFINITY": "1"})),
    ("rebinding", NOTE, "torchrun binds", command(argv=("torchrun", "--numa-binding=node", "train.py"))),
    ("rebinding", OK, "none known", command(argv=("vllm", "serve", "MODEL", "--numa-bind-nodes", "0"))),
    ("rebinding", NOTE, "binds by default", packages("tensorrt_llm")),
    ("rebinding", OK, "none known", packages("tensorrt_llm", env={TRT: "0"})),
    ("rebinding", NOTE, "binds by default", packages("torch", "sglang")),
    ("runs", OK, "none on these CPUs", here(runs=(RUN.replace(claimed=CPUS("9-12")),))),
    ("runs", NOTE, "other (pid 77) uses CPUs 6-7", here(runs=(RUN,))),
    ("variables", OK, "none that would", here()),
    ("variables", OK, "set for rank 1", here(env={"OMP_PLACES": "{0}"}, enclosing=(1, CPUS("0")))),
    ("variables", NOTE, "is '{0}'", here(env={"OMPBIND_RANK": "1", "OMP_PLACES": "{0}"})),
    ("variables", ERROR, "is 'active'", here(PLAIN.replace(quota=2.0), env={"OMP_WAIT_POLICY": "active"})),
    ("options", OK, "is '3': an option", here(env={"OMPBIND_RANKS": "3"}, options=("OMPBIND_RANKS",))),
    ("options", OK, "is 'B=1 A_KEY=***'", here(env={"OMPBIND_ENV": "B=1 A_KEY=x"}, options=("OMPBIND_ENV",))),
    ("options", NOTE, "is not a variable of ompbind", here(unknown_options=(("OMPBIND_X", ""),))),
    ("preload", ERROR, "names /x.so", here(workload=Workload(preload_warnings=("LD_PRELOAD names /x.so",)))),
    ("command", OK, "runs /x/python (Python 3.11; ", command(program="/x/python", python=(3, 11), site="/s")),
    ("command", ERROR, "command not found: app", command(error="command not found: app")),
    ("command", NOTE, "/bin/app is for aarch64", command(arch="aarch64")),
    ("wrappers", NOTE, "taskset -c 0", here(workload=Workload(wrappers=(TASKSET,)))),
    ("runtimes", NOTE, "several: libgomp (available: torch)", command(library(GOMP), library(OTHER))),
    ("runtimes", ERROR, "libomp (needed: app) and libiomp5 (preloaded",
     command(library("/x/libomp.so", DetectionMethod.NEEDED, "app"), preloaded(INTEL))),
    ("runtimes", NOTE, "libomp 14 (available", command(library(LLVM, version=14))),
    ("preloadable", OK, f"{FOUND} (--preload tcmalloc)", here(preloadable=PRELOAD)),
    ("preloadable", NOTE, "is not preloaded", command(packages=VLLM, preloadable=PRELOAD)),
    ("preloadable", NOTE, "is not installed", command(packages=VLLM, preloadable=(("iomp", ""),))),
    ("preloadable", OK, "is preloaded", command(preloaded(FOUND), packages=VLLM, preloadable=PRELOAD)),
    ("pools", OK, "not known: --verify", command(python=(3, 13))),
    ("pools", OK, "of numpy: its threads follow OPENBLAS_NUM", command(library(OPENBLAS, origin="numpy"))),
    ("pools", NOTE, "online CPU (8), ThreadPoolExecutor has up to 12 threads", command(python=(3, 12))),
    ("pools", NOTE, "counts all 8 online CPUs", command(python=(3, 14), isolated=True)),
    ("pools", NOTE, "pthread_setaffinity_np failed … error code: 22", package("onnxruntime", machine=SMT)),
    ("pools", NOTE, "before version 2.14: its inter-op thread pools", package("torch", machine=SMT)),
    ("pools", OK, "its inter-op thread pools follow the affinity mask", package("torch", (2, 14))),
    ("pools", NOTE, "hardware_concurrency", command(cpp=True)),
    ("pools", OK, "follow the affinity mask", command(library("/x/libtbb.so.12", NEEDED, "app"), cpp=True)),
    *(("pools", NOTE, words, command(program=f"/usr/bin/{name}")) for name, words in (
        ("zstd", "each core of the machine (8)"), ("pigz", "counts all 8 online CPUs"),
        ("nginx", "'worker_cpu_affinity auto' binds the first to CPU 0"), ("memcached", "starts 4 worker"),
        ("whisper-cli", "up to 4 threads, also on fewer"), ("ollama", "of the machine (8), and ignores"),
        ("Rscript", "detectCores() counts all 8 online CPUs"), ("node", "os.cpus() lists all 8 online CPUs"),
        ("gmx", "mdrun starts threads for all 8 online CPUs"),
    )),
    ("pools", OK, "ranks get JULIA_NUM_THREADS", command(program="/bin/julia", cpp=True)),
    ("pools", OK, "each is bound to a core of it", package("openvino")),
    ("pools", NOTE, "each is bound to a core of it", package("openvino", machine=PLAIN.replace(quota=2.0))),
    *(("pools", severity, "the CPU quota, rounded up", command(program="java", machine=machine))
      for severity, machine in ((OK, PLAIN.replace(quota=2.0)), (NOTE, PLAIN.replace(quota=1.5)))),
    ("allowed-memory", OK, "all allowed CPUs", here(NODES.replace(memory_allowed=CPUS("0")), allowed="0-3")),
    ("allowed-memory", NOTE, "node 0 is not allowed (cpuset.mems: 1)", here(ON_1)),
    ("memory-call", NOTE, "by a seccomp filter", may(NODES, may_place_memory="refused")),
    ("memory-call", NOTE, "in this container", may(NODES, container="Docker", may_place_memory="refused")),
    ("numa-balancing", OK, "only one node", kernel(numa_balancing=1)),
    ("numa-balancing", NOTE, "on", kernel(NODES, numa_balancing=1)),
    ("kernel", NOTE, "5.14.0", kernel(release="5.14.0")),
    ("versions", OK, "CPython 3.11", here(report=(("Python", "CPython 3.11"),))),
]  # fmt: skip


def issues_of(check, host):
    return [issue for issue in run_checks(host) if issue.check_name == check]


@pytest.mark.parametrize(("check", "severity", "words", "host"), TABLE)
def test_checks(check, severity, words, host):
    found = issues_of(check, host)
    assert words in found[0].found
    assert found[0].severity is severity
    issues = run_checks(host)
    severities = [issue.severity for issue in issues]
    assert severities == sorted(severities, key=list(Severity).index)
    for issue in issues:
        assert (issue.why != "", issue.remedy != "") == ((issue.severity is not OK),) * 2, issue
        assert issue.found


def test_every_check_is_in_the_table_and_documented_and_unknown_facts_are_no_issues():
    assert {row[0] for row in TABLE} == set(CHECKS)
    page = (Path(__file__).parents[2] / "docs/first-aid.md").read_text()
    names = [*CHECKS, *(name for name, *_ in BINDING_VARIABLES), *BINDING_OPTIONS]
    assert not [name for name in names if f"`{name}`" not in page]
    assert not [program for _, program, _, _ in BINDING_PACKAGES if program not in page]
    assert {issue.severity for issue in run_checks(facts.HostFacts(env={}, machine=PLAIN))} == {OK}


def test_each_program_of_the_tables_has_a_source():
    assert {sources[-1][:8] for sources in (*POOLS, *SELF_BINDING)} == {"https://"}


@pytest.mark.parametrize(("name", "off"), [(name, off) for name, _, off, _ in BINDING_VARIABLES])
def test_the_remedy_of_a_variable_that_binds_again_removes_the_note(name, off):
    def remedies(env):
        return {issue.subject: issue.remedy for issue in run_checks(here(env=env)) if issue.severity is NOTE}

    is_of_launcher = name in ("I_MPI_PIN", "HYDRA_BINDING") or "_MCA_" in name
    assert ("--hold" in remedies({name: "1"})[name]) != is_of_launcher
    assert name not in remedies({name: off} if off else {})


VARIABLES = """
    GOMP_CPU_AFFINITY=                      | to CPU 0
    GOMP_CPU_AFFINITY=bogus                 | hangs
    GOMP_CPU_AFFINITY=0-3 8:2               | ignores the affinity mask
    KMP_AFFINITY=norespect,compact          | ignore the affinity mask
    KMP_AFFINITY=granularity=fine,compact   | overrides OMP_PLACES
    KMP_HW_SUBSET=1t                        | initial thread
    OMP_PLACES={0},{1}                      | one CPU
    OMP_PLACES=cores OMP_PROC_BIND=close    | same places
    OMP_PROC_BIND=true                      | the same CPUs
    OMP_NUM_THREADS=9                       | more threads than CPUs
    OMP_WAIT_POLICY=ACTIVE                  | keep their CPUs busy
    OMP_DISPLAY_AFFINITY=true               | standard output
    OMP_PLACES={0},{1} OMP_PROC_BIND=FALSE  |
    OMP_DISPLAY_AFFINITY=false              |
"""


@pytest.mark.parametrize(("assigned", "why"), rows(VARIABLES))
def test_variables_that_move_or_multiply_threads(assigned, why):
    env = dict(pair.split("=", 1) for pair in re.split(r" (?=[A-Z])", assigned))
    name = next(iter(env))
    found = {issue.subject: issue for issue in issues_of("variables", here(env=env))}
    if not why:
        assert list(found) == ["variables"]
        return
    assert (list(found), found[name].severity) == ([name], NOTE)
    assert why in found[name].why
    assert f"unset {name}" in found[name].remedy
    assert ("--hold" in found[name].remedy) == (name == "GOMP_CPU_AFFINITY" or "norespect" in assigned)
    assert ("'ompbind run'" in found[name].remedy) == (name in (*OVERRIDING_VARIABLES, *THREAD_COUNTS))


VALUES = st.dictionaries(
    st.sampled_from([name for name, _, _ in RULES]),
    st.one_of(st.text(max_size=12), st.sampled_from(["true", "9" * 30, "{0},{1}", "²", "0-3", ",", "-1"])),
)


@given(VALUES, st.sampled_from([PLAIN, SMT, NODES, None]))
def test_any_value_of_a_variable_is_reported_in_whole_words(env, machine):
    found = run_checks(here(machine, env=env))
    lines = render_issues(found).splitlines()
    assert all(len(line) <= 80 or len(line.split()) == 1 for line in lines)  # no word is broken
    json.loads(render_issues_json(found, here(machine)))


def test_reasons_and_remedies_depend_on_the_cause():
    docker = facts.KernelFacts(container="Docker")
    for host, remedy in (
        (here(LIMITED, kernel=docker), "--cpuset-cpus"),
        (here(LIMITED), "AllowedCPUs="),
        (here(LIMITED.replace(restrictions=[(CPUS("4-7"), "the affinity mask")])), "taskset -p"),
    ):
        (found,) = issues_of("cpus", host)
        assert remedy in found.remedy
    for machine, quota, fewer in ((PLAIN, 2.5, "-c 2"), (PLAIN, 0.5, "-c 1"), (SMT, 2.0, "--smt 1 -c 2")):
        limited = here(machine.replace(quota=quota))
        (alone,) = issues_of("quota", limited)
        assert f"'ompbind run {fewer}' gives" in alone.remedy
        _, in_container = issues_of("quota", limited.replace(kernel=docker))
        assert "--cpuset-cpus" in in_container.remedy
    for release, versions in (("4.18.0-553.el8", ["5.3", "5.15", "6.2"]), ("5.15.0", ["6.2"])):
        (found,) = issues_of("kernel", kernel(release=release))
        assert re.findall(r"5\.3|5\.15|6\.2", found.why) == versions
    found, *_ = issues_of("pools", command(python=(3, 14), isolated=True))
    assert "multiprocessing" not in found.found, "Python 3.14 follows the mask there"


def test_text_has_errors_first_and_counts_and_never_moves_a_terminal():
    bad = "\033[2J"
    text = render_issues((facts.error("c", bad, bad, bad), facts.ok("a", bad), facts.ok("e")))
    assert "\033" not in text
    assert text.startswith("error: c: ")
    assert text.endswith("1 error, 0 notes, 2 ok")
