"""Notes on wrappers: what `taskset`, `numactl`, `env` and process launchers in a command undo of a plan."""

import pytest

from ompbind.cpuset import CpuSet
from ompbind.errors import PlanError
from ompbind.masks.mask import parse_mask
from ompbind.openmp.binding import OR_HOLD
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Hold, MemoryMode, Request
from ompbind.planning.wrapper_notes import WRAPPER, WRAPPER_THREADS
from ompbind.programs.command import Workload
from ompbind.programs.wrappers import LOST_ALL, LOST_VARIABLES, Launch, Wrapper
from tests.machines import Shape, make_machine

MACHINE = make_machine(Shape(packages=2, cores=4))


def work(**changes):
    return Workload(program="/bin/app", wrappers=(Wrapper(**{"text": "WORDS", **changes}),))


def notes(workload, **options):
    plan = make_plan(MACHINE, Request(**{"ranks": 2, "workload": workload, **options}))
    return [note for note in plan.notes if note.code in (WRAPPER, WRAPPER_THREADS)]


def starts(workers="", instead="mpirun ... ompbind exec -- CMD"):
    return {"launch": Launch(text="mpirun -n 4", instead=instead, workers=workers)}


BUILD = Launch(text="ninja", workers="one per CPU", jobs=True)


def test_commands_of_a_build_without_a_number_are_a_note():
    (note,) = notes(work(launch=BUILD))
    assert "several commands at a time (one per CPU), each with 4 threads" in note.text
    assert not note.warning


@pytest.mark.parametrize(("changes", "options", "words"), [
    ({"rebinds": True}, {}, "WORDS replaces the affinity mask of its rank"),
    ({"rebinds": True, "cpus": CpuSet(range(4))}, {"ranks": 1}, "replaces the affinity mask"),
    ({"rebinds": True, "nodes": CpuSet((7,))}, {"ranks": 1}, "(remove it, and select CPUs with --mask)"),
    ({"rebinds": True, "remedy": "omit it"}, {}, "replaces the affinity mask of its rank (omit it)"),
    ({"rebinds": True, "cpus": CpuSet((4,))}, {"hold": Hold.ANSWERED}, "replaces the affinity mask"),
    ({"rebinds": True, "remedy": "use X instead"}, {"hold": Hold.ANSWERED}, "its rank (use X instead)"),
    ({"sets_memory": True}, {"memory": MemoryMode.BIND}, "replaces the memory policy"),
    ({"clears": True}, {}, "env -i removes all variables that ompbind sets"),
    (starts(), {}, "and may bind them by rules of its own; the plan binds only mpirun"),
    (starts("4"), {"ranks": 1}, "starts several processes (4), which share the CPUs of one rank"),
    (starts("gpu"), {"ranks": 1, "threads": 1}, "starts several processes (gpu)"),
    (starts("4", ""), {"ranks": 1}, "each with 8 threads (add --processes-per-rank 4)"),
    ({"launch": Launch(text="make", instead="make -j{threads}", workers="9", jobs=True)}, {"ranks": 1},
     "commands at a time, more than the rank has threads (use '--fill -- make -j{threads} ...')"),
    ({"launch": Launch(text="parallel", workers="2", jobs=True)}, {},
     "starts all jobs in each of 2 ranks (for a queue, write 'parallel -j 2 ompbind exec -c 1 --avoid"),
    (starts("auto", ""), {}, "each with 4 threads (add -t 1)"),
    ({"lost": LOST_ALL, "remedy": "stay"}, {}, "the CPUs and variables of the rank do not reach it (stay)"),
    ({"lost": LOST_VARIABLES}, {"mask": parse_mask("none")}, "removes variables that ompbind sets"),
    # what a plan allows
    ({"rebinds": True, "cpus": CpuSet(range(8))}, {"ranks": 1}, ""),
    ({"rebinds": True, "nodes": CpuSet((0, 1))}, {"ranks": 1}, ""),
    ({"rebinds": True, "cpus": CpuSet((8,))}, {"hold": Hold.ANSWERED}, ""),  # it gets all CPUs of the rank
    ({"rebinds": True, "cpus": CpuSet((4,))}, {"hold": Hold.FIXED}, ""),
    ({"rebinds": True, "remedy": f"omit it{OR_HOLD}"}, {"hold": Hold.ANSWERED}, ""),
    (starts("4"), {"ranks": 1, "threads": 2}, ""), (starts("4"), {"mask": parse_mask("none")}, ""),
    ({"launch": Launch(text="make", workers="8", jobs=True)}, {"ranks": 1}, ""),
    (starts("4", ""), {"ranks": 1, "processes_per_rank": 4}, ""), (starts("auto", ""), {"threads": 1}, ""),
    ({"sets_memory": True}, {}, ""), ({"lost": LOST_ALL}, {"mask": parse_mask("none")}, ""),
    ({"launch": BUILD}, {"threads": 1}, ""),
])  # fmt: skip
def test_what_undoes_a_plan_is_warned_about(changes, options, words):
    found = notes(work(**changes), **options)
    assert len(found) == bool(words)
    for note in found:
        assert words in note.text
        assert note.warning
    if any(note.code == WRAPPER for note in found):
        with pytest.raises(PlanError):
            notes(work(**changes), **options, strict=True)
    else:
        assert len(notes(work(**changes), **options, strict=True)) == len(found)
