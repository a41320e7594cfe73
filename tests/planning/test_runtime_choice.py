"""How a binding is written for the runtimes that a command has, and what is said of what will not hold."""

import pytest

from ompbind.errors import PlanError
from ompbind.openmp.binding import Bind
from ompbind.openmp.runtimes import OmpRuntime
from ompbind.planning.planner import make_plan
from ompbind.planning.rank_command import make_thread_variables
from ompbind.planning.request import Request
from ompbind.planning.runtime_notes import CONFLICT
from ompbind.programs.library_catalog import KINDS, Library
from ompbind.programs.workload import Found, How, Workload
from tests.machines import Shape, make_machine

DUAL = make_machine(Shape(packages=2, cores=4, smt=2))
NAMES = ("OMP_PLACES", "OMP_PROC_BIND", "KMP_AFFINITY")

ALL, EACH, WORKERS = "{0,1,2,3}", "{0},{1},{2},{3}", "{0,1,2,3},{1},{2},{3}"
LISTED = "granularity=fine,explicit,proclist=[0,1,2,3]"


def lib(text):
    """A library from words as "preloaded omp 14"."""
    how, name, *version = text.split()
    library = Library(
        path=f"/{how}/lib{name}.so", kind=KINDS[name], version=int(version[0]) if version else None
    )
    return Found(
        library=library, how=How(how), by={"preloaded": "LD_PRELOAD", "needed": "app"}.get(how, "torch")
    )


def workload(kind, *libraries):
    return Workload(
        program=f"/bin/{kind}" if kind != "nothing" else "",
        python="/bin/python" if kind == "python" else "",
        opaque=kind in ("script", "nothing"),
        libraries=tuple(map(lib, libraries)),
    )


def made(bind, kind, *libraries, runtime=None, ranks=2):
    request = Request(
        ranks=ranks,
        bind=Bind(bind),
        workload=workload(kind, *libraries),
        omp_runtime=runtime and OmpRuntime(runtime),
    )
    plan = make_plan(DUAL, request)
    variables = make_thread_variables(plan.placements[0], request)
    return tuple(variables[name] for name in NAMES), plan


def conflicts(plan):
    return [note.text for note in plan.notes if note.code == CONFLICT]


@pytest.mark.parametrize(
    ("bind", "given", "expected"),
    [
        # the default is one place, whatever is there
        ("rank", ("app",), (ALL, "true", None)),
        ("rank", ("app", "needed gomp"), (ALL, "true", None)),
        ("rank", ("app", "needed omp 16"), (ALL, "true", None)),
        ("rank", ("app", "needed omp"), (ALL, "true", None)),
        ("rank", ("app", "needed iomp"), (ALL, "true", None)),
        ("rank", ("python", "available gomp", "preloaded iomp"), (ALL, "true", None)),
        ("rank", ("script",), (ALL, "true", None)),
        # but for a libomp that crashes forked children when it has places
        ("rank", ("app", "needed omp 14"), (None, "false", None)),
        ("rank", ("app", "needed omp 15"), (None, "false", None)),
        ("rank", ("python", "available omp 14"), (None, "false", None)),
        # who asks for pinned workers gets them
        ("thread", ("app", "needed gomp"), (WORKERS, "close", None)),
        ("thread", ("app", "needed omp 14"), (WORKERS, "close", None)),
        ("thread", ("python", "preloaded iomp", "available gomp"), (WORKERS, "close", None)),
        # exact: the initial thread is freed by those that can
        ("exact", ("app",), (EACH, "close", "reset")),
        ("exact", ("script",), (EACH, "close", "reset")),
        ("exact", ("app", "needed gomp"), (EACH, "close", None)),
        ("exact", ("app", "needed omp 14"), (EACH, "close", None)),
        ("exact", ("app", "needed omp 15"), (EACH, "close", "reset")),
        ("exact", ("app", "needed iomp"), (EACH, "close", "reset")),
        ("exact", ("python", "available gomp", "available iomp"), (EACH, "close", "reset")),
        # places would be taken by a second runtime as well: a list only by the one that is preloaded
        ("exact", ("python", "available gomp", "preloaded iomp"), (None, None, f"reset,{LISTED}")),
        ("exact", ("python", "available gomp", "preloaded omp 19"), (None, None, f"reset,{LISTED}")),
        ("exact", ("python", "available iomp", "preloaded omp 14"), (None, None, LISTED)),
        ("none", ("python", "preloaded iomp"), (None, "false", None)),
    ],
)
def test_each_runtime_is_told_in_the_way_in_which_it_holds(bind, given, expected):
    assert made(bind, *given)[0] == expected


@pytest.mark.parametrize(
    ("bind", "runtime", "given", "expected"),
    [
        ("exact", "gomp", ("script",), (EACH, "close", None)),
        ("exact", "intel", ("script",), (EACH, "close", "reset")),
        ("exact", "llvm", ("script",), (EACH, "close", "reset")),
        ("rank", "gomp", ("python", "available omp 14"), (ALL, "true", None)),
        ("rank", "llvm", ("python", "available omp 14"), (None, "false", None)),
    ],
)
def test_what_is_said_of_the_runtime_beats_what_is_found(bind, runtime, given, expected):
    assert made(bind, *given, runtime=runtime)[0] == expected


