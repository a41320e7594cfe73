"""Errors about masks: the marked text, and a suggested mask that works in the same request."""

import re
import shlex
import subprocess
import sys

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ompbind.cli.register import plan_or_suggest
from ompbind.cpuset import CpuSet
from ompbind.errors import MaskError, OmpbindError
from ompbind.machine.model import CoreKind, Node
from ompbind.masks.mask import Mask
from ompbind.masks.parse import parse_mask
from ompbind.planning import planner
from ompbind.planning.other_runs import LiveRun
from ompbind.planning.request import Request, Sharing
from ompbind.report.text import COPYABLE, WIDTH, render_error
from tests.live.conftest import clean_environment
from tests.long import examples
from tests.machines import Shape, make_machine
from tests.mask_texts import broken, machines, masks

DUAL = make_machine(Shape(packages=2, cores=4, smt=2))  # CPUs 0-7 and their siblings 8-15
LIMITED = DUAL.replace(allowed=CpuSet(range(8)), offline=CpuSet([16, 17]))
SECOND = DUAL.replace(
    allowed=CpuSet(range(4, 8)), nodes=(*DUAL.nodes, Node(number=2, cpus=CpuSet(), memory_bytes=1))
)
HYBRID = DUAL.replace(
    kinds=tuple(
        CoreKind(name=name, cpus=CpuSet(cpus), strength=strength, source="type")
        for name, cpus, strength in (
            ("performance", [*range(6), *range(8, 14)], 1024),
            ("efficiency", [6, 7, 14, 15], 512),
        )
    )
)
NOT_ALLOWED = "not allowed: outside the affinity mask or cgroup that ompbind was started in"


def make_plan(machine, request):
    """Plan as the verbs do: an error about a mask suggests a mask that works."""
    return plan_or_suggest(machine, request, ())


@pytest.mark.parametrize(
    ("machine", "options", "marked", "message", "suggestion"),
    [
        (DUAL, {"mask": "0,99"}, "99", "CPU 99 does not exist on this machine", "0"),
        (DUAL, {"mask": "0-3|4-17", "ranks": 2}, "4-17", "CPUs 16-17 do not exist on this machine",
         "0-3|4-15"),
        (DUAL, {"mask": "0-3,^99"}, "^99", "CPU 99 does not exist on this machine", "0-3"),
        (DUAL, {"mask": "0-3|99", "ranks": None}, "99", "CPU 99 does not exist on this machine", "0-3|4"),
        (LIMITED, {"mask": "0-2,16"}, "16", "CPU 16 is offline", "0-2"),
        (LIMITED, {"mask": "7-8"}, "7-8", f"CPU 8 is {NOT_ALLOWED}", "7"),
        (LIMITED, {"mask": "8|9", "ranks": 2}, "8", f"CPU 8 is {NOT_ALLOWED}", "0|1"),
        (LIMITED, {"mask": "99", "allow_partial": True}, "99", "no CPU is left in this part of the mask",
         "0"),
        (DUAL, {"mask": "0-3|1,^1", "ranks": 2}, "1,^1", "no CPU is left in this part of the mask", "0-3|4"),
        (DUAL, {"mask": "1,^1"}, "1,^1", "no CPU is left in this part of the mask", "1"),
        (DUAL, {"mask": "^all"}, "^all", "no CPU is left in this part of the mask", "all"),
        (DUAL, {"mask": "0,node:2"}, "node:2", "there is no node with index 2 among the allowed CPUs",
         "0,node:0-1"),
        (DUAL, {"mask": "node:1|node:2", "ranks": 2}, "node:2",
         "there is no node with index 2 among the allowed CPUs", "node:1|node:0"),
        (DUAL, {"mask": "0,node:1.core:2-9"}, "core:2-9",
         "there is no core with index 4-9 among the allowed CPUs of the selector before it",
         "0,node:1.core:2-3"),
        (DUAL, {"mask": "node:#0-7"}, "node:#0-7",
         "there is no node with OS number 2-7 among the allowed CPUs", "node:#0-1"),
        (DUAL, {"mask": "all,^node:2"}, "node:2",
         "there is no node with index 2 among the allowed CPUs", "all"),
        (DUAL, {"mask": "core:#0"}, "core:#0", "core domains have no OS numbers on this machine", "core:0"),
        (DUAL, {"mask": "book:0"}, "book:0", "this machine has no book domains", "all"),
        (DUAL, {"mask": "package:1.die:0.core:0"}, "die:0", "this machine has no die domains",
         "package:1.core:0"),
        (SECOND, {"mask": "node:#0-1"}, "node:#0-1", "no CPU of NUMA node 0 is allowed", "node:#1"),
        (SECOND, {"mask": "node:#2"}, "node:#2", "NUMA node 2 has no CPU", "node:#1"),
        (HYBRID, {"mask": "0|1-3", "ranks": 2, "core_kind": "efficiency"}, "0",
         "this part of the mask names no efficiency core", "6|7,15,14"),
        (DUAL, {"mask": "0-3|4-7"}, "4-7", "the mask has 2 parts for 1 rank", "0-3,4-7"),
        (DUAL, {"mask": "0-3|4-5|6", "ranks": 2}, "6", "the mask has 3 parts for 2 ranks", "0-3,4-5,6"),
        (DUAL, {"mask": "0-1|2-3", "ranks": 3}, "0-1|2-3", "the mask has 2 parts for 3 ranks", "0-1|2-3|4-5"),
        (DUAL, {"mask": "node:0|node:1", "ranks": 3}, "node:0|node:1", "the mask has 2 parts for 3 ranks",
         "node:0,node:1"),
        (DUAL, {"mask": "0-3|4|7,1-2", "ranks": 3}, "7,1-2", "ranks 0 and 2 would both get CPUs 1-2",
         "0-3|4|7"),
        (DUAL, {"mask": "0-3|2-5", "ranks": 2}, "2-5", "ranks 0 and 1 would both get CPUs 2-3", "0-3|4-5"),
        (DUAL, {"mask": "0|all", "ranks": 2}, "all", "ranks 0 and 1 would both get CPU 0", "0|all,^0"),
        (DUAL, {"mask": "0|^9", "ranks": 2}, "^9", "ranks 0 and 1 would both get CPU 0", "0|^9,^0"),
        (DUAL, {"mask": "0-1|1,0", "ranks": 2}, "1,0", "ranks 0 and 1 would both get CPUs 0-1", "0-1|2-3"),
        (DUAL, {"mask": "0|8", "ranks": 2, "smt": 1}, "8",
         "CPUs 0,8 share one core, but --smt 1 allows 1 CPU per core", "0|1"),
        (DUAL, {"mask": "0-3|11,4", "ranks": 2, "reserve": 1}, "0-3",
         "CPU 11 would be reserved for rank 0 but used by another rank", "0-3|4-5"),
    ],
)  # fmt: skip
def test_errors_mark_the_text_and_suggest_a_mask_that_works(machine, options, marked, message, suggestion):
    request = Request(**options | {"mask": parse_mask(options["mask"])})
    with pytest.raises(MaskError) as caught:
        make_plan(machine, request)
    error = caught.value
    assert (error.text[slice(*error.span)], error.message) == (marked, message)
    assert error.hint
    assert error.suggestion == suggestion
    make_plan(machine, request.replace(mask=parse_mask(suggestion)))


