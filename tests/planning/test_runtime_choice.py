"""How a binding is written for the runtimes of a command, and the warnings on bindings that will not hold."""

import pytest

from ompbind.commands.environment import make_thread_variables
from ompbind.errors import PlanError
from ompbind.openmp.binding import Bind
from ompbind.openmp.runtimes import OmpRuntime
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Hold, Request
from ompbind.planning.runtimes import CONFLICT
from ompbind.programs.command import Workload
from ompbind.programs.libraries import LIBRARY_KINDS, DetectedLibrary, DetectionMethod, Library
from tests.machines import Shape, make_machine
from tests.planning.test_planner import texts_of

DUAL = make_machine(Shape(packages=2, cores=4, smt=2))
NAMES = ("OMP_PLACES", "OMP_PROC_BIND", "KMP_AFFINITY")

ALL, EACH, WORKERS = "{0,1,2,3}", "{0},{1},{2},{3}", "{0,1,2,3},{1},{2},{3}"
LISTED = "granularity=fine,explicit,proclist=[0,1,2,3]"


def lib(text):
    """Return a library from text such as "preloaded omp 14"."""
    how, name, *version = text.split()
    number = int(version[0]) if version else None
    library = Library(path=f"/{how}/lib{name}.so", kind=LIBRARY_KINDS[name], version=number)
    origin = {"preloaded": "LD_PRELOAD", "needed": "app"}.get(how, "torch")
    return DetectedLibrary(library=library, method=DetectionMethod(how), origin=origin)


def workload(kind, *libraries):
    return Workload(
        program=f"/bin/{kind}" if kind != "nothing" else "",
        python="/bin/python" if kind == "python" else "",
        opaque=kind in ("script", "nothing"),
        libraries=tuple(map(lib, libraries)),
    )


def made(bind, kind, *libraries, runtime=None):
    omp_runtime = runtime and OmpRuntime(runtime)
    work = workload(kind, *libraries)
    plan = make_plan(DUAL, Request(ranks=2, bind=Bind(bind), workload=work, omp_runtime=omp_runtime))
    variables = make_thread_variables(plan, 0)
    return tuple(variables[name] for name in NAMES), plan


def test_runtimes_whose_forked_children_would_crash_get_no_places_on_isolated_cpus():
    isolated = DUAL.replace(isolated=DUAL.online)
    for library, bind, places in (("needed omp 14", "rank", 0), ("needed omp 19", "thread", 8)):
        plan = make_plan(isolated, Request(workload=workload("native", library)))
        assert (plan.request.bind, len(plan.placements[0].places)) == (bind, places)


@pytest.mark.parametrize(("bind", "given", "expected"), [
    # the default is one place, with any runtime
    ("rank", ("app",), (ALL, "true", None)),
    ("rank", ("python", "available gomp", "preloaded iomp"), (ALL, "true", None)),
    # no places for a libomp whose forked children crash if there are places
    ("rank", ("app", "needed omp 15"), (None, "false", None)),
    # worker threads are pinned only on request
    ("thread", ("app", "needed gomp"), (WORKERS, "close", None)),
    ("thread", ("python", "preloaded iomp", "available gomp"), (WORKERS, "close", None)),
    # exact: some runtimes restore the mask of the initial thread
    ("exact", ("app",), (EACH, "close", "reset")), ("exact", ("app", "needed gomp"), (EACH, "close", None)),
    ("exact", ("python", "available gomp", "available iomp"), (EACH, "close", "reset")),
    # with --omp-runtime
    ("exact gomp", ("script",), (EACH, "close", None)),
    ("exact intel", ("script",), (EACH, "close", "reset")),
    ("rank gomp", ("python", "available omp 14"), (ALL, "true", None)),
    ("rank llvm", ("python", "available omp 14"), (None, "false", None)),
    # a second runtime would read places too; only the preloaded runtime reads the list
    ("exact", ("python", "available gomp", "preloaded iomp"), (None, None, f"reset,{LISTED}")),
    ("exact", ("python", "available iomp", "preloaded omp 14"), (None, None, LISTED)),
    ("none", ("python", "preloaded iomp"), (None, "false", None)),
])  # fmt: skip
def test_the_binding_is_written_as_the_runtime_needs_it(bind, given, expected):
    bind, _, runtime = bind.partition(" ")
    assert made(bind, *given, runtime=runtime or None)[0] == expected


