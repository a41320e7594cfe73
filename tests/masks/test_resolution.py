"""Masks on machines: the CPUs that they name, and errors."""

import re
import shlex
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ompbind.cli.register import plan_or_suggest
from ompbind.cpuset import CpuSet
from ompbind.errors import MaskError, OmpbindError
from ompbind.machine.model import Node
from ompbind.machine.read import read_machine
from ompbind.masks.mask import parse_mask
from ompbind.masks.resolution import UsableCpus, resolve_mask
from ompbind.planning import planner
from ompbind.planning.other_runs import LiveRun
from ompbind.planning.request import Request, Sharing
from ompbind.report.text import WIDTH, render_error
from tests.long import examples
from tests.machines import Shape, make_kinds, make_machine
from tests.mask_texts import broken, masks
from tests.planning.test_promises import machines

ALL = parse_mask("all")
DUAL = make_machine(Shape(packages=2, cores=4, smt=2))  # CPUs 0-7 and their siblings 8-15
CAUSES = ((CpuSet([8, 10]), "by one"), (CpuSet([9]), "by another"))
LIMITED = DUAL.replace(allowed=CpuSet(range(8)), offline=CpuSet([16, 17]), restrictions=CAUSES)
ODD = DUAL.replace(allowed=CpuSet([5, 6, 13]))
WITHOUT_CPUS = Node(number=2, cpus=CpuSet(), memory_bytes=1)
SECOND = DUAL.replace(allowed=CpuSet(range(4, 8)), offline=CpuSet([16]), nodes=(*DUAL.nodes, WITHOUT_CPUS))
SNC = read_machine("synthetic:pack:2 l3:1 numa:2 core:2 pu:1")  # each L3 spans two nodes of two CPUs
HYBRID = DUAL.replace(kinds=make_kinds(*map(CpuSet.from_list, ("0-5,8-13", "6-7,14-15"))))


def resolve(text, machine=DUAL, **options):
    return resolve_mask(parse_mask(text), UsableCpus(machine=machine, free=machine.allowed), **options)


@pytest.mark.parametrize(("machine", "text", "expected"), [
    (DUAL, "3,1,2,1", [(3, 1, 2)]),
    (DUAL, "node:1", [(4, 12, 5, 13, 6, 14, 7, 15)]), (DUAL, "package:1.core:0-1", [(4, 12, 5, 13)]),
    (DUAL, "node:#1.core:3", [(7, 15)]), (DUAL, "node:0-1.core:0", [(0, 8, 4, 12)]),
    (DUAL, "^node:0,^8-15", [(4, 5, 6, 7)]), (DUAL, "0-3|4-7", [(0, 1, 2, 3), (4, 5, 6, 7)]),
    (DUAL, "all,^8-15,^0", [(1, 2, 3, 4, 5, 6, 7)]),
    # a selector selects only within the selector before it
    (SNC, "node:0.l3:0", [(0, 1)]), (SNC, "l3:0.node:1", [(2, 3)]), (SNC, "l3:1.node:0", [(4, 5)]),
    (SNC, "node:0.l3:0,node:3.l3:0", [(0, 1, 6, 7)]), (SNC, "node:1.l3:0.core:0", [(2,)]),
    # logical numbers count among the allowed
    (ODD, "core:0", [(5, 13)]), (ODD, "node:0", [(5, 13, 6)]),
    (ODD, "node:#1", [(5, 13, 6)]), (ODD, "all", [(5, 13, 6)]),
    # existing CPUs that are not allowed can be excluded
    (SECOND, "all,^node:#0,^0-4,^16", [(5, 6, 7)]),
])  # fmt: skip
def test_names_cpus_in_order(machine, text, expected):
    assert resolve(text, machine) == (tuple(expected), ())


def test_partial_masks_drop_and_report_unusable_cpus_and_domains():
    parts, dropped = resolve("6-20", LIMITED, allow_partial=True)
    assert parts == ((6, 7),)
    reasons = ["CPUs 18-20 do not exist", "CPUs 16-17 are offline", "CPUs 8-15 are not allowed"]
    assert [text.split(" on ")[0].split(":")[0] for text in dropped] == reasons
    parts, dropped = resolve("node:1-3,package:0-1.core:3-4", allow_partial=True)
    assert parts == ((4, 12, 5, 13, 6, 14, 7, 15, 3, 11),)
    assert ["node with index 2-3" in dropped[0], "core with index 4" in dropped[1]] == [True, True]
    with pytest.raises(MaskError, match="no CPU is left"):
        resolve("99", LIMITED, allow_partial=True)


def test_a_number_without_a_cpu_may_be_a_hex_mask():
    for mask, hint in (("20", "a hex mask is written -m 0x20"), ("20000", ""), ("20-21", "")):
        with pytest.raises(MaskError) as caught:
            resolve(mask)
        assert caught.value.hint == "; ".join(filter(None, ("allowed CPUs: 0-15", hint)))


LEFT = "no CPU is left in this part"