requests = st.builds(
    dict,
    ranks=st.sampled_from([None, 1, 2, 2, 3, 4]),
    strategy=st.sampled_from(["balanced", "balanced", "compact", "nodes", "cores", "books"]),
    smt=st.sampled_from(["auto", "all", 1, 2]),
    sibling=st.sampled_from(["first", "last"]),
    threads=st.sampled_from([None, None, 2]),
    sharing=st.sampled_from([Sharing.WARN, Sharing.WARN, Sharing.SHARE, Sharing.AVOID]),
    allow_partial=st.sampled_from([False, False, True]),
    core_kind=st.sampled_from(["all", "all", "performance", "efficiency"]),
) | st.builds(
    dict,
    ranks=st.sampled_from([None, 2, 3]),
    reserve=st.sampled_from([0, 1, 2]),
    smt=st.sampled_from(["auto", 1]),
) | st.builds(dict, reserve_total=st.sampled_from([1, 2]))  # fmt: skip


def can_plan(machine, request, text, runs=()):
    try:
        planner.make_plan(machine, request.replace(mask=parse_mask(text)), runs)
    except OmpbindError:
        return False
    return True


@examples(3)
@given(broken() | masks().map(lambda made: made[0]), machines(), requests, st.data())
def test_suggestions_work_in_the_same_request(text, machine, options, data):
    runs = ()
    if options.get("sharing") is Sharing.AVOID:
        cpus = CpuSet(data.draw(st.sets(st.sampled_from(list(machine.online)), min_size=1, max_size=3)))
        runs = (LiveRun(run_id="a", pid=1, uid=0, started=0, ranks=((0, cpus),), claimed=cpus),)
    try:
        request = Request(mask=parse_mask(text), **options)
        plan_or_suggest(machine, request, runs)
    except MaskError as error:
        start, stop = error.span
        assert 0 <= start < stop <= len(text) + 1
        assert all(len(line) <= WIDTH for line in render_error(error).splitlines())
        if "request" not in locals():
            parse_mask(error.suggestion)
        elif error.suggestion:
            assert can_plan(machine, request, error.suggestion, runs)
        else:
            words = ("auto", "all", str(machine.allowed))
            assert not any(can_plan(machine, request, mask, runs) for mask in words)
    except OmpbindError:
        assume(False)


