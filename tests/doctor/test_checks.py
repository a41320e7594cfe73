"""What `ompbind doctor` says of given surroundings: a row for each check, the words and how bad it is."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.doctor.checks.environment import RULES
from ompbind.doctor.facts import (
    CommandFacts,
    FrequencyFacts,
    HostFacts,
    KernelFacts,
    MemoryFacts,
    MemorySize,
    Permission,
)
from ompbind.doctor.issue import HostIssue, error, note, ok
from ompbind.doctor.table import CHECKS, examine
from ompbind.openmp.variables import DEFEATING, THREAD_COUNTS
from ompbind.planning.occupancy import LiveRun
from ompbind.programs.library_catalog import name_library
from ompbind.programs.workload import Found, How, Workload
from ompbind.report.doctor import render_issues, render_issues_json
from ompbind.severity import Severity
from tests.machines import Shape, make_machine
from tests.toys import run_with

CPUS = CpuSet.from_list
PLAIN = make_machine(Shape(cores=8)).replace(arch="x86_64")
SMT = make_machine(Shape(cores=4, smt=2))
NODES = make_machine(Shape(packages=2, cores=4))
FOUND = "/opt/lib/libtcmalloc.so.4"
GIB = 1 << 30


def here(machine=PLAIN, **changes):
    env = changes.pop("env", {})
    return HostFacts(env=env, machine=machine, runs=(), **changes)


def narrowed(cpus, **changes):
    return here(PLAIN.replace(allowed=CPUS(cpus)), **changes)


def calls(**changes):
    return {name: Permission(word) for name, word in changes.items()}


def kernel(**settings):
    return {"kernel": KernelFacts(**settings)}


def governed(*words, driver="", preference=""):
    groups = tuple((word, CpuSet([cpu])) for cpu, word in enumerate(words))
    preferences = ((preference, CPUS("0-7")),) if preference else ()
    return here(power=FrequencyFacts(driver=driver, governors=groups, preferences=preferences))


def run(held):
    return LiveRun(run_id="other", pid=77, uid=0, started=0, ranks=(), held=CPUS(held))


def library(path, how=How.AVAILABLE, by="torch", version=None):
    return Found(library=name_library(path).replace(version=version), how=how, by=by)


def command(*libraries, site="", program="/bin/app", opaque=False, preloadable=(), machine=PLAIN, **facts):
    work = Workload(program=program, site=site, opaque=opaque, libraries=libraries)
    return here(
        machine,
        workload=work,
        preloadable=preloadable,
        command=CommandFacts(**{"argv": ("app",), **facts}),
    )


def swapped(used):
    room = MemorySize(total=100 * GIB, free=50 * GIB)
    return here(memory=MemoryFacts(machine=room, swap_total=8 * GIB, swap_used=used))


def filled(*shares):
    rooms = tuple(MemorySize(node=i, total=GIB, free=GIB * share // 100) for i, share in enumerate(shares))
    return here(memory=MemoryFacts(machine=MemorySize(total=GIB, free=GIB * shares[0] // 100), nodes=rooms))


GOMP, OTHER = "/x/torch/lib/libgomp.so.1", "/x/scikit_learn.libs/libgomp-e985bcbb.so.1"
LLVM, INTEL = "/usr/lib/llvm-14/lib/libomp.so.5", "/x/lib/libiomp5.so"
ERROR, NOTE, OK = Severity.ERROR, Severity.NOTE, Severity.OK

TABLE = [
    ("machine", OK, "8 cores, x86_64", here()),
    ("machine", ERROR, "no CPU is allowed", here(None, error="no CPU is allowed")),
    ("machine", ERROR, "cannot bind processes", here(PLAIN.replace(bindable=False))),
    ("machine", NOTE, "no file tells", here(PLAIN.replace(remarks=("no file tells which share a core",)))),
    ("cpus", OK, "all 8 that are online", here()),
    ("cpus", NOTE, "4 of 8 online CPUs may be used (0-3), because of the affinity mask", narrowed("0-3")),
    ("cpus", NOTE, "because of the cpuset", narrowed("0-3", cpuset=CPUS("0-3"))),
    ("cpus", NOTE, "the cpuset of its control group and the affinity", narrowed("0-1", cpuset=CPUS("0-3"))),
    ("cpus", ERROR, "1 of 8 online CPUs may be used (5)", narrowed("5")),
    ("cpus", NOTE, "the run around it (rank 3)", narrowed("5", env={"OMPBIND_RANK": "3"})),
    ("cpus", OK, "all 1 that are online", here(make_machine(Shape(cores=1)))),
    ("cores", NOTE, "2 cores may be used only in part: not CPUs 4-5",
     here(SMT.replace(allowed=CPUS("0-3,6-7")))),
    ("offline", NOTE, "CPUs 8-9 present but offline", here(PLAIN.replace(offline=CPUS("8-9")))),
    ("offline", OK, "SMT is switched off", here(PLAIN.replace(offline=CPUS("8-9")), **kernel(smt="off"))),
    ("set-apart", NOTE, "CPUs 6-7: isolated", here(PLAIN.replace(isolated=CPUS("6-7")))),
    ("set-apart", NOTE, "CPU 7: nohz_full", here(PLAIN.replace(nohz_full=CPUS("7")))),
    ("smt", OK, "one hardware thread per core", here()),
    ("smt", OK, "2 hardware threads per core: ranks get one of them", here(SMT)),
    ("smt", OK, "8 hardware threads per core: ranks get 4 of them", here(make_machine(Shape(smt=8)))),
    ("quota", OK, "none", here()),
    ("quota", OK, "8 CPUs, enough", here(PLAIN.replace(quota=8.0))),
    ("quota", NOTE, "2.5 CPUs of time on 8 CPUs", here(PLAIN.replace(quota=2.5))),
    ("bind-call", OK, "is permitted", here(**calls(may_bind="granted"))),
    ("bind-call", OK, "not known", here()),
    ("bind-call", ERROR, "is refused", here(**calls(may_bind="refused"))),
    ("runs", OK, "none on these CPUs", here().replace(runs=(run("9-12"),))),
    ("runs", OK, "not known", here().replace(runs=None)),
    ("runs", NOTE, "other (pid 77) holds CPUs 6-7", here().replace(runs=(run("6-12"),))),
    ("variables", OK, "none that would", here()),
    ("variables", OK, "rank 1 of the run", here(env={"OMPBIND_RANK": "1", "OMP_PLACES": "{0}"})),
    ("options", OK, "is '3': an option", here(env={"OMPBIND_RANKS": "3"}, options=("OMPBIND_RANKS",))),
    ("options", NOTE, "is 'none'", here(env={"OMPBIND_BIND": "none"}, options=("OMPBIND_BIND",))),
    ("options", NOTE, "is 'nobind'", here(env={"OMPBIND_MASK": "nobind"}, options=("OMPBIND_MASK",))),
    ("preload", OK, "nothing", here()),
    ("preload", OK, "/x.so: all of it", here(env={"LD_PRELOAD": "/x.so"})),
    ("preload", ERROR, "names /x.so", here(workload=Workload(troubles=("LD_PRELOAD names /x.so, no",)))),
    ("command", OK, "runs /bin/app", command()),
    ("command", OK, "runs /x/python (Python 3.11; packages in /s)",
     command(program="/x/python", python=(3, 11), site="/s")),
    ("command", OK, "its file does not tell", command(program="")),
    ("command", ERROR, "command not found: app", command(error="command not found: app")),
    ("command", NOTE, "/bin/app is for aarch64", command(arch="aarch64")),
    ("command", OK, "runs /bin/app", command(arch="i386")),
    ("runtimes", OK, "none found", command()),
    ("runtimes", OK, "libgomp (available: torch)", command(library(GOMP))),
    ("runtimes", NOTE, "several: libgomp (available: torch), libgomp",
     command(library(GOMP), library(OTHER))),
    ("runtimes", NOTE, "several: libiomp5 (preloaded",
     command(library(GOMP), library(INTEL, How.PRELOADED, "LD_PRELOAD"))),
    ("runtimes", ERROR, "libomp (needed: app) and libiomp5 (preloaded: LD_PRELOAD)",
     command(library("/x/libomp.so", How.NEEDED, "app"), library(INTEL, How.PRELOADED, "LD_PRELOAD"))),
    ("runtimes", NOTE, "libomp (available: torch) and libiomp5",
     command(library("/x/libomp.so"), library(INTEL, How.PRELOADED))),
    ("runtimes", NOTE, "libomp 14 (available", command(library(LLVM, version=14))),
    ("runtimes", OK, "libomp 16 (available", command(library(LLVM, version=16))),
    ("preloadable", OK, f"{FOUND} (--preload tcmalloc)", here(preloadable=(("tcmalloc", FOUND),))),
    ("preloadable", OK, "not found: libtcmalloc, libiomp5",
     here(preloadable=(("tcmalloc", ""), ("iomp", "")))),
    ("preloadable", NOTE, "is not preloaded",
     command(packages=("vllm",), preloadable=(("tcmalloc", FOUND),))),
    ("preloadable", NOTE, "is not installed", command(packages=("vllm",), preloadable=(("iomp", ""),))),
    ("preloadable", OK, "not found: libiomp5",
     command(packages=("vllm",), preloadable=(("iomp", ""),), machine=PLAIN.replace(arch="aarch64"))),
    ("preloadable", OK, "is preloaded",
     command(library(FOUND, How.PRELOADED), packages=("vllm",), preloadable=(("tcmalloc", FOUND),))),
    ("pools", OK, "none known", command(python=(3, 13))),
    ("pools", NOTE, "multiprocessing.Pool", command(python=(3, 12))),
    ("pools", NOTE, "multiprocessing.Pool", command(python=(3, 14), isolated=True)),
    ("pools", NOTE, "its threads count all CPUs", command(packages=("duckdb",))),
    ("pools", NOTE, "its inter-op threads", command(packages=("torch",))),
    ("pools", NOTE, "hardware_concurrency", command(cpp=True)),
    ("pools", OK, "reads the affinity mask itself", command(program="/opt/jdk/bin/java")),
    ("pools", OK, "OMP_NUM_THREADS", command(program="/bin/sh", opaque=True)),
    ("memory-call", OK, "not known", here(NODES)),
    ("memory-call", OK, "is permitted", here(NODES, **calls(may_place_memory="granted"))),
    ("memory-call", OK, "no NUMA policies", here(NODES, **calls(may_place_memory="absent"))),
    ("memory-call", OK, "no harm with one", here(**calls(may_place_memory="refused"))),
    ("memory-call", NOTE, "by a seccomp filter", here(NODES, **calls(may_place_memory="refused"))),
    ("memory-call", NOTE, "in this container",
     here(NODES, **calls(may_place_memory="refused"), **kernel(container="Docker"))),
    ("numa-balancing", OK, "only one node", here(**kernel(numa_balancing=1))),
    ("numa-balancing", OK, "off", here(NODES, **kernel(numa_balancing=0))),
    ("numa-balancing", OK, "not known", here(NODES)),
    ("numa-balancing", NOTE, "on", here(NODES, **kernel(numa_balancing=1))),
    ("memory", OK, "not known", here()),
    ("memory", OK, "40 % free", filled(40)),
    ("memory", OK, "6 % free, or more, on every node", filled(50, 6)),
    ("memory", NOTE, "only 3 % of the memory is free", filled(3)),
    ("memory", NOTE, "only 2 % of the memory of NUMA node 1", filled(50, 2)),
    ("swap", OK, "not known", here()),
    ("swap", OK, "512 of 8192 MiB in use", swapped(GIB // 2)),
    ("swap", NOTE, "2048 of 8192 MiB are in use", swapped(2 * GIB)),
    ("huge-pages", OK, "not known", here()),
    ("huge-pages", OK, "madvise, defrag always", here(**kernel(huge_pages="madvise", defrag="always"))),
    ("huge-pages", NOTE, "are off", here(**kernel(huge_pages="never"))),
    ("frequency", OK, "does not tell", here()),
    ("frequency", OK, "governor performance on CPUs 0-1",
     here(power=FrequencyFacts(governors=(("performance", CPUS("0-1")),)))),
    ("frequency", OK, "governor powersave on CPU 0 (intel_pstate)",
     governed("powersave", driver="intel_pstate")),
    ("frequency", NOTE, "governor powersave", governed("powersave", driver="acpi-cpufreq")),
    ("frequency", NOTE, "governor ondemand", governed("ondemand")),
    ("frequency", NOTE, "governors differ: performance on CPU 0, powersave on CPU 1",
     governed("performance", "powersave")),
    ("frequency", NOTE, "energy preference balance_power",
     governed("powersave", driver="amd-pstate-epp", preference="balance_power")),
    ("stolen", OK, "not known", here()),
    ("stolen", OK, "0.3 % since boot", here(**kernel(stolen=0.003))),
    ("stolen", NOTE, "4.0 % of CPU time", here(**kernel(stolen=0.04))),
    ("kernel", OK, "not known", here()),
    ("kernel", OK, "6.8.0-51-generic", here(**kernel(release="6.8.0-51-generic"))),
    ("kernel", OK, "unusual", here(**kernel(release="unusual"))),
    ("kernel", NOTE, "5.14.0", here(**kernel(release="5.14.0"))),
    ("container", OK, "Docker, with 1 NUMA node", here(**kernel(container="Docker"))),
]  # fmt: skip


def findings_of(check, surroundings):
    return [one for one in examine(surroundings) if one.by == check]


@pytest.mark.parametrize(
    ("check", "severity", "words", "surroundings"),
    TABLE,
    ids=[f"{row[0]}-{row[1]}-{row[2]}" for row in TABLE],
)
def test_checks(check, severity, words, surroundings):
    found = findings_of(check, surroundings)
    assert words in found[0].found
    assert found[0].severity is severity


def test_the_table_has_every_check():
    assert {row[0] for row in TABLE} == set(CHECKS)


def test_every_check_is_documented():
    page = (Path(__file__).parents[2] / "docs/doctor.md").read_text()
    assert not [name for name in CHECKS if f"`{name}`" not in page]


@pytest.mark.parametrize("row", TABLE, ids=[f"{row[0]}-{row[1]}-{row[2]}" for row in TABLE])
def test_what_is_not_well_has_a_reason_and_a_remedy(row):
    for one in examine(row[3]):
        assert (one.why != "", one.remedy != "") == ((one.severity is not OK),) * 2, one
        assert one.found


def variables(**env):
    return {one.subject: one for one in findings_of("variables", here(PLAIN, env=env))}


VARIABLES = [
    ({"GOMP_CPU_AFFINITY": ""}, "GOMP_CPU_AFFINITY", "on CPU 0"),
    ({"GOMP_CPU_AFFINITY": "bogus"}, "GOMP_CPU_AFFINITY", "never ends"),
    ({"GOMP_CPU_AFFINITY": "0-3 8:2"}, "GOMP_CPU_AFFINITY", "leaves the affinity mask"),
    ({"KMP_AFFINITY": "norespect,compact"}, "KMP_AFFINITY", "leave the affinity mask"),
    ({"KMP_AFFINITY": "Disabled"}, "KMP_AFFINITY", "do not look at the mask"),
    ({"KMP_AFFINITY": "granularity=fine,compact"}, "KMP_AFFINITY", "beats OMP_PLACES"),
    ({"KMP_HW_SUBSET": "1t"}, "KMP_HW_SUBSET", "initial thread"),
    ({"OMP_PLACES": "{0},{1}"}, "OMP_PLACES", "one CPU"),
    ({"OMP_PLACES": "cores", "OMP_PROC_BIND": "close"}, "OMP_PLACES", "same places"),
    ({"OMP_PROC_BIND": "true"}, "OMP_PROC_BIND", "1.8-2.1"),
    ({"OMP_NUM_THREADS": ""}, "OMP_NUM_THREADS", "ends programs"),
    ({"OMP_NUM_THREADS": "abc"}, "OMP_NUM_THREADS", "may end the program"),
    ({"OMP_NUM_THREADS": "0"}, "OMP_NUM_THREADS", "may end the program"),
    ({"OMP_NUM_THREADS": "9"}, "OMP_NUM_THREADS", "more threads than CPUs"),
    ({"OMP_NUM_THREADS": "9,2"}, "OMP_NUM_THREADS", "more threads than CPUs"),
    ({"MKL_NUM_THREADS": "100000000000"}, "MKL_NUM_THREADS", "more threads than CPUs"),
    ({"GOTO_NUM_THREADS": "2"}, "GOTO_NUM_THREADS", "beats OMP_NUM_THREADS"),
    ({"OMP_DYNAMIC": "true"}, "OMP_DYNAMIC", "fewer threads"),
    ({"OMP_THREAD_LIMIT": "2"}, "OMP_THREAD_LIMIT", "fewer threads"),
    ({"KMP_ALL_THREADS": "2"}, "KMP_ALL_THREADS", "fewer threads"),
    ({"OMP_WAIT_POLICY": "ACTIVE"}, "OMP_WAIT_POLICY", "150-220"),
    ({"KMP_BLOCKTIME": "infinite"}, "KMP_BLOCKTIME", "150-220"),
    ({"KMP_LIBRARY": "turnaround"}, "KMP_LIBRARY", "150-220"),
    ({"GOMP_SPINCOUNT": "infinity"}, "GOMP_SPINCOUNT", "150-220"),
    ({"OMP_DISPLAY_AFFINITY": "true"}, "OMP_DISPLAY_AFFINITY", "standard output"),
]


@pytest.mark.parametrize(("env", "name", "why"), VARIABLES, ids=[str(row[0]) for row in VARIABLES])
def test_variables_that_move_or_multiply_threads(env, name, why):
    found = variables(**env)
    assert list(found) == [name]
    assert found[name].severity is NOTE
    assert why in found[name].why
    assert f"unset {name}" in found[name].remedy
    assert ("'ompbind run'" in found[name].remedy) == (name in (*DEFEATING, *THREAD_COUNTS))


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


def test_active_waiting_within_a_quota_is_a_problem():
    for quota, severity in ((2.0, ERROR), (8.0, NOTE)):
        machine = PLAIN.replace(quota=quota)
        found = findings_of("variables", here(machine, env={"OMP_WAIT_POLICY": "active"}))
        assert [one.severity for one in found] == [severity]


def test_every_variable_that_ranks_lose_has_a_row_or_does_nothing_by_itself():
    told = {name for name, _, _ in RULES}
    silent = {"KMP_TOPOLOGY_METHOD", "KMP_HIDDEN_HELPER_AFFINITY", "KMP_DYNAMIC_MODE"}
    assert set(DEFEATING) | set(THREAD_COUNTS) <= told | silent


VALUES = st.dictionaries(
    st.sampled_from([name for name, _, _ in RULES]),
    st.one_of(st.text(max_size=12), st.sampled_from(["true", "9" * 30, "{0},{1}", "²", "0-3", ",", "-1"])),
)


@given(VALUES, st.sampled_from([PLAIN, SMT, NODES, None]))
def test_no_value_of_a_variable_is_too_odd(env, machine):
    found = examine(here(machine, env=env))
    lines = render_issues(found).splitlines()
    assert all(len(line) <= 80 or len(line.split()) == 1 for line in lines)  # no word is broken
    json.loads(render_issues_json(found, here(machine)))


def test_what_nobody_knows_is_no_problem():
    found = examine(HostFacts(env={}, machine=PLAIN))
    assert {one.severity for one in found} == {OK}


def test_a_single_cpu_by_what_a_parent_did_says_whom_to_ask():
    (found,) = findings_of("cpus", narrowed("5", cpuset=CPUS("5"), **kernel(container="Docker")))
    assert "--cpuset-cpus" in found.remedy
    (found,) = findings_of("cpus", narrowed("5", cpuset=CPUS("5")))
    assert "AllowedCPUs=" in found.remedy
    (found,) = findings_of("cpus", narrowed("5"))
    assert "taskset -p" in found.remedy


def test_the_reason_of_an_old_kernel_names_what_it_lacks():
    (found,) = findings_of("kernel", here(**kernel(release="4.18.0-553.el8")))
    assert re.findall(r"5\.3|5\.15|6\.2", found.why) == ["5.3", "5.15", "6.2"]
    (found,) = findings_of("kernel", here(**kernel(release="5.15.0")))
    assert re.findall(r"5\.3|5\.15|6\.2", found.why) == ["6.2"]


TEXT = """\
error: c: is wrong
  why: of c
  remedy: do c