@pytest.mark.parametrize(("machine", "ranks", "mask", "marked", "message"), [
    (DUAL, 2, "0-3|4-17", "4-17", "CPUs 16-17 do not exist"),
    (DUAL, 1, "0-3,^99", "^99", "CPU 99 does not exist"), (LIMITED, 1, "0-2,16", "16", "CPU 16 is offline"),
    (LIMITED, 1, "7-8", "7-8", "CPU 8 is not allowed: by one$"),
    (DUAL, 2, "0-3|1,^1", "1,^1", LEFT), (DUAL, 1, "^all", "^all", LEFT),
    (DUAL, 2, "node:1|node:2", "node:2", "no node with index 2"),
    (DUAL, 1, "0,node:1.core:2-9", "core:2-9", "core with index 4-9"),
    (DUAL, 1, "all,^node:2", "node:2", "no node with index 2"),
    (DUAL, 1, "core:#0", "core:#0", "core domains have no OS numbers"),
    (DUAL, 1, "book:0", "book:0", "this machine has no book domains"),
    (DUAL, 1, "package:1.die:0.core:0", "die:0", "has no die domains"),
    (SECOND, 1, "node:#0-1", "node:#0-1", "no CPU of NUMA node 0 is allowed"),
    (SECOND, 1, "node:#2", "node:#2", "NUMA node 2 has no CPU"),
    (DUAL, 1, "0-3|4-7", "4-7", "2 parts for 1 rank"), (DUAL, 2, "0-3|4-5|6", "6", "3 parts for 2 ranks"),
    (DUAL, 3, "0-1|2-3", "0-1|2-3", "2 parts for 3 ranks"),
    (DUAL, 3, "0-3|4|7,1-2", "7,1-2", "ranks 0 and 2 would both get CPUs 1-2"),
    (DUAL, 2, "0|^9", "^9", "ranks 0 and 1 would both get CPU 0"),
    # of two ranks, with options that the mask contradicts
    (HYBRID, {"core_kind": "efficiency"}, "0|1-3", "0", "names no efficiency core"),
    (HYBRID, {"smt": 1}, "0-1|9", "9", "CPUs 1,9 share one core, but --smt 1 allows 1 CPU per core"),
    (HYBRID, {"reserve": 1}, "0,2|1,10", "1,10", "reserved for rank 1 but reserved for another"),
    (HYBRID, {"reserve": 1}, "0-3|11,4", "0-3", "CPU 11 would be reserved for rank 0 but used by"),
])  # fmt: skip
def test_errors_mark_the_text(machine, ranks, mask, marked, message):
    options = {"ranks": 2, **ranks} if isinstance(ranks, dict) else {"ranks": ranks}
    with pytest.raises(MaskError, match=message) as caught:
        planner.make_plan(machine, Request(mask=parse_mask(mask), **options))
    assert caught.value.text[slice(*caught.value.span)] == marked
    assert caught.value.hint


requests = st.builds(
    dict, ranks=st.sampled_from(["auto", 1, 2, 2, 3, 4]), smt=st.sampled_from(["auto", "all", 1, 2]),
    strategy=st.sampled_from(["balanced", "balanced", "compact", "nodes", "cores", "books"]),
    sibling=st.sampled_from(["first", "last"]), threads=st.sampled_from([None, None, 2]),
    sharing=st.sampled_from([Sharing.WARN, Sharing.WARN, Sharing.SHARE, Sharing.AVOID]),
    allow_partial=st.sampled_from([False, False, True]),
    core_kind=st.sampled_from(["all", "all", "performance", "efficiency"]),
) | st.builds(
    dict, ranks=st.sampled_from(["auto", 2, 3]), reserve=st.integers(0, 2), smt=st.sampled_from(["auto", 1])
) | st.builds(dict, reserve_total=st.sampled_from([1, 2]))  # fmt: skip


one_part = masks(max_parts=1).map(lambda made: made[0])
several_parts = st.lists(one_part, min_size=2, max_size=4).map("|".join)
some_text = broken() | st.text(alphabet="0123456789-,|^:./#xafnodel ", max_size=30) | st.text(max_size=30)


@examples(3)
@given(some_text | masks().map(lambda made: made[0]) | several_parts, machines(), requests, st.data())
def test_errors_have_a_position_and_name_all_cpus_only_if_these_can_be_planned(text, machine, options, data):
    runs, request = (), None
    if options.get("sharing") is Sharing.AVOID:
        cpus = CpuSet(data.draw(st.sets(st.sampled_from(list(machine.online)), min_size=1, max_size=3)))
        runs = (LiveRun(run_id="a", pid=1, uid=0, started=0, ranks=((0, cpus),), claimed=cpus),)
    try:
        request = Request(mask=parse_mask(text), **options)
        plan_or_suggest(machine, request, runs)
    except MaskError as error:
        start, stop = error.span
        assert 0 <= start < stop <= len(text) + 1
        lines = re.sub("'[^'\n]*'", "''", render_error(error)).splitlines()  # what can be copied stays whole
        assert all(len(line) <= WIDTH for line in lines)
        if request is not None:
            assert ("--mask all" in error.hint) == can_plan(machine, request.replace(mask=ALL), runs)
            for mask in find_masks(error.hint):
                assert can_plan(machine, request.replace(mask=parse_mask(mask)), runs), error.hint
    except OmpbindError:
        assume(False)


def find_masks(hint):
    words = shlex.split(hint.replace(";", " ").replace("?", " "))
    return [mask for option, mask in pairwise(words) if option in ("-m", "--mask") and mask != "names"]


def can_plan(machine, request, runs):
    try:
        planner.make_plan(machine, request, runs)
    except OmpbindError:
        return False
    return True