@examples(1.5)
@given(st.lists(masks(max_parts=1), min_size=2, max_size=4), machines(), st.data())
def test_suggestions_for_overlapping_parts_do_not_overlap(made, machine, data):
    text = "|".join(part for part, _ in made)
    ranks = data.draw(st.sampled_from([len(made), None]))
    request = Request(mask=parse_mask(text), ranks=ranks, smt=data.draw(st.sampled_from(["auto", 1])))
    try:
        make_plan(machine, request)
    except MaskError as error:
        assert error.suggestion or not can_plan(machine, request, "auto")
        assert not error.suggestion or can_plan(machine, request, error.suggestion)


def hint_of(rendered):
    """Return the mask that a hint suggests, as a shell would read it."""
    found = re.search(r"try\s(?:  )?(--mask '[^']*')", rendered)
    return shlex.split(found[1])[1] if found else None


@given(
    st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=30), min_size=1, max_size=9)
    | st.lists(st.just([7]), min_size=40, max_size=90)
)
def test_printed_suggestions_can_be_copied(lists):
    text = "|".join(",".join(map(str, cpus)) for cpus in lists)
    error = MaskError("no", text=text, span=(0, 1))
    error.suggestion = text
    rendered = render_error(error)
    assert all(len(line) <= WIDTH for line in rendered.splitlines())
    assert len(rendered.splitlines()) <= 9
    copied = hint_of(rendered)
    assert (copied is None) == (len(text) > COPYABLE)
    assert copied is None or parse_mask(copied).canonical == parse_mask(text).canonical


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda items: items.insert(500, "x"), "try without 'x'"),
        (lambda items: items.insert(500, ""), "try without ''"),
        (lambda items: items.insert(500, "3-1"), "try '1-3' in place of '3-1'"),
        (lambda items: items.append("9-8"), "try '8-9' in place of '9-8'"),
        (lambda items: items.insert(0, "node"), "try 'node:0' in place of 'node'"),
        (lambda items: items.insert(500, "x" * 3000), f"try without '{'x' * 57}...'"),
    ],
)
def test_errors_in_long_masks_show_the_position_and_the_change(change, expected):
    items = [str(7 * i % 101) for i in range(1000)]
    change(items)
    with pytest.raises(MaskError) as caught:
        parse_mask(",".join(items))
    rendered = render_error(caught.value)
    lines = rendered.splitlines()
    assert expected in rendered.replace("\n  ", " ")
    assert len(lines) <= 7
    assert all(len(line) <= WIDTH for line in lines)
    shown, marks = lines[1], lines[2]
    begin = marks.index("^")
    marked = caught.value.text[slice(*caught.value.span)]
    assert shown[begin : begin + len(marks.strip())] == marked[: len(marks.strip())]


def test_terminal_control_characters_are_not_printed():
    with pytest.raises(MaskError) as caught:
        parse_mask("0,\x1b[31m,\r1")
    assert "\x1b" not in render_error(caught.value)
    assert "\r" not in render_error(caught.value)


def test_masks_that_work_get_the_same_plan_as_without_suggestions():
    request = Request(ranks=2, mask=parse_mask("0-3|4-7"))
    assert make_plan(DUAL, request) == planner.make_plan(DUAL, request)


def test_a_large_mask_is_corrected_in_time():
    """As many parts as cores, on a machine with 2,048 CPUs, every second CPU named twice."""
    machine = make_machine(Shape(packages=2, nodes=4, cores=128, smt=2))
    text = "|".join(f"{rank},{rank + 1}" for rank in range(0, 1024, 2)) + "|5000"
    request = Request(ranks=None, mask=Mask(text=text, parts=parse_mask(text).parts))
    with pytest.raises(MaskError) as caught:
        make_plan(machine, request)
    assert can_plan(machine, request, caught.value.suggestion)


def test_the_command_suggests_masks_that_it_accepts():
    command = [
        sys.executable,
        "-m",
        "ompbind",
        "plan",
        "--topology",
        "synthetic:pack:2 core:4 pu:2",
        "-n",
        "2",
    ]

    def run(mask):
        return subprocess.run(
            [*command, "--mask", mask], capture_output=True, text=True, env=clean_environment(), timeout=60
        )

    for mask in ("package:0|package:2", "0-3|1,5", "0-3|4-99", "0-3|5-4"):
        failed = run(mask)
        assert failed.returncode == 2
        assert run(hint_of(failed.stderr)).returncode == 0, failed.stderr
