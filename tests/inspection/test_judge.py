"""Verdicts on threads: a table of processes of real programs, each with the plans that it may have had.

A process is written as the masks of its threads, initial thread first: "0*5 1 0-1*2" are five threads on
CPU 0, one on CPU 1 and two on both. The libraries and variables are from the real processes.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.inspection.diagnosis import guess_expected
from ompbind.inspection.expectation import ExpectedBinding
from ompbind.inspection.judge import judge, judge_memory_policy
from ompbind.inspection.verdict import Verdict
from ompbind.openmp.binding import Bind
from ompbind.procfs.process_state import ProcessState, ThreadState
from ompbind.text import Severity

GOMP = "/usr/lib/libgomp.so.1.0.0"
TORCH = "/v/torch/lib/libgomp.so.1"
SKLEARN = "/v/scikit_learn.libs/libgomp-e985bcbb.so.1.0.0"
BLAS = "/v/numpy.libs/libscipy_openblas64_-32a4b2a6.so"
LLVM = "/usr/lib/llvm-14/lib/libomp.so.5"
INTEL = "/v/lib/libiomp5.so"
ONE_EACH = {"OMP_PLACES": "{0},{1}", "OMP_PROC_BIND": "close"}
WORKERS = {"OMP_PLACES": "{0,1},{1}", "OMP_PROC_BIND": "close"}
WHOLE = {"OMP_PLACES": "{0,1}", "OMP_PROC_BIND": "true"}
WORDS = {"OMP_PLACES": "cores", "OMP_PROC_BIND": "close"}


def cpus(text):
    return CpuSet.from_list(text)


def process(masks, *libraries, pid=100, parent=1, unreadable=(), name="python", **env):
    each = [
        mask for item in masks.split() for mask in [item.partition("*")[0]] * int(item.partition("*")[2] or 1)
    ]
    return ProcessState(
        pid=pid,
        parent=parent,
        name=name,
        threads=tuple(ThreadState(tid=pid + i, name=name, cpus=cpus(mask)) for i, mask in enumerate(each)),
        files=libraries,
        variables=tuple(sorted(env.items())),
        unreadable=unreadable,
    )


def plan(bind, text="0-1", rank=0):
    whole = cpus(text)
    singles = [CpuSet((cpu,)) for cpu in whole]
    places = {
        Bind.RANK: [whole],
        Bind.THREAD: [whole, *singles[1:]],
        Bind.EXACT: singles,
        Bind.NONE: [],
    }
    return ExpectedBinding(rank=rank, cpus=whole, places=tuple(places[bind]), bind=bind)


PROCESSES = [
    # process, plan, severity and code, part of the text of the verdict
    (
        process("0-1*8", TORCH, BLAS, **WHOLE),
        plan(Bind.RANK),
        "ok",
        "",
        "all 8 threads are allowed on CPUs 0-1",
    ),
    (process("0-1*8", TORCH, BLAS), None, "ok", "", "all 8 threads are allowed on CPUs 0-1"),
    (
        process("0-1*2 1 0-1*5", TORCH, BLAS, **WORKERS),
        plan(Bind.THREAD),
        "ok",
        "",
        "1 thread bound to places, 7 allowed on all",
    ),
    (
        process("0-1*2 1 0-1*5", TORCH, BLAS, **WORKERS),
        None,
        "ok",
        "",
        "1 thread bound to places, 7 allowed on all",
    ),
    (
        process("0 1 0*5", TORCH, BLAS, **ONE_EACH),
        plan(Bind.RANK),
        "error",
        "narrowed",
        "7 of 7 threads are restricted to parts of CPUs 0-1 (6 on CPU 0, 1 on CPU 1): "
        "with OMP_PLACES={0},{1} OMP_PROC_BIND=close, libgomp bound the initial thread",
    ),
    (
        process("0 1 0*5", TORCH, **ONE_EACH),
        None,
        "error",
        "stacked",
        "6 of 7 threads are restricted to CPU 0 out of 0-1: "
        "with OMP_PLACES={0},{1} OMP_PROC_BIND=close, libgomp bound the initial thread",
    ),
    (
        process("0 1 0*5", TORCH, **WORDS),
        None,
        "error",
        "stacked",
        "with OMP_PLACES=cores OMP_PROC_BIND=close, libgomp bound the initial thread to the first place, "
        "and new threads and processes inherit its mask; use --bind rank",
    ),
    (
        process("0 1 0*5", TORCH, **ONE_EACH),
        plan(Bind.EXACT),
        "note",
        "crowded",
        "use --bind thread or --bind rank",
    ),
    (
        process("0*6", TORCH, **ONE_EACH),
        plan(Bind.EXACT),
        "error",
        "stacked",
        "no thread is bound to CPU 1",
    ),
    (process("0*6", TORCH, **ONE_EACH), None, "error", "stacked", "no thread is bound to CPU 1"),
    (
        process("0 1", GOMP, name="solver", **ONE_EACH),
        plan(Bind.EXACT),
        "ok",
        "",
        "2 threads bound to places of CPUs 0-1",
    ),
    (
        process("0 1", GOMP, name="solver", **ONE_EACH),
        None,
        "ok",
        "",
        "2 threads bound to places of CPUs 0-1",
    ),
    (
        process("0-1", LLVM, name="solver", **ONE_EACH),
        plan(Bind.EXACT),
        "ok",
        "",
        "the only thread is allowed on CPUs 0-1",
    ),
    (
        process("0*7", BLAS, TORCH, INTEL, LD_PRELOAD=INTEL, **ONE_EACH),
        plan(Bind.EXACT),
        "error",
        "stacked",
        "the second of 2 OpenMP runtimes sees only that place",
    ),
    (
        process("0 1 0*5", SKLEARN, TORCH, **ONE_EACH),
        None,
        "error",
        "stacked",
        "the second of 2 OpenMP runtimes",
    ),
    (process("0-1*2 1 0-1*5", TORCH, INTEL, **WORKERS), plan(Bind.THREAD), "ok", "", "1 thread bound"),
    (process("0-1*2 1*2 0-1", TORCH, SKLEARN, **WORKERS), plan(Bind.THREAD), "ok", "", "2 threads bound"),
    (
        process("0-1 1 0-1*5 1*3", GOMP, **WORKERS),
        plan(Bind.THREAD),
        "note",
        "crowded",
        "several threads start parallel regions",
    ),
    (
        process("0-3 1*3", GOMP, **WORKERS),
        plan(Bind.THREAD, "0-3"),
        "error",
        "stacked",
        "no thread is bound to CPU 2 or CPU 3",
    ),
    (
        process("0 1 0*3", GOMP, GOMP_CPU_AFFINITY="0 1"),
        plan(Bind.RANK, "1"),
        "error",
        "outside",
        "4 of 5 threads may run on CPU 0, the rank has CPU 1: libgomp applies GOMP_CPU_AFFINITY=0 1",
    ),
    (
        process("0-1*2"),
        plan(Bind.RANK, "0"),
        "error",
        "outside",
        "2 of 2 threads may run on CPUs 0-1, the rank has CPU 0: ",
    ),
    (
        process("0*2", GOMP, GOMP_CPU_AFFINITY="0 1", OMP_PLACES="{1}", OMP_PROC_BIND="true"),
        plan(Bind.RANK, "1"),
        "error",
        "outside",
        "the rank has CPU 1: the program or another process changed the mask",
    ),
    (
        process("0 1 0*3", INTEL, KMP_AFFINITY="norespect,granularity=fine,compact"),
        plan(Bind.RANK, "1"),
        "error",
        "outside",
        "KMP_AFFINITY=norespect,granularity=fine,compact makes an OpenMP runtime ignore the process's",
    ),
    (process("0-1*3"), plan(Bind.NONE, "1"), "error", "outside", "another process changed the mask"),
    (
        process("0*5", INTEL, KMP_HW_SUBSET="1c", OMP_PROC_BIND="false"),
        plan(Bind.NONE),
        "error",
        "narrowed",
        "KMP_HW_SUBSET=1c",
    ),
    (
        process("0*5", INTEL, KMP_PLACE_THREADS="1c", OMP_PROC_BIND="false"),
        plan(Bind.NONE),
        "error",
        "narrowed",
        "KMP_PLACE_THREADS=1c",
    ),
    (
        process("0 1", INTEL, KMP_AFFINITY="compact", **WHOLE),
        plan(Bind.RANK),
        "error",
        "narrowed",
        "KMP_AFFINITY=compact",
    ),
    (process("0-1*2", INTEL, KMP_AFFINITY="reset", **WHOLE), plan(Bind.RANK), "ok", "", "all 2 threads"),
    (
        process("0 1 0*5", TORCH, BLAS, **WHOLE),
        plan(Bind.RANK),
        "error",
        "narrowed",
        "an OpenMP runtime that the program configured after its start",
    ),
    (
        process("0 1 0*5", TORCH, BLAS),
        None,
        "error",
        "stacked",
        "they inherit the place of the initial thread",
    ),
    (
        process("0*6", TORCH, **WHOLE),
        plan(Bind.RANK),
        "note",
        "confined",
        "the process or its parent set this mask",
    ),
    (
        process("0", name="sleep", **WHOLE),
        plan(Bind.RANK),
        "note",
        "confined",
        "the only thread is restricted to CPU 0 out of 0-1",
    ),
    (process("0-1 0 1", name="database"), plan(Bind.RANK), "note", "confined", "the program set this itself"),
    (process("0-1 0*2 1", name="database"), None, "note", "crowded", "the program set this itself"),
    (
        process("0*3", name="app", unreadable=("environment",)),
        plan(Bind.RANK),
        "note",
        "confined",
        "its environment is not readable",
    ),
    (
        process("0*3", name="static", **ONE_EACH),
        plan(Bind.RANK),
        "error",
        "narrowed",
        "an OpenMP runtime bound the initial thread",
    ),
    (process("0*2 1", TORCH, SKLEARN, **ONE_EACH), plan(Bind.EXACT), "note", "crowded", "2 of 3 threads"),
    (process("0*2 0-1", name="database"), plan(Bind.RANK), "note", "confined", "the program set this itself"),
    (
        process("0*2", GOMP, GOMP_CPU_AFFINITY="0", **WHOLE),
        plan(Bind.RANK),
        "note",
        "confined",
        "(sched_setaffinity, taskset)",
    ),
    (
        process("0*2", LLVM, GOMP_CPU_AFFINITY="0", **WHOLE),
        plan(Bind.RANK),
        "error",
        "narrowed",
        "GOMP_CPU",
    ),
    (
        process("0*6", INTEL, KMP_AFFINITY="reset", **WHOLE),
        plan(Bind.RANK),
        "note",
        "confined",
        "(sched_setaffinity, taskset)",
    ),
    (process("0 1 2-3", TORCH, **ONE_EACH), plan(Bind.RANK, "0-3"), "error", "narrowed", "libgomp bound"),
    (process("0-1*3", TORCH, **WHOLE), plan(Bind.RANK, "0-3"), "error", "narrowed", "with OMP_PLACES={0,1}"),
    (process("0-1*3", TORCH, **WHOLE), None, "ok", "", "all 3 threads are allowed on CPUs 0-1"),
]


@pytest.mark.parametrize(("observed", "expected", "severity", "code", "words"), PROCESSES)
def test_processes_of_real_programs(observed, expected, severity, code, words):
    verdict = judge([observed], expected)
    assert (verdict.severity, verdict.issues[0].code if code else "") == (severity, code), verdict.text
    assert words in verdict.text


def test_counts_add_up():
    verdict = judge([process("0-3 0 0 1 4 0-1", TORCH, SKLEARN)], plan(Bind.EXACT, "0-3"))
    assert (verdict.processes, verdict.threads, verdict.outside) == (1, 6, 1)
    assert (verdict.narrowed, verdict.bound, verdict.stacked) == (1, 3, 2)
    assert verdict.runtimes == ("libgomp", "libgomp")


@pytest.mark.parametrize(
    ("masks", "runtimes", "code"),
    [
        ("0-3*2 2-3*2", (GOMP,), ""),
        ("0-3 2-3*2", (GOMP,), ""),
        ("0-3*2 2-3*3", (GOMP,), "crowded"),
        ("0-3*4 2-3*4", (TORCH, SKLEARN), ""),
        ("0-3*4 2-3*5", (TORCH, SKLEARN), "crowded"),
    ],
)
def test_a_core_may_have_a_thread_on_each_of_its_cpus(masks, runtimes, code):
    """As in a plan with --smt all, in which a rank has one thread for each CPU."""
    places = (cpus("0-3"), cpus("2-3"))
    cores = ExpectedBinding(rank=0, cpus=cpus("0-3"), places=places, bind=Bind.CORE)
    found = judge([process(masks, *runtimes)], cores).issues
    assert [issue.code for issue in found] == ([code] if code else [])


@pytest.mark.parametrize("env", [{}, ONE_EACH])
def test_children_inherit_what_a_runtime_did_to_their_parent(env):
    server = process("0 1 0*3", TORCH, **ONE_EACH)
    children = [process("0", pid=200 + i, parent=100, name="loader", **env) for i in range(3)]
    verdict = judge([server, *children], plan(Bind.RANK))
    assert [issue.code for issue in verdict.issues] == ["narrowed", "narrowed"]
    assert "5 of 5 threads of python (100)" in verdict.text
    assert verdict.text.endswith(
        "3 of 3 threads of 3 processes are restricted to CPU 0 out of 0-1: inherited from python, whose "
        "initial thread libgomp bound to a place"
    )


def test_children_with_another_mask_than_their_parent_did_not_inherit_it():
    server = process("0 1 0*3", TORCH, **ONE_EACH)
    verdict = judge([server, process("1", pid=200, parent=100, name="loader")], plan(Bind.RANK))
    assert [issue.code for issue in verdict.issues] == ["narrowed", "confined"]


def test_a_rank_with_one_cpu_has_no_stacked_threads():
    assert judge([process("0*5")], plan(Bind.RANK, "0")).stacked == 0


def test_children_of_a_process_with_the_whole_mask_have_confined_themselves():
    shell = process("0-1", name="bash")
    child = process("0", pid=200, parent=100, name="sleep")
    verdict = judge([shell, child], plan(Bind.RANK))
    assert (verdict.severity, verdict.text[:47]) == (
        "note",
        "the only thread of sleep (200) is restricted to",
    )


def test_the_first_process_is_judged_also_if_it_has_another_run_id():
    """`ompbind exec` makes its own run from it; its children have the same run ID."""
    first = process("0-3", OMPBIND_RUN_ID="inner")
    child = process("4", pid=200, parent=100, OMPBIND_RUN_ID="inner")
    nested = process("5", pid=300, parent=100, OMPBIND_RUN_ID="other")
    verdict = judge([first, child, nested], plan(Bind.RANK, "0-3").replace(run_id="outer"))
    assert (verdict.processes, verdict.severity) == (2, Severity.ERROR)


def test_a_nested_run_has_its_own_plan():
    outer, inner = (
        process("0-3", OMPBIND_RUN_ID="outer"),
        process("0", pid=200, parent=100, OMPBIND_RUN_ID="inner"),
    )
    expected = plan(Bind.RANK, "0-3").replace(run_id="outer")
    assert judge([outer, inner], expected).processes == 1
    assert judge([outer, inner], expected.replace(run_id="")).severity is Severity.NOTE


def test_processes_narrowed_to_one_cpu_are_compared_with_their_parents_mask():
    alone = process("0*3", TORCH, OMP_PROC_BIND="close")
    assert judge([alone]).severity is Severity.OK
    assert judge([alone], guess_expected([alone], cpus("0-3"))).severity is Severity.ERROR
    placed = process("0*3", TORCH, OMP_PROC_BIND="close", OMP_PLACES="{0}")
    assert judge([placed], guess_expected([placed], cpus("0-3"))).severity is Severity.OK
    pinned = process("0 1", TORCH, OMP_PROC_BIND="close")
    assert guess_expected([pinned], cpus("0-3")).cpus == cpus("0-1")
    free = process("0*3", TORCH)
    assert judge([free], guess_expected([free], cpus("0-3"))).severity is Severity.OK


def test_no_process_is_not_an_error():
    assert judge([], plan(Bind.RANK)).text == "no threads left"
    assert judge([]).severity is Severity.OK


@pytest.mark.parametrize(
    ("planned", "policy", "severity"),
    [
        ("bind:0-1", "bind:0-1", Severity.OK),
        ("bind:0-1", None, Severity.OK),
        ("", "interleave:0-1", Severity.OK),
        ("bind:0-1", "default", Severity.ERROR),
        ("bind:0", "bind:0-1", Severity.ERROR),
    ],
)
def test_another_memory_policy_than_planned_is_an_error(planned, policy, severity):
    expected = ExpectedBinding(rank=0, cpus=CpuSet([0]), places=(), bind=Bind.NONE, memory=planned)
    verdict = judge_memory_policy(Verdict(issues=(), summary="fine"), policy, expected)
    assert verdict.severity is severity
    assert severity is Severity.OK or (planned in verdict.text and policy in verdict.text)


MASKS = st.lists(st.sets(st.integers(0, 5), min_size=1).map(CpuSet), min_size=1, max_size=12)


@given(MASKS, st.sampled_from([Bind.RANK, Bind.THREAD, Bind.EXACT, Bind.NONE, None]))
def test_every_thread_is_counted_once_and_all_issues_are_reported(masks, bind):
    state = process(" ".join(map(str, masks)), TORCH)
    verdict = judge([state], plan(bind, "0-3") if bind else None)
    whole = cpus("0-3") if bind else guess_expected([state]).cpus
    assert verdict.threads == len(masks)
    assert verdict.outside + verdict.narrowed + verdict.bound + sum(mask == whole for mask in masks) == len(
        masks
    )
    assert (verdict.severity is Severity.OK) <= (verdict.outside == verdict.narrowed == 0)
    assert all(1 <= issue.threads <= len(masks) for issue in verdict.issues)