@pytest.mark.parametrize(("bind", "given", "words"), [
    ("exact", ("python", "available gomp"), ["start after libgomp is loaded", "--bind rank"]),
    ("exact", ("app", "needed gomp", "needed iomp"), ["libgomp and libiomp5", "second"]),
    ("exact", ("script",), ["if the command runs Python", "--omp-runtime"]),
    ("exact", ("app", "needed gomp", "needed openblas"), ["and libgomp, all threads of libopenblas"]),
    ("exact", ("python", "preloaded omp 14"), ["before LLVM 15", "first CPU"]),
    ("thread", ("app", "needed omp 15"), ["children will crash in libomp of LLVM 15"]),
])  # fmt: skip
def test_bindings_that_will_not_hold_are_warned_about(bind, given, words):
    plan = made(bind, *given)[1]
    text = " ".join(texts_of(plan, CONFLICT))
    assert all(word in text for word in words)
    assert all(note.warning for note in plan.notes if note.code == CONFLICT)
    with pytest.raises(PlanError) as caught:
        make_plan(DUAL, plan.request.replace(strict=True))
    assert caught.value.message == "; ".join(texts_of(plan, CONFLICT))
    assert "--strict" in caught.value.hint


@pytest.mark.parametrize(("bind", "name", "value", "words", "if_held"), [
    ("rank", "OMP_PLACES", "{1}", "override the binding", "override"),
    ("thread", "OMP_PROC_BIND", "false", "override the binding", "override"),
    ("rank", "KMP_AFFINITY", "verbose, reset", "", ""),
    ("none", "KMP_AFFINITY", "verbose,norespect", "off the CPUs of their rank (omit it, or use --hold)", ""),
    ("none", "GOMP_CPU_AFFINITY", "0-3", "off the CPUs of their rank (omit it, or use --hold)", ""),
    ("rank", "KMP_AFFINITY", "norespect,compact", "off the CPUs", "override the binding"),
    ("none", "KMP_AFFINITY", "disabled", "off the CPUs of their rank", "off the CPUs"),
])  # fmt: skip
def test_variables_that_override_the_plan_are_warned_about(bind, name, value, words, if_held):
    request = Request(ranks=2, bind=Bind(bind), user_variables=((name, value),))
    for hold, expected in ((None, words), (Hold.ANSWERED, if_held)):
        texts = texts_of(make_plan(DUAL, request.replace(hold=hold)), CONFLICT)
        assert len(texts) == bool(expected)
        assert all(expected in text and f"{name}={value}" in text for text in texts)
    if words:
        with pytest.raises(PlanError):
            make_plan(DUAL, request.replace(strict=True))


@pytest.mark.parametrize(("bind", "given", "runtime", "words"), [
    ("rank", ("app",), None, "none found in /bin/app"),
    ("rank", ("python", "available gomp", "available iomp"), None, "libiomp5 (found in torch)"),
    ("rank", ("script",), None, "unknown (the command runs /bin/script"),
    ("rank", ("app", "preloaded iomp"), None, "libiomp5 (preloaded, /preloaded/libiomp.so)"),
    ("rank", ("app", "needed omp 14"), None, "libomp of LLVM 14 (needed by app); no places"),
    ("none", ("app", "needed omp 14"), None, "only the process is bound"),
    ("exact", ("app", "needed gomp"), None, "each thread gets its own place; if"),
    ("exact", ("python",), None, ""), ("rank", ("app",), "llvm", "libomp (--omp-runtime)"),
    ("exact", ("script",), "llvm", "KMP_AFFINITY=reset"),
])  # fmt: skip
def test_a_plan_says_which_runtime_and_bindings_that_hold_have_no_warning(bind, given, runtime, words):
    plan = made(bind, *given, runtime=runtime)[1]
    (note,) = (note for note in plan.notes if note.code == "omp-runtime")
    assert words in note.text
    assert not note.warning
    assert texts_of(plan, CONFLICT) == []
    make_plan(DUAL, plan.request.replace(strict=True))


def test_mkl_starts_one_thread_per_core_and_a_wrong_omp_runtime_is_warned_about():
    request = Request(ranks=1, smt="all", workload=workload("python", "available gomp"))
    (note,) = (note for note in make_plan(DUAL, request).notes if note.code == "mkl-dynamic")
    assert "will start at most 8 of 16 threads" in note.text
    (text,) = texts_of(made("exact", "app", "needed iomp", runtime="gomp")[1], CONFLICT)
    assert "--omp-runtime is gomp, but libiomp5 will be loaded (needed by app)" in text