note: b: is odd, and what is said of it is so long that it needs a second line
    of text
  why: of b
  remedy: do b

ok
a   is well
dd  is well, too

not known: e
"""


def test_text_has_problems_first_and_what_is_well_last():
    found = (
        error("c", "is wrong", "of c", "do c"),
        note(
            "b",
            "is odd, and what is said of it is so long that it needs a second line of text",
            "of b",
            "do b",
        ),
        ok("a", "is well"),
        ok("dd", "is well, too"),
        ok("e"),
    )
    expected = TEXT.replace("\n\nnot known", "\nnot known") + "\n1 error, 1 note, 3 ok"
    assert render_issues(found) == expected


def test_text_never_moves_a_terminal():
    found = (error("c", "is \033[2J", "of \033[2J", "do \033[2J"), ok("a", "\033[2J"))
    assert "\033" not in render_issues(found)


def test_json_has_the_command_and_every_finding():
    surroundings = command(library(GOMP), python=(3, 12), site="/s", program="/x/python")
    found = (
        HostIssue(severity=NOTE, subject="b", found="is odd", why="of b", remedy="do b", by="cpus"),
        ok("a", "x"),
    )
    told = json.loads(render_issues_json(found, surroundings))
    assert told == {
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
    assert json.loads(render_issues_json(found, here()))["command"] is None


def test_problems_come_first():
    severities = [one.severity for one in examine(command(error="no", python=(3, 11)))]
    assert severities == sorted(severities, key=list(Severity).index)
    assert severities[0] is ERROR


TOY = """
from ompbind.doctor.issue import note
from ompbind.doctor.table import CHECKS
CHECKS["moon"] = lambda here: [note("moon", "is full", "threads howl", "wait two weeks")]
"""


def test_a_check_is_one_function_and_one_row():
    told = run_with(TOY, "doctor")
    assert "note: moon: is full why: threads howl remedy: wait two weeks" in told
    assert '"check": "moon"' in run_with(TOY, "doctor", "--format", "json")