@pytest.mark.parametrize(
    ("bind", "given", "words"),
    [
        ("exact", ("python", "available gomp"), ["Python starts once libgomp", "--bind rank"]),
        ("exact", ("app", "needed gomp", "needed iomp"), ["libgomp and libiomp5", "second"]),
        ("exact", ("script",), ["/bin/script does not tell"]),
        ("exact", ("app", "needed gomp", "needed openblas"), ["libgomp and libopenblas", "the latter"]),
        ("exact", ("python", "preloaded omp 14"), ["before LLVM 15", "first CPU"]),
        ("exact", ("app", "needed omp 14"), ["LLVM 14 crashes children"]),
        ("thread", ("app", "needed omp 15"), ["LLVM 15 crashes children"]),
        ("core", ("python", "available omp 14"), ["LLVM 14 crashes children"]),
    ],
)
def test_what_cannot_hold_is_said_before_start(bind, given, words):
    plan = made(bind, *given)[1]
    told = " ".join(conflicts(plan))
    assert all(word in told for word in words)
    assert all(note.warning for note in plan.notes if note.code == CONFLICT)
    with pytest.raises(PlanError) as caught:
        make_plan(DUAL, plan.request.replace(strict=True))
    assert caught.value.message == "; ".join(conflicts(plan))
    assert "--strict" in caught.value.hint


@pytest.mark.parametrize(
    ("bind", "given"),
    [
        ("rank", ("python", "available gomp", "available iomp", "preloaded iomp")),
        ("rank", ("app", "needed omp 14")),
        ("none", ("app", "needed omp 14")),
        ("thread", ("python", "available gomp", "available gomp")),
        ("exact", ("app", "needed gomp")),
        ("exact", ("app", "needed iomp")),
        ("exact", ("app",)),
        ("exact", ("python",)),
        ("exact", ("python", "available gomp", "preloaded iomp")),
    ],
)
def test_what_holds_is_not_warned_about(bind, given):
    plan = made(bind, *given)[1]
    assert conflicts(plan) == []
    make_plan(DUAL, plan.request.replace(strict=True))


def test_a_rank_of_one_cpu_cannot_be_narrowed():
    assert conflicts(made("exact", "python", "available gomp", ranks=8)[1]) == []


def test_a_runtime_that_is_said_and_not_there_is_told():
    (text,) = conflicts(made("exact", "app", "needed iomp", runtime="gomp")[1])
    assert "--omp-runtime says gomp, but libiomp5 will be there (app needs it)" in text


@pytest.mark.parametrize(
    ("bind", "name", "value", "words"),
    [
        ("rank", "OMP_PLACES", "{1}", "binds threads otherwise"),
        ("thread", "OMP_PROC_BIND", "false", "binds threads otherwise"),
        ("rank", "OMP_PLACES", "", "binds threads otherwise"),
        ("rank", "KMP_AFFINITY", "compact", "binds threads otherwise"),
        ("rank", "KMP_AFFINITY", "verbose, reset", ""),
        ("none", "OMP_PLACES", "{1}", ""),
        ("none", "KMP_AFFINITY", "verbose,norespect", "out of the CPUs"),
        ("none", "GOMP_CPU_AFFINITY", "0-3", "out of the CPUs"),
        ("rank", "OMP_DYNAMIC", "true", ""),
    ],
)
def test_variables_of_the_user_that_beat_the_plan_are_told(bind, name, value, words):
    request = Request(ranks=2, bind=Bind(bind), own_variables=((name, value),))
    told = conflicts(make_plan(DUAL, request))
    assert len(told) == bool(words)
    assert all(words in text and f"{name}={value}" in text for text in told)
    if words:
        with pytest.raises(PlanError):
            make_plan(DUAL, request.replace(strict=True))


def test_places_that_are_too_long_are_not_promised():
    large = make_machine(Shape(packages=2, cores=1024, smt=1))
    request = Request(bind=Bind.EXACT, workload=workload("app", "preloaded iomp"))
    (text,) = (note.text for note in make_plan(large, request).notes if note.code == "omp-runtime")
    assert text.endswith("no thread is bound, only the process")


@pytest.mark.parametrize(
    ("libraries", "words"),
    [
        (("preloaded gomp", "preloaded iomp"), "libgomp and libiomp5 are preloaded together"),
        (("preloaded omp 19", "preloaded gomp"), "libomp and libgomp are preloaded together"),
        (("preloaded iomp", "needed omp 19"), "libiomp5 (preloaded), libomp (app needs it)"),
    ],
)
def test_runtimes_that_cannot_live_together_are_refused(libraries, words):
    with pytest.raises(PlanError) as caught:
        made("rank", "app", *libraries)
    assert words in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("given", "runtime", "words"),
    [
        (("app", "needed gomp"), None, "libgomp (app needs it); one place"),
        (("app",), None, "none that /bin/app needs"),
        (("python",), None, "none in the packages of /bin/python"),
        (("python", "available gomp", "available iomp"), None, "libgomp (in torch), libiomp5 (in torch)"),
        (("script",), None, "not known, /bin/script does not tell what it will run"),
        (("nothing",), None, "not known, the command, or what it leads to, is not found"),
        (("app", "preloaded iomp"), None, "libiomp5 (preloaded, /preloaded/libiomp.so)"),
        (("app", "needed omp 14"), None, "libomp of LLVM 14 (app needs it); no places"),
        (("app",), "llvm", "libomp, as --omp-runtime says"),
    ],
)
def test_a_plan_says_which_runtime_and_why(given, runtime, words):
    plan = made("rank", *given, runtime=runtime)[1]
    (note,) = (note for note in plan.notes if note.code == "omp-runtime")
    assert words in note.text
    assert not note.warning


def test_nothing_is_said_where_nothing_was_asked():
    notes = make_plan(DUAL, Request(ranks=2)).notes
    assert not [note for note in notes if note.code == "omp-runtime"]


def test_mkl_has_a_thread_for_each_core_only():
    request = Request(ranks=1, smt="all", workload=workload("python", "available gomp"))
    (note,) = (note for note in make_plan(DUAL, request).notes if note.code == "mkl-dynamic")
    assert "no more than 8 of 16 threads" in note.text
